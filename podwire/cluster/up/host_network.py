"""The network between the host and its nodes: a bridge, a cable to each node, addresses, and the way out.

Everything can be done again: what is there and ours stays, what another cluster left under our name is removed. The
bridge's alias says whose it is.
"""

import contextlib
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path

from podwire.cluster.up.conflist import PODS_BRIDGE
from podwire.cluster.up.layout import Layout
from podwire.cluster.up.slots import Interface, Network, Slot
from podwire.cniplugins import nft_tables as tables
from podwire.linux.errors import AddressExists, LinkExists, NoSuchLink
from podwire.linux.net.network import KernelNetwork
from podwire.linux.net.sysctls import KernelSysctls
from podwire.linux.nft.table import KernelRuleset
from podwire.linux.values import Bridge, Route, Veth

PLUGINS_MARK = "podwire"
"""The alias of bridges that our CNI plugins make."""

MARK = "podwire-up:"
"""What the alias of a cluster's links begins with; its prefix follows."""

_ANYWHERE: dict[int, Network] = {4: IPv4Network("0.0.0.0/0"), 6: IPv6Network("::/0")}
_RA = 9
"""The protocol number of routes that a router has announced."""

RULES = """\
add table inet {table} {{ comment "{mark}" ; }}
delete table inet {table}
add table inet {table} {{ comment "{mark}" ; }}
add chain inet {table} postrouting {{ type nat hook postrouting priority srcnat; policy accept; }}
add chain inet {table} forward {{ type filter hook forward priority filter; policy accept; }}
{masquerades}
add rule inet {table} forward iifname "{bridge}" accept
add rule inet {table} forward oifname "{bridge}" accept
"""


def has_ipv6() -> bool:
    """Whether this kernel speaks IPv6 in the present network namespace."""
    try:
        return Path("/proc/sys/net/ipv6/conf/all/disable_ipv6").read_text(encoding="ascii").strip() == "0"
    except OSError:
        return False


def ruleset(slot: Slot, mark: str, *, ipv6: bool) -> str:
    """The way out: what leaves by another link than the bridge leaves as the host."""
    pairs: list[tuple[str, Network]] = [("ip", slot.nodes), ("ip", slot.pods)]
    pairs += [("ip6", slot.own6)] if ipv6 else []
    masquerades = "\n".join(
        f'add rule inet {slot.table} postrouting {ip} saddr {network} oifname != "{slot.bridge}" masquerade'
        for ip, network in pairs
    )
    return RULES.format(table=slot.table, bridge=slot.bridge, mark=mark, masquerades=masquerades)


def mark_of(layout: Layout) -> str:
    return f"{MARK}{layout.prefix}"


def connect_host(layout: Layout, slot: Slot, *, ipv6: bool) -> None:
    """The host's side: bridge, addresses, nft. Nodes are plugged in afterwards."""
    mark = mark_of(layout)
    with KernelNetwork() as network:
        _own_link(network, slot.bridge, mark)
        with contextlib.suppress(LinkExists):
            network.links.add(Bridge(slot.bridge, mac=_mac(slot), alias=mark, up=True))
        bridge = network.links.get(slot.bridge)
        for gateway in slot.gateways(ipv6=ipv6):
            _address(network, bridge.ifindex, gateway)
    KernelRuleset().apply(ruleset(slot, mark, ipv6=ipv6))


def plug(layout: Layout, slot: Slot, number: int, netns: Path, *, ipv6: bool) -> None:
    """A cable from the bridge to a node, its addresses, its way out, and the host's way to its pods."""
    with KernelNetwork() as host, KernelNetwork(netns) as node:
        bridge = host.links.get(slot.bridge)
        _cable(
            host, node, Veth(slot.port(number), "eth0", netns, alias=mark_of(layout), master=bridge.ifindex, up=True)
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
    """Everything of a cluster on the host: links by their alias, then its tables."""
    mark = mark_of(layout)
    with KernelNetwork() as network:
        for link in network.links.list():
            if link.alias == mark:
                with contextlib.suppress(NoSuchLink):
                    network.links.delete(link.ifindex)
    for number in slots:
        KernelRuleset().delete_table(Slot(number).table)


def disconnect_pods() -> None:
    """On the host itself: the bridge and the tables that our CNI plugins left, unless somebody still uses them."""
    with KernelNetwork() as network, contextlib.suppress(NoSuchLink):
        bridge = network.links.get(PODS_BRIDGE)
        if bridge.alias == PLUGINS_MARK and not any(link.master == bridge.ifindex for link in network.links.list()):
            network.links.delete(bridge.ifindex)
    tables.remove_unused()


def routes_of_host(slot: Slot) -> list[Network]:
    """Where the host's routes lead that are not by this slot's own links."""
    with KernelNetwork() as network:
        names = {link.ifindex: link.name for link in network.links.list()}
        found = [route for family in (4, 6) for route in network.routes.list(family)]
        return [route.destination for route in found if names.get(route.ifindex) != slot.bridge]


def host_ips() -> tuple[str, ...]:
    """The host's addresses on the link that leads out, one of each family; the loopback's when nothing leads out."""
    found: list[str] = []
    with KernelNetwork() as network:
        for family in (4, 6):
            out = [route for route in network.routes.list(family) if not route.destination.prefixlen and route.ifindex]
            addresses = network.addresses.list(out[0].ifindex) if out else []
            usable = [address.interface.ip for address in addresses if address.interface.version == family]
            found += [str(address) for address in usable if not address.is_link_local][:1]
    return tuple(found) or ("127.0.0.1",)


def to_forward(*, ipv6: bool) -> list[str]:
    """The parameters that are off, and must be on for the host to pass packets on.

    For IPv6 only where no router has announced the host's own way out: a host that passes packets on stops listening
    to announcements, and would lose it.
    """
    wanted = ["net.ipv4.ip_forward"]
    if ipv6 and not _is_announced():
        wanted.append("net.ipv6.conf.all.forwarding")
    return [name for name in wanted if KernelSysctls().read(name) == "0"]


def forward(names: list[str]) -> None:
    for name in names:
        KernelSysctls().write(name, "1")


def unforward(names: list[str]) -> None:
    for name in names:
        KernelSysctls().write(name, "0")


def _is_announced() -> bool:
    with KernelNetwork() as network:
        return any(not route.destination.prefixlen and route.protocol == _RA for route in network.routes.list(6))


def _own_link(network: KernelNetwork, name: str, mark: str) -> None:
    """Remove a link of this name that another cluster left; the claim says that it is gone."""
    with contextlib.suppress(NoSuchLink):
        found = network.links.get(name)
        if found.alias.startswith(MARK) and found.alias != mark:
            network.links.delete(found.ifindex)


def _cable(host: KernelNetwork, node: KernelNetwork, cable: Veth) -> None:
    """Both ends, or a new one: after a crash one end may be missing, or be that of an earlier node."""
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
    """One that follows from the slot, so that neighbours need not learn a new one after a restart."""
    return f"0a:58:70:77:{slot.number:02x}:01"
