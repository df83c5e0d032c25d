"""What nodes of one cluster know of each other: routes to each other's pods, and that these see each other as they are.

A pod that leaves its subnet leaves as its node; the CNI plugins see to that. Between pods of one cluster it must not:
who is called would not know by whom. Of several chains that translate at the same point, the first that decides
wins, and ours is before the plugins': it gives a pod that calls a pod of another node the address that it has.
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
add table inet {table} {{ comment "{mark}" ; }}
delete table inet {table}
add table inet {table} {{ comment "{mark}" ; }}
add chain inet {table} postrouting {{ type nat hook postrouting priority 99; policy accept; }}
{rules}
"""
_RULE = (
    "add rule inet {table} postrouting {ip} saddr {own} {ip} daddr {{ {others} }} "
    "snat {ip} prefix to {ip} saddr map {{ {own} : {own} }}"
)


def routes(slot: Slot, others: Iterable[int], eth0: int, *, ipv6: bool) -> list[Route]:
    """To the pods of each other node, by its address on the bridge."""
    found = []
    for number in others:
        vias = {address.version: address.ip for address in slot.addresses(number, ipv6=ipv6)}
        found += [Route(pod_range, vias[pod_range.version], eth0) for pod_range in slot.pod_ranges(number, ipv6=ipv6)]
    return found


def ruleset(slot: Slot, number: int, others: Iterable[int], mark: str, *, ipv6: bool) -> str:
    """What the pods of this node send to pods of others leaves as it is."""
    there: list[Network] = [pod_range for other in others for pod_range in slot.pod_ranges(other, ipv6=ipv6)]
    rules = []
    for own in slot.pod_ranges(number, ipv6=ipv6):
        met = ", ".join(str(network) for network in there if network.version == own.version)
        rules.append(_RULE.format(table=TABLE, ip=_IP[own.version], own=own, others=met))
    return _RULES.format(table=TABLE, mark=mark, rules="\n".join(rules))


def introduce(slot: Slot, number: int, numbers: Iterable[int], netns: Path, mark: str, *, ipv6: bool) -> None:
    """Tell a node of all others; a node that is alone needs nothing. Again is fine, also with more of them."""
    others = [other for other in numbers if other != number]
    if not others:
        return
    with KernelNetwork(netns) as network:
        for route in routes(slot, others, network.links.get("eth0").ifindex, ipv6=ipv6):
            network.routes.replace(route)
    KernelRuleset(netns).apply(ruleset(slot, number, others, mark, ipv6=ipv6))
