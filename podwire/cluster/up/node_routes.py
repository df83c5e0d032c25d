"""Routes between nodes of one cluster, and source addresses of pods that stay visible across nodes.

The CNI plugins masquerade packets that leave a pod's subnet. Between pods of one cluster this must not happen, because
the receiver would not see the sender's address. Of several NAT chains at the same hook the first that decides wins;
ours runs before those of the plugins and maps a pod's address to itself.
"""

from collections.abc import Iterable
from pathlib import Path

from podwire.cluster.up.slots import Network, Slot
from podwire.linux.net.network import KernelNetwork
from podwire.linux.nft.table import KernelRuleset
from podwire.linux.values import Route

TABLE = "podwire_nodes"
_IP = {4: "ip", 6: "ip6"}

_RULES = """\
add table inet {table} {{ comment "{tag}" ; }}
delete table inet {table}
add table inet {table} {{ comment "{tag}" ; }}
add chain inet {table} postrouting {{ type nat hook postrouting priority 99; policy accept; }}
{rules}
"""
_RULE = (
    "add rule inet {table} postrouting {ip} saddr {own} {ip} daddr != {own} {ip} daddr {{ {others} }} "
    "snat {ip} prefix to {ip} saddr map {{ {own} : {own} }}"
)


def routes(slot: Slot, others: Iterable[int], eth0: int, *, ipv6: bool) -> list[Route]:
    """Returns routes to the pods of each other node, by its address on the bridge."""
    result = []
    for number in others:
        vias = {address.version: address.ip for address in slot.addresses(number, ipv6=ipv6)}
        result += [Route(pod_range, vias[pod_range.version], eth0) for pod_range in slot.pod_ranges(number, ipv6=ipv6)]
    return result


def ruleset(own: Iterable[Network], inside: Iterable[Network], tag: str) -> str:
    """Returns the nft rules that exempt packets of a node's own pods to these networks from masquerading."""
    networks = list(inside)
    rules = [
        _RULE.format(table=TABLE, ip=_IP[pods.version], own=pods, others=destinations)
        for pods in own
        if (destinations := ", ".join(str(network) for network in networks if network.version == pods.version))
    ]
    return _RULES.format(table=TABLE, tag=tag, rules="\n".join(rules))


def inside_networks(slot: Slot, others: Iterable[int], *, ipv6: bool, joinable: bool) -> list[Network]:
    """Returns where packets of pods keep their source: the pods of other nodes, and of machines that may join."""
    if joinable:
        return [slot.pods, slot.nodes, *([slot.own6] if ipv6 else [])]
    return [pod_range for other in others for pod_range in slot.pod_ranges(other, ipv6=ipv6)]


def configure_node(
    slot: Slot, number: int, numbers: Iterable[int], netns: Path, tag: str, *, ipv6: bool, joinable: bool = False
) -> None:
    """Configures a node for all others; a single node of a cluster that no machine can join needs nothing.

    Idempotent, also with more nodes.
    """
    others = [other for other in numbers if other != number]
    if not others and not joinable:
        return
    with KernelNetwork(netns) as network:
        for route in routes(slot, others, network.links.get("eth0").ifindex, ipv6=ipv6):
            network.routes.replace(route)
    inside = inside_networks(slot, others, ipv6=ipv6, joinable=joinable)
    KernelRuleset(netns).apply(ruleset(slot.pod_ranges(number, ipv6=ipv6), inside, tag))
