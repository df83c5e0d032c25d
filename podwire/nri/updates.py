"""Updates of existing containers."""

from collections.abc import Iterable, Iterator
from typing import Self, Unpack

from podwire.nri.resources import Resources, fill
from podwire.protocols.nri import nri_pb2 as pb


class Updates:
    """Returned by hooks, or sent unasked by `Plugin.update_containers`. Calls may be chained."""

    def __init__(self, messages: Iterable[pb.ContainerUpdate] = ()) -> None:
        self.messages = list(messages)

    def set(self, container_id: str, *, ignore_failure: bool = False, **resources: Unpack[Resources]) -> Self:
        """Sets resources of a container, such as `cpu_shares=512`; may be called repeatedly for one container.

        With `ignore_failure`, a failure of this update does not fail the whole request.
        """
        update = next((message for message in self.messages if message.container_id == container_id), None)
        if update is None:
            update = pb.ContainerUpdate(container_id=container_id)
            self.messages.append(update)
        update.ignore_failure = ignore_failure
        fill(update.linux.resources, resources)
        return self

    def __iter__(self) -> Iterator[pb.ContainerUpdate]:
        return iter(self.messages)

    def __len__(self) -> int:
        return len(self.messages)
