"""host-device: a link of the host becomes the pod's, until DEL restores it on the host.

The record has a full snapshot of the link (`podwire.linux.net.borrow`). The owner tag on the link says to which
attachment it belongs, wherever it is and whatever its name is. So DEL finds it in the pod; or on the host, if the
namespace has ended and the kernel has returned it, or if a process was killed half-way. The tag also has the device's
own name, and whether it was up: these are restored without the record, too.
"""

from podwire.cniplugins import ipam_delegate, reference, tags
from podwire.cniplugins.attachments import Attachments, Record
from podwire.cniplugins.host_device.settings import Settings, parse_settings, select_link
from podwire.cniplugins.order import Ends, OrderedPlugin, declare_steps
from podwire.cniplugins.pod_check import expect
from podwire.cniplugins.pod_link import add_routes, bring_up, find_tagged, name_taken, pod_path, wait_until_resolvable
from podwire.cniplugins.skeleton import Call
from podwire.failpoints import declare, failpoint
from podwire.linux import errors as linux
from podwire.linux.net import borrow
from podwire.linux.net.borrow import LinkSnapshot
from podwire.linux.net.link_attributes import Attributes
from podwire.linux.net.namespace_handle import NamespaceHandle
from podwire.linux.net.network import KernelNetwork
from podwire.linux.values import Link
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import Interface, Result
from podwire.protocols.cni.values import taken
from podwire.protocols.cni.verbs import is_ifname

TAGGED = declare("cni.host-device-tagged", "the device has its new owner's tag, and is still on the host")
CONNECTED = declare("cni.host-device-connected", "the pod has the device, without addresses")
MOVED = declare("cni.host-device-moved", "DEL: the device is on the host under its own name, with its owner's tag")
_POD = 0
"""Index of the pod's interface in the result."""
_NO_SNAPSHOT = "the record with its snapshot is lost"


class HostDevice(OrderedPlugin):
    name = "host-device"
    points = declare_steps(name)
    tags_links = True
    connects_first = True

    def validate(self, call: Call) -> bool:
        parse_settings(call.config)
        return True

    def prepare(self, call: Call, ends: Ends, record: Record, previous: Result) -> Record:
        device = _find_device(ends.host, parse_settings(call.config))
        if device.alias.startswith(tags.PREFIX):
            raise CniError(Code.IN_USE, f"device: {device.name} belongs to {device.alias.split(' ')[1]}")
        snapshot = borrow.snapshot_link(ends.host, device.ifindex)
        return record._replace(link=device.name, before=borrow.encode(snapshot))

    def connect(self, call: Call, ends: Ends, record: Record) -> None:
        self._lend(ends, record)
        bring_up(ends.pod, call.invocation.netns, record.ifname, ())

    def _lend(self, ends: Ends, record: Record) -> None:
        device = ends.host.links.get(record.link)
        index = device.ifindex
        ends.host.links.change(index, alias=f"{record.alias} {device.name} {'up' if device.up else 'down'}")
        failpoint(TAGGED)
        try:
            borrow.lend_link(ends.host, index, ends.pod, Attributes(name=record.ifname))
        except linux.LinkExists as error:
            raise name_taken(record.ifname) from error
        failpoint(CONNECTED)

    def attach(self, call: Call, ends: Ends, record: Record, given: Result) -> Result:
        settings, netns = parse_settings(call.config), call.invocation.netns
        if not ipam_delegate.needs_link(call.config.raw):
            self._lend(ends, record)
        ips = tuple(ip._replace(interface=_POD) for ip in given.ips)
        inside = bring_up(ends.pod, netns, record.ifname, ips)
        add_routes(ends.pod, inside.ifindex, ips, given.routes)
        wait_until_resolvable(netns, record.ifname, [ip.address.ip for ip in ips], call.limits.neighbour)
        interfaces = (Interface(inside.name, inside.mac, netns, mtu=inside.mtu),)
        return Result(interfaces, ips, given.routes, settings.dns)

    def detach(self, call: Call, record: Record) -> None:
        """Moves the device to the host, if it is in the pod, and restores it there."""
        path = pod_path(call, record)
        with NamespaceHandle() as host:
            if path is not None:
                with NamespaceHandle(path) as pod:
                    link = find_tagged(pod, record)
                    if link is not None:
                        snapshot, spare = read_snapshot(record, link), record.link_name("home")
                        borrow.return_link(pod, link.ifindex, host, snapshot, spare)
            failpoint(MOVED)
            link = find_tagged(host, record)
            if link is not None:
                _restore(call, host, link, read_snapshot(record, link))
                if record.is_lost:
                    call.warn(f"podwire host-device: {link.name} has its name again, and nothing else: {_NO_SNAPSHOT}")

    def detach_reference(self, call: Call, record: Record) -> None:
        """Moves a device back whose own name the reference plugin has saved as its alias; it stays down, as there."""
        path, device = pod_path(call, record), taken(call.config.raw, "device", str, "")
        with NamespaceHandle() as host:
            if path is not None:
                with NamespaceHandle(path) as pod:
                    link = reference.links.find_link(host, pod, call, reference.links.made_by(record))
                    if link is not None and is_ifname(link.alias):
                        borrow.return_link(pod, link.ifindex, host, _snapshot_of_alias(link), record.link_name("home"))
            for link in host.links.list():  # also one that the kernel has returned with the namespace
                if device and link.alias == device:
                    _restore(call, host, link, _snapshot_of_alias(link))

    def check_reference(self, call: Call, ends: Ends, previous: Result) -> bool:
        return reference.links.check_link(ends.host, ends.pod, call, previous) is not None

    def release_link(self, call: Call, link: Link) -> None:
        """A device that is on the host again, because its pod's namespace has ended."""
        parsed = tags.parse(link.alias)
        if parsed is not None and parsed.device:
            with NamespaceHandle() as host:
                _restore(call, host, link, _snapshot_of_tag(link))

    def is_attached(self, call: Call, ends: Ends, record: Record) -> bool:
        link = find_tagged(ends.pod, record)
        return link is not None and link.name == record.ifname

    def check_attached(self, call: Call, ends: Ends, record: Record, previous: Result) -> None:
        expect(self.is_attached(call, ends, record), f"{record.ifname} is not the device {record.link}")

    def check_usable(self, call: Call) -> None:
        """A device that a pod has is where it should be."""
        if not Attachments(call.config, self.name).any_attached():
            with KernelNetwork() as host:
                _find_device(host, parse_settings(call.config))


def _restore(call: Call, host: NamespaceHandle, link: Link, snapshot: LinkSnapshot) -> None:
    try:
        borrow.rename_back(host, link.ifindex, snapshot)
    except linux.LinkExists as error:
        message = f"{snapshot.name}: another link has this name, so the device is called {link.name}"
        raise CniError(Code.IN_USE, message, "rename the other link, then repeat DEL") from error
    for message in borrow.restore_link(host, link.ifindex, snapshot):
        call.warn(f"podwire host-device: {snapshot.name} was not restored completely: {message}")


def read_snapshot(record: Record, link: Link) -> LinkSnapshot:
    """Reads the snapshot of a record. Records of podwire 0.1.0 have alias and up alone: nothing else is restored."""
    if record.is_lost:
        return _snapshot_of_tag(link)
    if "name" in record.before:
        return borrow.decode(record.before)
    attributes = Attributes(alias=record.before["alias"], up=record.before["up"])
    return LinkSnapshot(record.link, attributes=attributes, exact_addresses=False)


def _snapshot_of_tag(link: Link) -> LinkSnapshot:
    parsed = tags.parse(link.alias)
    name, up = (parsed.device or link.name, parsed.up) if parsed is not None else (link.name, False)
    return LinkSnapshot(name, attributes=Attributes(alias="", up=up), exact_addresses=False)


def _snapshot_of_alias(link: Link) -> LinkSnapshot:
    return LinkSnapshot(link.alias, attributes=Attributes(alias="", up=False), exact_addresses=False)


def _find_device(host: KernelNetwork, settings: Settings) -> Link:
    link = select_link(settings, host.links.list())
    if link is None:
        reason = "Link not found" if settings.device else "failed to find physical interface"
        if settings.directory:
            reason = f'failed to find network devices at "{settings.directory}/net"'
        details = f"device: {settings.selector} does not exist on this host"
        raise CniError(Code.BAD_CONFIG, f"failed to find host device: {reason}", details)
    return link


PLUGIN = HostDevice()
