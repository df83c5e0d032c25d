"""The feed over HTTP: one metadata-only watch for each kind, also for kinds that come later."""

import asyncio
import contextlib
import logging
from collections.abc import Iterator

from podwire.controllers.kinds import DEFINITIONS, preferred
from podwire.controllers.metadata import from_object, resource_of
from podwire.controllers.ports import Absent, Complete, Informing, Present, Tell
from podwire.protocols.k8sapi.client_side import ClientError, Informer, Scope
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Added, Change, Deleted, Synced, Updated

log = logging.getLogger(__name__)

ANNOUNCED_AFTER = (0.2, 1.0, 5.0)
"""A server announces a kind shortly after it accepts its definition: look at once, and again after these pauses."""

RETRY = 1.0
"""Seconds until discovery is asked again after it failed."""


class WatchedFeed:
    """Follows every kind that can be listed, watched and deleted, in one version of each.

    Metadata only, so that a watch costs little more than its connection.
    """

    def __init__(self, api: Informing) -> None:
        self._api = api
        self._watched: set[tuple[str, str]] = set()
        self._unsynced: set[tuple[str, str]] = set()
        self._complete = False
        self._changed = asyncio.Event()

    async def follow(self, tell: Tell) -> None:
        """Tell everything, until cancelled."""
        async with asyncio.TaskGroup() as watches:
            await self._look(watches, tell)
            while True:
                await self._changed.wait()
                await self._look_until_quiet(watches, tell)

    async def _look_until_quiet(self, watches: asyncio.TaskGroup, tell: Tell) -> None:
        pauses: Iterator[float] = iter(())
        while True:
            if self._changed.is_set():
                self._changed.clear()
                pauses = iter(ANNOUNCED_AFTER)
            await self._look(watches, tell)
            pause = next(pauses, None)
            if pause is None:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._changed.wait()

    async def _look(self, watches: asyncio.TaskGroup, tell: Tell) -> None:
        """Watch the kinds that are not watched yet."""
        wanted = [each for each in preferred(await self._discover()) if "watch" in each.verbs]
        new = [each for each in wanted if resource_of(each) not in self._watched]
        self._watched |= {resource_of(each) for each in new}
        if not self._complete:
            self._unsynced |= {resource_of(each) for each in new}
        for each in new:
            watches.create_task(self._watch(each, tell), name=f"watch {each.resource}")

    async def _discover(self) -> tuple[Kind, ...]:
        while True:
            try:
                return tuple(await self._api.discover())
            except (ApiError, ClientError) as error:
                log.info("discovery failed", extra={"why": str(error)})
                await asyncio.sleep(RETRY)

    async def _watch(self, kind: Kind, tell: Tell) -> None:
        """Until the kind is gone."""
        informer = self._api.informer(kind, Scope(metadata_only=True))
        try:
            await self._changes(kind, informer, tell)
        except ApiError as error:
            log.debug("kind is gone", extra={"kind": kind.resource, "why": error.message})
        finally:
            informer.close()
            self._watched.discard(resource_of(kind))
        for each in informer.objects.values():
            tell(Absent(from_object(kind, each), vanished=True))
        self._synced(kind, tell)

    async def _changes(self, kind: Kind, informer: Informer, tell: Tell) -> None:
        async for change in informer:
            self._pass_on(kind, change, tell)
            if resource_of(kind) == resource_of(DEFINITIONS):
                self._changed.set()

    def _pass_on(self, kind: Kind, change: Change, tell: Tell) -> None:
        match change:
            case Added(object_) | Updated(object_):
                tell(Present(from_object(kind, object_)))
            case Deleted(object_):
                tell(Absent(from_object(kind, object_)))
            case Synced():
                self._synced(kind, tell)

    def _synced(self, kind: Kind, tell: Tell) -> None:
        """Complete is told when all first kinds are known, and again for each that comes later."""
        self._unsynced.discard(resource_of(kind))
        if not self._unsynced:
            self._complete = True
            tell(Complete())
