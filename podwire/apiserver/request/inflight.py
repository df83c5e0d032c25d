"""Places for requests in flight: overload is told, not suffered, and nobody's overload is everybody's."""

import contextlib
from collections import Counter
from collections.abc import Iterator

from podwire.apiserver.identity.users import MASTERS, User
from podwire.protocols.k8sapi.status import ApiError, Reason


class InflightLimit:
    """So many for all, and half of them for any one user but the masters: a request that drips in, or waits for a
    revision that never comes, holds its place for as long as it likes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._share = max(1, limit // 2)
        self._in_flight = 0
        self._by_user: Counter[str] = Counter()

    @contextlib.contextmanager
    def hold(self, user: User) -> Iterator[None]:
        """Hold a place; 429 when there is none."""
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
