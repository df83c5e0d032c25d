"""The controllers' feed beside the API server: one subscription to the whole store instead of a watch per kind."""

import asyncio
import contextlib
import logging

from podwire.apiserver.ports import Store
from podwire.apiserver.registry import Registry
from podwire.controllers.metadata import Seen, from_json
from podwire.controllers.ports import Absent, Complete, Present, Tell
from podwire.kinds.resource import PREFIX
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.storage import Gone, Item, SlowWatcher, StorageError

log = logging.getLogger(__name__)

RETRY = 1.0
"""Seconds until a store that refused is asked again."""

BREATH = 500
"""So many objects are told in one go; then others have their turn."""


class StoreFeed:
    """Tells what the store holds and every change to it, as metadata."""

    def __init__(self, store: Store, registry: Registry) -> None:
        self._store = store
        self._registry = registry
        self._kinds: dict[str, Kind] = {}
        self._kinds_version = -1
        self._known: dict[str, Seen] = {}
        self._complete = False

    async def follow(self, tell: Tell) -> None:
        """Tell everything, until cancelled; anew, by comparison, when the log cannot be followed."""
        while True:
            try:
                await self._changes(await self._everything(tell), tell)
            except (Gone, SlowWatcher):
                continue
            except StorageError as error:
                log.warning("cannot follow the store", extra={"why": str(error)})
                await asyncio.sleep(RETRY)

    async def _everything(self, tell: Tell) -> int:
        page = await self._store.list(PREFIX)
        for key in self._known.keys() - {item.key for item in page.items}:
            tell(Absent(self._known.pop(key)))
        for count, item in enumerate(page.items, 1):
            self._present(item, tell)
            if not count % BREATH:
                await asyncio.sleep(0)
        if not self._complete:
            self._complete = True
            tell(Complete())
        return page.revision

    async def _changes(self, after: int, tell: Tell) -> None:
        with contextlib.closing(self._store.watch(PREFIX, after=after)) as watch:
            while True:
                for change in await watch.next():
                    if change.item is not None:
                        self._present(change.item, tell)
                    elif (known := self._known.pop(change.key, None)) is not None:
                        tell(Absent(known))

    def _present(self, item: Item, tell: Tell) -> None:
        kind = self._kind_at(item.key)
        known = self._known.get(item.key)
        if kind is None or (known is not None and known.metadata.resource_version == str(item.revision)):
            return
        seen = from_json(kind, item.value, str(item.revision))
        if known is not None and known.uid != seen.uid:
            tell(Absent(known))
        self._known[item.key] = seen
        tell(Present(seen))

    def _kind_at(self, key: str) -> Kind | None:
        """The kind whose objects lie under the key's first segment, or its first two."""
        if self._kinds_version != self._registry.version:
            resources = reversed(self._registry.resources)  # of several versions, the first counts
            self._kinds = {resource.prefix: resource.kind for resource in resources if "delete" in resource.kind.verbs}
            self._kinds_version = self._registry.version
        first, _, rest = key.removeprefix(PREFIX).partition("/")
        second = rest.partition("/")[0]
        return self._kinds.get(f"{PREFIX}{first}/") or self._kinds.get(f"{PREFIX}{first}/{second}/")
