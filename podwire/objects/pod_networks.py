"""The networks of pods: that of the cluster, and the part of it that each node has. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any

Network = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class PodNetwork:
    """The addresses of all pods of one family, of which each node gets a part."""

    network: Network
    prefix: int
    """The prefix length of a node's part."""
    reserved: int = 0
    """The first parts, which are given by somebody else."""

    def free(self, taken: Iterable[Network]) -> Network | None:
        """Returns the first part that does not overlap with those that are taken; None if there is none."""
        size = 1 << (self.network.max_prefixlen - self.prefix)
        used: set[int] = set()
        for other in taken:
            if other.version == self.network.version and other.overlaps(self.network):
                first = max(0, int(other.network_address) - int(self.network.network_address))
                last = int(other.broadcast_address) - int(self.network.network_address)
                parts = (last // size) - (first // size) + 1
                used.update(range(first // size, first // size + min(parts, 1 << 16)))
        for number in range(self.reserved, 1 << (self.prefix - self.network.prefixlen)):
            if number not in used:
                kind = type(self.network)
                return kind((int(self.network.network_address) + number * size, self.prefix))
        return None


def networks_of(node: Mapping[str, Any]) -> list[Network]:
    spec = node.get("spec") or {}
    texts = spec.get("podCIDRs") or [spec.get("podCIDR")]
    return [ip_network(text) for text in texts if text]
