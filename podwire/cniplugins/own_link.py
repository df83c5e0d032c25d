"""Plugins that make a link of a kind which not every kernel has: ipvlan, vlan and dummy.

A link is made and tagged in the namespace of its master, under a name that the record has, and moved afterwards: a
process that is killed in between leaves no link without a tag. A link without a master is made in the pod. A kernel
without the kind is an error with the name of its option, at ADD before anything is made, and at STATUS.
"""

from contextlib import suppress
from typing import NamedTuple

from podwire.cniplugins import ipam_delegate
from podwire.cniplugins.attachments import Record
from podwire.cniplugins.order import Ends, OrderedPlugin
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
from podwire.failpoints import failpoint
from podwire.linux import errors as linux
from podwire.linux.net.links import FEATURES
from podwire.linux.net.network import KernelNetwork
from podwire.linux.net.stacked_links import supports
from podwire.linux.values import Link, NewLink
from podwire.protocols.cni.config import PluginConfig
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import DNS, Interface, Result, decode_dns
from podwire.protocols.cni.values import taken
from podwire.protocols.cni.verbs import is_ifname

_POD = 0
"""Index of the pod's interface in the result."""


class Settings(NamedTuple):
    """Keys that these plugins share."""

    master: str = ""
    mtu: int = 0
    """0 is that of the master."""
    in_container: bool = False
    """Whether the master is a link of the pod."""
    dns: DNS = DNS()
    mode: str = ""
    """Of an ipvlan."""
    vlan: int = 0


def parse_shared(config: PluginConfig) -> Settings:
    raw = config.raw
    settings = Settings(
        master=taken(raw, "master", str, ""),
        mtu=taken(raw, "mtu", int, 0),
        in_container=taken(raw, "linkInContainer", bool, False),
        dns=decode_dns(taken(raw, "dns", dict, {}), "dns."),
    )
    if settings.master and not is_ifname(settings.master):
        raise CniError(Code.BAD_CONFIG, f"master: {settings.master!r} is not a valid interface name")
    return settings


class OwnLinkPlugin(OrderedPlugin):
    """A plugin that makes the pod's link by one netlink message."""

    tags_links = True
    prefix: str
    """Of the link's name in the namespace of its master."""
    made: str
    """The failpoint after the link is made, and before it is moved."""
    connected: str
    """The failpoint after the pod has the link."""
    has_master = True

    def parse(self, call: Call) -> Settings:
        raise NotImplementedError

    def new_link(self, name: str, parent: int, settings: Settings, alias: str) -> NewLink:
        raise NotImplementedError

    def check_link(self, link: Link, settings: Settings) -> None:
        """Raises CniError for a link that is not as the settings request."""

    def validate(self, call: Call) -> bool:
        self.parse(call)
        adds = call.invocation.command == "ADD"
        if adds and not ipam_delegate.ipam_type(call.config.raw) and not self.given_addresses(call).ips:
            raise CniError(
                Code.BAD_CONFIG, f"{self.name} interface requires an IPAM configuration", "ipam.type: missing"
            )
        return True

    def has_neighbours(self, settings: Settings) -> bool:
        """Whether others resolve the link's addresses: the kernel joins no multicast groups for one without ARP."""
        return True

    def given_addresses(self, call: Call) -> Result:
        """The addresses of a configuration without IPAM."""
        return Result()

    def prepare(self, call: Call, ends: Ends, record: Record, previous: Result) -> Record:
        settings = self.parse(call)
        if not self.has_master:
            self.check_supported(ends.host)
            return record
        master = find_master(_master_namespace(ends, settings), settings.master)
        check_mtu(settings.mtu, master.mtu, f", the MTU of {master.name}")
        self.check_supported(ends.host)
        return record._replace(link=record.link_name(self.prefix), before={"master": master.name})

    def check_supported(self, network: KernelNetwork) -> None:
        if not supports(network.netlink, self.name):
            option = FEATURES[self.name]
            message = f"this kernel has no {self.name} links: it is built without {option}, or the module is not loaded"
            raise CniError(Code.REFUSED, message)

    def connect(self, call: Call, ends: Ends, record: Record) -> None:
        self._make_link(ends, record, self.parse(call))
        failpoint(self.connected)
        bring_up(ends.pod, call.invocation.netns, record.ifname, ())

    def attach(self, call: Call, ends: Ends, record: Record, given: Result) -> Result:
        settings, netns = self.parse(call), call.invocation.netns
        if not ipam_delegate.needs_link(call.config.raw):
            self._make_link(ends, record, settings)
            failpoint(self.connected)
        if not ipam_delegate.ipam_type(call.config.raw):
            given = self.given_addresses(call)
        ips = tuple(ip._replace(interface=_POD) for ip in given.ips)
        announce_addresses(netns, record.ifname)
        inside = bring_up(ends.pod, netns, record.ifname, ips)
        add_routes(ends.pod, inside.ifindex, ips, given.routes)
        if self.has_neighbours(settings):
            wait_until_resolvable(netns, record.ifname, [ip.address.ip for ip in ips], call.limits.neighbour)
        links = (Interface(inside.name, inside.mac, netns, mtu=inside.mtu),)
        return Result(links, ips, given.routes, settings.dns)

    def _make_link(self, ends: Ends, record: Record, settings: Settings) -> None:
        try:
            if not self.has_master:
                ends.pod.links.add(self.new_link(record.ifname, 0, settings, record.alias))
                failpoint(self.made)
                return
            outer = _master_namespace(ends, settings)
            master = find_master(outer, settings.master)
            try:
                outer.links.add(self.new_link(record.link, master.ifindex, settings, record.alias))
            except linux.LinkExists as error:
                raise CniError(Code.IN_USE, f"{master.name} already has such a {self.name} link") from error
            failpoint(self.made)
            index = outer.links.get(record.link).ifindex
            if settings.in_container:
                outer.links.change(index, name=record.ifname)
            else:
                outer.links.move(index, ends.pod.path, record.ifname)
        except linux.LinkExists as error:
            raise name_taken(record.ifname) from error

    def detach(self, call: Call, record: Record) -> None:
        """Deletes the link in its master's namespace or in the pod, wherever it is."""
        with KernelNetwork() as host:
            self._delete(host, record)
        path = pod_path(call, record)
        if path is not None:
            with KernelNetwork(path) as pod:
                self._delete(pod, record)

    def _delete(self, network: KernelNetwork, record: Record) -> None:
        link = find_tagged(network, record, self.name)
        if link is not None:
            with suppress(linux.NoSuchLink):
                network.links.delete(link.ifindex)

    def is_attached(self, call: Call, ends: Ends, record: Record) -> bool:
        link = find_tagged(ends.pod, record, self.name)
        return link is not None and link.name == record.ifname

    def check_attached(self, call: Call, ends: Ends, record: Record, previous: Result) -> None:
        settings = self.parse(call)
        link = ends.pod.links.get(record.ifname)
        expect(record.owns(link.alias) and link.kind == self.name, f"{link.name} is not ours")
        self.check_link(link, settings)
        if self.has_master:
            settings = settings._replace(master=settings.master or record.before["master"])
            master = find_master(_master_namespace(ends, settings), settings.master)
            on_master = link.peer == master.ifindex and (link.peer_netns is None) == settings.in_container
            expect(on_master, f"{link.name} is not stacked on {master.name}")

    def check_usable(self, call: Call) -> None:
        """A master in the pod cannot be checked without a pod."""
        settings = self.parse(call)
        with KernelNetwork() as host:
            self.check_supported(host)
            if self.has_master and not settings.in_container:
                find_master(host, settings.master)


def _master_namespace(ends: Ends, settings: Settings) -> KernelNetwork:
    return ends.pod if settings.in_container else ends.host
