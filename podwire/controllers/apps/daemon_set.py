"""DaemonSet: one pod on every node that its template allows."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import ClassVar

import msgspec

from podwire.controllers.apps import daemon_decisions as decisions
from podwire.controllers.apps import revisions
from podwire.controllers.apps.daemon_decisions import Changes
from podwire.controllers.apps.history import Collision, History
from podwire.controllers.apps.replica_decisions import next_available
from podwire.controllers.apps.revisions import POD_HASH
from podwire.controllers.context import Context
from podwire.controllers.kinds import DAEMON_SETS, NODES, PODS, REVISIONS
from podwire.controllers.metadata import PartialObject, resource_of
from podwire.controllers.pod_control import (
    BURST,
    delete_all,
    namespace_is_terminating,
    pod_of,
    reference_to,
    slow_start,
)
from podwire.controllers.reconciler import Reconciler
from podwire.controllers.work_queue import NotYet
from podwire.objects.nodes import Node
from podwire.objects.selectors import LabelSelector
from podwire.protocols.k8sapi.client_side.events import NORMAL, WARNING
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object
from podwire.tasks.backoff import Pauses

FAILED_POD_PAUSE, LONGEST_PAUSE = 1.0, 900.0
_decode_node = msgspec.json.Decoder(Node).decode


@dataclass(slots=True)
class _Retry:
    """The back-off of failed pods on one node."""

    pauses: Pauses = field(default_factory=lambda: Pauses(FAILED_POD_PAUSE, LONGEST_PAUSE))
    allowed_at: float = 0.0

    def tried(self, now: float) -> None:
        if now - self.allowed_at > 2 * LONGEST_PAUSE:
            self.pauses.reset()
        self.allowed_at = now + self.pauses.next()


class DaemonSets(Reconciler):
    """Creates a pod for each node, replaces pods of old templates, and keeps the history of templates."""

    name: ClassVar[str] = "daemonset-controller"
    kind: ClassVar[Kind] = DAEMON_SETS
    dependents: ClassVar[tuple[Kind, ...]] = (PODS, NODES, REVISIONS)
    workers: ClassVar[int] = 2

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._history = History(context.api, POD_HASH)
        self._nodes: dict[str, Node] = {}
        self._failed: dict[str, dict[tuple[int, str], _Retry]] = {}
        """By DaemonSet, then by its generation and node."""

    def forget(self, uid: str) -> None:
        super().forget(uid)
        self._failed.pop(uid, None)

    def on_dependent(self, before: PartialObject | None, now: PartialObject | None) -> None:
        latest = now or before
        if latest is not None and latest.resource == resource_of(NODES):
            self._node_changed(latest.name, now)
        elif latest is not None and latest.resource == resource_of(PODS):
            super().on_dependent(before, now)

    def _node_changed(self, name: str, now: PartialObject | None) -> None:
        """Keeps the labels and taints of nodes; a heartbeat changes neither and concerns nobody."""
        known = self._nodes.get(name)
        if now is None:
            self._nodes.pop(name, None)
        else:
            node = _decode_node(now.json)
            if known is not None and (known.spec, known.metadata.labels) == (node.spec, node.metadata.labels):
                return
            metadata = msgspec.structs.replace(node.metadata, annotations={})
            self._nodes[name] = Node(metadata=metadata, spec=node.spec)
        for owner in self.graph.everywhere(self.kind):
            self.enqueue(owner.uid)

    async def reconcile(self, owner: PartialObject) -> None:
        """Reconciles one DaemonSet.

        1. Record the template as a revision.  2. Create and delete pods; if none, replace pods of old templates.
        3. Delete surplus revisions.  4. Write the status.
        """
        daemon = owner.object()
        selector = self.selector_of(daemon["spec"])
        if selector.everything:
            message = "This daemon set is selecting all pods. A non-empty selector is required."
            self.recorder.tell(reference_to(daemon), WARNING, "SelectingAll", message)
            return
        if owner.deleting:
            return
        current, old = await self._revisions(owner, daemon, selector)
        hash_ = (current["metadata"].get("labels") or {}).get(POD_HASH, "")
        claimed = await self.claimed(owner, PODS, selector)
        by_node = _by_node(claimed)
        nodes = [self._nodes[name] for name in sorted(self._nodes)]
        failure: Exception | None = None
        if not self.expectations.satisfied(owner.uid):
            self.enqueue_after(owner.uid, self.expectations.expires_in(owner.uid))
            generation = (daemon.get("status") or {}).get("observedGeneration")
        else:
            failure = await self._update(owner, daemon, nodes, by_node, hash_)
            in_use = frozenset(pod.labels.get(POD_HASH, "") for pod in claimed)
            limit = daemon["spec"].get("revisionHistoryLimit")
            await self._history.delete(revisions.surplus(old, limit, in_use, POD_HASH))
            generation = daemon["metadata"].get("generation")
        now = self.clock.wall()
        status = decisions.daemon_status(daemon, nodes, by_node, hash_, now)
        status["observedGeneration"] = generation or 0
        if not generation:
            del status["observedGeneration"]
        await self.update_status(daemon, status)
        if failure is not None:
            raise failure
        wait = next_available(claimed, daemon["spec"].get("minReadySeconds") or 0, now)
        if wait is not None:
            self.enqueue_after(owner.uid, wait)

    async def _update(
        self, owner: PartialObject, daemon: Object, nodes: list[Node], by_node: decisions.PodsByNode, hash_: str
    ) -> Exception | None:
        """Creates and deletes pods; returns the first error."""
        now = self.clock.wall()
        changes = decisions.manage(daemon, nodes, by_node, hash_, now)
        self._end(owner, daemon, changes)
        if not changes.create and not changes.delete:
            strategy = (daemon["spec"].get("updateStrategy") or {}).get("type")
            if strategy == "RollingUpdate":
                changes = decisions.rolling(daemon, nodes, by_node, hash_, now)
        if not changes.create and not changes.delete:
            return None
        return await self._sync(owner, daemon, changes, hash_)

    def _end(self, owner: PartialObject, daemon: Object, changes: Changes) -> None:
        """Lets pods that ended be deleted: succeeded ones at once, failed ones with back-off."""
        about, now = reference_to(daemon), self.clock.monotonic()
        generation = (daemon.get("status") or {}).get("observedGeneration") or 0
        for node, pod in changes.failed:
            retry = self._failed.setdefault(owner.uid, {}).setdefault((generation, node), _Retry())
            if now < retry.allowed_at:
                self.enqueue_after(owner.uid, retry.allowed_at - now)
                continue
            retry.tried(now)
            message = f"Found failed daemon pod {pod.namespace}/{pod.name} on node {node}, will try to kill it"
            self.recorder.tell(about, WARNING, "FailedDaemonPod", message)
            changes.delete.append(pod)
        for node, pod in changes.succeeded:
            message = f"Found succeeded daemon pod {pod.namespace}/{pod.name} on node {node}, will try to delete it"
            self.recorder.tell(about, NORMAL, "SucceededDaemonPod", message)
            changes.delete.append(pod)

    async def _sync(self, owner: PartialObject, daemon: Object, changes: Changes, hash_: str) -> Exception | None:
        create, delete = changes.create[:BURST], changes.delete[:BURST]
        labels = {POD_HASH: hash_}
        generation = (daemon["metadata"].get("annotations") or {}).get(decisions.GENERATION_ANNOTATION)
        if generation is not None:
            labels[decisions.GENERATION_LABEL] = generation

        async def create_one(index: int) -> None:
            template = decisions.daemon_pod(daemon["spec"]["template"], create[index], labels)
            try:
                await self.pods.create(pod_of(template, daemon), daemon)
            except ApiError as error:
                if not namespace_is_terminating(error):
                    raise
                self.expectations.created(owner.uid)

        async def delete_one(pod: PartialObject) -> None:
            try:
                await self.pods.delete(pod, daemon)
            except ApiError as error:
                self.expectations.deleted(owner.uid, pod.uid)
                if error.code not in (404, 409):
                    raise

        self.expectations.expect(owner.uid, creations=len(create), deletions=[pod.uid for pod in delete])
        created, failure = await slow_start(len(create), create_one)
        self.expectations.created(owner.uid, len(create) - created)
        return await delete_all(delete, delete_one) or failure

    async def _revisions(
        self, owner: PartialObject, daemon: Object, selector: LabelSelector
    ) -> tuple[Object, list[Object]]:
        """Returns the revision of the present template, created if needed, and the older ones."""
        known = [revision.object() for revision in await self.claimed(owner, REVISIONS, selector)]
        data = revisions.template_patch(daemon["spec"])
        current = [revision for revision in revisions.in_order(known) if revision.get("data") == data]
        old = [revision for revision in known if revision.get("data") != data]
        number = revisions.next_number(old)
        if current:
            await self._relabel(owner, current)
            await self._history.delete(current[:-1])
            latest = current[-1]
            return await self._history.renumber(latest, max(number, revisions.number_of(latest))), old
        try:
            return await self._history.create(daemon, number), old
        except Collision as error:
            status = daemon.get("status") or {}
            await self.update_status(daemon, {**status, "collisionCount": (status.get("collisionCount") or 0) + 1})
            raise NotYet from error

    async def _relabel(self, owner: PartialObject, equal: list[Object]) -> None:
        """Gives the pods of revisions with the same template the label of the one that stays."""
        hashes = [(revision["metadata"].get("labels") or {}).get(POD_HASH, "") for revision in equal]
        for pod in self.graph.dependents(owner.uid) if len(equal) > 1 else ():
            if pod.resource == resource_of(PODS) and pod.labels.get(POD_HASH) in hashes[:-1]:
                patch = {"metadata": {"labels": {POD_HASH: hashes[-1]}}}
                await self.api.patch(PODS, pod.name, patch, pod.namespace)


def _by_node(pods: list[PartialObject]) -> dict[str, list[PartialObject]]:
    """Groups pods by their node, without those that ended and are being deleted."""
    found: defaultdict[str, list[PartialObject]] = defaultdict(list)
    for pod in pods:
        ended = pod.pod is not None and pod.pod.phase in ("Succeeded", "Failed")
        node = "" if ended and pod.deleting else decisions.target_node(pod)
        if node:
            found[node].append(pod)
    return dict(found)
