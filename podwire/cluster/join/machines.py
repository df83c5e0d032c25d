"""Decides how pods of this machine reach those of others: routes, or a VXLAN where there is no common segment. Pure.

A machine is an address and the networks behind it. A Node is a machine of its own, with its InternalIPs and the
networks of its pods, unless annotations name another one: the nodes of `podwire up` are namespaces behind their host. A
node may write both into its own Node. So only networks inside the cluster's are routed, and never those of this
machine; of two machines that claim a network, the older Node has it. A Node whose address is itself inside the cluster
is behind a machine that is not known yet.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address, ip_network

from podwire.cluster.join.settings import AUTO, ROUTES, VXLAN
from podwire.linux.values import IP, Interface, Network
from podwire.protocols.k8sapi.watch import Object

MACHINE, MACHINE_NETWORKS = "podwire.dev/machine", "podwire.dev/machine-networks"
"""Annotations of a Node: the addresses of the machine that it is on, and networks behind it besides those of pods."""
OVERHEAD = {4: 50, 6: 70}
"""Bytes that VXLAN adds to a packet, by the version of the outer one."""


@dataclass(frozen=True, slots=True)
class Machine:
    addresses: tuple[IP, ...]
    networks: tuple[Network, ...]

    def address(self, version: int) -> IP | None:
        return next((address for address in self.addresses if address.version == version), None)

    @property
    def mac(self) -> str:
        """The MAC address of its VXLAN link: it follows from its address, so nobody has to publish it."""
        packed = self.addresses[0].packed
        return (b"\x0a\x58" + packed[-4:]).hex(":")

    @property
    def link_local(self) -> IPv6Address:
        """The next hop of IPv6 packets through a VXLAN."""
        mac = bytes.fromhex(self.mac.replace(":", ""))
        return IPv6Address(bytes.fromhex("fe80000000000000") + bytes([mac[0] ^ 2]) + mac[1:3] + b"\xff\xfe" + mac[3:])


@dataclass(frozen=True, slots=True)
class LocalLink:
    """A link of this machine, with its addresses."""

    ifindex: int
    mtu: int
    interfaces: tuple[Interface, ...]


@dataclass(frozen=True, slots=True)
class Hop:
    """A network, its next hop, and the link to it; no link: the VXLAN."""

    network: Network
    gateway: IP
    ifindex: int | None


@dataclass(frozen=True, slots=True)
class Plan:
    hops: tuple[Hop, ...] = ()
    tunnels: tuple[Machine, ...] = ()
    """Machines that are reached through the VXLAN."""
    problems: tuple[str, ...] = field(default=(), compare=False)


def machine_of(node: Object) -> Machine | None:
    """Returns the machine of a Node; None while it has no address or no network."""
    spec, metadata = node.get("spec") or {}, node["metadata"]
    notes: Mapping[str, str] = metadata.get("annotations") or {}
    rows = (node.get("status") or {}).get("addresses") or ()
    own = [str(row.get("address")) for row in rows if row.get("type") == "InternalIP"]
    try:
        addresses = [ip_address(text) for text in _words(notes.get(MACHINE, "")) or own]
        networks = [ip_network(text) for text in spec.get("podCIDRs") or _words(spec.get("podCIDR") or "")]
        networks += [ip_network(text) for text in _words(notes.get(MACHINE_NETWORKS, ""))]
    except ValueError:
        return None
    return Machine(tuple(addresses), tuple(networks)) if addresses and networks else None


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def others(nodes: Iterable[Object], own: Sequence[IP], cluster: Sequence[Network]) -> list[Machine]:
    """Returns all machines but this one, each once, with the networks that they may have."""
    by_age = sorted(nodes, key=lambda node: (node["metadata"].get("creationTimestamp") or "", node["metadata"]["name"]))
    found = [machine for node in by_age if (machine := machine_of(node)) is not None]
    found = [machine for machine in found if not any(_is_in(address, cluster) for address in machine.addresses)]
    taken = [network for machine in found if _is(machine, own) for network in machine.networks]
    networks: dict[tuple[IP, ...], list[Network]] = {}
    for machine in found:
        if _is(machine, own):
            continue
        mine = networks.setdefault(machine.addresses, [])
        for network in machine.networks:
            inside = _is_in(network.network_address, cluster) and _is_in(network.broadcast_address, cluster)
            free = not any(network.version == other.version and network.overlaps(other) for other in taken)
            if network not in mine and inside and free:
                mine.append(network)
                taken.append(network)
    return [Machine(addresses, tuple(rows)) for addresses, rows in networks.items() if rows]


def _is_in(address: IP, networks: Iterable[Network]) -> bool:
    return any(address.version == network.version and address in network for network in networks)


def _is(machine: Machine, own: Sequence[IP]) -> bool:
    return bool(set(machine.addresses) & set(own))


def plan(machines: Iterable[Machine], links: Sequence[LocalLink], backend: str = AUTO) -> Plan:
    """Returns the next hops to all networks of other machines."""
    hops, tunnels, problems = [], [], []
    for machine in machines:
        for network in machine.networks:
            gateway = machine.address(network.version)
            link = _segment(gateway, links) if gateway is not None and backend in (AUTO, ROUTES) else None
            if gateway is not None and link is not None:
                hops.append(Hop(network, gateway, link.ifindex))
            elif backend in (AUTO, VXLAN):
                through = machine.address(4) if network.version == 4 else None
                hops.append(Hop(network, through or machine.link_local, None))
                tunnels += [machine] if machine not in tunnels else []
            else:
                problems.append(f"{network} is behind {machine.addresses[0]}, which is on no segment of this machine")
    return Plan(tuple(hops), tuple(tunnels), tuple(problems))


def _segment(address: IP, links: Sequence[LocalLink]) -> LocalLink | None:
    for link in links:
        if any(address.version == interface.version and address in interface.network for interface in link.interfaces):
            return link
    return None


def tunnel_mtu(mtu: int, version: int) -> int:
    """Returns the MTU of a VXLAN over a link."""
    return mtu - OVERHEAD[version]
