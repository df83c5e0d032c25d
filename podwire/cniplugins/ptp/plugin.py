"""ptp: a pair between a pod and this host, without a bridge: everything goes by way of the host.

In the pod the gateway is on the link, and even the pod's own network is behind the gateway. On the host the gateway is
an address of the pair's end, and the pod's address a route to it.
"""

import os
from contextlib import suppress
from ipaddress import ip_interface, ip_network

from podwire.cniplugins import attaching, nat
from podwire.cniplugins.attaching import Ends, Main, declared
from podwire.cniplugins.attachments import Record
from podwire.cniplugins.bridge.check import check_masquerade
from podwire.cniplugins.bridge.links import disconnect as delete_pair
from podwire.cniplugins.bridge.links import forward, wait_for_port
from podwire.cniplugins.bridge.settings import mac_of
from podwire.cniplugins.netfilter import Netfilter, opened
from podwire.cniplugins.pod_link import address, route, wait_until_found, write_ipv6
from podwire.cniplugins.ptp.settings import parse_settings
from podwire.cniplugins.skeleton import Call, all_of
from podwire.failpoints import declare, failpoint
from podwire.linux import errors as linux
from podwire.linux.net.network import KernelNetwork
from podwire.linux.values import Link, Route, Veth
from podwire.protocols.cni import results
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import DNS, IP, Interface, Result
from podwire.protocols.cni.values import taken
from podwire.protocols.cni.versions import LATEST

NAME = "ptp"
POINTS = declared(NAME)
ADDRESSED = declare("cni.ptp-addressed", "both ends have addresses and routes, nothing is masqueraded")
UNMASQUERADED = declare("cni.ptp-unmasqueraded", "DEL: masquerading has ended, the link is still there")
MASQUERADES = tuple(f"{nat.MASQUERADE}{family}" for family in (4, 6))
_POD = 1  # the place of the pod's interface in a result
_HOST_SCOPE = 254
_KERNEL = 2  # the protocol number of routes that come with addresses


def prepare(call: Call, _ends: Ends, record: Record) -> Record:
    parse_settings(call.config)
    return record._replace(link=f"veth{os.urandom(4).hex()}")


def connect(call: Call, ends: Ends, record: Record, given: Result) -> Result:
    settings, netns = parse_settings(call.config), call.invocation.netns
    ips = tuple(each._replace(interface=_POD) for each in given.ips)
    for each in ips:
        if each.gateway is None:
            raise CniError(Code.BAD_CONFIG, f"ipam: {each.address} comes without a gateway, which ptp needs")
    forward({each.address.version for each in ips})
    veth = Veth(record.link, record.ifname, netns, mtu=settings.mtu, peer_mac=mac_of(ips), alias=record.alias, up=False)
    try:
        ends.host.links.add(veth)
    except linux.LinkExists as error:
        raise CniError(Code.IN_USE, f"CNI_IFNAME: {record.ifname} is there already") from error
    failpoint(POINTS.connected)
    write_ipv6(None, record.link, accept_ra="0", accept_dad="0")  # before it is up
    _configure_host(ends.host, record.link, ips)
    inside = _configure_pod(ends.pod, netns, record.ifname, ips, given)
    failpoint(ADDRESSED)
    if settings.ip_masq:
        _masquerade(call, record, ips)
    wait_until_found(netns, record.ifname, (each.address.ip for each in ips))
    wait_until_found(None, record.link, (each.gateway for each in ips if each.gateway is not None))
    outside = wait_for_port(ends.host, record.link)
    links = (
        Interface(outside.name, outside.mac, mtu=outside.mtu),
        Interface(inside.name, inside.mac, netns, mtu=inside.mtu),
    )
    return Result(links, ips, given.routes, settings.dns if settings.dns != DNS() else given.dns)


def _configure_host(host: KernelNetwork, name: str, ips: tuple[IP, ...]) -> None:
    index = host.links.get(name).ifindex
    with host.batch() as batch:
        batch.links.change(index, up=True)
        for gateway in dict.fromkeys(each.gateway for each in ips if each.gateway is not None):
            batch.addresses.add(index, ip_interface(gateway))
    for each in ips:
        # An address that another pod of this host has, too, is not ours to route.
        host.routes.add(Route(ip_network(each.address.ip), ifindex=index, scope=_HOST_SCOPE))


def _configure_pod(pod: KernelNetwork, netns: str, ifname: str, ips: tuple[IP, ...], given: Result) -> Link:
    """The routes that were asked for come before the network moves behind the gateway: theirs may be anywhere in it."""
    write_ipv6(netns, ifname, accept_ra="0", accept_dad="0")
    inside = address(pod, netns, ifname, ips)
    by_gateway = [(each.address, each.gateway) for each in ips if each.gateway is not None]
    for own, gateway in by_gateway:
        with suppress(linux.RouteExists):  # of another address with the same gateway
            pod.routes.add(Route(ip_network(gateway), ifindex=inside.ifindex, source=own.ip))
    route(pod, inside.ifindex, ips, given.routes)
    for own, gateway in by_gateway:
        with suppress(linux.NoSuchRoute):  # a network of one address has none
            pod.routes.delete(Route(own.network, ifindex=inside.ifindex, protocol=_KERNEL))
        if own.network.num_addresses > 1:
            with suppress(linux.RouteExists):
                pod.routes.add(Route(own.network, gateway, inside.ifindex, source=own.ip))
    return inside


def _masquerade(call: Call, record: Record, ips: tuple[IP, ...]) -> None:
    subnets = [each.address.network for each in ips]
    jumps = [nat.jump(nat.MASQUERADE, each.address, record.comment) for each in ips]
    with opened(call) as netfilter:
        nat.replace(netfilter.elements, jumps, subnets)


def disconnect(record: Record, call: Call) -> None:
    with opened(call) as netfilter:
        all_of(
            lambda: _unmasquerade(record, netfilter),
            lambda: delete_pair(record, call.later),
            lambda: _forget(record, netfilter),
        )


def _unmasquerade(record: Record, netfilter: Netfilter) -> None:
    if taken(record.config, "ipMasq", bool, False):
        nat.remove(netfilter.elements, MASQUERADES, record.marks)
    failpoint(UNMASQUERADED)


def _forget(record: Record, netfilter: Netfilter) -> None:
    """Connections of an address, while nobody else can have it."""
    if record.result is not None:
        for each in results.decode(record.result, LATEST).ips:
            netfilter.conntrack.forget(each.address.ip)


def _outside(record: Record, host: KernelNetwork) -> Link | None:
    """The host's end, if it is there and ours."""
    try:
        link = host.links.get(record.link)
    except linux.NoSuchLink:
        return None
    return link if record.marks(link.alias) else None


def stands(record: Record, ends: Ends) -> bool:
    """A DEL that was killed may have ended the masquerading, and nothing else."""
    if _outside(record, ends.host) is None:
        return False
    masqueraded = taken(record.config, "ipMasq", bool, False)
    return not masqueraded or any(nat.marked(MASQUERADES, record.marks).values())


def check(call: Call, ends: Ends, record: Record) -> None:
    settings = parse_settings(call.config)
    made = results.decode(record.result, LATEST)
    link = _outside(record, ends.host)
    if link is None:
        raise CniError(Code.NOT_AS_ADDED, f"there is no link {record.link}")
    if not link.up:
        raise CniError(Code.NOT_AS_ADDED, f"{link.name} is down")
    has = {each.interface.ip for each in ends.host.addresses.list(link.ifindex)}
    for each in made.ips:
        routes = ends.host.routes.list(each.address.version)
        if each.gateway not in has:
            raise CniError(Code.NOT_AS_ADDED, f"{link.name} has no address {each.gateway}")
        if (ip_network(each.address.ip), link.ifindex) not in {(route.destination, route.ifindex) for route in routes}:
            raise CniError(Code.NOT_AS_ADDED, f"there is no route to {each.address.ip} by {link.name}")
    if settings.ip_masq:
        with opened(call) as netfilter:
            check_masquerade(record, made, netfilter)


def status(call: Call) -> None:
    if parse_settings(call.config).ip_masq:
        with opened(call) as netfilter:
            nat.check_usable(netfilter.elements)


PLUGIN = attaching.plugin(
    Main(NAME, POINTS, prepare, connect, disconnect, stands, check, status, sets=MASQUERADES, links=True)
)
