"""Namespace lifecycle: empties a terminating namespace and finalizes it."""

import logging
from collections.abc import Sequence
from typing import ClassVar

from podwire.controllers import namespace_deletion
from podwire.controllers.graph import Graph
from podwire.controllers.kinds import NAMESPACES, KnownKinds, preferred
from podwire.controllers.metadata import PartialObject, from_object, resource_of
from podwire.controllers.work_queue import NotYet, WorkQueue
from podwire.interfaces import Clock
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.client_side import Client, Propagation, Scope
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object

log = logging.getLogger(__name__)


class NamespaceLifecycle:
    """Reconciles a namespace when it begins to terminate, and again when its pods or its last object are gone."""

    resources: ClassVar = None

    def __init__(self, api: Client, graph: Graph, kinds: KnownKinds, clock: Clock) -> None:
        self._api = api
        self._graph = graph
        self._kinds = kinds
        self._clock = clock
        self._queue: WorkQueue[str] = WorkQueue("namespaces", self._reconcile)
        self._terminating: set[str] = set()

    def on_change(self, before: PartialObject | None, now: PartialObject | None) -> None:
        latest = now or before
        if latest is None:
            return
        if latest.resource == resource_of(NAMESPACES):
            self._saw_namespace(latest.name, now)
        elif now is None and latest.namespace in self._terminating:
            held = self._graph.in_namespace(latest.namespace)
            if not held or (latest.resource == ("", "pods") and ("", "pods") not in held):
                self._queue.add(latest.namespace)

    def _saw_namespace(self, name: str, now: PartialObject | None) -> None:
        if now is None:
            self._terminating.discard(name)
        elif now.deleting and name not in self._terminating:
            self._terminating.add(name)
            if self._graph.complete:
                self._queue.add(name)

    def on_synced(self) -> None:
        for name in self._terminating:
            self._queue.add(name)

    async def run(self) -> None:
        """Runs until cancelled."""
        await self._queue.run()

    async def _reconcile(self, name: str) -> None:
        """Empties a namespace.

        1. Delete its objects, pods first.  2. List what is left.  3. Set the conditions, or finalize the namespace.
        """
        try:
            namespace = await self._api.get(NAMESPACES, name)
        except ApiError as error:
            if error.code == 404:
                return
            raise
        if not namespace_deletion.ending(namespace):
            return
        kinds = [kind for kind in preferred(await self._kinds.all()) if kind.namespaced]
        held = self._graph.in_namespace(name)
        asked = namespace_deletion.next_kinds((kind, held.get(resource_of(kind), 0)) for kind in kinds)
        failures = await self._delete(name, asked)
        left = await self._left(name, kinds)
        await self._set_conditions(namespace, namespace_deletion.progress(left, failures))
        if not left:
            await self._finalize(name)
        elif failures or namespace_deletion.overlooked(left, asked):
            raise NotYet

    async def _delete(self, namespace: str, kinds: Sequence[Kind]) -> list[str]:
        """Deletes all objects of these kinds; returns the refusals."""
        failures = []
        for kind in kinds:
            try:
                await self._delete_all(kind, namespace)
            except ApiError as error:
                failures.append(f"{kind.resource}: {error.message}")
        return failures

    async def _delete_all(self, kind: Kind, namespace: str) -> None:
        scope = Scope(namespace=namespace, metadata_only=True)
        if "deletecollection" in kind.verbs:
            await self._api.delete_collection(kind, scope)
            return
        for item in (await self._api.list(kind, scope)).items:
            try:
                await self._api.delete(kind, item["metadata"]["name"], namespace, propagation=Propagation.BACKGROUND)
            except ApiError as error:
                if error.code != 404:
                    raise

    async def _left(self, namespace: str, kinds: Sequence[Kind]) -> list[PartialObject]:
        """Lists what is left from the server: the graph may lag behind, and this decision is final."""
        found = []
        for kind in kinds:
            listing = await self._api.list(kind, Scope(namespace=namespace, metadata_only=True))
            found += [from_object(kind, item) for item in listing.items]
        return found

    async def _set_conditions(self, namespace: Object, progress: namespace_deletion.DeletionProgress) -> None:
        changed = namespace_deletion.with_conditions(namespace, progress, rfc3339(self._clock.wall()))
        if changed is not None and progress.remaining:
            await self._api.replace(changed, subresource="status")

    async def _finalize(self, name: str) -> None:
        namespace = await self._api.get(NAMESPACES, name)
        if namespace_deletion.ending(namespace):
            await self._api.replace(namespace_deletion.finalized(namespace), subresource="finalize")
            log.info("namespace was emptied", extra={"namespace": name})
