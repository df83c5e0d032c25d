"""The network between the host and its nodes: a bridge, a veth pair to each node, addresses, NAT.

Every step is idempotent: what exists and is ours stays, what another cluster left under our name is removed. The alias
of the links is the owner tag.
"""

import contextlib
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path

from podwire.cluster import proxy
from podwire.cluster.up.conflist import PODS_BRIDGE
from podwire.cluster.up.layout import Layout
from podwire.cluster.up.slots import BRIDGES, Interface, Network, Slot
from podwire.cniplugins import nft_tables as tables
from podwire.linux.errors import AddressExists, LinkExists, NoSuchLink
from podwire.linux.net.network import KernelNetwork
from podwire.linux.net.sysctls import KernelSysctls
from podwire.linux.nft.table import KernelRuleset
from podwire.linux.values import Bridge, Route, Veth

PLUGINS_TAG = "podwire"
"""The alias of bridges that our CNI plugins create."""

TAG_PREFIX = "podwire-up:"
"""The prefix of the alias of a cluster's links; the cluster's prefix follows."""

_ANYWHERE: dict[int, Network] = {4: IPv4Network("0.0.0.0/0"), 6: IPv6Network("::/0")}
_RA = 9
"""The protocol number of routes from router advertisements."""

RULES = """\
add table inet {table} {{ comment "{tag}" ; }}
delete table inet {table}
add table inet {table} {{ comment "{tag}" ; }}
add chain inet {table} postrouting {{ type nat hook postrouting priority srcnat; policy accept; }}
add chain inet {table} forward {{ type filter hook forward priority filter; policy accept; }}
add chain inet {table} input {{ type filter hook input priority filter; policy accept; }}
{masquerades}
add rule inet {table} forward iifname "{bridge}" oifname "{bridge}" accept
{barriers}
add rule inet {table} forward iifname "{bridge}" accept
add rule inet {table} forward oifname "{bridge}" accept
"""
_OTHER_BRIDGES = (f"{BRIDGES}*", PODS_BRIDGE)
"""Bridges of other clusters on this host: those to their nodes, and that of the pods of a node on the host itself."""


def has_ipv6() -> bool:
    """Whether the present network namespace has IPv6."""
    try:
        return Path("/proc/sys/net/ipv6/conf/all/disable_ipv6").read_text(encoding="ascii").strip() == "0"
    except OSError:
        return False


def ruleset(slot: Slot, tag: str, *, ipv6: bool) -> str:
    """Returns the nft rules.

    Packets that leave by another link than the bridge are masqueraded, unless they go to pods of another machine. Other
    clusters of this host are not reached, and do not reach this one: neither its nodes and pods (forwarded packets),
    nor its API server, which listens on addresses of the host (input). The host's own packets pass neither chain.
    """
    pairs: list[tuple[str, Network]] = [("ip", slot.nodes), ("ip", slot.pods)]
    pairs += [("ip6", slot.own6)] if ipv6 else []
    inside = {"ip": slot.pods, "ip6": slot.own6}
    barriers = []
    for other in _OTHER_BRIDGES:
        barriers += [
            f'add rule inet {slot.table} forward iifname "{slot.bridge}" oifname "{other}" drop',
            f'add rule inet {slot.table} forward iifname "{other}" oifname "{slot.bridge}" drop',
        ]
        barriers += [
            f'add rule inet {slot.table} input iifname "{other}" iifname != "{slot.bridge}" {ip} daddr {network} drop'
            for ip, network in pairs
        ]
    masquerades = "\n".join(
        f"add rule inet {slot.table} postrouting {ip} saddr {network} {ip} daddr != {{ {inside[ip]} }} "
        f'oifname != "{slot.bridge}" masquerade'
        for ip, network in pairs
    )
    return RULES.format(
        table=slot.table, bridge=slot.bridge, tag=tag, masquerades=masquerades, barriers="\n".join(barriers)
    )


def owner_tag(layout: Layout) -> str:
    return f"{TAG_PREFIX}{layout.prefix}"


def connect_host(layout: Layout, slot: Slot, *, ipv6: bool) -> None:
    """Sets up the host's side: bridge, addresses, nft. Nodes are connected afterwards."""
    tag = owner_tag(layout)
    with KernelNetwork() as network:
        # Another cluster may have left a link of this name; its slot claim is gone.
        with contextlib.suppress(NoSuchLink):
            link = network.links.get(slot.bridge)
            if link.alias.startswith(TAG_PREFIX) and link.alias != tag:
                network.links.delete(link.ifindex)
        with contextlib.suppress(LinkExists):
            network.links.add(Bridge(slot.bridge, mac=_mac(slot), alias=tag, up=True))
        bridge = network.links.get(slot.bridge)
        for gateway in slot.gateways(ipv6=ipv6):
            _address(network, bridge.ifindex, gateway)
    KernelRuleset().apply(ruleset(slot, tag, ipv6=ipv6))


def plug(layout: Layout, slot: Slot, number: int, netns: Path, *, ipv6: bool) -> None:
    """Connects a node: a veth pair, its addresses and default routes, and the host's routes to its pods."""
    with KernelNetwork() as host, KernelNetwork(netns) as node:
        bridge = host.links.get(slot.bridge)
        _ensure_veth(
            host, node, Veth(slot.port(number), "eth0", netns, alias=owner_tag(layout), master=bridge.ifindex, up=True)
        )
        inside = node.links.get("eth0")
        node.links.change(inside.ifindex, up=True)
        for address in slot.addresses(number, ipv6=ipv6):
            _address(node, inside.ifindex, address)
        for gateway in slot.gateways(ipv6=ipv6):
            node.routes.replace(Route(_ANYWHERE[gateway.version], gateway.ip, inside.ifindex))
        for pods in slot.pod_ranges(number, ipv6=ipv6):
            to = next(address.ip for address in slot.addresses(number, ipv6=ipv6) if address.version == pods.version)
            host.routes.replace(Route(pods, to, bridge.ifindex))
    inside_sysctls = KernelSysctls(netns)
    inside_sysctls.write("net.ipv4.ip_forward", "1")
    if ipv6:
        inside_sysctls.write("net.ipv6.conf.all.forwarding", "1")


def disconnect(layout: Layout, slots: list[int]) -> None:
    """Removes everything of a cluster on the host: links by their alias, then its nft tables."""
    tag = owner_tag(layout)
    with KernelNetwork() as network:
        for link in network.links.list():
            if link.alias == tag:
                with contextlib.suppress(NoSuchLink):
                    network.links.delete(link.ifindex)
    for number in slots:
        KernelRuleset().delete_table(Slot(number).table)


def disconnect_pods() -> None:
    """For a node on the host itself: removes rules of Services, and unused bridges and tables of CNI plugins."""
    proxy.remove()
    with KernelNetwork() as network, contextlib.suppress(NoSuchLink):
        bridge = network.links.get(PODS_BRIDGE)
        if bridge.alias == PLUGINS_TAG and not any(link.master == bridge.ifindex for link in network.links.list()):
            network.links.delete(bridge.ifindex)
    tables.remove_unused()


def routes_of_host(slot: Slot) -> list[Network]:
    """Returns the destinations of the host's routes, without those of this slot's own bridge."""
    with KernelNetwork() as network:
        names = {link.ifindex: link.name for link in network.links.list()}
        routes = [route for family in (4, 6) for route in network.routes.list(family)]
        return [route.destination for route in routes if names.get(route.ifindex) != slot.bridge]


def host_ips() -> tuple[str, ...]:
    """Returns the host's addresses on the link of the default route, one of each family; else the loopback address."""
    ips: list[str] = []
    with KernelNetwork() as network:
        for family in (4, 6):
            out = [route for route in network.routes.list(family) if not route.destination.prefixlen and route.ifindex]
            addresses = network.addresses.list(out[0].ifindex) if out else []
            usable = [address.interface.ip for address in addresses if address.interface.version == family]
            ips += [str(address) for address in usable if not address.is_link_local][:1]
    return tuple(ips) or ("127.0.0.1",)


def to_forward(*, ipv6: bool) -> list[str]:
    """Returns the sysctls that must be turned on so that the host forwards packets.

    IPv6 forwarding is left off where a router advertised the default route: a forwarding host ignores advertisements,
    and would lose the route.
    """
    names = ["net.ipv4.ip_forward"]
    if ipv6 and not _has_router_advertisement():
        names.append("net.ipv6.conf.all.forwarding")
    return [name for name in names if KernelSysctls().read(name) == "0"]


def forward(names: list[str]) -> None:
    for name in names:
        KernelSysctls().write(name, "1")


def unforward(names: list[str]) -> None:
    for name in names:
        KernelSysctls().write(name, "0")


def _has_router_advertisement() -> bool:
    with KernelNetwork() as network:
        return any(not route.destination.prefixlen and route.protocol == _RA for route in network.routes.list(6))


def _ensure_veth(host: KernelNetwork, node: KernelNetwork, cable: Veth) -> None:
    """Creates the veth pair, unless it is complete: after a crash an end may be missing, or belong to an old node."""
    try:
        outside, inside = host.links.get(cable.name), node.links.get("eth0")
        if inside.peer == outside.ifindex and outside.master == cable.master:
            return
    except NoSuchLink:
        pass
    for network, name in ((host, cable.name), (node, "eth0")):
        with contextlib.suppress(NoSuchLink):
            network.links.delete(network.links.get(name).ifindex)
    host.links.add(cable)


def _address(network: KernelNetwork, index: int, interface: Interface) -> None:
    with contextlib.suppress(AddressExists):
        network.addresses.add(index, interface)


def _mac(slot: Slot) -> str:
    """Returns a MAC that follows from the slot, so that ARP caches stay valid after a restart."""
    return f"0a:58:70:77:{slot.number:02x}:01"
