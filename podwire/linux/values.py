"""Values: links, addresses, routes and the like. Those of nft, mounts and cgroups are in their packages."""

from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from os import PathLike
from typing import NamedTuple

IP = IPv4Address | IPv6Address
Interface = IPv4Interface | IPv6Interface
Network = IPv4Network | IPv6Network
Path = str | PathLike[str]

PROTOCOL = 112
"""The owner tag of our addresses (IFA_PROTO), routes and rules: a number that no routing daemon uses."""
MAIN, LOCAL = 254, 255
"""Routing tables."""


class Link(NamedTuple):
    """A network interface as it is."""

    ifindex: int
    name: str
    kind: str
    """veth, bridge, macvlan, …; empty for a loopback and for hardware."""
    mac: str
    mtu: int
    up: bool
    state: str
    """Operational state (RFC 2863): up, down, lowerlayerdown, unknown, …"""
    master: int = 0
    peer: int = 0
    """The other end of a veth, the parent of a macvlan; an index in `peer_netns`."""
    peer_netns: int | None = None
    """The kernel's id of the namespace that the peer is in; None when it is this one."""
    alias: str = ""
    promiscuous: bool = False
    hairpin: bool = False
    isolated: bool = False
    mode: str = ""
    """Mode of a macvlan or ipvlan."""
    all_multicast: bool = False
    queue: int = 0
    """Length of the transmit queue (txqueuelen)."""
    xdp: bool = False
    """Whether an XDP program is attached."""
    group: int = 0
    """A number that nft matches as `iifgroup`."""
    vlan: int = 0
    """Tag of a vlan."""
    table: int = 0
    """Routing table of a vrf."""


class Veth(NamedTuple):
    """A pair to be made. The peer can be put into another namespace at once, but is never up: the kernel refuses it."""

    name: str
    peer: str
    peer_netns: Path | None = None
    peer_index: int = 0
    mtu: int = 0
    mac: str = ""
    peer_mac: str = ""
    alias: str = ""
    master: int = 0
    up: bool = False
    group: int = 0


class Bridge(NamedTuple):
    name: str
    mtu: int = 0
    mac: str = ""
    """Without one, the bridge takes the MAC address of a port."""
    alias: str = ""
    up: bool = False


class Macvlan(NamedTuple):
    name: str
    parent: int
    mode: str = "bridge"
    """bridge: links of one parent reach each other; private: they do not; vepa: by the switch; passthru: one only."""
    netns: Path | None = None
    mtu: int = 0
    mac: str = ""
    alias: str = ""
    """Only if it is made in its parent's namespace: a link is tagged there, and moved afterwards."""
    queue: int = 0
    """Broadcasts that may wait; 0 is the kernel's default."""


class Ifb(NamedTuple):
    """An intermediate functional block: a queue for incoming packets, which continue where they came from."""

    name: str
    mtu: int = 0
    alias: str = ""
    up: bool = False


class Ipvlan(NamedTuple):
    """A link with the MAC address of its parent; made in the parent's namespace, tagged there, and moved afterwards."""

    name: str
    parent: int
    mode: str = "l2"
    """l2, l3: routed by the parent's namespace, without broadcasts; l3s: the same through netfilter."""
    mtu: int = 0
    alias: str = ""


class Vlan(NamedTuple):
    """The frames of its parent that have a VLAN tag; a parent has one link for each tag."""

    name: str
    parent: int
    vlan: int
    mtu: int = 0
    alias: str = ""


class Dummy(NamedTuple):
    """A link that drops what is sent to it."""

    name: str
    mtu: int = 0
    alias: str = ""


class Vrf(NamedTuple):
    """A link whose ports have a routing table of their own."""

    name: str
    table: int
    alias: str = ""
    up: bool = False


class Vxlan(NamedTuple):
    """A link whose frames go to other machines in UDP packets. It learns nothing: its table of stations is ours."""

    name: str
    vni: int
    local: IP
    parent: int
    port: int = 4789
    mtu: int = 0
    mac: str = ""
    alias: str = ""
    up: bool = False


NewLink = Veth | Bridge | Macvlan | Ifb | Ipvlan | Vlan | Dummy | Vrf | Vxlan


class Address(NamedTuple):
    ifindex: int
    interface: Interface
    protocol: int = PROTOCOL
    """The owner tag; 0 on kernels before 5.18."""
    tentative: bool = False
    """Not usable yet: duplicate address detection goes on."""
    lent: bool = False
    """The kernel deletes it when its time is over."""


class Route(NamedTuple):
    destination: Network
    gateway: IP | None = None
    ifindex: int = 0
    source: IP | None = None
    table: int = MAIN
    metric: int = 0
    """0 is the kernel's default: none for IPv4, 1024 for IPv6."""
    mtu: int = 0
    advmss: int = 0
    scope: int | None = None
    """None: link for a route without a gateway, else global. IPv6 knows none."""
    onlink: bool = False
    protocol: int = PROTOCOL
    kind: str = "unicast"
    others: tuple[IP, ...] = ()
    """Further gateways of a multipath route on the same link. `list` returns a route for each of them."""


class Rule(NamedTuple):
    """A rule of policy routing: which packets use which table."""

    priority: int
    table: int
    family: int = 4
    source: Network | None = None
    destination: Network | None = None
    input: str = ""
    output: str = ""
    mark: int = 0
    mask: int = 0
    protocol: int = PROTOCOL


class Neighbour(NamedTuple):
    ifindex: int
    address: IP
    mac: str
    permanent: bool = True


class Station(NamedTuple):
    """A MAC address behind a VXLAN link, and the machine that has it."""

    ifindex: int
    mac: str
    machine: IP


class PinnedNamespace(NamedTuple):
    """A namespace that a path keeps alive."""

    name: str
    path: str
    inode: int
    """The namespace's identity; 0 if nothing is pinned at the path."""


class Bucket(NamedTuple):
    """A token bucket: rate in bytes per second, burst in bytes, limit of the queue in bytes."""

    rate: int
    burst: int
    limit: int


class Subnets(NamedTuple):
    """Networks whose packets a bucket limits, or does not limit, by one of their addresses."""

    networks: tuple[Network, ...]
    limited: bool
    """Whether these alone are limited; otherwise all others."""
    by_source: bool
    """Whether the source of a packet is compared; otherwise its destination."""
