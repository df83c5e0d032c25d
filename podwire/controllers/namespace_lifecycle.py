"""Namespace lifecycle: empties a terminating namespace and lets it go."""

import logging
from collections.abc import Sequence

from podwire.controllers import namespace_deletion
from podwire.controllers.graph import Graph
from podwire.controllers.kinds import NAMESPACES, KnownKinds, preferred
from podwire.controllers.metadata import Seen, from_object, resource_of
from podwire.controllers.ports import Api
from podwire.controllers.work_queue import NotYet, WorkQueue
from podwire.interfaces import Clock
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.client_side import Propagation, Scope
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object

log = logging.getLogger(__name__)


class NamespaceLifecycle:
    """Looks at a namespace when it begins to terminate, and again when its pods or its last content are gone."""

    def __init__(self, api: Api, graph: Graph, kinds: KnownKinds, clock: Clock) -> None:
        self._api = api
        self._graph = graph
        self._kinds = kinds
        self._clock = clock
        self._queue: WorkQueue[str] = WorkQueue("namespaces", self._attend)
        self._ending: set[str] = set()

    def saw(self, before: Seen | None, now: Seen | None) -> None:
        latest = now or before
        if latest is None:
            return
        if latest.resource == resource_of(NAMESPACES):
            self._saw_namespace(latest.name, now)
        elif now is None and latest.namespace in self._ending:
            held = self._graph.in_namespace(latest.namespace)
            if not held or (latest.resource == ("", "pods") and ("", "pods") not in held):
                self._queue.add(latest.namespace)

    def _saw_namespace(self, name: str, now: Seen | None) -> None:
        if now is None:
            self._ending.discard(name)
        elif now.deleting and name not in self._ending:
            self._ending.add(name)
            if self._graph.complete:
                self._queue.add(name)

    def completed(self) -> None:
        for name in self._ending:
            self._queue.add(name)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._queue.run()

    async def _attend(self, name: str) -> None:
        """1. Delete what is there, pods first.   2. Look what is left.   3. Tell it, or let the namespace go."""
        try:
            namespace = await self._api.get(NAMESPACES, name)
        except ApiError as error:
            if error.code == 404:
                return
            raise
        if not namespace_deletion.ending(namespace):
            return
        kinds = [each for each in preferred(await self._kinds.all()) if each.namespaced]
        held = self._graph.in_namespace(name)
        asked = namespace_deletion.next_kinds((each, held.get(resource_of(each), 0)) for each in kinds)
        failures = await self._delete(name, asked)
        left = await self._left(name, kinds)
        await self._tell(namespace, namespace_deletion.progress(left, failures))
        if not left:
            await self._finalize(name)
        elif failures or namespace_deletion.overlooked(left, asked):
            raise NotYet

    async def _delete(self, namespace: str, kinds: Sequence[Kind]) -> list[str]:
        """Ask for the deletion of all objects of these kinds; returns what was refused."""
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
        for each in (await self._api.list(kind, scope)).items:
            try:
                await self._api.delete(kind, each["metadata"]["name"], namespace, propagation=Propagation.BACKGROUND)
            except ApiError as error:
                if error.code != 404:
                    raise

    async def _left(self, namespace: str, kinds: Sequence[Kind]) -> list[Seen]:
        """What the server itself says is left: the graph may be a moment behind, and this decides for good."""
        found = []
        for kind in kinds:
            listing = await self._api.list(kind, Scope(namespace=namespace, metadata_only=True))
            found += [from_object(kind, each) for each in listing.items]
        return found

    async def _tell(self, namespace: Object, told: namespace_deletion.Progress) -> None:
        changed = namespace_deletion.with_conditions(namespace, told, rfc3339(self._clock.wall()))
        if changed is not None and told.remaining:
            await self._api.replace(changed, subresource="status")

    async def _finalize(self, name: str) -> None:
        namespace = await self._api.get(NAMESPACES, name)
        if namespace_deletion.ending(namespace):
            await self._api.replace(namespace_deletion.finalized(namespace), subresource="finalize")
            log.info("namespace emptied", extra={"namespace": name})
