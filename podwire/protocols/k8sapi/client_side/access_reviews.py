"""Authentication and authorization of a component's callers by the API server: TokenReview, SubjectAccessReview."""

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from podwire.interfaces import Clock
from podwire.protocols.k8sapi.client_side.client import Client
from podwire.protocols.k8sapi.client_side.http import ClientError
from podwire.protocols.k8sapi.server_side import Request
from podwire.protocols.k8sapi.status import ApiError, Reason

MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"
CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"
TOKEN_SECONDS = 60.0
ALLOWED_SECONDS = 60.0
REFUSED_SECONDS = 10.0
REMEMBERED = 1000
"""Cached answers; the oldest is dropped."""


@dataclass(frozen=True, slots=True)
class Caller:
    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


class AccessReviews:
    """Answers are cached for a while, as upstream's components do."""

    def __init__(self, api: Client, clock: Clock) -> None:
        self._api = api
        self._callers: _Cache[Caller | None] = _Cache(clock)
        self._rights: _Cache[str] = _Cache(clock)

    async def caller(self, request: Request) -> Caller:
        """Returns the sender of a request, by its certificate or its token. Raises ApiError."""
        if (certificate := request.certificate) is not None:
            credential = (
                ((CREDENTIAL_ID, (f"X509SHA256={certificate.fingerprint}",)),) if certificate.fingerprint else ()
            )
            return Caller(certificate.common_name, (*certificate.organizations, AUTHENTICATED), extra=credential)
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not token.strip():
            raise ApiError(Reason.UNAUTHORIZED, "Unauthorized")
        key = (hashlib.sha256(token.encode()).hexdigest(),)
        caller = await self._callers.get(key, lambda: self._authenticate(token.strip()))
        if caller is None:
            raise ApiError(Reason.UNAUTHORIZED, "Unauthorized")
        return caller

    async def denial(self, caller: Caller, attributes: Mapping[str, Mapping[str, str]]) -> str:
        """Returns an empty text if a SubjectAccessReview of these attributes allows it; else the API server's reason,
        for the end of a message. Raises ApiError without an answer."""
        if MASTERS in caller.groups:
            return ""
        parts = (part for fields in attributes.values() for part in fields.items())
        words = (word for part in parts for word in part)
        key = (caller.name, caller.uid, repr(caller.extra), *caller.groups, *attributes, *words)
        return await self._rights.get(key, lambda: self._authorize(caller, attributes))

    async def _authenticate(self, token: str) -> tuple[Caller | None, float]:
        status = await self._review("authentication.k8s.io/v1", "TokenReview", {"token": token})
        if not status.get("authenticated"):
            return None, REFUSED_SECONDS
        user = status.get("user", {})
        extra = tuple((name, tuple(values)) for name, values in user.get("extra", {}).items())
        caller = Caller(user.get("username", ""), tuple(user.get("groups", ())), user.get("uid", ""), extra)
        return caller, TOKEN_SECONDS

    async def _authorize(self, caller: Caller, attributes: Mapping[str, Mapping[str, str]]) -> tuple[str, float]:
        spec = {"user": caller.name, "groups": list(caller.groups), "uid": caller.uid, **attributes}
        if caller.extra:
            spec["extra"] = {name: list(values) for name, values in caller.extra}
        status = await self._review("authorization.k8s.io/v1", "SubjectAccessReview", spec)
        if status.get("allowed"):
            return "", ALLOWED_SECONDS
        return f": {status['reason']}" if status.get("reason") else ".", REFUSED_SECONDS

    async def _review(self, version: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
        try:
            answer = await self._api.create({"apiVersion": version, "kind": kind, "metadata": {}, "spec": spec})
        except (ApiError, ClientError) as error:
            raise ApiError(Reason.INTERNAL_ERROR, f"the API server did not answer a {kind}: {error}") from error
        status: dict[str, Any] = answer.get("status", {})
        return status


Value = TypeVar("Value")


class _Cache(Generic[Value]):
    """Answers that are valid for a while."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._answers: dict[tuple[str, ...], tuple[Value, float]] = {}

    async def get(self, key: tuple[str, ...], ask: Callable[[], Awaitable[tuple[Value, float]]]) -> Value:
        now = self._clock.monotonic()
        known = self._answers.get(key)
        if known is not None and known[1] > now:
            return known[0]
        answer, seconds = await ask()
        self._answers.pop(key, None)
        self._answers[key] = (answer, self._clock.monotonic() + seconds)
        if len(self._answers) > REMEMBERED:
            del self._answers[next(iter(self._answers))]
        return answer
