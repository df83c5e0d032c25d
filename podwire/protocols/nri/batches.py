"""Synchronize on a node that is too large for one message: in batches, all but the last with `more`.

A plugin answers each of those with `more`, and gives its updates with the last answer.

An object that does not fit into a message of its own cannot be sent, and a plugin that receives all but one pod decides
wrongly without knowing it. So nothing is sent then, and the error names the object.
"""

from collections.abc import Iterator, Sequence

from podwire.protocols.grpc_status import ResourceExhausted
from podwire.protocols.nri import nri_pb2 as pb

MAX_BATCH = (4 << 20) - 4096
"""Bytes that a request may take in one frame; the rest is for what is around it."""

AROUND = 8
"""Bytes at most that an object in a request takes beside its own: its number, and how long it is."""


class ObjectTooLarge(ResourceExhausted):
    """A pod or a container that no message can hold; says which."""


def batches(
    pods: Sequence[pb.PodSandbox], containers: Sequence[pb.Container], max_batch: int = MAX_BATCH
) -> Iterator[pb.SynchronizeRequest]:
    """Requests that fit, at least one; together they hold everything, pods first.

    Raises ObjectTooLarge, before any of them.
    """
    objects: tuple[pb.PodSandbox | pb.Container, ...] = (*pods, *containers)
    sizes = [object_.ByteSize() + AROUND for object_ in objects]
    for object_, size in zip(objects, sizes, strict=True):
        if size > max_batch:
            raise ObjectTooLarge(
                f"{_called(object_)} takes {size - AROUND} bytes, and a message holds {max_batch - AROUND}"
            )
    request, used = pb.SynchronizeRequest(), 0
    for object_, size in zip(objects, sizes, strict=True):
        if used and used + size > max_batch:
            request.more = True
            yield request
            request, used = pb.SynchronizeRequest(), 0
        if isinstance(object_, pb.PodSandbox):
            request.pods.append(object_)
        else:
            request.containers.append(object_)
        used += size
    yield request


def _called(object_: pb.PodSandbox | pb.Container) -> str:
    if isinstance(object_, pb.PodSandbox):
        return f"pod {object_.namespace}/{object_.name} ({object_.id})"
    return f"container {object_.name} ({object_.id})"


class Gathered:
    """Collects the batches of a Synchronize request."""

    def __init__(self) -> None:
        self.pods: list[pb.PodSandbox] = []
        self.containers: list[pb.Container] = []

    def add(self, request: pb.SynchronizeRequest) -> bool:
        """Take a batch; whether it was the last."""
        self.pods.extend(request.pods)
        self.containers.extend(request.containers)
        return not request.more
