"""The pod's end of whatever connects it: its addresses and its routes, told to the kernel."""

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress

from podwire.cniplugins.bridge.settings import gateway_of
from podwire.linux import errors as linux
from podwire.linux.net.network import KernelNetwork
from podwire.linux.net.sysctls import KernelSysctls
from podwire.linux.proc.namespaces import visit
from podwire.linux.proc.stopwatch import step
from podwire.linux.values import MAIN, Link
from podwire.linux.values import Route as KernelRoute
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import IP, Route
from podwire.protocols.cni.values import Address

PATIENCE = 2.5
"""Seconds until neighbours must be able to find a new address."""
_STEP = 0.001
_HERE = "/proc/thread-self/ns/net"
_GROUPS = "/proc/thread-self/net/igmp6"
_SOLICITED = bytes.fromhex("ff0200000000000000000001ff")


def check_name(pod: KernelNetwork, ifname: str) -> None:
    """Raises CniError for a link that is there already."""
    try:
        pod.links.get(ifname)
    except linux.NoSuchLink:
        return
    raise CniError(Code.IN_USE, f"CNI_IFNAME: {ifname} is there already, and not ours")


def write_ipv6(netns: str | None, link: str, **values: str) -> None:
    """Without IPv6 on this host there is nothing to set."""
    KernelSysctls(netns).write_present({f"net/ipv6/conf/{link}/{name}": value for name, value in values.items()})


def announce(netns: str, link: str) -> None:
    """Have the neighbours told when a link comes up: they may remember another MAC address for its addresses."""
    KernelSysctls(netns).write_present(
        {f"net/ipv4/conf/{link}/arp_notify": "1", f"net/ipv6/conf/{link}/ndisc_notify": "1"}
    )


def address(pod: KernelNetwork, netns: str, ifname: str, ips: Sequence[IP]) -> Link:
    """Set a link up with its addresses, of which all can be used at once."""
    inside = pod.links.get(ifname)
    if any(each.address.version == 6 for each in ips):
        for each in ("lo", ifname):
            KernelSysctls(netns).write(f"net/ipv6/conf/{each}/disable_ipv6", "0")
        KernelSysctls(netns).write(f"net/ipv6/conf/{ifname}/keep_addr_on_down", "1")
    with pod.batch() as batch:
        batch.links.change(inside.ifindex, up=True)
        for ip in ips:
            batch.addresses.add(inside.ifindex, ip.address)
    return inside


def route(pod: KernelNetwork, ifindex: int, ips: Sequence[IP], routes: Sequence[Route]) -> None:
    """One without a gateway goes by that of the first address of its family."""
    for each in kernel_routes(ifindex, ips, routes):
        with suppress(linux.RouteExists):  # an address brings the route to its own network
            pod.routes.add(each)


def kernel_routes(ifindex: int, ips: Sequence[IP], routes: Sequence[Route]) -> list[KernelRoute]:
    """Several gateways to one destination take turns."""
    found: dict[object, KernelRoute] = {}
    for each in routes:
        wanted = KernelRoute(
            destination=each.dst,
            gateway=gateway_of(each, tuple(ips)),
            ifindex=ifindex,
            table=MAIN if each.table is None else each.table,
            metric=each.priority,
            mtu=each.mtu,
            advmss=each.advmss,
            scope=each.scope,
        )
        way = wanted.destination, wanted.table, wanted.metric
        first = found.setdefault(way, wanted)
        if wanted.gateway is not None and wanted.gateway not in (first.gateway, *first.others):
            found[way] = first._replace(others=(*first.others, wanted.gateway))
    return list(found.values())


def wait_until_found(netns: str | None, link: str, addresses: Iterable[Address]) -> None:
    """Until neighbours that ask for IPv6 addresses are heard: the kernel joins the groups in which they ask a little
    after it has the address, and tells nobody."""
    wanted = {(_SOLICITED + each.packed[-3:]).hex() for each in addresses if each.version == 6}
    until = time.monotonic() + PATIENCE
    with step("waiting"):
        while wanted and not wanted <= _groups(netns, link):
            if time.monotonic() > until:
                raise CniError(Code.REFUSED, f"the addresses of {link} cannot be found after {PATIENCE:g} s")
            time.sleep(_STEP)


def _groups(netns: str | None, link: str) -> set[str]:
    """The multicast groups of a link, in hex."""
    with visit(netns or _HERE), open(_GROUPS, encoding="ascii") as file:
        lines = [each.split() for each in file]
    return {each[2] for each in lines if each[1] == link}
