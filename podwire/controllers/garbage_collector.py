"""The garbage collector: carries out what gc_decisions.py decides.

It trusts the graph about objects that exist, and asks the server before it believes that an owner is absent. Every
write names the uid and resourceVersion that the decision was made on; if the object has changed since, the decision is
made again.
"""

import logging
from collections import OrderedDict
from typing import Any, ClassVar

import msgspec

from podwire.controllers import gc_decisions
from podwire.controllers.gc_decisions import Delete, Keep, Orphan, OwnerState, Release
from podwire.controllers.graph import Graph
from podwire.controllers.kinds import KnownKinds
from podwire.controllers.metadata import ORPHAN, Owner, PartialObject, from_object
from podwire.controllers.work_queue import NotYet, WorkQueue
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.status import ApiError

log = logging.getLogger(__name__)

REMEMBERED = 4096
"""Deleted owners that are remembered, so that the server need not be asked."""


class Collector:
    """Deletes objects whose owners are gone."""

    resources: ClassVar = None

    def __init__(self, api: Client, graph: Graph, kinds: KnownKinds) -> None:
        self._api = api
        self._graph = graph
        self._kinds = kinds
        self._queue: WorkQueue[str] = WorkQueue("collector", self._reconcile, workers=8)
        self._deleted_owners: OrderedDict[str, None] = OrderedDict()
        self._unresolved: set[str] = set()
        """Objects with owners of unknown kinds: checked again when kinds change."""

    def on_change(self, before: PartialObject | None, now: PartialObject | None) -> None:
        if now is None and before is not None:
            self._unresolved.discard(before.uid)
        if self._graph.complete:
            for uid in gc_decisions.affected(self._graph, before, now):
                self._queue.add(uid)

    def on_deleted(self, uid: str) -> None:
        """Records a deletion that was observed: the server need not be asked whether this owner exists."""
        if self._graph.dependents(uid):
            self._deleted_owners[uid] = None
            if len(self._deleted_owners) > REMEMBERED:
                self._deleted_owners.popitem(last=False)

    def on_synced(self) -> None:
        for uid in gc_decisions.affected_at_start(self._graph):
            self._queue.add(uid)

    def kinds_changed(self) -> None:
        for uid in self._unresolved:
            self._queue.add(uid)
        self._unresolved.clear()

    async def run(self) -> None:
        """Runs until cancelled."""
        await self._queue.run()

    async def _reconcile(self, uid: str) -> None:
        item = self._graph.node(uid)
        if item is None:
            return
        owners = [(owner, await self._owner_state(item, owner)) for owner in item.owners]
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

    async def _owner_state(self, item: PartialObject, owner: Owner) -> OwnerState:
        known = gc_decisions.owner_state(self._graph, item, owner)
        if known is not None:
            return known
        if owner.uid in self._deleted_owners:
            return OwnerState.ABSENT
        kind = await self._kinds.find(owner.api_version, owner.kind)
        if kind is None or (kind.namespaced and not item.namespace):
            self._unresolved.add(item.uid)
            return OwnerState.UNKNOWN
        try:
            found = from_object(kind, await self._api.get(kind, owner.name, item.namespace if kind.namespaced else ""))
        except ApiError as error:
            if error.code != 404:
                raise
            return OwnerState.ABSENT
        if found.uid != owner.uid:
            return OwnerState.ABSENT
        return OwnerState.WAITING if found.waiting else OwnerState.ALIVE

    async def _delete(self, item: PartialObject, action: Delete) -> None:
        if action.unblock:
            freed = tuple(msgspec.structs.replace(owner, block_owner_deletion=False) for owner in item.owners)
            if freed != item.owners:
                await self._set_owners(item, freed)
                raise NotYet  # decided again on the updated object
        log.debug("deleting object without owners", extra={"object": str(item), "policy": action.propagation.value})
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

    async def _orphan(self, owner: PartialObject, dependents: Any) -> None:
        for dependent in dependents:
            await self._set_owners(dependent, gc_decisions.without_owner(dependent, owner.uid))
        await self._release(owner, ORPHAN)

    async def _set_owners(self, item: PartialObject, owners: tuple[Owner, ...]) -> None:
        await self._patch(item, {"ownerReferences": [msgspec.to_builtins(owner) for owner in owners]})

    async def _release(self, item: PartialObject, finalizer: str) -> None:
        kept = [name for name in item.metadata.finalizers if name != finalizer]
        await self._patch(item, {"finalizers": kept})

    async def _patch(self, item: PartialObject, metadata: dict[str, Any]) -> None:
        guarded = {"uid": item.uid, "resourceVersion": item.metadata.resource_version, **metadata}
        await _unless_gone(self._api.patch(item.kind, item.name, {"metadata": guarded}, item.namespace))


async def _unless_gone(call: Any) -> None:
    """Ignores 404: a deleted object needs no work."""
    try:
        await call
    except ApiError as error:
        if error.code != 404:
            raise
