"""Tokens for the service accounts of pods: asked for once, bound to the pod, asked for anew before they end."""

import asyncio
from dataclasses import dataclass
from weakref import WeakValueDictionary

from podwire.interfaces import Clock
from podwire.kubelet.ports import Api
from podwire.kubelet.volumes.errors import VolumeError
from podwire.objects import times
from podwire.objects.pods import Pod
from podwire.objects.volumes import TokenSource
from podwire.protocols.k8sapi.client_side import ClientError
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object

USED_LIFE = 0.8
"""The part of its life after which a token is replaced."""
LONGEST_USE = 24 * 3600.0
"""After so many seconds even one that lives longer is."""
RETRY_SECONDS = 10.0
"""Between two tries to replace one."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """Equal for two files that can hold the same token."""

    uid: str
    account: str
    audience: str
    seconds: int


@dataclass(frozen=True, slots=True)
class _Token:
    """Moments are of the monotonic clock: what people do to the wall's does not end tokens early or late."""

    text: str
    due: float
    ends: float


class Tokens:
    def __init__(self, api: Api, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._tokens: dict[_Asked, _Token] = {}
        self._turns: WeakValueDictionary[_Asked, asyncio.Lock] = WeakValueDictionary()

    async def get(self, pod: Pod, source: TokenSource) -> str:
        """A token that is good for a while; the old one when no new one is to be had and it has not ended yet."""
        asked = _Asked(pod.uid, pod.spec.service_account_name or "default", source.audience, source.expiration_seconds)
        async with self._turns.setdefault(asked, asyncio.Lock()):  # files of the same token ask once
            return await self._get(pod, source, asked)

    async def _get(self, pod: Pod, source: TokenSource, asked: _Asked) -> str:
        now = self._clock.monotonic()
        known = self._tokens.get(asked)
        if known is not None and now < known.due:
            return known.text
        try:
            answer = await self._api.token(asked.account, pod.namespace, _request(pod, source))
            token = self._read(answer)
        except (ApiError, ClientError) as error:
            if known is not None:
                self._tokens[asked] = _Token(known.text, now + RETRY_SECONDS, known.ends)
            if known is None or now >= known.ends:
                raise VolumeError(f"failed to fetch token: {error}") from error
            return known.text
        self._tokens[asked] = token
        return token.text

    def forget(self, uid: str) -> None:
        for each in [each for each in self._tokens if each.uid == uid]:
            del self._tokens[each]

    def next_due(self) -> float | None:
        """When, on the monotonic clock, the first token is to be replaced."""
        return min((each.due for each in self._tokens.values()), default=None)

    def due(self) -> set[str]:
        """The uids of pods with a token that is to be replaced now."""
        now = self._clock.monotonic()
        return {asked.uid for asked, token in self._tokens.items() if now >= token.due}

    def _read(self, answer: Object) -> _Token:
        status = answer.get("status") or {}
        text, granted = status.get("token", ""), (answer.get("spec") or {}).get("expirationSeconds")
        if not text:
            raise VolumeError("failed to fetch token: the API server sent none")
        if not granted:
            granted = times.parse(status["expirationTimestamp"]) - self._clock.wall()
        now = self._clock.monotonic()
        return _Token(text, now + min(granted * USED_LIFE, LONGEST_USE), now + granted)


def _request(pod: Pod, source: TokenSource) -> Object:
    """The spec of a TokenRequest: the token ends with the pod."""
    bound = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}
    audiences = {"audiences": [source.audience]} if source.audience else {}
    return {**audiences, "expirationSeconds": source.expiration_seconds, "boundObjectRef": bound}
