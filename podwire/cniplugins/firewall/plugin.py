"""firewall: which packets of a pod the host forwards.

In the nft table `inet podwire`, constant rules, and sets with one element per address of a pod:

    forward4/6      packets from the pod are accepted, and replies to it
    policed4/6      pods with an ingress policy do not reach each other,
    inside4/6       … except through the bridge that both are ports of

and in `bridge podwire`, because packets within a bridge are not forwarded by IP:

    isolated4/6     pods that other ports of the bridge do not reach either

An accept verdict ends the rules of this table only. A rule of another table may still drop the packet; see
`other_firewalls.py`.
"""

import re
from functools import partial
from importlib import import_module
from ipaddress import ip_address

from podwire.cniplugins import nat, reference
from podwire.cniplugins.attachments import Record
from podwire.cniplugins.firewall import other_firewalls
from podwire.cniplugins.netfilter import Netfilter, open_netfilter
from podwire.cniplugins.order import Ends, OrderedPlugin, declare_steps
from podwire.cniplugins.pod_check import expect
from podwire.cniplugins.skeleton import Call
from podwire.failpoints import declare, failpoint
from podwire.linux.nft import keys
from podwire.linux.nft.table import TABLE
from podwire.linux.nft.values import Element
from podwire.protocols.cni.config import PluginConfig
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import Result
from podwire.protocols.cni.values import Address, Object, looked_up, taken
from podwire.protocols.cni.verbs import is_ifname

POLICIES = ("open", "same-bridge", "isolated")
BACKENDS = ("", "nftables", "iptables")
_IPTABLES = "podwire.cniplugins.iptables_backend"  # imported only where it is used
_ADMIN = "iptablesAdminChainName"
_CHAIN_NAME = re.compile(r"[A-Za-z0-9_.-]{1,28}", re.ASCII)
SETS = tuple(f"{kind}{family}" for kind in ("forward", "policed", "inside") for family in (4, 6))
FORWARD_SETS = ("forward4", "forward6")
ISOLATED_SETS = ("isolated4", "isolated6")
_IP = {4: "ip", 6: "ip6"}

ISOLATED = declare("cni.firewall-isolated", "the pod is isolated within its bridge, nothing else is done")
UNFORWARDED = declare(
    "cni.firewall-unforwarded", "DEL: nothing is forwarded, the pod is still isolated within its bridge"
)

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

Elements = list[tuple[str, Element]]


def ruleset() -> str:
    """Returns all rules for forwarded packets; applying it again changes nothing."""
    return _CHAIN.format(table=TABLE) + "".join(
        _FAMILY.format(table=TABLE, v=v, ip=ip, mark=_SET_MARK) for v, ip in _IP.items()
    )


def bridge_ruleset() -> str:
    return _BRIDGE.format(table=TABLE)


def policy_of(config: PluginConfig) -> str:
    """Returns the ingress policy. Raises CniError for keys of other backends."""
    backend = taken(config.raw, "backend", str, "")
    if backend not in BACKENDS:
        raise CniError(Code.UNSUPPORTED_FIELD, f"backend: {backend!r} must be one of {', '.join(BACKENDS[1:])}")
    for key in ("firewalldZone", *(() if backend == "iptables" else (_ADMIN,))):
        if taken(config.raw, key, str, ""):
            raise CniError(Code.UNSUPPORTED_FIELD, f"{key}: not supported by podwire's firewall, which is nftables")
    admin = taken(config.raw, _ADMIN, str, "")
    if admin and not _CHAIN_NAME.fullmatch(admin):
        raise CniError(Code.BAD_CONFIG, f"{_ADMIN}: {admin!r} is not the name of a chain")
    policy = taken(config.raw, "ingressPolicy", str, "") or POLICIES[0]
    if policy not in POLICIES:
        details = f"ingressPolicy: {policy!r} must be one of {', '.join(POLICIES)}"
        raise CniError(Code.BAD_CONFIG, f'unknown ingress policy: "{policy}"', details)
    return policy


def uses_iptables(config: Object) -> bool:
    return taken(config, "backend", str, "") == "iptables"


def pod_addresses(result: Result) -> list[Address]:
    ips = [ip for ip in result.ips if ip.interface is None or result.interfaces[ip.interface].sandbox]
    return list(dict.fromkeys(ip.address.ip for ip in ips))


def bridge_of(result: Result, policy: str) -> str:
    """Returns the name of the bridge, which the bridge plugin writes as the first interface of its result."""
    first = result.interfaces[0] if result.interfaces else None
    if first is None or first.sandbox or not is_ifname(first.name):
        raise CniError(Code.BAD_CONFIG, f"ingressPolicy: {policy} needs a bridge, and prevResult has none")
    return first.name


def elements(policy: str, result: Result, comment: str) -> tuple[Elements, Elements]:
    """Returns the elements that a pod needs, for the table `inet` and for the table `bridge`."""
    pod = pod_addresses(result)
    routed = [(f"forward{address.version}", Element(address.packed, comment=comment)) for address in pod]
    bridged: Elements = []
    if policy != POLICIES[0]:
        bridge = keys.interface(bridge_of(result, policy))
        routed += [(f"policed{address.version}", Element(address.packed, comment=comment)) for address in pod]
        inside = [(address.version, keys.joined(address.packed, bridge)) for address in pod]
        routed += [(f"inside{version}", Element(key, comment=comment)) for version, key in inside]
    if policy == "isolated":
        bridged = [(f"isolated{address.version}", Element(address.packed, comment=comment)) for address in pod]
    return routed, bridged


class Firewall(OrderedPlugin):
    name = "firewall"
    points = declare_steps(name)
    chained = True
    sets = SETS
    bridge_sets = ISOLATED_SETS

    def validate(self, call: Call) -> bool:
        policy_of(call.config)
        return True

    def prepare(self, call: Call, ends: Ends, record: Record, previous: Result) -> Record:
        elements(policy_of(call.config), previous, record.comment)  # raises for a policy that needs a bridge
        if not uses_iptables(call.config.raw):
            return record
        import_module(_IPTABLES).check_installed("backend")
        return record._replace(before={"addresses": [str(address) for address in pod_addresses(previous)]})

    def attach(self, call: Call, ends: Ends, record: Record, given: Result) -> Result:
        policy = policy_of(call.config)
        if uses_iptables(call.config.raw):
            backend = import_module(_IPTABLES)
            backend.accept_forwarded(pod_addresses(given), taken(call.config.raw, _ADMIN, str, "") or backend.ADMIN)
            if policy == POLICIES[0]:
                return given
        routed, bridged = elements(policy, given, record.comment)
        with open_netfilter(call) as netfilter:
            if bridged:
                nat.replace(netfilter.elements.of("bridge"), bridged, bridge_ruleset)
                failpoint(ISOLATED)
            nat.replace(netfilter.elements, routed, ruleset)
            other_firewalls.accept_marked(netfilter, call.warn)
        return given

    def detach(self, call: Call, record: Record) -> None:
        with open_netfilter(call) as netfilter:
            self._remove_elements(netfilter, record)
            if uses_iptables(record.config) and record.before:
                reference.rules.remove_forwarding(netfilter, [ip_address(text) for text in record.before["addresses"]])

    def _remove_elements(self, netfilter: Netfilter, record: Record) -> None:
        nat.remove(netfilter.elements, SETS, record.owns)
        if record.is_lost or looked_up(record.config, "ingressPolicy") == "isolated":
            failpoint(UNFORWARDED)
            nat.remove(netfilter.elements.of("bridge"), ISOLATED_SETS, record.owns)
        other_firewalls.remove_rules(netfilter, partial(_is_used, netfilter))

    def detach_reference(self, call: Call, record: Record) -> None:
        with open_netfilter(call) as netfilter:
            if reference.rules.has_forwarding(netfilter):
                reference.rules.remove_forwarding(netfilter, reference.links.pod_addresses(call, record))

    def check_reference(self, call: Call, ends: Ends, previous: Result) -> bool:
        with open_netfilter(call) as netfilter:
            return reference.rules.forwarded(netfilter).issuperset(pod_addresses(previous))

    def hand_over(self, call: Call, record: Record, made: Result, variant: str) -> None:
        policy, backend, pod = policy_of(call.config), import_module(_IPTABLES), pod_addresses(made)
        if policy != POLICIES[0]:
            bridge = bridge_of(made, policy)
            backend.isolate_bridge(bridge, policy, [address.version for address in pod], variant)
        if not uses_iptables(call.config.raw):
            backend.accept_forwarded(pod, backend.ADMIN, variant)
        with open_netfilter(call) as netfilter:
            self._remove_elements(netfilter, record)

    def check_attached(self, call: Call, ends: Ends, record: Record, previous: Result) -> None:
        policy = policy_of(call.config)
        if uses_iptables(call.config.raw):
            with open_netfilter(call) as netfilter:
                accepted = reference.rules.forwarded(netfilter)
            for address in pod_addresses(previous):
                expect(address in accepted, f"the chain CNI-FORWARD does not accept {address}")
            if policy == POLICIES[0]:
                return
        routed, bridged = elements(policy, previous, record.comment)
        with open_netfilter(call) as netfilter:
            listed = nat.list_tagged(SETS, record.owns, netfilter.elements)
            listed |= nat.list_tagged(ISOLATED_SETS, record.owns, netfilter.elements.of("bridge"))
            other_firewalls.check(netfilter)
        present = {(name, element.key) for name, tagged in listed.items() for element in tagged}
        for name, element in (*routed, *bridged):
            expect((name, element.key) in present, f"{call.invocation.container_id} is no longer in the set {name}")

    def check_usable(self, call: Call) -> None:
        if uses_iptables(call.config.raw):
            import_module(_IPTABLES).check_installed("backend")
        with open_netfilter(call) as netfilter:
            nat.check_usable(netfilter.elements, SETS[0], lambda: ruleset() + bridge_ruleset())


def _is_used(netfilter: Netfilter) -> bool:
    return any(nat.list_tagged(FORWARD_SETS, lambda _tag: True, netfilter.elements).values())


PLUGIN = Firewall()
