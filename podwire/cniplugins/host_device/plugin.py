"""host-device: a link of this host becomes the pod's, until DEL brings it home.

The record tells its name and how it was; a mark on the link tells whose it is, wherever it is and whatever it is called
there. So DEL finds it in the pod, or on the host: when the namespace has ended and the kernel has brought it back, or
when somebody died on the way.
"""

from podwire.cniplugins import attaching
from podwire.cniplugins.attaching import HERE, Ends, Main, declared, marked, pod_of
from podwire.cniplugins.attachments import MARK, Attachments, Record
from podwire.cniplugins.host_device.settings import Settings, chosen, parse_settings
from podwire.cniplugins.pod_link import address, route, wait_until_found
from podwire.cniplugins.skeleton import Call
from podwire.failpoints import declare, failpoint
from podwire.linux import errors as linux
from podwire.linux.net.network import KernelNetwork
from podwire.linux.values import Link
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import Interface, Result

NAME = "host-device"
POINTS = declared(NAME)
MARKED = declare("cni.host-device-marked", "a device has its new owner's mark, and is still on the host")
MOVED = declare("cni.host-device-moved", "DEL: a device is home under its old name, with its owner's mark")
_POD = 0  # the place of the pod's interface in a result


def prepare(call: Call, ends: Ends, record: Record) -> Record:
    device = _found(ends.host, parse_settings(call.config))
    if device.alias.startswith(MARK):
        raise CniError(Code.IN_USE, f"device: {device.name} belongs to {device.alias.partition(' ')[2]}")
    return record._replace(link=device.name, before={"alias": device.alias, "up": device.up})


def _found(host: KernelNetwork, settings: Settings) -> Link:
    link = chosen(settings, host.links.list())
    if link is None:
        raise CniError(Code.BAD_CONFIG, f"device: there is no {settings.told} on this host")
    return link


def connect(call: Call, ends: Ends, record: Record, given: Result) -> Result:
    settings, netns = parse_settings(call.config), call.invocation.netns
    index = ends.host.links.get(record.link).ifindex
    ends.host.links.change(index, alias=record.alias)
    failpoint(MARKED)
    try:
        ends.host.links.move(index, netns, record.ifname)
    except linux.LinkExists as error:
        raise CniError(Code.IN_USE, f"CNI_IFNAME: {record.ifname} is there already") from error
    failpoint(POINTS.connected)
    ips = tuple(each._replace(interface=_POD) for each in given.ips)
    inside = address(ends.pod, netns, record.ifname, ips)
    route(ends.pod, inside.ifindex, ips, given.routes)
    wait_until_found(netns, record.ifname, (each.address.ip for each in ips))
    links = (Interface(inside.name, inside.mac, netns, mtu=inside.mtu),)
    return Result(links, ips, given.routes, settings.dns)


def disconnect(record: Record, call: Call) -> None:
    pod = pod_of(record, call)
    if pod is not None:
        with pod:
            _bring_home(pod, record)
    failpoint(MOVED)
    with KernelNetwork() as host:
        _restore(host, record)


def _bring_home(pod: KernelNetwork, record: Record) -> None:
    link = marked(pod, record)
    if link is None:
        return
    try:
        pod.links.move(link.ifindex, HERE, record.link)
    except linux.LinkExists:  # the pod may end before its owner comes again, and the device must not end with it
        pod.links.move(link.ifindex, HERE, f"home{record.token[:8]}")


def _restore(host: KernelNetwork, record: Record) -> None:
    """Give it its old name, if the kernel brought it home under another, and make it as it was."""
    link = marked(host, record)
    if link is None:
        return
    try:
        if link.name != record.link:
            host.links.change(link.ifindex, name=record.link)
    except linux.LinkExists as error:
        told = f"{record.link}: there is another link of this name, so the device is called {link.name}"
        raise CniError(Code.IN_USE, told, "DEL can be repeated") from error
    host.links.change(link.ifindex, alias=record.before["alias"], up=record.before["up"])


def stands(record: Record, ends: Ends) -> bool:
    link = marked(ends.pod, record)
    return link is not None and link.name == record.ifname


def check(_call: Call, ends: Ends, record: Record) -> None:
    if not stands(record, ends):
        raise CniError(Code.NOT_AS_ADDED, f"{record.ifname} is not the device {record.link}")


def status(call: Call) -> None:
    """Whether the device is there; one that a pod has is where it should be."""
    if not Attachments(call.config, NAME).any_attached():
        with KernelNetwork() as host:
            _found(host, parse_settings(call.config))


PLUGIN = attaching.plugin(Main(NAME, POINTS, prepare, connect, disconnect, stands, check, status))
