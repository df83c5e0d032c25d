"""Synchronize on a node that is too large for one message: in batches, all but the last with `more`.

A plugin answers each of those with `more`, and gives its updates with the last answer.
"""

from collections.abc import Iterator, Sequence

from podwire.protocols.nri import nri_pb2 as pb

ROOM = (4 << 20) - 4096
"""Bytes that a request may take in one frame; the rest is for what is around it."""


def batches(
    pods: Sequence[pb.PodSandbox], containers: Sequence[pb.Container], room: int = ROOM
) -> Iterator[pb.SynchronizeRequest]:
    """Requests that fit, at least one; together they hold everything, pods first."""
    request, used = pb.SynchronizeRequest(), 0
    for each in (*pods, *containers):
        size = each.ByteSize() + 8
        if used and used + size > room:
            request.more = True
            yield request
            request, used = pb.SynchronizeRequest(), 0
        if isinstance(each, pb.PodSandbox):
            request.pods.append(each)
        elif isinstance(each, pb.Container):
            request.containers.append(each)
        used += size
    yield request


class Gathered:
    """What a plugin has been told so far of a node, batch by batch."""

    def __init__(self) -> None:
        self.pods: list[pb.PodSandbox] = []
        self.containers: list[pb.Container] = []

    def add(self, request: pb.SynchronizeRequest) -> bool:
        """Take a batch; whether it was the last."""
        self.pods.extend(request.pods)
        self.containers.extend(request.containers)
        return not request.more
