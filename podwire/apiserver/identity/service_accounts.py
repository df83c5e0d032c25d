"""Whether what a token stands for is still there, asked of the store."""

from dataclasses import dataclass

from podwire.apiserver.ports import Store
from podwire.kinds.resource import PREFIX
from podwire.kinds.stored import unpack

_PLACES = {"Pod": "pods", "Secret": "secrets", "Node": "minions"}


@dataclass(frozen=True, slots=True)
class StoredServiceAccounts:
    """Looks service accounts and bound objects up by name and uid."""

    store: Store

    async def exists(self, namespace: str, name: str, uid: str) -> bool:
        return await self._is(f"serviceaccounts/{namespace}/{name}", uid)

    async def bound_exists(self, kind: str, namespace: str, name: str, uid: str) -> bool:
        where = f"{namespace}/{name}" if namespace else name
        return await self._is(f"{_PLACES[kind]}/{where}", uid)

    async def _is(self, place: str, uid: str) -> bool:
        item = await self.store.get(PREFIX + place)
        return item is not None and unpack(item)["metadata"]["uid"] == uid
