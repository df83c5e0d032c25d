"""Names and numbers that are machine-wide; they follow from the slot of a cluster. Pure.

    slot 0    the standard ports, pods 10.244.0.0/16, services 10.96.0.0/16, nodes 10.245.0.0/24
    slot N    10.(100+N).0.0/16: pods in the lower half, services in the third quarter, nodes in 10.(100+N).192.0/24

IPv6 uses the ULA fd70:6f64:77NN::/48: its first subnet is for nodes, 800 is for services, 1000 and up are for pods.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv4Network, IPv6Interface, IPv6Network

from podwire.objects.pod_networks import PodNetwork

Network = IPv4Network | IPv6Network
Interface = IPv4Interface | IPv6Interface

LAST = 99
TABLES = "podwire_slot"
BRIDGES = "podwire-br"
"""How the names of the bridges of all slots begin."""
KUBELET_PORT = 10250
_FIRST_API_PORT = 16443
_FIRST_SCHEDULER_PORT = 16643
_SERVICES6, _PODS6 = 0x800, 0x1000
_POOL6 = 0x1000
_FIRST_VNI = 4096
OWN_NODES = 16
"""Nodes that `up` makes itself at most."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One of the slots that clusters on a machine can claim."""

    number: int

    @property
    def api_port(self) -> int:
        return 6443 if self.number == 0 else _FIRST_API_PORT + self.number

    @property
    def scheduler_port(self) -> int:
        """The port of the scheduler's metrics, on the loopback."""
        return 10259 if self.number == 0 else _FIRST_SCHEDULER_PORT + self.number

    @property
    def bridge(self) -> str:
        """The host's bridge to the nodes."""
        return f"{BRIDGES}{self.number}"

    @property
    def table(self) -> str:
        """The nft table for NAT."""
        return f"{TABLES}{self.number}"

    def port(self, node: int) -> str:
        """The host's end of a node's veth pair."""
        return f"podwire-{self.number}-{node}"

    @property
    def pods(self) -> IPv4Network:
        return IPv4Network("10.244.0.0/16" if self.number == 0 else f"10.{100 + self.number}.0.0/17")

    @property
    def services(self) -> IPv4Network:
        return IPv4Network("10.96.0.0/16" if self.number == 0 else f"10.{100 + self.number}.128.0/18")

    @property
    def dns_address(self) -> str:
        """The cluster IP of the DNS: the tenth of the Services, as kubeadm has it."""
        return str(self.services[10])

    def networks(self, *, ipv6: bool) -> tuple[Network, ...]:
        """All networks of the cluster."""
        return (self.pods, self.services, self.nodes, *((self.own6,) if ipv6 else ()))

    @property
    def nodes(self) -> IPv4Network:
        return IPv4Network("10.245.0.0/24" if self.number == 0 else f"10.{100 + self.number}.192.0/24")

    def balancer_pool(self, *, ipv6: bool) -> tuple[Network, ...]:
        """Addresses for Services of type LoadBalancer: a part of the networks of the nodes that no node uses."""
        second = IPv6Network((self.nodes6.network_address + _POOL6, 120))
        first = IPv4Network((self.nodes[128], 25))
        return (first, second) if ipv6 else (first,)

    @property
    def own6(self) -> IPv6Network:
        return IPv6Network(f"fd70:6f64:77{self.number:02x}::/48")

    @property
    def services6(self) -> IPv6Network:
        return IPv6Network((self.own6.network_address + (_SERVICES6 << 64), 112))

    def service_ranges(self, *, ipv6: bool) -> tuple[Network, ...]:
        """The addresses of services; the first network is the default."""
        return (self.services, self.services6) if ipv6 else (self.services,)

    @property
    def nodes6(self) -> IPv6Network:
        return IPv6Network((self.own6.network_address, 64))

    def gateways(self, *, ipv6: bool) -> tuple[Interface, ...]:
        """The host's addresses on the bridge: API server and default gateway."""
        return self._on_bridge(1, ipv6)

    def addresses(self, node: int, *, ipv6: bool) -> tuple[Interface, ...]:
        """A node's own addresses; nodes are counted from 1."""
        return self._on_bridge(1 + node, ipv6)

    def _on_bridge(self, host: int, ipv6: bool) -> tuple[Interface, ...]:
        first = IPv4Interface((self.nodes[host], self.nodes.prefixlen))
        return (first, IPv6Interface((self.nodes6[host], 64))) if ipv6 else (first,)

    def pod_ranges(self, node: int, *, ipv6: bool) -> tuple[Network, ...]:
        """The address ranges of a node's pods."""
        first = IPv4Network((self.pods.network_address + (node - 1) * 256, 24))
        second = IPv6Network((self.own6.network_address + ((_PODS6 + node) << 64), 64))
        return (first, second) if ipv6 else (first,)

    def pod_networks(self, *, ipv6: bool) -> tuple[PodNetwork, ...]:
        """The networks of which nodes that join get a part; the first parts are those of the cluster's own nodes."""
        first = PodNetwork(self.pods, 24, reserved=OWN_NODES)
        all6 = IPv6Network((self.own6.network_address + (_PODS6 << 64), 52))
        second = PodNetwork(all6, 64, reserved=OWN_NODES + 1)
        return (first, second) if ipv6 else (first,)

    @property
    def vni(self) -> int:
        """The number of the VXLAN between machines."""
        return _FIRST_VNI + self.number

    def owns(self, network: Network) -> bool:
        """Whether a route to this network would overlap with ours."""
        mine = (self.own6,) if network.version == 6 else (self.pods, self.services, self.nodes)
        return any(own.overlaps(network) for own in mine)


def collisions(slot: Slot, routes: Iterable[Network]) -> list[Network]:
    """Returns the host's routes that overlap with a slot's ranges. A default route does not count."""
    return [route for route in routes if route.prefixlen and slot.owns(route)]
