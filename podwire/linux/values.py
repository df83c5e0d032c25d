"""Values: links, addresses, routes, mounts, limits and the like."""

from collections.abc import Sequence
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
    """Mode of a macvlan."""
    all_multicast: bool = False
    queue: int = 0
    """Length of the transmit queue (txqueuelen)."""
    xdp: bool = False
    """Whether an XDP program is attached."""


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


NewLink = Veth | Bridge | Macvlan | Ifb


class Address(NamedTuple):
    ifindex: int
    interface: Interface
    protocol: int = PROTOCOL
    """The owner tag; 0 on kernels before 5.18."""
    tentative: bool = False
    """Not usable yet: duplicate address detection goes on."""


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


class Element(NamedTuple):
    """A member of an nft set, or a key of an nft map with its data; see `keys.py` for their bytes."""

    key: bytes
    data: bytes | str = b""
    """Bytes, or a verdict: `drop`, `jump CHAIN`."""
    comment: str = ""
    """The owner tag, at most 127 bytes."""
    end: bytes = b""
    """The last key of the range, in a set of ranges."""


class Counter(NamedTuple):
    """The value of an nft counter."""

    packets: int
    bytes: int


class Change(NamedTuple):
    """Elements to delete from a set or map, and then to add."""

    set: str
    add: Sequence[Element] = ()
    delete: Sequence[Element] = ()


class Mount(NamedTuple):
    """One line of mountinfo."""

    id: int
    parent: int
    device: str
    root: str
    target: str
    options: tuple[str, ...]
    propagation: tuple[str, ...]
    kind: str
    source: str
    super_options: tuple[str, ...]


class Limits(NamedTuple):
    """Limits of a cgroup; None leaves the kernel's default, -1 removes a limit."""

    cpu_shares: int | None = None
    cpu_quota: int | None = None
    """Microseconds in each period."""
    cpu_period: int | None = None
    memory: int | None = None
    pids: int | None = None
    cpus: str | None = None
    mems: str | None = None
    hugepages: tuple[tuple[str, int], ...] = ()
    """Page size as the kernel names it ("2MB") and bytes."""


class Usage(NamedTuple):
    """Resource usage of a cgroup; None without a controller."""

    cpu_nanoseconds: int | None
    memory: int | None
    working_set: int | None
    """Memory without inactive file pages."""
    rss: int | None
    page_faults: int | None
    major_page_faults: int | None
    pids: int | None
    oom_kills: int | None
