"""ptp: a veth pair between a pod and the host, without a bridge; all packets pass through the host.

In the pod the gateway is on the link, and also the pod's own network is behind the gateway. On the host the gateway is
an address of the host's end, and the pod's address has a route to it.
"""

from contextlib import suppress
from functools import partial
from ipaddress import ip_interface, ip_network

from podwire.cniplugins import masquerading, nat, reference
from podwire.cniplugins.attachments import Record
from podwire.cniplugins.netfilter import Netfilter, open_netfilter
from podwire.cniplugins.order import Ends, OrderedPlugin, declare_steps
from podwire.cniplugins.pod_check import expect
from podwire.cniplugins.pod_link import (
    add_routes,
    bring_up,
    mac_from_address,
    name_taken,
    wait_until_resolvable,
    write_ipv6,
)
from podwire.cniplugins.ptp.settings import parse_settings
from podwire.cniplugins.skeleton import Call, run_all
from podwire.cniplugins.veth import delete_host_end, enable_forwarding, find_host_end, wait_until_up
from podwire.failpoints import declare, failpoint
from podwire.linux import errors as linux
from podwire.linux.net.network import KernelNetwork
from podwire.linux.values import Link, Route, Veth
from podwire.protocols.cni import results
from podwire.protocols.cni.config import Valid
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import IP, Interface, Result
from podwire.protocols.cni.values import taken
from podwire.protocols.cni.versions import LATEST

CONNECTED = declare("cni.ptp-connected", "the pod has its link, without addresses")
ADDRESSED = declare("cni.ptp-addressed", "both ends have addresses and routes, nothing is masqueraded")
UNMASQUERADED = declare("cni.ptp-unmasqueraded", "DEL: masquerading has ended, the link still exists")
_POD = 1
"""Index of the pod's interface in the result."""
_VETH = "veth"
_HOST_SCOPE = 254
_KERNEL = 2
"""Protocol number of routes that the kernel adds with addresses."""


class PointToPoint(OrderedPlugin):
    name = "ptp"
    points = declare_steps(name)
    sets = nat.MASQUERADE_SETS
    tags_links = True

    def validate(self, call: Call) -> bool:
        parse_settings(call.config)
        return True

    def prepare(self, call: Call, ends: Ends, record: Record, previous: Result) -> Record:
        if taken(call.config.raw, "ipMasq", bool, False):
            masquerading.check_installed(call.config.raw)
        return record._replace(link=record.link_name(_VETH))

    def attach(self, call: Call, ends: Ends, record: Record, given: Result) -> Result:
        settings, netns = parse_settings(call.config), call.invocation.netns
        ips = tuple(ip._replace(interface=_POD) for ip in given.ips)
        for ip in ips:
            if ip.gateway is None:
                raise CniError(Code.BAD_CONFIG, f"ipam: {ip.address} comes without a gateway, which ptp needs")
        enable_forwarding({ip.address.version for ip in ips})
        mac = mac_from_address(ips)
        veth = Veth(record.link, record.ifname, netns, mtu=settings.mtu, peer_mac=mac, alias=record.alias, up=False)
        try:
            ends.host.links.add(veth)
        except linux.LinkExists as error:
            raise name_taken(record.ifname) from error
        failpoint(CONNECTED)
        write_ipv6(None, record.link, accept_ra="0", accept_dad="0")  # before it is up
        _configure_host(ends.host, record.link, ips)
        inside = _configure_pod(ends.pod, netns, record.ifname, ips, given)
        failpoint(ADDRESSED)
        if settings.ip_masq:
            masquerading.masquerade(call, record, ips)
        gateways = [ip.gateway for ip in ips if ip.gateway is not None]
        wait_until_resolvable(netns, record.ifname, [ip.address.ip for ip in ips], call.limits.neighbour)
        wait_until_resolvable(None, record.link, gateways, call.limits.neighbour)
        outside = wait_until_up(ends.host, record.link, call.limits.port)
        interfaces = (
            Interface(outside.name, outside.mac, mtu=outside.mtu),
            Interface(inside.name, inside.mac, netns, mtu=inside.mtu),
        )
        return Result(interfaces, ips, given.routes, given.dns if settings.dns is None else settings.dns)

    def detach(self, call: Call, record: Record) -> None:
        record = record._replace(link=record.link or record.link_name(_VETH))
        with open_netfilter(call) as netfilter:
            run_all(
                partial(_end_masquerade, netfilter, record),
                partial(delete_host_end, record, call.defer),
                partial(nat.forget_connections, netfilter, record),
            )

    def detach_reference(self, call: Call, record: Record) -> None:
        with open_netfilter(call) as netfilter:
            run_all(
                partial(
                    reference.rules.remove_masquerade, netfilter, record.network, record.container_id, record.ifname
                ),
                partial(reference.links.delete_pod_link, call, record, "veth"),
            )

    def check_reference(self, call: Call, ends: Ends, previous: Result) -> bool:
        if reference.links.check_link(ends.host, ends.pod, call, previous, "veth") is None:
            return False
        if parse_settings(call.config).ip_masq:
            with open_netfilter(call) as netfilter:
                reference.rules.check_masquerade(netfilter, call.config.name, call.invocation)
        return True

    def collect_reference(self, call: Call, valid: Valid) -> None:
        with open_netfilter(call) as netfilter:
            reference.rules.collect_masquerade(netfilter, call.config.name, valid)

    def hand_over(self, call: Call, record: Record, made: Result, variant: str) -> None:
        with open_netfilter(call) as netfilter:
            masquerading.hand_over(netfilter, record, made.ips, variant)

    def is_attached(self, call: Call, ends: Ends, record: Record) -> bool:
        """A killed DEL may have ended the masquerading alone."""
        if find_host_end(ends.host, record) is None:
            return False
        if not taken(record.config, "ipMasq", bool, False):
            return True
        return masquerading.is_masqueraded(call, record, results.decode(record.result, LATEST).ips)

    def check_attached(self, call: Call, ends: Ends, record: Record, previous: Result) -> None:
        made = results.decode(record.result, LATEST)
        link = find_host_end(ends.host, record)
        if link is None:
            raise CniError(Code.NOT_AS_ADDED, f"link {record.link} does not exist")
        expect(link.up, f"{link.name} is down")
        present = {address.interface.ip for address in ends.host.addresses.list(link.ifindex)}
        for ip in made.ips:
            expect(ip.gateway in present, f"{link.name} does not have the address {ip.gateway}")
            routes = {(route.destination, route.ifindex) for route in ends.host.routes.list(ip.address.version)}
            routed = (ip_network(ip.address.ip), link.ifindex) in routes
            expect(routed, f"the route to {ip.address.ip} by {link.name} does not exist")
        if parse_settings(call.config).ip_masq:
            with open_netfilter(call) as netfilter:
                masquerading.check_masqueraded(netfilter, record, made.ips)

    def check_usable(self, call: Call) -> None:
        if parse_settings(call.config).ip_masq:
            with open_netfilter(call) as netfilter:
                masquerading.check_usable(call, netfilter)


def _configure_host(host: KernelNetwork, name: str, ips: tuple[IP, ...]) -> None:
    index = host.links.get(name).ifindex
    with host.batch() as batch:
        batch.links.change(index, up=True)
        for gateway in dict.fromkeys(ip.gateway for ip in ips if ip.gateway is not None):
            batch.addresses.add(index, ip_interface(gateway))
    for ip in ips:
        # RouteExists, if another pod of this host has the same address: ADD must fail.
        host.routes.add(Route(ip_network(ip.address.ip), ifindex=index, scope=_HOST_SCOPE))


def _configure_pod(pod: KernelNetwork, netns: str, ifname: str, ips: tuple[IP, ...], given: Result) -> Link:
    """Adds requested routes before the pod's network moves behind the gateway: their gateways may be in it."""
    write_ipv6(netns, ifname, accept_ra="0", accept_dad="0")
    inside = bring_up(pod, netns, ifname, ips)
    by_gateway = [(ip.address, ip.gateway) for ip in ips if ip.gateway is not None]
    for own, gateway in by_gateway:
        with suppress(linux.RouteExists):  # of another address with the same gateway
            pod.routes.add(Route(ip_network(gateway), ifindex=inside.ifindex, source=own.ip))
    add_routes(pod, inside.ifindex, ips, given.routes)
    for own, gateway in by_gateway:
        with suppress(linux.NoSuchRoute):  # a network of one address has none
            pod.routes.delete(Route(own.network, ifindex=inside.ifindex, protocol=_KERNEL))
        if own.network.num_addresses > 1:
            with suppress(linux.RouteExists):
                pod.routes.add(Route(own.network, gateway, inside.ifindex, source=own.ip))
    return inside


def _end_masquerade(netfilter: Netfilter, record: Record) -> None:
    masquerading.end_masquerade(netfilter, record)
    failpoint(UNMASQUERADED)


PLUGIN = PointToPoint()
