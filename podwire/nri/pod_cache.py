"""Which pods there are and where their networks are, kept for the hooks in which a runtime no longer tells.

Several runtimes leave the network namespace out of StopPodSandbox, by then its process is gone. Nothing here does I/O.
"""

from collections.abc import Iterable

from podwire.protocols.nri import nri_pb2 as pb

NETWORK = "network"


def netns_in(pod: pb.PodSandbox) -> str:
    """The path of the pod's network namespace as the message has it; empty for the host's network, and if untold."""
    return next((each.path for each in pod.linux.namespaces if each.type == NETWORK), "")


class PodCache:
    """Pods from RunPodSandbox or Synchronize until they are forgotten."""

    def __init__(self) -> None:
        self._pods: dict[str, pb.PodSandbox] = {}

    def learn(self, pod: pb.PodSandbox) -> None:
        """Keep a pod as it is told; a network namespace that was known is not lost to a message without one."""
        known = netns_in(self._pods[pod.id]) if pod.id in self._pods else ""
        kept = pb.PodSandbox()
        kept.CopyFrom(pod)  # a hook may change what it is given
        if known and not netns_in(kept):
            kept.linux.namespaces.add(type=NETWORK, path=known)
        self._pods[pod.id] = kept

    def forget(self, pod_id: str) -> None:
        self._pods.pop(pod_id, None)

    def missing_in(self, pods: Iterable[pb.PodSandbox]) -> list[pb.PodSandbox]:
        """Who is remembered, and is not among these."""
        there = {each.id for each in pods}
        return [each for key, each in self._pods.items() if key not in there]

    def netns_of(self, pod: pb.PodSandbox | str) -> str:
        """What the message says, or else what is remembered."""
        if isinstance(pod, str):
            return netns_in(self._pods[pod]) if pod in self._pods else ""
        return netns_in(pod) or self.netns_of(pod.id)
