"""Service account tokens of pods: requested once, bound to the pod, and refreshed before they expire."""

import asyncio
from dataclasses import dataclass, replace
from weakref import WeakValueDictionary

from podwire.interfaces import Clock
from podwire.kubelet.volumes.errors import VolumeError
from podwire.objects import times
from podwire.objects.pods import Pod
from podwire.objects.volumes import TokenSource
from podwire.protocols.k8sapi.client_side import Client, ClientError
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object

USED_LIFE = 0.8
"""The part of its lifetime after which a token is refreshed."""
LONGEST_USE = 24 * 3600.0
"""Seconds after which a token is refreshed in any case."""
RETRY_SECONDS = 10.0
"""Between two attempts to refresh a token."""


@dataclass(frozen=True, slots=True)
class _Key:
    """Equal for two files that can share a token."""

    uid: str
    account: str
    audience: str
    seconds: int


@dataclass(frozen=True, slots=True)
class _Token:
    """Times are monotonic, so that changes of the wall clock do not matter."""

    text: str
    due: float
    expires: float
    expiration: str = ""
    """As the API server said it."""


class Tokens:
    def __init__(self, api: Client, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._tokens: dict[_Key, _Token] = {}
        self._locks: WeakValueDictionary[_Key, asyncio.Lock] = WeakValueDictionary()

    async def get(self, pod: Pod, source: TokenSource) -> str:
        """A token; the old one if no new one can be had and it has not expired yet. Raises VolumeError."""
        return (await self.get_status(pod, source))[0]

    async def get_status(self, pod: Pod, source: TokenSource) -> tuple[str, str]:
        """The token and its expirationTimestamp, in the same way."""
        key = _Key(pod.uid, pod.spec.service_account_name or "default", source.audience, source.expiration_seconds)
        async with self._locks.setdefault(key, asyncio.Lock()):  # files that share a token request it once
            token = await self._get(pod, source, key)
            return token.text, token.expiration

    async def _get(self, pod: Pod, source: TokenSource, key: _Key) -> _Token:
        now = self._clock.monotonic()
        known = self._tokens.get(key)
        if known is not None and now < known.due:
            return known
        try:
            answer = await self._api.token(key.account, pod.namespace, _request(pod, source))
            token = self._read(answer)
        except (ApiError, ClientError) as error:
            if known is not None:
                self._tokens[key] = replace(known, due=now + RETRY_SECONDS)
            if known is None or now >= known.expires:
                raise VolumeError(f"failed to fetch token: {error}") from error
            return known
        self._tokens[key] = token
        return token

    def forget(self, uid: str) -> None:
        for key in [key for key in self._tokens if key.uid == uid]:
            del self._tokens[key]

    def next_due(self) -> float | None:
        """The monotonic time when the first token is to be refreshed."""
        return min((token.due for token in self._tokens.values()), default=None)

    def due(self) -> set[str]:
        """The uids of pods with a token that is to be refreshed now."""
        now = self._clock.monotonic()
        return {key.uid for key, token in self._tokens.items() if now >= token.due}

    def _read(self, answer: Object) -> _Token:
        status = answer.get("status") or {}
        text, granted = status.get("token", ""), (answer.get("spec") or {}).get("expirationSeconds")
        if not text:
            raise VolumeError("failed to fetch token: the API server's response has no token")
        if not granted:
            granted = times.parse(status["expirationTimestamp"]) - self._clock.wall()
        now = self._clock.monotonic()
        due, expiration = now + min(granted * USED_LIFE, LONGEST_USE), status.get("expirationTimestamp") or ""
        return _Token(text, due, now + granted, expiration)


def _request(pod: Pod, source: TokenSource) -> Object:
    """The spec of a TokenRequest: the token is bound to the pod."""
    bound = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}
    audiences = {"audiences": [source.audience]} if source.audience else {}
    return {**audiences, "expirationSeconds": source.expiration_seconds, "boundObjectRef": bound}
