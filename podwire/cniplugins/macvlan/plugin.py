"""macvlan: a link of the pod with its own MAC address, stacked on a link of the host.

It is made and tagged in the master's namespace, under a name that the record has, and moved afterwards: a process that
is killed in between leaves no link without a tag. Router advertisements are accepted, because the network is not ours.
"""

from contextlib import suppress

from podwire.cniplugins import ipam_delegate, reference
from podwire.cniplugins.attachments import Record
from podwire.cniplugins.macvlan.settings import Settings, parse_settings
from podwire.cniplugins.order import Ends, OrderedPlugin, declare_steps
from podwire.cniplugins.pod_check import expect
from podwire.cniplugins.pod_link import (
    add_routes,
    announce_addresses,
    bring_up,
    check_mtu,
    find_master,
    find_tagged,
    name_taken,
    pod_path,
    wait_until_resolvable,
)
from podwire.cniplugins.skeleton import Call
from podwire.failpoints import declare, failpoint
from podwire.linux import errors as linux
from podwire.linux.net.network import KernelNetwork
from podwire.linux.values import Macvlan as NewMacvlan
from podwire.protocols.cni.results import Interface, Result

MADE = declare("cni.macvlan-made", "the link exists in its master's namespace, and is not moved to the pod")
CONNECTED = declare("cni.macvlan-connected", "the pod has its link, without addresses")
_POD = 0
"""Index of the pod's interface in the result."""


class Macvlan(OrderedPlugin):
    name = "macvlan"
    points = declare_steps(name)
    tags_links = True
    connects_first = True

    def validate(self, call: Call) -> bool:
        parse_settings(call.config, call.invocation)
        return True

    def prepare(self, call: Call, ends: Ends, record: Record, previous: Result) -> Record:
        settings = parse_settings(call.config, call.invocation)
        master = find_master(_master_namespace(ends, settings), settings.master)
        check_mtu(settings.mtu, master.mtu, f", the MTU of {master.name}")
        return record._replace(link=record.link_name("macv"))

    def connect(self, call: Call, ends: Ends, record: Record) -> None:
        self._make_link(call, ends, record)
        bring_up(ends.pod, call.invocation.netns, record.ifname, ())

    def _make_link(self, call: Call, ends: Ends, record: Record) -> None:
        settings = parse_settings(call.config, call.invocation)
        outer = _master_namespace(ends, settings)
        new = NewMacvlan(
            name=record.link,
            parent=find_master(outer, settings.master).ifindex,
            mode=settings.mode,
            mtu=settings.mtu,
            mac=settings.mac,
            alias=record.alias,
            queue=settings.queue,
        )
        outer.links.add(new)
        failpoint(MADE)
        index = outer.links.get(record.link).ifindex
        try:
            if settings.in_container:
                outer.links.change(index, name=record.ifname)
            else:
                outer.links.move(index, call.invocation.netns, record.ifname)
        except linux.LinkExists as error:
            raise name_taken(record.ifname) from error
        failpoint(CONNECTED)

    def attach(self, call: Call, ends: Ends, record: Record, given: Result) -> Result:
        settings, netns = parse_settings(call.config, call.invocation), call.invocation.netns
        if not ipam_delegate.needs_link(call.config.raw):
            self._make_link(call, ends, record)
        ips = tuple(ip._replace(interface=_POD) for ip in given.ips)
        if ips:
            announce_addresses(netns, record.ifname)
        inside = bring_up(ends.pod, netns, record.ifname, ips)
        add_routes(ends.pod, inside.ifindex, ips, given.routes)
        wait_until_resolvable(netns, record.ifname, [ip.address.ip for ip in ips], call.limits.neighbour)
        interfaces = (Interface(inside.name, inside.mac, netns, mtu=inside.mtu),)
        return Result(interfaces, ips, given.routes, settings.dns)

    def detach(self, call: Call, record: Record) -> None:
        """Deletes the link in its master's namespace or in the pod, wherever it is."""
        with KernelNetwork() as host:
            _delete(host, record)
        path = pod_path(call, record)
        if path is not None:
            with KernelNetwork(path) as pod:
                _delete(pod, record)

    def detach_reference(self, call: Call, record: Record) -> None:
        reference.links.delete_pod_link(call, record, self.name)

    def check_reference(self, call: Call, ends: Ends, previous: Result) -> bool:
        return reference.links.check_link(ends.host, ends.pod, call, previous, self.name) is not None

    def is_attached(self, call: Call, ends: Ends, record: Record) -> bool:
        link = find_tagged(ends.pod, record, self.name)
        return link is not None and link.name == record.ifname

    def check_attached(self, call: Call, ends: Ends, record: Record, previous: Result) -> None:
        settings = parse_settings(call.config, call.invocation)
        link = ends.pod.links.get(record.ifname)
        master = find_master(_master_namespace(ends, settings), settings.master)
        expect(record.owns(link.alias) and link.kind == self.name, f"{link.name} is not ours")
        expect(link.mode == settings.mode, f"{link.name} has the mode {link.mode}, expected {settings.mode}")
        on_master = link.peer == master.ifindex and (link.peer_netns is None) == settings.in_container
        expect(on_master, f"{link.name} is not stacked on {master.name}")

    def check_usable(self, call: Call) -> None:
        """A master in the pod cannot be checked without a pod."""
        settings = parse_settings(call.config, call.invocation)
        if not settings.in_container:
            with KernelNetwork() as host:
                find_master(host, settings.master)


def _master_namespace(ends: Ends, settings: Settings) -> KernelNetwork:
    return ends.pod if settings.in_container else ends.host


def _delete(network: KernelNetwork, record: Record) -> None:
    link = find_tagged(network, record, Macvlan.name)
    if link is not None:
        with suppress(linux.NoSuchLink):
            network.links.delete(link.ifindex)


PLUGIN = Macvlan()
