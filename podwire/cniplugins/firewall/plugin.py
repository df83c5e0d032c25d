"""firewall: which packets of a pod this host forwards.

In the nft table `inet podwire`, rules that never change, and sets with one element per address of a pod:

    forward4/6      what a pod sends is accepted, and what comes back to it
    policed4/6      pods with an ingress policy: one does not reach another
    inside4/6       … unless by the bridge that both are in

and in `bridge podwire`, as packets within a bridge are not forwarded by IP:

    isolated4/6     pods that nobody in their own bridge reaches, either

To accept a packet here ends the rules here. A rule of somebody else's table that drops it is still heard, see
`other_firewalls.py`.
"""

from functools import partial

from podwire.cniplugins import chained, nat
from podwire.cniplugins.attachments import Record
from podwire.cniplugins.chained import agree
from podwire.cniplugins.firewall.plugin import other_firewalls
from podwire.cniplugins.netfilter import Netfilter, opened
from podwire.cniplugins.skeleton import Call
from podwire.failpoints import declare, failpoint
from podwire.linux import errors as linux
from podwire.linux.nft import keys
from podwire.linux.nft.table import TABLE, KernelRuleset
from podwire.linux.values import Element
from podwire.protocols.cni.config import PluginConfig
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import Result
from podwire.protocols.cni.values import Address, looked_up, taken
from podwire.protocols.cni.verbs import is_ifname

POLICIES = ("open", "same-bridge", "isolated")
_BACKENDS = ("", "nftables")
SETS = tuple(f"{each}{family}" for each in ("forward", "policed", "inside") for family in (4, 6))
FORWARD_SETS = ("forward4", "forward6")
ISOLATED_SETS = ("isolated4", "isolated6")
_IP = {4: "ip", 6: "ip6"}

ISOLATED = declare("firewall.isolated", "nobody in its bridge reaches a pod, nothing else is done")
FORGOTTEN = declare("firewall.forgotten", "DEL: nothing is forwarded for a pod, it is still isolated in its bridge")

_CHAIN = """
add table inet {table}
add chain inet {table} forward {{ type filter hook forward priority filter - 1; policy accept; }}
flush chain inet {table} forward
"""
_FAMILY = """
add set inet {table} forward{v} {{ type ipv{v}_addr; }}
add set inet {table} policed{v} {{ type ipv{v}_addr; }}
add set inet {table} inside{v} {{ type ipv{v}_addr . ifname; }}
add rule inet {table} forward {ip} daddr . iifname @inside{v} {mark} accept
add rule inet {table} forward {ip} saddr @policed{v} {ip} daddr @policed{v} drop
add rule inet {table} forward {ip} daddr @forward{v} ct state established,related {mark} accept
add rule inet {table} forward {ip} saddr @forward{v} {mark} accept
"""
_BRIDGE = """
add table bridge {table}
add chain bridge {table} forward {{ type filter hook forward priority filter; policy accept; }}
flush chain bridge {table} forward
add set bridge {table} isolated4 {{ type ipv4_addr; }}
add set bridge {table} isolated6 {{ type ipv6_addr; }}
add rule bridge {table} forward ip daddr @isolated4 drop
add rule bridge {table} forward ip6 daddr @isolated6 drop
"""

_SET_MARK = f"meta mark set meta mark or {other_firewalls.MARK:#x}"

Wanted = list[tuple[str, Element]]


def ruleset() -> str:
    """All that does not change; can be applied again and again."""
    return _CHAIN.format(table=TABLE) + "".join(
        _FAMILY.format(table=TABLE, v=v, ip=ip, mark=_SET_MARK) for v, ip in _IP.items()
    )


def bridge_ruleset() -> str:
    return _BRIDGE.format(table=TABLE)


def policy_of(config: PluginConfig) -> str:
    """What is asked for; refuses what only other firewalls have."""
    backend = taken(config.raw, "backend", str, "")
    if backend not in _BACKENDS:
        raise CniError(Code.UNSUPPORTED_FIELD, f"backend: {backend!r} is not supported by podwire's firewall")
    for key, harmless in (("iptablesAdminChainName", ""), ("firewalldZone", "")):
        if taken(config.raw, key, str, "") != harmless:
            raise CniError(Code.UNSUPPORTED_FIELD, f"{key}: not supported by podwire's firewall, which is nftables")
    policy = taken(config.raw, "ingressPolicy", str, "") or POLICIES[0]
    if policy not in POLICIES:
        raise CniError(Code.BAD_CONFIG, f"ingressPolicy: {policy!r} is none of {', '.join(POLICIES)}")
    return policy


def pod_addresses(result: Result) -> list[Address]:
    found = [each for each in result.ips if each.interface is None or result.interfaces[each.interface].sandbox]
    return list(dict.fromkeys(each.address.ip for each in found))


def bridge_of(result: Result, policy: str) -> str:
    """The bridge that a result tells of; it comes first, as bridge writes it."""
    first = result.interfaces[0] if result.interfaces else None
    if first is None or first.sandbox or not is_ifname(first.name):
        raise CniError(Code.BAD_CONFIG, f"ingressPolicy: {policy} needs a bridge, and prevResult tells of none")
    return first.name


def elements(policy: str, result: Result, comment: str) -> tuple[Wanted, Wanted]:
    """What a pod needs: in the table of IP, and in that of bridges."""
    pod = pod_addresses(result)
    routed = [(f"forward{each.version}", Element(each.packed, comment=comment)) for each in pod]
    bridged: Wanted = []
    if policy != POLICIES[0]:
        bridge = keys.interface(bridge_of(result, policy))
        routed += [(f"policed{each.version}", Element(each.packed, comment=comment)) for each in pod]
        inside = [(each.version, keys.joined(each.packed, bridge)) for each in pod]
        routed += [(f"inside{version}", Element(key, comment=comment)) for version, key in inside]
    if policy == "isolated":
        bridged = [(f"isolated{each.version}", Element(each.packed, comment=comment)) for each in pod]
    return routed, bridged


def _wanted(call: Call) -> bool:
    policy_of(call.config)
    return True


def _prepare(call: Call, record: Record, previous: Result) -> Record:
    policy = policy_of(call.config)
    elements(policy, previous, record.comment)  # refused before anything is done
    return record


def _do(call: Call, record: Record, previous: Result) -> Result:
    routed, bridged = elements(policy_of(call.config), previous, record.comment)
    with opened(call) as netfilter:
        if bridged:
            nat.replace_under(netfilter.elements.of("bridge"), bridged, bridge_ruleset)
            failpoint(ISOLATED)
        nat.replace_under(netfilter.elements, routed, ruleset)
        other_firewalls.let_through(netfilter, call.tell)
    return previous


def _undo(call: Call, record: Record) -> None:
    with opened(call) as netfilter:
        nat.remove(netfilter.elements, SETS, record.marks)
        if looked_up(record.config, "ingressPolicy") == "isolated":
            failpoint(FORGOTTEN)
            nat.remove(netfilter.elements.of("bridge"), ISOLATED_SETS, record.marks)
        other_firewalls.take_back(netfilter, partial(_is_used, netfilter))


def _is_used(netfilter: Netfilter) -> bool:
    return any(nat.marked(FORWARD_SETS, lambda _comment: True, netfilter.elements).values())


def _check(call: Call, record: Record, previous: Result) -> None:
    routed, bridged = elements(policy_of(call.config), previous, record.comment)
    with opened(call) as netfilter:
        there = _there(netfilter, record)
        other_firewalls.check(netfilter)
    for name, each in (*routed, *bridged):
        agree((name, each.key) in there, f"{call.invocation.container_id} is not in the set {name} any more")


def _there(netfilter: Netfilter, record: Record) -> set[tuple[str, bytes]]:
    found = nat.marked(SETS, record.marks, netfilter.elements)
    found |= nat.marked(ISOLATED_SETS, record.marks, netfilter.elements.of("bridge"))
    return {(name, each.key) for name, listed in found.items() for each in listed}


def _check_usable(call: Call) -> None:
    """Whether elements could be put: the sets are there, or can be made."""
    with opened(call) as netfilter:
        try:
            netfilter.elements.list(SETS[0])
        except linux.Missing:
            KernelRuleset().check(ruleset() + bridge_ruleset())


PLUGIN = chained.plugin(
    chained.Part(
        "firewall",
        chained.declared("firewall"),
        _wanted,
        _prepare,
        _do,
        _undo,
        _check,
        sets=SETS,
        bridge_sets=ISOLATED_SETS,
        check_usable=_check_usable,
    )
)
