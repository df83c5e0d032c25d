"""The pod's end of a link: its MAC address, its addresses and its routes."""

import re
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress

from podwire.cniplugins import tags
from podwire.cniplugins.attachments import Record
from podwire.cniplugins.skeleton import Call
from podwire.linux import errors as linux
from podwire.linux.net.network import KernelNetwork
from podwire.linux.net.sysctls import KernelSysctls
from podwire.linux.proc.namespaces import identity, visit
from podwire.linux.proc.stopwatch import step
from podwire.linux.values import MAIN, Link
from podwire.linux.values import Route as KernelRoute
from podwire.protocols.cni import args
from podwire.protocols.cni.config import PluginConfig
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import IP, Route
from podwire.protocols.cni.values import Address, taken
from podwire.protocols.cni.verbs import Invocation

MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}", re.ASCII)
ARGS = ("MAC", "IP", "GATEWAY")
"""Keys of CNI_ARGS; the last two are read by IPAM plugins of the same call."""
LARGEST_MTU = 65535
_POLL = 0.001
_OWN_NAMESPACE = "/proc/thread-self/ns/net"
_GROUPS = "/proc/thread-self/net/igmp6"
_SOLICITED_NODE = bytes.fromhex("ff0200000000000000000001ff")


def requested_mac(config: PluginConfig, invocation: Invocation) -> str:
    """Returns the MAC address that is requested by capability, else by `args.cni`, else by CNI_ARGS."""
    mac = (
        taken(config.runtime, "mac", str, "", "runtimeConfig.")
        or taken(config.args, "mac", str, "", "args.cni.")
        or args.parsed(invocation.args, ARGS).get("MAC", "")
    )
    return check_mac(mac, "mac")


def check_mac(mac: str, field: str) -> str:
    """Returns a MAC address in lower case; an empty one stays empty. Raises CniError."""
    if mac and not MAC.fullmatch(mac.lower()):
        raise CniError(Code.BAD_CONFIG, f"address {mac}: invalid MAC address", f"{field}: {mac!r} is not a MAC address")
    return mac.lower()


def check_mtu(mtu: int, largest: int = LARGEST_MTU, reason: str = "") -> None:
    if not 0 <= mtu <= largest:
        words = f"invalid MTU {mtu}, must be [0, master MTU({largest})]"
        details = f"mtu: {mtu} is not between 0 and {largest}{reason}"
        raise CniError(Code.BAD_CONFIG, *((words, details) if reason else (details,)))


def mac_from_address(ips: Sequence[IP]) -> str:
    """Derives a MAC address from the IP address, so that neighbour caches stay right when an address is leased again.

    Without addresses it is empty, and the kernel chooses.
    """
    first = next((ip for ip in ips if ip.address.version == 4), ips[0] if ips else None)
    return "" if first is None else (b"\x0a\x58" + first.address.ip.packed[-4:]).hex(":")


def check_name(pod: KernelNetwork, ifname: str) -> None:
    """Raises CniError if the pod already has a link of this name."""
    try:
        pod.links.get(ifname)
    except linux.NoSuchLink:
        return
    raise CniError(Code.IN_USE, f"CNI_IFNAME: {ifname} already exists in the pod and is not ours")


def name_taken(ifname: str) -> CniError:
    return CniError(Code.IN_USE, f"CNI_IFNAME: {ifname} already exists in the pod")


def find_master(network: KernelNetwork, name: str) -> Link:
    """Returns the link that is named; without a name that of the default route."""
    try:
        if name:
            return network.links.get(name)
    except linux.NoSuchLink as error:
        message = f'failed to lookup master "{name}": Link not found'
        raise CniError(Code.BAD_CONFIG, message, f"master: link {name} does not exist") from error
    for family in (4, 6):
        for route in network.routes.list(family):
            if route.destination.prefixlen == 0 and route.ifindex:
                return network.links.get(route.ifindex)
    details = "master: missing, and the host has no default route to take it from"
    raise CniError(Code.BAD_CONFIG, "no default route interface found", details)


def pod_path(call: Call, record: Record) -> str | None:
    """Returns the path at which the pod's namespace of a record is pinned; None if it no longer exists."""
    for path in filter(None, (call.invocation.netns, record.netns)):
        with suppress(linux.NoSuchNamespace, linux.WrongKind):
            if identity(path) == record.inode:
                return path
    return None


def find_tagged(network: KernelNetwork, record: Record, kind: str | None = None) -> Link | None:
    """Returns the link with the tag of a record, under any name; of this kind, else a borrowed device."""
    for link in network.links.list():
        if record.owns(link.alias):
            tag = tags.parse(link.alias)
            is_device = link.alias.startswith(tags.PREFIX + record.token) or (tag is not None and bool(tag.device))
            if link.kind == kind if kind is not None else is_device:
                return link
    return None


def write_ipv6(netns: str | None, link: str, **values: str) -> None:
    """Writes IPv6 sysctls of a link; does nothing on a host without IPv6."""
    KernelSysctls(netns).write_present({f"net/ipv6/conf/{link}/{name}": value for name, value in values.items()})


def announce_addresses(netns: str, link: str) -> None:
    """Makes the kernel send gratuitous ARP and unsolicited NA when a link comes up, to update neighbour caches."""
    KernelSysctls(netns).write_present(
        {f"net/ipv4/conf/{link}/arp_notify": "1", f"net/ipv6/conf/{link}/ndisc_notify": "1"}
    )


def bring_up(pod: KernelNetwork, netns: str, ifname: str, ips: Sequence[IP]) -> Link:
    """Sets a link up with its addresses, in one batch."""
    link = pod.links.get(ifname)
    if any(ip.address.version == 6 for ip in ips):
        for name in ("lo", ifname):
            KernelSysctls(netns).write(f"net/ipv6/conf/{name}/disable_ipv6", "0")
        KernelSysctls(netns).write(f"net/ipv6/conf/{ifname}/keep_addr_on_down", "1")
    with pod.batch() as batch:
        batch.links.change(link.ifindex, up=True)
        for ip in ips:
            batch.addresses.add(link.ifindex, ip.address)
    return link


def add_routes(pod: KernelNetwork, ifindex: int, ips: Sequence[IP], routes: Sequence[Route]) -> None:
    for route in kernel_routes(ifindex, ips, routes):
        with suppress(linux.RouteExists):  # the kernel adds the route to an address's own network
            pod.routes.add(route)


def kernel_routes(ifindex: int, ips: Sequence[IP], routes: Sequence[Route]) -> list[KernelRoute]:
    """Translates routes of a result. Several gateways of one destination become one multipath route."""
    merged: dict[object, KernelRoute] = {}
    for route in routes:
        translated = KernelRoute(
            destination=route.dst,
            gateway=gateway_of(route, ips),
            ifindex=ifindex,
            table=MAIN if route.table is None else route.table,
            metric=route.priority,
            mtu=route.mtu,
            advmss=route.advmss,
            scope=route.scope,
        )
        key = translated.destination, translated.table, translated.metric
        first = merged.setdefault(key, translated)
        if translated.gateway is not None and translated.gateway not in (first.gateway, *first.others):
            merged[key] = first._replace(others=(*first.others, translated.gateway))
    return list(merged.values())


def gateway_of(route: Route, ips: Sequence[IP]) -> Address | None:
    """Returns a route's gateway; one without uses the gateway of the first address of its family.

    The unspecified address is the gateway of a destination that is on the link itself.
    """
    if route.gw is not None:
        return None if route.gw.is_unspecified else route.gw
    return next((ip.gateway for ip in ips if ip.address.version == route.dst.version and ip.gateway), None)


def wait_until_resolvable(netns: str | None, link: str, addresses: Iterable[Address], seconds: float) -> None:
    """Waits until neighbours can resolve IPv6 addresses.

    The kernel joins the solicited-node multicast groups a little after it has the address, without a notification.
    """
    groups = {(_SOLICITED_NODE + address.packed[-3:]).hex() for address in addresses if address.version == 6}
    deadline = time.monotonic() + seconds
    with step("waiting"):
        while groups and not groups <= _multicast_groups(netns, link):
            if time.monotonic() > deadline:
                raise CniError(Code.REFUSED, f"neighbours cannot resolve the addresses of {link} after {seconds:g} s")
            time.sleep(_POLL)


def _multicast_groups(netns: str | None, link: str) -> set[str]:
    """Returns the IPv6 multicast groups of a link, in hex."""
    with visit(netns or _OWN_NAMESPACE), open(_GROUPS, encoding="ascii") as file:
        rows = [line.split() for line in file]
    return {row[2] for row in rows if row[1] == link}
