"""Pods and their network namespaces, for the hooks in which a runtime leaves them out. No I/O.

Several runtimes leave the network namespace out of StopPodSandbox, because its process has ended by then.
"""

from collections.abc import Iterable

from podwire.protocols.nri import nri_pb2 as pb

NETWORK = "network"


def netns_in(pod: pb.PodSandbox) -> str:
    """The path of the pod's network namespace in a message; empty for the host's network, and when left out."""
    return next((namespace.path for namespace in pod.linux.namespaces if namespace.type == NETWORK), "")


class PodCache:
    """Pods from RunPodSandbox or Synchronize until they are removed."""

    def __init__(self) -> None:
        self._pods: dict[str, pb.PodSandbox] = {}

    def put(self, pod: pb.PodSandbox) -> None:
        """Copies a pod; a message without a network namespace does not erase the one that is known."""
        known = netns_in(self._pods[pod.id]) if pod.id in self._pods else ""
        copy = pb.PodSandbox()
        copy.CopyFrom(pod)  # a hook may change its argument
        if known and not netns_in(copy):
            copy.linux.namespaces.add(type=NETWORK, path=known)
        self._pods[pod.id] = copy

    def remove(self, pod_id: str) -> None:
        self._pods.pop(pod_id, None)

    def missing_in(self, pods: Iterable[pb.PodSandbox]) -> list[pb.PodSandbox]:
        """The cached pods that are not among these."""
        existing = {pod.id for pod in pods}
        return [pod for key, pod in self._pods.items() if key not in existing]

    def netns_of(self, pod: pb.PodSandbox | str) -> str:
        """From the message, else from the cache."""
        if isinstance(pod, str):
            return netns_in(self._pods[pod]) if pod in self._pods else ""
        return netns_in(pod) or self.netns_of(pod.id)
