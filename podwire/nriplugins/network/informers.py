"""Copies of what the API server holds, kept by watches, and every change told.

Custom kinds come and go with their definitions: while there is none, there are no resources of it, and that is known.
"""

import asyncio
import logging
from collections.abc import Callable

from podwire.nriplugins.network.kinds import BUILT_IN, CUSTOM, DEFINITIONS, definition_of
from podwire.nriplugins.network.ports import Api, Now
from podwire.protocols.k8sapi.client_side import Informer
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Change, Deleted, Object, Synced, metadata

_log = logging.getLogger("podwire.nriplugins.network")

NOT_FOUND = 404
PAUSE = 1.0
"""Seconds until a kind is asked for again whose definition is there, though the server does not know it."""

Tell = Callable[[Kind, Change], None]


class Informers:
    """The copies. `tell` is called for every change of one, in the event loop."""

    def __init__(self, api: Api, tell: Tell, now: Now) -> None:
        self._api, self._tell, self._now = api, tell, now
        self._copies: dict[Kind, Informer] = {}
        self._served = {definition_of(each): asyncio.Event() for each in CUSTOM}
        self._missing = {*BUILT_IN, *CUSTOM}
        self._heard: dict[Kind, float] = {}
        self.complete = asyncio.Event()
        """Set once every kind was listed; from then on there is a copy, however old it may become."""

    def find(self, kind: Kind, namespace: str, name: str) -> Object | None:
        copy = self._copies.get(kind)
        return None if copy is None else copy.objects.get((namespace, name))

    def age(self, kind: Kind) -> float:
        """Seconds since the copy of a kind was last told anything."""
        return self._now() - self._heard.get(kind, self._now())

    @property
    def missing(self) -> list[str]:
        """Kinds that were not listed yet."""
        return sorted(each.resource for each in self._missing)

    async def run(self) -> None:
        """Work until cancelled. Raises ApiError when the server does not know a kind that every server has."""
        async with asyncio.TaskGroup() as parts:
            for each in BUILT_IN:
                parts.create_task(self._follow(each), name=f"watch {each.resource}")
            for each in CUSTOM:
                parts.create_task(self._follow_custom(each), name=f"watch {each.resource}")
            parts.create_task(self._follow_definitions(), name="watch definitions")

    async def _follow(self, kind: Kind) -> None:
        async with self._api.informer(kind) as informer:
            self._copies[kind] = informer
            async for change in informer:
                self._heard[kind] = self._now()
                self._tell(kind, change)
                if isinstance(change, Synced):
                    self._listed(kind)

    async def _follow_custom(self, kind: Kind) -> None:
        served = self._served[definition_of(kind)]
        while True:
            await served.wait()
            try:
                await self._follow(kind)
            except ApiError as error:
                if error.code != NOT_FOUND:
                    raise
            for each in tuple(self._copies.pop(kind).objects.values()):
                self._tell(kind, Deleted(each))
            _log.info("not served", extra={"kind": kind.resource})
            self._listed(kind)
            await asyncio.sleep(PAUSE)

    async def _follow_definitions(self) -> None:
        async with self._api.informer(DEFINITIONS) as informer:
            async for change in informer:
                if isinstance(change, Synced):
                    for kind in CUSTOM:
                        if not self._served[definition_of(kind)].is_set():
                            self._listed(kind)
                    continue
                served = self._served.get(metadata(change.object).get("name", ""))
                if served is None:
                    continue
                if isinstance(change, Deleted) or not established(change.object):
                    served.clear()
                else:
                    served.set()

    def _listed(self, kind: Kind) -> None:
        self._missing.discard(kind)
        if not self._missing and not self.complete.is_set():
            _log.info("complete", extra={"resources": sum(len(each.objects) for each in self._copies.values())})
            self.complete.set()


def established(definition: Object) -> bool:
    """Whether the resources of a definition can be asked for."""
    rows = (definition.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Established" and each.get("status") == "True" for each in rows)
