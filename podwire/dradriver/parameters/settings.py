"""The settings of a claimed interface in its pod: everything decided, nothing left to look up. Values only."""

from abc import ABCMeta
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
    ip_address,
    ip_interface,
    ip_network,
)
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    IP = IPv4Address | IPv6Address
    Interface = IPv4Interface | IPv6Interface
    Network = IPv4Network | IPv6Network
else:
    # msgspec decodes a union only if at most one member is a foreign class. So each union is one class at run time, of
    # which both families are virtual subclasses.

    class IP(metaclass=ABCMeta):  # noqa: B024 - a marker for msgspec
        """An address of either family."""

    class Interface(metaclass=ABCMeta):  # noqa: B024 - a marker for msgspec
        """An address with a prefix, of either family."""

    class Network(metaclass=ABCMeta):  # noqa: B024 - a marker for msgspec
        """A network of either family."""

    for _base, _families in (
        (IP, (IPv4Address, IPv6Address)),
        (Interface, (IPv4Interface, IPv6Interface)),
        (Network, (IPv4Network, IPv6Network)),
    ):
        for _family in _families:
            _base.register(_family)

_PARSERS: Mapping[Any, Callable[[str], Any]] = {IP: ip_address, Interface: ip_interface, Network: ip_network}


def decode_address(kind: Any, value: Any) -> Any:
    """Msgspec's dec_hook for records: addresses and networks are text there. Raises ValueError."""
    return _PARSERS.get(kind, kind)(value)


WHOLE = ""
"""The kind of an interface that is the device itself; all others are made on a device, for one claim."""
KINDS = (WHOLE, "macvlan", "veth", "vxlan", "tap", "ipvlan", "vlan")
CHARACTER_DEVICES = {"tun": "/dev/net/tun", "vhost-net": "/dev/vhost-net"}
"""Character devices that a claim can request with its interface, by name: no link has these for itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    destination: Network
    gateway: IP | None = None
    source: IP | None = None
    scope: int = 0
    """0 is global, 253 the link."""
    table: int = 254
    metric: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    priority: int
    table: int
    source: Network | None = None
    destination: Network | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    address: IP
    mac: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Vrf:
    name: str
    table: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """How an interface is made on its device; fields that its kind does not have are empty."""

    kind: str = WHOLE
    mode: str = ""
    """Of a macvlan: bridge, private, vepa, passthru. Of an ipvlan: l2, l3, l3s."""
    bridge: str = ""
    """Of a veth: the bridge on the host that its other end joins; the device is that bridge."""
    vni: int = 0
    remote: str = ""
    port: int = 0
    """Of a vxlan; the device is the link below it."""
    vlan: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """None means that nobody said anything: what the device has on the host stays."""

    name: str
    """In the pod."""
    made: Made = Made()
    mtu: int | None = None
    mac: str | None = None
    addresses: tuple[Interface, ...] | None = None
    dhcp: bool = False
    pool: str = ""
    """Of which addresses are taken; empty for none."""
    gso_max_size: int | None = None
    gro_max_size: int | None = None
    gso_ipv4_max_size: int | None = None
    gro_ipv4_max_size: int | None = None
    routes: tuple[Route, ...] = ()
    rules: tuple[Rule, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    vrf: Vrf | None = None
    forwarding: bool | None = None
    arp_ignore: int | None = None
    arp_announce: int | None = None
    features: Mapping[str, bool] = field(default_factory=dict)
    """Of ethtool, by the kernel's own names."""
    private_flags: Mapping[str, bool] = field(default_factory=dict)
    detach_ebpf: bool = False
    rdma: bool = False
    character_devices: tuple[str, ...] = ()
    """Paths of what was asked for; what the device has of its own is not among them."""
    bits_per_second: int | None = None
    """The bandwidth that the claim was given of a shared device, enforced both ways."""
