"""The garbage collector: acts on what `collect` decides.

It trusts the graph for what is there and goes to look before it believes that an owner is not. Every write names the
uid and version that the decision was made on; if the object has changed since, the decision is made anew.
"""

import logging
from collections import OrderedDict
from typing import Any

import msgspec

from podwire.controllers import gc_decisions
from podwire.controllers.gc_decisions import Delete, Keep, Orphan, Release, Standing
from podwire.controllers.graph import Graph
from podwire.controllers.kinds import KnownKinds
from podwire.controllers.metadata import ORPHAN, Owner, Seen, from_object
from podwire.controllers.ports import Api
from podwire.controllers.work_queue import NotYet, WorkQueue
from podwire.protocols.k8sapi.status import ApiError

log = logging.getLogger(__name__)

REMEMBERED = 4096
"""So many ended owners are known to be gone without asking."""


class Collector:
    """Deletes what has lost its owners."""

    def __init__(self, api: Api, graph: Graph, kinds: KnownKinds) -> None:
        self._api = api
        self._graph = graph
        self._kinds = kinds
        self._queue: WorkQueue[str] = WorkQueue("collector", self._attend, workers=8)
        self._ended: OrderedDict[str, None] = OrderedDict()
        self._puzzling: set[str] = set()
        """Objects with owners of unknown kinds: looked at again when kinds come."""

    def saw(self, before: Seen | None, now: Seen | None) -> None:
        if now is None and before is not None:
            self._puzzling.discard(before.uid)
        if self._graph.complete:
            for uid in gc_decisions.attention(self._graph, before, now):
                self._queue.add(uid)

    def ended(self, uid: str) -> None:
        """An object was seen to end: its dependents need not be told by the server that it is not there."""
        if self._graph.dependents(uid):
            self._ended[uid] = None
            if len(self._ended) > REMEMBERED:
                self._ended.popitem(last=False)

    def completed(self) -> None:
        for uid in gc_decisions.all_attention(self._graph):
            self._queue.add(uid)

    def kinds_changed(self) -> None:
        for uid in self._puzzling:
            self._queue.add(uid)
        self._puzzling.clear()

    async def run(self) -> None:
        """Work until cancelled."""
        await self._queue.run()

    async def _attend(self, uid: str) -> None:
        item = self._graph.node(uid)
        if item is None:
            return
        owners = [(each, await self._standing(item, each)) for each in item.owners]
        action = gc_decisions.decide(item, owners, self._graph.dependents(uid))
        match action:
            case Release(finalizer):
                await self._release(item, finalizer)
            case Orphan(dependents):
                await self._orphan(item, dependents)
            case Keep(kept):
                await self._set_owners(item, kept)
            case Delete():
                await self._delete(item, action)

    async def _standing(self, item: Seen, owner: Owner) -> Standing:
        known = gc_decisions.standing(self._graph, item, owner)
        if known is not None:
            return known
        if owner.uid in self._ended:
            return Standing.ABSENT
        kind = await self._kinds.find(owner.api_version, owner.kind)
        if kind is None or (kind.namespaced and not item.namespace):
            self._puzzling.add(item.uid)
            return Standing.UNKNOWN
        try:
            found = from_object(kind, await self._api.get(kind, owner.name, item.namespace if kind.namespaced else ""))
        except ApiError as error:
            if error.code != 404:
                raise
            return Standing.ABSENT
        if found.uid != owner.uid:
            return Standing.ABSENT
        return Standing.WAITING if found.waiting else Standing.ALIVE

    async def _delete(self, item: Seen, action: Delete) -> None:
        if action.unblock:
            freed = tuple(msgspec.structs.replace(each, block_owner_deletion=False) for each in item.owners)
            if freed != item.owners:
                await self._set_owners(item, freed)
                raise NotYet  # the deletion is decided on what comes back
        log.debug("deleting", extra={"object": str(item), "policy": action.propagation.value})
        await _unless_gone(
            self._api.delete(
                item.kind,
                item.name,
                item.namespace,
                propagation=action.propagation,
                uid=item.uid,
                resource_version=item.metadata.resource_version,
            )
        )

    async def _orphan(self, owner: Seen, dependents: Any) -> None:
        for each in dependents:
            await self._set_owners(each, gc_decisions.without_owner(each, owner.uid))
        await self._release(owner, ORPHAN)

    async def _set_owners(self, item: Seen, owners: tuple[Owner, ...]) -> None:
        await self._patch(item, {"ownerReferences": [msgspec.to_builtins(each) for each in owners]})

    async def _release(self, item: Seen, finalizer: str) -> None:
        kept = [each for each in item.metadata.finalizers if each != finalizer]
        await self._patch(item, {"finalizers": kept})

    async def _patch(self, item: Seen, metadata: dict[str, Any]) -> None:
        guarded = {"uid": item.uid, "resourceVersion": item.metadata.resource_version, **metadata}
        await _unless_gone(self._api.patch(item.kind, item.name, {"metadata": guarded}, item.namespace))


async def _unless_gone(call: Any) -> None:
    """What is not there any more needs nothing done to it."""
    try:
        await call
    except ApiError as error:
        if error.code != 404:
            raise
