"""Looks up in the store whether the objects that a token names still exist."""

import base64
import hmac
from dataclasses import dataclass

import msgspec

from podwire.apiserver.ports import Store
from podwire.interfaces import Clock
from podwire.kinds.resource import PREFIX
from podwire.objects import times

LEEWAY = 60.0
"""Seconds for which a token outlives the deletion time of an object that still exists, because finalizers or a kubelet
that does not answer keep it; upstream's number."""

_PREFIXES = {"Pod": "pods", "Secret": "secrets", "Node": "minions"}


INVALID_SINCE = "kubernetes.io/legacy-token-invalid-since"
"""A label: the token of a Secret with it is refused."""


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    uid: str = ""
    deletion_timestamp: str = ""
    labels: dict[str, str] | None = None


class _Identified(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()


class _Secret(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()
    data: dict[str, str] | None = None


_read_secret = msgspec.json.Decoder(_Secret).decode
_read = msgspec.json.Decoder(_Identified).decode


@dataclass(frozen=True, slots=True)
class StoredServiceAccounts:
    """Looks up service accounts and bound objects by name and uid."""

    store: Store
    clock: Clock

    async def exists(self, namespace: str, name: str, uid: str) -> bool:
        return await self._is(f"serviceaccounts/{namespace}/{name}", uid)

    async def bound_exists(self, kind: str, namespace: str, name: str, uid: str) -> bool:
        where = f"{namespace}/{name}" if namespace else name
        return await self._is(f"{_PREFIXES[kind]}/{where}", uid)

    async def secret_has_token(self, namespace: str, name: str, token: str) -> bool:
        item = await self.store.get(f"{PREFIX}secrets/{namespace}/{name}")
        secret = _read_secret(item.value) if item is not None else _Secret()
        if secret.metadata.deletion_timestamp or (secret.metadata.labels or {}).get(INVALID_SINCE):
            return False
        stored = (secret.data or {}).get("token") or ""
        return hmac.compare_digest(stored.encode(), base64.b64encode(token.encode()))

    async def _is(self, place: str, uid: str) -> bool:
        item = await self.store.get(PREFIX + place)
        if item is None or (metadata := _read(item.value).metadata).uid != uid:
            return False
        deleted = metadata.deletion_timestamp
        return not deleted or self.clock.wall() - times.parse(deleted) < LEEWAY
