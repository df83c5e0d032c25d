"""The newest version of an object that is known: what the feed reported, or what this controller wrote since."""

from podwire.controllers.graph import Graph
from podwire.controllers.metadata import PartialObject
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.watch import Object


class LatestObjects:
    """Objects of the graph, and answers of our writes until the feed reports them."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._written: dict[str, Object] = {}

    def wrote(self, object_: Object) -> Object:
        """Records the answer of a write."""
        self._written[object_["metadata"]["uid"]] = object_
        return object_

    def read(self, seen: PartialObject) -> Object:
        written = self._written.get(seen.uid)
        if written is not None:
            ours, theirs = written["metadata"]["resourceVersion"], seen.metadata.resource_version
            if ours.isdigit() and theirs.isdigit() and int(ours) > int(theirs):
                return written
            del self._written[seen.uid]
        return seen.object()

    def find(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        seen = self._graph.find(kind, name, namespace)
        return self.read(seen) if seen is not None else None

    def forget(self, uid: str) -> None:
        self._written.pop(uid, None)
