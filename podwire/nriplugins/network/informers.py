"""Caches of the API server's objects, kept by watches; every change is reported.

Custom kinds come and go with their CustomResourceDefinitions: without a definition a kind counts as listed and empty.
"""

import asyncio
import logging
from collections.abc import Callable

from podwire.nriplugins.network.kinds import (
    ADMIN_KINDS,
    BUILT_IN,
    CUSTOM,
    DEFINITIONS,
    DNS_SLICES,
    SLICES,
    definition_of,
)
from podwire.nriplugins.network.ports import DEFAULT_LIMITS, Limits, Now
from podwire.protocols.k8sapi.client_side import EVERYWHERE, Client, Informer, Scope
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Change, Deleted, Object, Synced, metadata

_log = logging.getLogger("podwire.nriplugins.network")

NOT_FOUND = 404
DEFINED = (*CUSTOM, *ADMIN_KINDS)
"""Kinds that exist while their definitions do."""

OnChange = Callable[[Kind, Change], None]


class Informers:
    """The caches. `on_change` is called for every change, in the event loop."""

    def __init__(self, api: Client, on_change: OnChange, now: Now, limits: Limits = DEFAULT_LIMITS) -> None:
        self._api, self._on_change, self._now, self._limits = api, on_change, now, limits
        self._caches: dict[Kind, Informer] = {}
        self._served = {definition_of(kind): asyncio.Event() for kind in DEFINED}
        self._missing = {*BUILT_IN, *DEFINED}
        self._last_change: dict[Kind, float] = {}
        self.complete = asyncio.Event()
        """Set once every kind was listed; from then on there is a cache, however old it may become. Not of the DNS
        servers, which policies allow from the moment that they are known."""

    def find(self, kind: Kind, namespace: str, name: str) -> Object | None:
        cache = self._caches.get(kind)
        return None if cache is None else cache.objects.get((namespace, name))

    def age(self, kind: Kind) -> float:
        """Seconds since the cache of a kind last changed."""
        return self._now() - self._last_change.get(kind, self._now())

    @property
    def missing(self) -> list[str]:
        """The kinds that were not listed yet."""
        return sorted(kind.resource for kind in self._missing)

    async def run(self) -> None:
        """Watches until cancelled. Raises ApiError when the server does not serve a built-in kind."""
        async with asyncio.TaskGroup() as parts:
            for kind in BUILT_IN:
                parts.create_task(self._follow(kind), name=f"watch {kind.resource}")
            parts.create_task(self._follow(SLICES, DNS_SLICES), name="watch DNS servers")
            for kind in DEFINED:
                parts.create_task(self._follow_custom(kind), name=f"watch {kind.resource}")
            parts.create_task(self._follow_definitions(), name="watch definitions")

    async def _follow(self, kind: Kind, scope: Scope = EVERYWHERE) -> None:
        async with self._api.informer(kind, scope) as informer:
            self._caches[kind] = informer
            async for change in informer:
                self._last_change[kind] = self._now()
                self._on_change(kind, change)
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
            for object_ in tuple(self._caches.pop(kind).objects.values()):
                self._on_change(kind, Deleted(object_))
            _log.info("custom resource is not served yet", extra={"kind": kind.resource})
            self._listed(kind)
            await asyncio.sleep(self._limits.unserved)

    async def _follow_definitions(self) -> None:
        async with self._api.informer(DEFINITIONS) as informer:
            async for change in informer:
                if isinstance(change, Synced):
                    for kind in DEFINED:
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
            _log.info(
                "informers have listed all kinds",
                extra={"resources": sum(len(cache.objects) for cache in self._caches.values())},
            )
            self.complete.set()


def established(definition: Object) -> bool:
    """Whether the kind of a definition is served."""
    rows = (definition.get("status") or {}).get("conditions") or ()
    return any(row.get("type") == "Established" and row.get("status") == "True" for row in rows)
