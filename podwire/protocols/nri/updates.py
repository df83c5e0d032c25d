"""Merges the updates that plugins request for existing containers: one update per container."""

from collections.abc import Iterable
from typing import Any

from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.checks import check_update
from podwire.protocols.nri.errors import BadAdjustment, Refused
from podwire.protocols.nri.owners import Claims, Owners
from podwire.protocols.nri.resources import merge_resources


class Updates:
    """Updates by target, in the order in which they were first named. What raises changes nothing, and what
    a plugin lets fail is left out whole."""

    def __init__(self, owners: Owners | None = None) -> None:
        self.owners = owners or Owners()
        self._by_target: dict[str, pb.ContainerUpdate] = {}

    def copy(self, owners: Owners) -> "Updates":
        copied = Updates(owners)
        copied._by_target = dict(self._by_target)
        return copied

    def add(self, plugin: str, update: pb.ContainerUpdate, field: str, requested: pb.LinuxResources | None) -> None:
        """`requested` is what was asked for before any plugin, of a container that is being updated. Raises Refused."""
        known = self._by_target.get(update.container_id)
        merged = pb.ContainerUpdate(container_id=update.container_id)
        merged.linux.resources.CopyFrom(known.linux.resources if known else requested or pb.LinuxResources())
        merged.ignore_failure = update.ignore_failure and (known is None or known.ignore_failure)
        owners = self.owners.copy()
        try:
            check_update(update, field)
            merge_resources(update.linux.resources, Claims(owners, update.container_id, plugin), merged.linux.resources)
        except Refused:
            if not update.ignore_failure or not update.container_id:
                raise
            return
        self.owners.message.CopyFrom(owners.message)
        if update.linux.resources.ListFields():
            self._by_target[update.container_id] = merged

    def of(self, container: str) -> pb.ContainerUpdate | None:
        return self._by_target.get(container)

    def others(self, container: str = "") -> list[pb.ContainerUpdate]:
        return [update for target, update in self._by_target.items() if target != container]


class UpdateMerger:
    """The answers to one UpdateContainer or StopContainer."""

    def __init__(self, request: pb.UpdateContainerRequest | pb.StopContainerRequest) -> None:
        self._updated = request.container.id if isinstance(request, pb.UpdateContainerRequest) else ""
        self._updates = Updates()
        copied: Any = type(request)()
        copied.CopyFrom(request)
        self.request: pb.UpdateContainerRequest | pb.StopContainerRequest = copied
        """The request for the next plugin, with the resources as changed so far."""

    def add(self, plugin: str, response: pb.UpdateContainerResponse | pb.StopContainerResponse) -> None:
        """Raises Conflict, BadAdjustment; then nothing of the answer is taken."""
        updates = self._updates.copy(self._updates.owners.copy())
        for number, update in enumerate(response.update):
            mine = bool(self._updated) and update.container_id == self._updated
            try:
                updates.add(plugin, update, f"update[{number}]", self.resources if mine else None)
            except BadAdjustment as error:
                raise error.by(plugin) from None
        self._updates = updates
        if isinstance(self.request, pb.UpdateContainerRequest) and (own := updates.of(self._updated)):
            self.request.linux_resources.CopyFrom(own.linux.resources)

    @property
    def resources(self) -> pb.LinuxResources:
        """The resources of the updated container: as requested, with the plugins' changes."""
        return self.request.linux_resources if isinstance(self.request, pb.UpdateContainerRequest) else _NOTHING

    @property
    def updates(self) -> list[pb.ContainerUpdate]:
        """Those of other containers."""
        return self._updates.others(self._updated)

    @property
    def owners(self) -> pb.OwningPlugins:
        return self._updates.owners.message


_NOTHING = pb.LinuxResources()


def check_updates(plugin: str, updates: Iterable[pb.ContainerUpdate]) -> list[pb.ContainerUpdate]:
    """Validates unsolicited updates and those in response to Synchronize: one update per container.

    Raises BadAdjustment, and Conflict of the plugin with itself.
    """
    merged = Updates()
    for number, update in enumerate(updates):
        try:
            merged.add(plugin, update, f"update[{number}]", None)
        except BadAdjustment as error:
            raise error.by(plugin) from None
    return merged.others()
