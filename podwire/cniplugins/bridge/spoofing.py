"""Pods that cannot pose as somebody else: what comes from a pod's end of a bridge is looked at before it is passed on.

In the nft table `bridge podwire`, rules that never change, and elements for each end that is guarded:

    guards          an end to what is asked of it: its MAC address alone, or all
    macs            ends with the MAC addresses that they may send from
    addresses4/6    ends with the IP addresses that they may send from, and may claim by ARP
    targets6        the same IPv6 addresses, as a neighbour advertisement claims them

`macspoofchk` asks for MAC addresses, as in the reference plugin. `ipspoofchk`, a key of ours, asks for all: frames are
IPv4, IPv6 or ARP, from the pod's own addresses, and no pod advertises a router or redirects anybody.
"""

from collections.abc import Iterable
from ipaddress import IPv6Address
from typing import NamedTuple

from podwire.cniplugins import nat
from podwire.cniplugins.attachments import Record
from podwire.cniplugins.netfilter import Netfilter, opened
from podwire.cniplugins.skeleton import Call
from podwire.failpoints import declare, failpoint
from podwire.linux import errors as linux
from podwire.linux.net.network import KernelNetwork
from podwire.linux.nft import keys
from podwire.linux.nft.table import TABLE, KernelRuleset
from podwire.linux.values import Element
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.values import Address, Object, taken

SETS = ("guards", "macs", "addresses4", "addresses6", "targets6")
GUARDED = declare("spoofing.guarded", "a pod's end of the bridge is guarded")
UNGUARDED = declare("spoofing.unguarded", "DEL: a pod's end of the bridge is not guarded any more")

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
# Who has no address yet may ask whether it is free, by ARP and IPv6: nobody learns anything from that.

Wanted = list[tuple[str, Element]]


class Guard(NamedTuple):
    """What is asked of a pod."""

    mac: bool = False
    ip: bool = False


def guard_of(raw: Object) -> Guard:
    ip = taken(raw, "ipspoofchk", bool, False)
    return Guard(mac=taken(raw, "macspoofchk", bool, False) or ip, ip=ip)


def ruleset() -> str:
    """All that does not change; can be applied again and again."""
    return _RULES.format(table=TABLE, asking=_ASKING)


def link_local(mac: str) -> IPv6Address:
    """The address that the kernel gives a link by its MAC address (modified EUI-64)."""
    packed = keys.mac(mac)
    return IPv6Address(b"\xfe\x80" + bytes(6) + bytes((packed[0] ^ 2,)) + packed[1:3] + b"\xff\xfe" + packed[3:])


def elements(how: Guard, link: str, mac: str, addresses: Iterable[Address], comment: str) -> Wanted:
    """What an end of the bridge may send."""
    if not how.mac:
        return []
    end = keys.interface(link)
    wanted = [
        ("macs", Element(keys.joined(end, keys.mac(mac)), comment=comment)),
        ("guards", Element(end, "jump guard-all" if how.ip else "jump guard-mac", comment)),
    ]
    for each in dict.fromkeys((*addresses, link_local(mac))) if how.ip else ():
        key = keys.joined(end, each.packed)
        wanted.append((f"addresses{each.version}", Element(key, comment=comment)))
        if each.version == 6:
            wanted.append(("targets6", Element(key, comment=comment)))
    return wanted


def guard_pod(call: Call, record: Record, pod: KernelNetwork, addresses: Iterable[Address]) -> None:
    """Guard the host's end that a record names, if its configuration asks for that; before the pod's end is up."""
    if guard_of(record.config).mac:
        with opened(call) as netfilter:
            guard(netfilter, record, pod.links.get(record.ifname).mac, addresses)


def guard(netfilter: Netfilter, record: Record, mac: str, addresses: Iterable[Address]) -> None:
    wanted = elements(guard_of(record.config), record.link, mac, addresses, record.comment)
    if wanted:
        nat.replace_under(netfilter.elements.of("bridge"), wanted, ruleset)
    failpoint(GUARDED)


def unguard(netfilter: Netfilter, record: Record) -> None:
    """By the record alone."""
    if guard_of(record.config).mac:
        nat.remove(netfilter.elements.of("bridge"), SETS, record.marks)
        failpoint(UNGUARDED)


def check_usable(call: Call) -> None:
    """Whether an end could be guarded, if that is asked for: the sets are there, or can be made."""
    if not guard_of(call.config.raw).mac:
        return
    with opened(call) as netfilter:
        try:
            netfilter.elements.of("bridge").list(SETS[0])
        except linux.Missing:
            KernelRuleset().check(ruleset())


def check_guard(netfilter: Netfilter, record: Record, mac: str, addresses: Iterable[Address]) -> None:
    wanted = elements(guard_of(record.config), record.link, mac, addresses, record.comment)
    marked = nat.marked(SETS, record.marks, netfilter.elements.of("bridge")) if wanted else {}
    there = {(name, each.key, each.data) for name, found in marked.items() for each in found}
    for name, each in wanted:
        if (name, each.key, each.data) not in there:
            raise CniError(Code.NOT_AS_ADDED, f"{record.link} is not guarded any more ({name})")
