"""macvlan: a link of the pod's own that stands on a link of this host, with its own MAC address on the same wire.

It is made and marked beside its master, under a name that the record tells, and then moved: so whoever dies in between
leaves nothing without a mark. What announces itself by router advertisements is listened to: the wire is not ours.
"""

import os
from contextlib import suppress

from podwire.cniplugins import attaching
from podwire.cniplugins.attaching import Ends, Main, declared, marked, pod_of
from podwire.cniplugins.attachments import Record
from podwire.cniplugins.macvlan.settings import Settings, parse_settings
from podwire.cniplugins.pod_link import address, announce, route, wait_until_found
from podwire.cniplugins.skeleton import Call
from podwire.failpoints import declare, failpoint
from podwire.linux import errors as linux
from podwire.linux.net.network import KernelNetwork
from podwire.linux.values import Link, Macvlan
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import Interface, Result

NAME = "macvlan"
POINTS = declared(NAME)
MADE = declare("cni.macvlan-made", "a pod's link is made beside its master, and not moved to the pod")
_POD = 0  # the place of the pod's interface in a result


def prepare(call: Call, ends: Ends, record: Record) -> Record:
    settings = parse_settings(call.config, call.invocation)
    master = master_of(_side(ends, settings), settings)
    if not 0 <= settings.mtu <= master.mtu:
        raise CniError(
            Code.BAD_CONFIG, f"mtu: {settings.mtu} is not between 0 and {master.mtu}, which is that of {master.name}"
        )
    return record._replace(link=f"macv{os.urandom(4).hex()}")


def _side(ends: Ends, settings: Settings) -> KernelNetwork:
    """Where the master is."""
    return ends.pod if settings.in_container else ends.host


def master_of(network: KernelNetwork, settings: Settings) -> Link:
    try:
        if settings.master:
            return network.links.get(settings.master)
    except linux.NoSuchLink as error:
        raise CniError(Code.BAD_CONFIG, f"master: there is no link {settings.master}") from error
    for family in (4, 6):
        for each in network.routes.list(family):
            if each.destination.prefixlen == 0 and each.ifindex:
                return network.links.get(each.ifindex)
    raise CniError(Code.BAD_CONFIG, "master: missing, and there is no default route to take it from")


def connect(call: Call, ends: Ends, record: Record, given: Result) -> Result:
    settings, netns = parse_settings(call.config, call.invocation), call.invocation.netns
    _make(ends, settings, record, netns)
    failpoint(POINTS.connected)
    ips = tuple(each._replace(interface=_POD) for each in given.ips)
    if ips:
        announce(netns, record.ifname)
    inside = address(ends.pod, netns, record.ifname, ips)
    route(ends.pod, inside.ifindex, ips, given.routes)
    wait_until_found(netns, record.ifname, (each.address.ip for each in ips))
    links = (Interface(inside.name, inside.mac, netns, mtu=inside.mtu),)
    return Result(links, ips, given.routes, settings.dns)


def _make(ends: Ends, settings: Settings, record: Record, netns: str) -> None:
    here = _side(ends, settings)
    master = master_of(here, settings)
    new = Macvlan(
        name=record.link,
        parent=master.ifindex,
        mode=settings.mode,
        mtu=settings.mtu,
        mac=settings.mac,
        alias=record.alias,
        queue=settings.queue,
    )
    here.links.add(new)
    failpoint(MADE)
    index = here.links.get(record.link).ifindex
    try:
        if settings.in_container:
            here.links.change(index, name=record.ifname)
        else:
            here.links.move(index, netns, record.ifname)
    except linux.LinkExists as error:
        raise CniError(Code.IN_USE, f"CNI_IFNAME: {record.ifname} is there already") from error


def disconnect(record: Record, call: Call) -> None:
    """Wherever it is: still beside its master, or in the pod."""
    with KernelNetwork() as host:
        _delete(host, record)
    pod = pod_of(record, call)
    if pod is not None:
        with pod:
            _delete(pod, record)


def _delete(network: KernelNetwork, record: Record) -> None:
    link = marked(network, record)
    if link is not None and link.kind == NAME:
        with suppress(linux.NoSuchLink):
            network.links.delete(link.ifindex)


def stands(record: Record, ends: Ends) -> bool:
    link = marked(ends.pod, record)
    return link is not None and link.name == record.ifname


def check(call: Call, ends: Ends, record: Record) -> None:
    settings = parse_settings(call.config, call.invocation)
    link = ends.pod.links.get(record.ifname)
    master = master_of(_side(ends, settings), settings)
    if not record.marks(link.alias) or link.kind != NAME:
        raise CniError(Code.NOT_AS_ADDED, f"{link.name} is not ours")
    if link.mode != settings.mode:
        raise CniError(Code.NOT_AS_ADDED, f"{link.name} has the mode {link.mode} and not {settings.mode}")
    if link.peer != master.ifindex or (link.peer_netns is None) != settings.in_container:
        raise CniError(Code.NOT_AS_ADDED, f"{link.name} does not stand on {master.name}")


def status(call: Call) -> None:
    """Whether there is something to stand on; a master in the pod is known only when there is a pod."""
    settings = parse_settings(call.config, call.invocation)
    if settings.in_container:
        return
    with KernelNetwork() as host:
        master_of(host, settings)


PLUGIN = attaching.plugin(Main(NAME, POINTS, prepare, connect, disconnect, stands, check, status, links=True))
