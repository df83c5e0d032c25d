"""Work that follows from stored objects inside the server itself: custom resources are served, addresses come back.

Both follow the store's own log, so that they are right after a restart and no second source of truth exists.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from podwire.apiserver.admission.addresses import ADDRESSES, SERVICES, ServiceAddresses
from podwire.apiserver.ports import Store
from podwire.apiserver.stored import Object, unpack
from podwire.protocols.storage import Change, Gone, Item, SlowWatcher, StorageError

_log = logging.getLogger("podwire.apiserver.keepers")

RETRY = 1.0
"""Seconds until a store that refused is asked again."""


async def follow(
    store: Store,
    prefix: str,
    seen: Callable[[list[Item]], Awaitable[None]],
    changed: Callable[[Change], Awaitable[None]],
) -> None:
    """Tell `seen` what is under a prefix, then `changed` of every change; anew when the log cannot be followed."""
    while True:
        try:
            page = await store.list(prefix)
            await seen(list(page.items))
            await _changes(store, prefix, page.revision, changed)
        except (Gone, SlowWatcher):
            continue
        except StorageError as error:
            _log.warning("cannot follow the store", extra={"prefix": prefix, "reason": str(error)})
            await asyncio.sleep(RETRY)


async def _changes(store: Store, prefix: str, after: int, changed: Callable[[Change], Awaitable[None]]) -> None:
    with contextlib.closing(store.watch(prefix, after=after)) as watch:
        while True:
            for change in await watch.next():
                await changed(change)


class AddressKeeper:
    """Gives the address of every deleted service back."""

    def __init__(self, store: Store, addresses: ServiceAddresses) -> None:
        self._store = store
        self._addresses = addresses

    async def run(self) -> None:
        """Work until cancelled."""
        await follow(self._store, SERVICES, self._sweep, self._changed)

    async def _sweep(self, services: list[Item]) -> None:
        """Release what a crash or a missed deletion left: addresses whose service is not there."""
        held = {address for item in services for address in _addresses(unpack(item))}
        page = await self._store.list(ADDRESSES)
        for item in page.items:
            parent = unpack(item).get("spec", {}).get("parentRef", {})
            address = item.key.removeprefix(ADDRESSES)
            if parent.get("resource") == "services" and address not in held and item.revision <= page.revision:
                await self._release_unheld(address, parent)

    async def _release_unheld(self, address: str, parent: Object) -> None:
        """A service that is being created right now holds its address before it is stored: look again, by name."""
        key = f"{SERVICES}{parent.get('namespace')}/{parent.get('name')}"
        if await self._store.get(key) is None:
            await self._addresses.release(address)

    async def _changed(self, change: Change) -> None:
        if change.previous is None:
            return
        before = set(_addresses(unpack(change.previous)))
        for address in before - set(_addresses(unpack(change.item)) if change.item else ()):
            await self._addresses.release(address)


def _addresses(service: Object) -> list[str]:
    spec = service.get("spec", {})
    return [each for each in spec.get("clusterIPs") or [spec.get("clusterIP", "")] if each and each != "None"]
