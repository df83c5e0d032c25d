"""Work that follows from stored objects inside the server itself: custom resources are served, addresses come back.

Both follow the store's own log, so that they are right after a restart and no second source of truth exists.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from podwire.apiserver.admission.holdings import ADDRESSES, NODE_PORTS, SERVICES, Holdings, held_by, holder_of
from podwire.apiserver.ports import Store
from podwire.kinds.stored import unpack
from podwire.protocols.storage import Change, Gone, Item, SlowWatcher, StorageError

_log = logging.getLogger("podwire.apiserver.keepers")

RETRY = 1.0
"""Seconds until a store that refused is asked again."""

SWEEP_EVERY = 60.0
SETTLED = 120.0
"""Seconds after which a service that was on its way has arrived or never will: twice what a request may take."""


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
    """Gives back what services let go, and keeps the records of what they hold true."""

    def __init__(self, holdings: Holdings) -> None:
        self._holdings = holdings
        self._store = holdings.store

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as parts:
            parts.create_task(follow(self._store, SERVICES, _nothing, self._changed))
            parts.create_task(self._sweep_for_ever())

    async def _changed(self, change: Change) -> None:
        if change.previous is None:
            return
        now = held_by(unpack(change.item)) if change.item else set()
        for key in held_by(unpack(change.previous)) - now:
            await self._holdings.release_until(key, change.revision)

    async def _sweep_for_ever(self) -> None:
        while True:
            try:
                await self.sweep()
            except StorageError as error:
                _log.warning("cannot sweep", extra={"reason": str(error)})
            await asyncio.sleep(SWEEP_EVERY)

    async def sweep(self) -> None:
        """Release what a crash has left, and record what is held without a record.

        A record that no service holds may be that of one on its way: only what is older than any request is left.
        """
        records = [each for prefix in (ADDRESSES, NODE_PORTS) for each in (await self._store.list(prefix)).items]
        services = [unpack(each) for each in (await self._store.list(SERVICES)).items]
        held = {key: service for service in services for key in held_by(service)}
        for item in records:
            if item.key not in held and holder_of(item) and self._holdings.age(item) > SETTLED:
                await self._holdings.release(item)
        for key in held.keys() - {each.key for each in records}:
            await self._holdings.take(key, held[key])


async def _nothing(_items: list[Item]) -> None:
    """What is there already is the sweep's."""
