"""Informer that keeps the RBAC cache up to date."""

import asyncio
import logging
from functools import partial

import msgspec

from podwire.apiserver.identity.rbac import PLACES, Roles
from podwire.apiserver.ports import Store
from podwire.apiserver.read.informer import follow
from podwire.protocols.storage import Change, Item

_log = logging.getLogger("podwire.apiserver.identity.rbac")


class RbacInformer:
    def __init__(self, store: Store, roles: Roles) -> None:
        self._store = store
        self._roles = roles

    async def load(self) -> None:
        """Loads everything once, before the server answers."""
        for prefix in PLACES:
            await self._on_list(prefix, list((await self._store.list(prefix)).items))

    async def run(self) -> None:
        """Follows changes until cancelled."""
        async with asyncio.TaskGroup() as parts:
            for prefix in PLACES:
                parts.create_task(follow(self._store, prefix, partial(self._on_list, prefix), self._on_change))

    async def _on_list(self, prefix: str, items: list[Item]) -> None:
        self._roles.keep(prefix, (item.key for item in items))
        for item in items:
            self._put(item)

    async def _on_change(self, change: Change) -> None:
        if change.item is None:
            self._roles.drop(change.key)
        else:
            self._put(change.item)

    def _put(self, item: Item) -> None:
        """An object that cannot be read grants nothing, and does not stop the server."""
        try:
            self._roles.put(item.key, item.value)
        except msgspec.MsgspecError as error:
            self._roles.drop(item.key)
            _log.warning("cannot read a stored role or binding", extra={"key": item.key, "error": str(error)})
