"""Guards the ports of pods as a switch guards its untrusted ports: nobody but the operator runs servers for neighbours.

In the nft table `bridge podwire`, constant rules drop what a pod with raw sockets could send to other pods and to the
host, so that they take it for their DHCP server or router:

| dropped | comment of the rules |
|---|---|
| DHCP and DHCPv6 from a server's port (DHCP guard) | dropped-dhcp-server |
| router advertisements, also behind extension headers (RA guard, RFC 6105) | dropped-router-advertisement |
| ICMP and ICMPv6 redirects | dropped-redirect |
| IPv6 fragments that hide the upper-layer header, which no node may send (RFC 7112) | dropped-fragment |
| frames with two VLAN tags, whose inner one a receiver may remove, too | dropped-double-tagged |

A port is guarded by its link group, which is set when the veth pair is made. So no rule and no element belongs to a
pod, and there is nothing to remove with it. The operator can leave ports out, as for a DHCP server in a pod:
`trustedPort` of the CNI plugin bridge, `trustedBridges` of the network driver.

Each rule has a counter of its own. Programs that read the whole ruleset as JSON, such as the reference plugin bridge
with `macspoofchk`, do not know named counters, and fail.

Rules match `meta protocol`, not `ether type`: the latter is the VLAN tag of a tagged frame, which a receiver removes if
its VLAN is 0.
"""

from collections.abc import Callable

from podwire.linux import errors
from podwire.linux.nft.chains import Chain
from podwire.linux.nft.table import TABLE, KernelElements, KernelRuleset
from podwire.linux.nft.values import Counter

GROUP = 0x7077
"""The link group of guarded ports."""
CHAIN = "guarded-ports"
_FORMER_CHAIN = "untrusted-ports"
"""Had named counters."""
COUNTERS = {
    "dropped-dhcp-server": "DHCP and DHCPv6 from a server's port",
    "dropped-router-advertisement": "router advertisements",
    "dropped-redirect": "ICMP redirects",
    "dropped-fragment": "IPv6 fragments that hide their header",
    "dropped-double-tagged": "frames with two VLAN tags",
}

_RULES = """
add table bridge {table}
add chain bridge {table} {chain}
add chain bridge {table} ports {{ type filter hook prerouting priority -310; policy accept; }}
flush chain bridge {table} {chain}
flush chain bridge {table} ports
{former}
add rule bridge {table} ports iifgroup {group} jump {chain}
add rule bridge {table} {chain} meta protocol {{ 8021q, 8021ad }} counter drop comment "dropped-double-tagged"
add rule bridge {table} {chain} meta protocol ip udp sport 67 counter drop comment "dropped-dhcp-server"
add rule bridge {table} {chain} meta protocol ip icmp type redirect counter drop comment "dropped-redirect"
add rule bridge {table} {chain} meta protocol ip icmp type router-advertisement {advertised}
add rule bridge {table} {chain} meta protocol != ip6 return
add rule bridge {table} {chain} meta protocol ip6 udp sport 547 counter drop comment "dropped-dhcp-server"
add rule bridge {table} {chain} meta protocol ip6 icmpv6 type nd-router-advert {advertised}
add rule bridge {table} {chain} meta protocol ip6 icmpv6 type nd-redirect counter drop comment "dropped-redirect"
add rule bridge {table} {chain} meta protocol ip6 frag frag-off 0 th sport 0-65535 return
add rule bridge {table} {chain} meta protocol ip6 frag frag-off 0 counter drop comment "dropped-fragment"
"""
# The last two: of a first fragment, the first bytes of the upper-layer header can be read, or it is dropped. Later
# fragments pass, and are worthless without the first.


def ruleset() -> str:
    """Returns all rules. Applying it again resets the counters, and changes nothing else."""
    former = [f"chain bridge {TABLE} {_FORMER_CHAIN}", *(f"counter bridge {TABLE} {name}" for name in COUNTERS)]
    lines = [f"add {former[0]}\nflush {former[0]}", *(f"add {item}\ndelete {item}" for item in former[1:])]
    lines += [f"delete {former[0]}"]
    advertised = 'counter drop comment "dropped-router-advertisement"'
    return _RULES.format(table=TABLE, chain=CHAIN, group=GROUP, former="\n".join(lines), advertised=advertised)


def counted(elements: KernelElements) -> dict[str, Counter]:
    """Returns what was dropped, by the names in COUNTERS; nothing without the rules."""
    totals: dict[str, Counter] = {}
    for rule in elements.chains().rules(Chain("bridge", TABLE, CHAIN)) if exists(elements) else ():
        if rule.comment in COUNTERS and rule.counter is not None:
            packets, octets = totals.get(rule.comment, Counter(0, 0))
            totals[rule.comment] = Counter(packets + rule.counter.packets, octets + rule.counter.bytes)
    return {name: totals[name] for name in COUNTERS if name in totals}


def ensure_guard(elements: KernelElements, on_error: Callable[[Exception], None]) -> bool:
    """Makes the rules if they do not exist. Returns False on a host that cannot have them, after `on_error`."""
    if exists(elements):
        return True
    try:
        KernelRuleset().apply(ruleset())
    except (errors.BadRuleset, errors.Unsupported) as error:
        on_error(error)
        return False
    return True


def exists(elements: KernelElements) -> bool:
    return elements.chains().exists("bridge", TABLE, CHAIN)


def is_guarding(elements: KernelElements) -> bool:
    """Whether guarded ports have rules, also those of a former version, which the next `ensure_guard` replaces."""
    return exists(elements) or elements.chains().exists("bridge", TABLE, _FORMER_CHAIN)
