"""Spoofing protection: a bridge port passes only frames with the pod's own addresses.

In the nft table `bridge podwire`, constant rules, and elements for each guarded port:

    guards          port -> chain: MAC address alone, or everything
    macs            port and MAC addresses that it may send from
    addresses4/6    port and IP addresses that it may send from, and may announce by ARP
    targets6        the same IPv6 addresses, as the target of a neighbour advertisement

`macspoofchk` checks MAC addresses, as in the reference plugin. `ipspoofchk`, a key of ours, checks everything: frames
must be IPv4, IPv6 or ARP from the pod's own addresses; router advertisements and redirects are dropped.
"""

from collections.abc import Iterable
from ipaddress import IPv6Address
from typing import NamedTuple

from podwire.cniplugins import nat
from podwire.cniplugins.attachments import Record
from podwire.cniplugins.netfilter import Netfilter, open_netfilter
from podwire.cniplugins.pod_check import expect
from podwire.cniplugins.skeleton import Call
from podwire.failpoints import declare, failpoint
from podwire.linux.net.network import KernelNetwork
from podwire.linux.nft import keys
from podwire.linux.nft.table import TABLE
from podwire.linux.nft.values import Element
from podwire.protocols.cni.values import Address, Object, taken

SETS = ("guards", "macs", "addresses4", "addresses6", "targets6")
GUARDED = declare("cni.bridge-guarded", "the pod's port of the bridge is guarded")
UNGUARDED = declare("cni.bridge-unguarded", "DEL: the pod's port of the bridge is no longer guarded")

_RULES = """
add table bridge {table}
add map bridge {table} guards {{ type ifname : verdict; }}
add set bridge {table} macs {{ type ifname . ether_addr; }}
add set bridge {table} addresses4 {{ type ifname . ipv4_addr; }}
add set bridge {table} addresses6 {{ type ifname . ipv6_addr; }}
add set bridge {table} targets6 {{ typeof iifname . @th,64,128; }}
add chain bridge {table} guard {{ type filter hook prerouting priority -300; policy accept; }}
add chain bridge {table} guard-mac
add chain bridge {table} guard-all
flush chain bridge {table} guard
flush chain bridge {table} guard-mac
flush chain bridge {table} guard-all
add rule bridge {table} guard iifname vmap @guards
add rule bridge {table} guard-mac iifname . ether saddr != @macs drop
add rule bridge {table} guard-all iifname . ether saddr != @macs drop
add rule bridge {table} guard-all ether type != {{ ip, ip6, arp }} drop
add rule bridge {table} guard-all ether type arp iifname . arp saddr ether != @macs drop
add rule bridge {table} guard-all ether type arp arp saddr ip 0.0.0.0 return
add rule bridge {table} guard-all ether type arp iifname . arp saddr ip != @addresses4 drop
add rule bridge {table} guard-all ether type ip iifname . ip saddr != @addresses4 drop
add rule bridge {table} guard-all icmpv6 type {{ nd-router-advert, nd-redirect }} drop
add rule bridge {table} guard-all icmpv6 type nd-neighbor-advert iifname . @th,64,128 != @targets6 drop
add rule bridge {table} guard-all ip6 saddr :: icmpv6 type {{ {asking} }} return
add rule bridge {table} guard-all ether type ip6 iifname . ip6 saddr != @addresses6 drop
"""
_ASKING = "nd-neighbor-solicit, nd-router-solicit, mld-listener-report, mld2-listener-report"
# A pod may do duplicate address detection from the unspecified address: neighbours learn nothing from such packets.

Elements = list[tuple[str, Element]]


class Guard(NamedTuple):
    """The checks of a port."""

    mac: bool = False
    ip: bool = False


def parse_guard(raw: Object) -> Guard:
    ip = taken(raw, "ipspoofchk", bool, False)
    return Guard(mac=taken(raw, "macspoofchk", bool, False) or ip, ip=ip)


def ruleset() -> str:
    """Returns all rules; applying it again changes nothing."""
    return _RULES.format(table=TABLE, asking=_ASKING)


def link_local(mac: str) -> IPv6Address:
    """Returns the address that the kernel derives from a MAC address (modified EUI-64)."""
    packed = keys.mac(mac)
    return IPv6Address(b"\xfe\x80" + bytes(6) + bytes((packed[0] ^ 2,)) + packed[1:3] + b"\xff\xfe" + packed[3:])


def elements(guard: Guard, link: str, mac: str, addresses: Iterable[Address], comment: str) -> Elements:
    """Returns the elements that allow a port to send from these addresses."""
    if not guard.mac:
        return []
    port = keys.interface(link)
    allowed = [
        ("macs", Element(keys.joined(port, keys.mac(mac)), comment=comment)),
        ("guards", Element(port, "jump guard-all" if guard.ip else "jump guard-mac", comment)),
    ]
    for address in dict.fromkeys((*addresses, link_local(mac))) if guard.ip else ():
        key = keys.joined(port, address.packed)
        allowed.append((f"addresses{address.version}", Element(key, comment=comment)))
        if address.version == 6:
            allowed.append(("targets6", Element(key, comment=comment)))
    return allowed


def guard_pod(call: Call, record: Record, pod: KernelNetwork, addresses: Iterable[Address]) -> None:
    """Guards the port that a record names, if its configuration requests it; called before the pod's end is up."""
    if parse_guard(record.config).mac:
        with open_netfilter(call) as netfilter:
            add_guard(netfilter, record, pod.links.get(record.ifname).mac, addresses)


def add_guard(netfilter: Netfilter, record: Record, mac: str, addresses: Iterable[Address]) -> None:
    allowed = elements(parse_guard(record.config), record.link, mac, addresses, record.comment)
    if allowed:
        nat.replace(netfilter.elements.of("bridge"), allowed, ruleset)
    failpoint(GUARDED)


def remove_guard(netfilter: Netfilter, record: Record) -> None:
    if record.is_lost or parse_guard(record.config).mac:
        nat.remove(netfilter.elements.of("bridge"), SETS, record.owns)
        failpoint(UNGUARDED)


def check_guard(netfilter: Netfilter, record: Record, mac: str, addresses: Iterable[Address]) -> None:
    allowed = elements(parse_guard(record.config), record.link, mac, addresses, record.comment)
    listed = nat.list_tagged(SETS, record.owns, netfilter.elements.of("bridge")) if allowed else {}
    present = {(name, element.key, element.data) for name, elements in listed.items() for element in elements}
    for name, element in allowed:
        expect((name, element.key, element.data) in present, f"{record.link} is no longer guarded (set {name})")
