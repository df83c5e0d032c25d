"""Annotates nodes with how long a kubelet may keep ConfigMaps and Secrets: the longer, the larger the cluster."""

from dataclasses import dataclass
from typing import ClassVar

from podwire.controllers.context import Context
from podwire.controllers.kinds import NODES
from podwire.controllers.metadata import PartialObject, resource_of
from podwire.controllers.work_queue import WorkQueue
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object

ANNOTATION = "node.alpha.kubernetes.io/ttl"


@dataclass(frozen=True, slots=True)
class Step:
    """A range of cluster sizes. Ranges overlap, so that one node more or less does not rewrite all nodes each time."""

    min_nodes: int
    max_nodes: float
    seconds: int


STEPS = (
    Step(0, 100, 0),
    Step(90, 500, 15),
    Step(450, 1000, 30),
    Step(900, 2000, 60),
    Step(1800, float("inf"), 300),
)


def next_step(step: int, nodes: int) -> int:
    """Returns the index of the step for a number of nodes, given the present one."""
    while nodes > STEPS[step].max_nodes:
        step += 1
    while nodes < STEPS[step].min_nodes:
        step -= 1
    return step


def has_ttl(node: Object, seconds: int) -> bool:
    text = str((node["metadata"].get("annotations") or {}).get(ANNOTATION, ""))
    try:
        return int(text) == seconds
    except ValueError:
        return False


class NodeTtl:
    """Annotates a node when it changes, and all nodes when the cluster enters another step."""

    name: ClassVar = "ttl-controller"
    resources: ClassVar = frozenset({resource_of(NODES)})

    def __init__(self, context: Context) -> None:
        self._api = context.api
        self._graph = context.graph
        self._queue: WorkQueue[str] = WorkQueue("node-ttl", self._reconcile)
        self._nodes: dict[str, str] = {}
        """The name of each node, by uid: a node may be created again before its deletion is reported."""
        self._step = 0

    def on_change(self, before: PartialObject | None, now: PartialObject | None) -> None:
        if now is not None:
            self._nodes[now.uid] = now.name
        elif before is not None:
            self._nodes.pop(before.uid, None)
        if not self._graph.complete:
            return
        if self._changes_step():
            self.on_synced()
        elif now is not None:
            self._queue.add(now.name)

    def _changes_step(self) -> bool:
        before, self._step = self._step, next_step(self._step, len(self._nodes))
        return self._step != before

    def on_synced(self) -> None:
        self._changes_step()
        for node in self._nodes.values():
            self._queue.add(node)

    async def run(self) -> None:
        """Runs until cancelled."""
        await self._queue.run()

    async def _reconcile(self, name: str) -> None:
        node, seconds = self._graph.find(NODES, name), STEPS[self._step].seconds
        if node is None or has_ttl(node.object(), seconds):
            return
        try:
            await self._api.patch(NODES, name, {"metadata": {"annotations": {ANNOTATION: str(seconds)}}})
        except ApiError as error:
            if error.code != 404:
                raise
