"""The feed over HTTP: one watch per kind, including kinds that appear later; of most kinds metadata only."""

import asyncio
import contextlib
import logging
from collections.abc import Iterator

from podwire.controllers.kinds import DEFINITIONS, preferred
from podwire.controllers.metadata import PartialObject, from_object, resource_of
from podwire.controllers.ports import Absent, Complete, Notify, Present
from podwire.protocols.k8sapi.client_side import Client, ClientError, Informer, Scope
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Added, Change, Deleted, Object, Synced, Updated

log = logging.getLogger(__name__)

ANNOUNCED_AFTER = (0.2, 1.0, 5.0)
"""Pauses before discovery is repeated: a server announces a kind shortly after it accepts its definition."""

RETRY = 1.0
"""Seconds until discovery is retried after a failure."""


class MetadataInformer:
    """Watches every kind that can be listed, watched and deleted, in one version of each.

    Metadata only where no controller reads the whole object, so that a watch costs little more than its connection.
    """

    def __init__(self, api: Client) -> None:
        self._api = api
        self._watched: set[tuple[str, str]] = set()
        self._unsynced: set[tuple[str, str]] = set()
        self._complete = False
        self._changed = asyncio.Event()
        self._whole: frozenset[tuple[str, str]] = frozenset()

    async def follow(self, notify: Notify, whole: frozenset[tuple[str, str]] = frozenset()) -> None:
        """Reports all objects and changes until cancelled."""
        self._whole = whole
        async with asyncio.TaskGroup() as watches:
            await self._look(watches, notify)
            while True:
                await self._changed.wait()
                await self._rediscover(watches, notify)

    async def _rediscover(self, watches: asyncio.TaskGroup, notify: Notify) -> None:
        pauses: Iterator[float] = iter(())
        while True:
            if self._changed.is_set():
                self._changed.clear()
                pauses = iter(ANNOUNCED_AFTER)
            await self._look(watches, notify)
            pause = next(pauses, None)
            if pause is None:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._changed.wait()

    async def _look(self, watches: asyncio.TaskGroup, notify: Notify) -> None:
        """Starts watches for new kinds."""
        wanted = [kind for kind in preferred(await self._discover()) if "watch" in kind.verbs]
        new = [kind for kind in wanted if resource_of(kind) not in self._watched]
        self._watched |= {resource_of(kind) for kind in new}
        if not self._complete:
            self._unsynced |= {resource_of(kind) for kind in new}
        for kind in new:
            watches.create_task(self._watch(kind, notify), name=f"watch {kind.resource}")

    async def _discover(self) -> tuple[Kind, ...]:
        while True:
            try:
                return tuple(await self._api.discover())
            except (ApiError, ClientError) as error:
                log.info("discovery of kinds failed", extra={"error": str(error)})
                await asyncio.sleep(RETRY)

    async def _watch(self, kind: Kind, notify: Notify) -> None:
        """Watches a kind until it is no longer served."""
        informer = self._api.informer(kind, Scope(metadata_only=resource_of(kind) not in self._whole))
        try:
            await self._changes(kind, informer, notify)
        except ApiError as error:
            log.debug("kind is no longer served", extra={"kind": kind.resource, "error": error.message})
        finally:
            informer.close()
            self._watched.discard(resource_of(kind))
        for object_ in informer.objects.values():
            notify(Absent(self._partial(kind, object_), vanished=True))
        self._synced(kind, notify)

    async def _changes(self, kind: Kind, informer: Informer, notify: Notify) -> None:
        async for change in informer:
            self._notify(kind, change, notify)
            if resource_of(kind) == resource_of(DEFINITIONS):
                self._changed.set()

    def _notify(self, kind: Kind, change: Change, notify: Notify) -> None:
        match change:
            case Added(object_) | Updated(object_):
                notify(Present(self._partial(kind, object_)))
            case Deleted(object_):
                notify(Absent(self._partial(kind, object_)))
            case Synced():
                self._synced(kind, notify)

    def _partial(self, kind: Kind, object_: Object) -> PartialObject:
        return from_object(kind, object_, whole=resource_of(kind) in self._whole)

    def _synced(self, kind: Kind, notify: Notify) -> None:
        """Reports Complete when all initial kinds are synced, and again for each later one."""
        self._unsynced.discard(resource_of(kind))
        if not self._unsynced:
            self._complete = True
            notify(Complete())
