"""A device as the driver offers it, and an order for one. Values only; they join the parts of this room."""

from dataclasses import dataclass

from podwire.dradriver.parameters.settings import Settings
from podwire.linux.net.sysfs import Hardware


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """One device of the inventory, whether it is on the host at this moment or in a pod."""

    device: str
    """Its name in the slice."""
    link: str
    """Its name on the host."""
    ifindex: int
    """On the host; 0 while it is elsewhere."""
    kind: str
    """The kernel's: veth, bridge, macvlan, …; empty for hardware."""
    mac: str
    mtu: int
    shared: bool
    """Whether interfaces are made on it; otherwise it moves as a whole."""
    hardware: Hardware
    parent_mtu: int | None = None
    """Of a virtual function: more than its physical function has, it cannot have."""
    rdma: str = ""
    """Its RDMA device."""
    character_devices: tuple[str, ...] = ()
    """Files in /dev that belong to it: /dev/infiniband/uverbs0, /dev/vhost-net, /dev/net/tun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRef:
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRef:
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One allocated device of one claim, for one pod: what NodePrepareResources is to make ready."""

    claim: ClaimRef
    pod: PodRef
    request: str
    pool: str
    share_id: str
    """Empty for a device that is not shared."""
    offered: Offered
    settings: Settings


class Refused(Exception):
    """What cannot be done, and would not be if it were tried again: names the field and says why."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}" if field else reason)
        self.field, self.reason = field, reason
