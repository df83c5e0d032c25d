"""Looks up in the store whether the objects that a token names still exist."""

from dataclasses import dataclass

from podwire.apiserver.ports import Store
from podwire.kinds.resource import PREFIX
from podwire.kinds.stored import unpack

_PREFIXES = {"Pod": "pods", "Secret": "secrets", "Node": "minions"}


@dataclass(frozen=True, slots=True)
class StoredServiceAccounts:
    """Looks up service accounts and bound objects by name and uid."""

    store: Store

    async def exists(self, namespace: str, name: str, uid: str) -> bool:
        return await self._is(f"serviceaccounts/{namespace}/{name}", uid)

    async def bound_exists(self, kind: str, namespace: str, name: str, uid: str) -> bool:
        where = f"{namespace}/{name}" if namespace else name
        return await self._is(f"{_PREFIXES[kind]}/{where}", uid)

    async def _is(self, place: str, uid: str) -> bool:
        item = await self.store.get(PREFIX + place)
        return item is not None and unpack(item)["metadata"]["uid"] == uid
