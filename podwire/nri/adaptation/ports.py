"""What a host of NRI asks of the runtime that it sits in."""

from collections.abc import Sequence
from typing import Protocol

from podwire.protocols.nri import nri_pb2 as pb


class ContainerUpdater(Protocol):
    """The containers of a node, as far as plugins may change them."""

    async def update_containers(self, updates: Sequence[pb.ContainerUpdate]) -> list[pb.ContainerUpdate]:
        """Apply these; those that failed.

        Plugins ask for it from inside their hooks, too: it must never wait for what a hook holds up.
        """
        ...
