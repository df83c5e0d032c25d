"""Values that the parts of the driver share: devices, claims, pods, and the allocation of one device to one claim."""

from collections.abc import Iterable

import msgspec

from podwire.dradriver.parameters.settings import Settings
from podwire.linux.net.sysfs import Hardware


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """A device of the inventory, whether its link is on the host at this moment or in a pod."""

    name: str
    """The device's name in the ResourceSlice."""
    link: str
    """The link's name on the host."""
    ifindex: int
    """The link's index on the host; 0 while it is elsewhere."""
    kind: str
    """The kernel's: veth, bridge, macvlan, …; empty for hardware."""
    mac: str
    mtu: int
    shared: bool
    """Whether interfaces are made on it; otherwise it moves as a whole."""
    hardware: Hardware
    parent_mtu: int | None = None
    """The MTU of a virtual function's physical function, which is its maximum."""
    rdma: str = ""
    """The name of its RDMA device."""
    character_devices: tuple[str, ...] = ()
    """Files in /dev that belong to it: /dev/infiniband/uverbs0, /dev/vhost-net, /dev/net/tun."""


class ClaimRef(msgspec.Struct, frozen=True, kw_only=True):
    namespace: str
    name: str
    uid: str


class PodRef(msgspec.Struct, frozen=True, kw_only=True):
    namespace: str
    name: str
    uid: str


class Allocation(msgspec.Struct, frozen=True, kw_only=True):
    """One allocated device of one claim, for one pod: what NodePrepareResources has to prepare."""

    claim: ClaimRef
    pod: PodRef
    request: str
    pool: str
    share_id: str
    """Empty for a device that is not shared."""
    device: Device
    settings: Settings


class Refused(Exception):
    """A request that would fail again if it were retried; names the field and the reason."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}" if field else reason)
        self.field, self.reason = field, reason


def by_claim(allocations: Iterable[Allocation]) -> dict[ClaimRef, list[Allocation]]:
    """Groups the allocations of a pod, in the order in which they come."""
    groups: dict[ClaimRef, list[Allocation]] = {}
    for allocation in allocations:
        groups.setdefault(allocation.claim, []).append(allocation)
    return groups
