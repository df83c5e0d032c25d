"""Interface to the runtime that the adaptation is part of."""

from collections.abc import Sequence
from typing import Protocol

from podwire.protocols.nri import nri_pb2 as pb


class ContainerUpdater(Protocol):
    """Updates containers that exist already."""

    async def update_containers(self, updates: Sequence[pb.ContainerUpdate]) -> list[pb.ContainerUpdate]:
        """Apply updates, and return those that failed.

        Plugins call this from inside hooks, too: it must not wait for anything that a hook holds up.
        """
        ...
