"""Limits in-flight requests: answers 429 instead of queueing; one user gets at most half of the slots."""

import contextlib
from collections import Counter
from collections.abc import Iterator

from podwire.apiserver.identity.users import MASTERS, User
from podwire.protocols.k8sapi.status import ApiError, Reason


class InflightLimit:
    """Slots for requests. A user other than system:masters gets at most half of them, because a slow request (a body
    that trickles in, a wait for a future revision) holds its slot for a long time."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._share = max(1, limit // 2)
        self._in_flight = 0
        self._by_user: Counter[str] = Counter()

    @contextlib.contextmanager
    def hold(self, user: User) -> Iterator[None]:
        """Holds a slot; raises 429 when none is free."""
        greedy = self._by_user[user.name] >= self._share and MASTERS not in user.groups
        if self._in_flight >= self._limit or greedy:
            raise _too_many_requests()
        self._in_flight += 1
        self._by_user[user.name] += 1
        try:
            yield
        finally:
            self._in_flight -= 1
            self._by_user[user.name] -= 1
            if not self._by_user[user.name]:
                del self._by_user[user.name]


def _too_many_requests() -> ApiError:
    return ApiError(
        Reason.TOO_MANY_REQUESTS,
        "Too many requests, please try again later.",
        details={"retryAfterSeconds": 1},
        headers=(("Retry-After", "1"),),
    )
