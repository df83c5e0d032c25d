"""CRD cleanup: a deleted definition takes its instances with it, and is released when they are gone."""

import logging
from typing import ClassVar

from podwire.controllers.graph import Graph
from podwire.controllers.kinds import DEFINITIONS
from podwire.controllers.metadata import PartialObject, resource_of
from podwire.controllers.work_queue import NotYet, WorkQueue
from podwire.interfaces import Clock
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.client_side import Client, Listing, Scope
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object

log = logging.getLogger(__name__)

FINALIZER = "customresourcecleanup.apiextensions.k8s.io"


def ending(definition: Object) -> bool:
    metadata = definition["metadata"]
    return bool(metadata.get("deletionTimestamp")) and FINALIZER in metadata.get("finalizers", ())


def instances(definition: Object) -> Kind | None:
    """Returns the kind of a definition in a served version; None when none is served."""
    spec = definition["spec"]
    served = [version for version in spec["versions"] if version.get("served")]
    if not served:
        return None
    version = next((candidate for candidate in served if candidate.get("storage")), served[0])
    return Kind(
        group=spec["group"],
        version=version["name"],
        resource=spec["names"]["plural"],
        kind=spec["names"]["kind"],
        namespaced=spec["scope"] == "Namespaced",
    )


def with_terminating(definition: Object, *, done: bool, now: str) -> Object:
    """Returns the definition with the condition Terminating: in progress, or completed."""
    condition = {
        "type": "Terminating",
        "status": "False" if done else "True",
        "reason": "InstanceDeletionCompleted" if done else "InstanceDeletionInProgress",
        "message": "removed all instances" if done else "CustomResource deletion is in progress",
        "lastTransitionTime": now,
    }
    status = definition.get("status", {})
    others = [condition for condition in status.get("conditions", ()) if condition["type"] != "Terminating"]
    return {**definition, "status": {**status, "conditions": [*others, condition]}}


def reports_termination(definition: Object) -> bool:
    """Returns whether the condition Terminating is already set."""
    rows = definition.get("status", {}).get("conditions", ())
    return any(row["type"] == "Terminating" and row["status"] == "True" for row in rows)


def released(definition: Object) -> Object:
    metadata = definition["metadata"]
    kept = [finalizer for finalizer in metadata["finalizers"] if finalizer != FINALIZER]
    return {**definition, "metadata": {**metadata, "finalizers": kept}}


class DefinitionCleanup:
    """Reconciles a definition when its deletion begins, and again when its last instance is gone."""

    resources: ClassVar = None

    def __init__(self, api: Client, graph: Graph, clock: Clock) -> None:
        self._api = api
        self._graph = graph
        self._clock = clock
        self._queue: WorkQueue[str] = WorkQueue("definitions", self._reconcile, workers=2)
        self._terminating: set[str] = set()

    def on_change(self, before: PartialObject | None, now: PartialObject | None) -> None:
        latest = now or before
        if latest is None:
            return
        if latest.resource == resource_of(DEFINITIONS):
            ends = now is not None and now.deleting and FINALIZER in now.metadata.finalizers
            (self._terminating.add if ends else self._terminating.discard)(latest.name)
            if ends and not (before and before.deleting) and self._graph.complete:
                self._queue.add(latest.name)
        elif now is None and self._terminating and not self._graph.has(latest.kind):
            name = f"{latest.kind.resource}.{latest.kind.group}"
            if name in self._terminating:
                self._queue.add(name)

    def on_synced(self) -> None:
        for name in self._terminating:
            self._queue.add(name)

    async def run(self) -> None:
        """Runs until cancelled."""
        await self._queue.run()

    async def _reconcile(self, name: str) -> None:
        """Deletes the instances of a definition.

        1. Set the condition.  2. Delete the instances.  3. When none is left, set the condition and remove the
        finalizer.
        """
        definition = await self._get(name)
        if definition is None or not ending(definition):
            return
        kind = instances(definition)
        if kind is None:
            log.warning("cannot delete instances: no version is served", extra={"definition": name})
            return
        if not reports_termination(definition):
            await self._set_conditions(definition, done=False)
        left = await self._delete(kind)
        if any(not item["metadata"].get("deletionTimestamp") for item in left.items):
            raise NotYet
        if not left.items:
            await self._release(name)

    async def _get(self, name: str) -> Object | None:
        try:
            return await self._api.get(DEFINITIONS, name)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    async def _delete(self, kind: Kind) -> Listing:
        """Deletes all instances; returns those that remain because of finalizers."""
        everywhere = Scope(metadata_only=True)
        found = await self._api.list(kind, everywhere)
        places = {item["metadata"].get("namespace", "") for item in found.items}
        for place in sorted(places):
            await self._api.delete_collection(kind, Scope(namespace=place))
        return await self._api.list(kind, everywhere) if places else found

    async def _release(self, name: str) -> None:
        definition = await self._get(name)
        if definition is not None and ending(definition):
            definition = await self._set_conditions(definition, done=True)
            await self._api.replace(released(definition))
            log.info("instances of a definition were deleted", extra={"definition": name})

    async def _set_conditions(self, definition: Object, *, done: bool) -> Object:
        changed = with_terminating(definition, done=done, now=rfc3339(self._clock.wall()))
        return await self._api.replace(changed, subresource="status")
