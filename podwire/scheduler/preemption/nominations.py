"""Nominations: pending pods that wait for their victims to leave a node, so that no other pod takes the free space."""

from collections.abc import Collection

from podwire.scheduler.pod_info import PodInfo


class Nominations:
    """Pending pods by the node that is nominated for them. A pod has at most one."""

    def __init__(self) -> None:
        self._nodes: dict[str, str] = {}
        self._pods: dict[str, dict[str, PodInfo]] = {}

    def __bool__(self) -> bool:
        return bool(self._nodes)

    def put(self, info: PodInfo, node: str) -> None:
        self.drop(info.pod.uid)
        self._nodes[info.pod.uid] = node
        self._pods.setdefault(node, {})[info.pod.uid] = info

    def drop(self, uid: str) -> str:
        """Removes a nomination; returns its node, or nothing if there was none."""
        node = self._nodes.pop(uid, "")
        if node:
            pods = self._pods[node]
            del pods[uid]
            if not pods:
                del self._pods[node]
        return node

    def node_of(self, uid: str) -> str:
        """Returns the nominated node of a pod; empty for none."""
        return self._nodes.get(uid, "")

    def on(self, node: str) -> Collection[PodInfo]:
        return self._pods.get(node, {}).values()
