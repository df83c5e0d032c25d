"""Guards the ports of pods as a switch guards its untrusted ports: nobody but the operator runs servers for neighbours.

In the nft table `bridge podwire`, constant rules drop what a pod with raw sockets could send to other pods and to the
host, so that they take it for their DHCP server or router:

| dropped | counter |
|---|---|
| DHCP and DHCPv6 from a server's port (DHCP guard) | dropped-dhcp-server |
| router advertisements, also behind extension headers (RA guard, RFC 6105) | dropped-router-advertisement |
| ICMP and ICMPv6 redirects | dropped-redirect |
| IPv6 fragments that hide the upper-layer header, which no node may send (RFC 7112) | dropped-fragment |
| frames with two VLAN tags, whose inner one a receiver may remove, too | dropped-double-tagged |

A port is guarded by its link group, which is set when the veth pair is made. So no rule and no element belongs to a
pod, and there is nothing to remove with it. The operator can leave ports out, as for a DHCP server in a pod:
`trustedPort` of the CNI plugin bridge, `trustedBridges` of the network driver.

Rules match `meta protocol`, not `ether type`: the latter is the VLAN tag of a tagged frame, which a receiver removes if
its VLAN is 0.
"""

from collections.abc import Callable

from podwire.linux import errors
from podwire.linux.nft.table import TABLE, KernelElements, KernelRuleset

GROUP = 0x7077
"""The link group of guarded ports."""
CHAIN = "untrusted-ports"
COUNTERS = {
    "dropped-dhcp-server": "DHCP and DHCPv6 from a server's port",
    "dropped-router-advertisement": "router advertisements",
    "dropped-redirect": "ICMP redirects",
    "dropped-fragment": "IPv6 fragments that hide their header",
    "dropped-double-tagged": "frames with two VLAN tags",
}

_RULES = """
add table bridge {table}
{counters}
add chain bridge {table} {chain}
add chain bridge {table} ports {{ type filter hook prerouting priority -310; policy accept; }}
flush chain bridge {table} {chain}
flush chain bridge {table} ports
add rule bridge {table} ports iifgroup {group} jump {chain}
add rule bridge {table} {chain} meta protocol {{ 8021q, 8021ad }} counter name dropped-double-tagged drop
add rule bridge {table} {chain} meta protocol ip udp sport 67 counter name dropped-dhcp-server drop
add rule bridge {table} {chain} meta protocol ip icmp type redirect counter name dropped-redirect drop
add rule bridge {table} {chain} meta protocol ip icmp type router-advertisement {advertised} drop
add rule bridge {table} {chain} meta protocol != ip6 return
add rule bridge {table} {chain} meta protocol ip6 udp sport 547 counter name dropped-dhcp-server drop
add rule bridge {table} {chain} meta protocol ip6 icmpv6 type nd-router-advert {advertised} drop
add rule bridge {table} {chain} meta protocol ip6 icmpv6 type nd-redirect counter name dropped-redirect drop
add rule bridge {table} {chain} meta protocol ip6 frag frag-off 0 th sport 0-65535 return
add rule bridge {table} {chain} meta protocol ip6 frag frag-off 0 counter name dropped-fragment drop
"""
# The last two: of a first fragment, the first bytes of the upper-layer header can be read, or it is dropped. Later
# fragments pass, and are worthless without the first.


def ruleset() -> str:
    """Returns all rules; applying it again changes nothing, and keeps the counters."""
    counters = "\n".join(f"add counter bridge {TABLE} {name}" for name in COUNTERS)
    advertised = "counter name dropped-router-advertisement"
    return _RULES.format(table=TABLE, chain=CHAIN, group=GROUP, counters=counters, advertised=advertised)


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
