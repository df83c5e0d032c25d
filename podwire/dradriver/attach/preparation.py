"""Checks a device, takes its snapshot and makes it ready, before its pod exists."""

import hashlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from podwire.dradriver.attach import made_links
from podwire.dradriver.attach.executor import StepExecutor
from podwire.dradriver.attach.plan import attributes, make_step
from podwire.dradriver.attach.ports import BridgePorts
from podwire.dradriver.attach.records import Record
from podwire.dradriver.claims.allocations import Allocation, Refused
from podwire.dradriver.inventory.uplinks import needed, uplinks
from podwire.dradriver.parameters.settings import WHOLE, Interface
from podwire.failpoints import declare, failpoint
from podwire.linux import errors
from podwire.linux.net import link_sysctls
from podwire.linux.net.borrow import snapshot_link
from podwire.linux.net.link_attributes import Attributes, DetailedLinks
from podwire.linux.net.links import FEATURES, KernelLinks
from podwire.linux.net.namespace_handle import NamespaceHandle
from podwire.linux.net.routes import KernelRoutes
from podwire.linux.net.snapshot_routes import SavedRoutes
from podwire.linux.net.stacked_links import supports
from podwire.linux.values import Link

WAITING = declare("network-driver.waiting", "an interface that waits for a DHCP lease is made, and is not up")
_STAYING = ("bond", "bridge", "team", "vrf")
"""Kinds of links that cannot leave their namespace."""


def check_free(allocation: Allocation, records: Iterable[Record]) -> None:
    """A whole device has one claim at a time, and so has a share. Raises Refused."""
    for other in records:
        same = (
            other.allocation.device.name == allocation.device.name
            and other.allocation.claim.uid != allocation.claim.uid
        )
        if same and (allocation.settings.made.kind == WHOLE or other.allocation.share_id == allocation.share_id):
            whose = f"{other.allocation.claim.namespace}/{other.allocation.claim.name}"
            raise Refused("", f"device {allocation.device.name} is prepared for claim {whose}")


def decide(host: NamespaceHandle, allocation: Allocation, addresses: tuple[Interface, ...] | None, boot: str) -> Record:
    """Returns the record of an allocation, with the snapshot. Changes nothing. Raises Refused, LinuxError."""
    settings = allocation.settings
    if settings.vrf is not None:
        _check_kind(host, "vrf")
    if settings.made.kind != WHOLE:
        parent = _checked_parent(host, allocation)
        mac = parent.mac if settings.made.kind == "ipvlan" else settings.mac or _own_mac(allocation)
        return Record(allocation=allocation, boot=boot, mac=mac, addresses=addresses)
    snapshot = snapshot_link(host, _checked_whole(host, allocation).ifindex)
    for name in settings.features:
        if name not in snapshot.changeable:
            raise Refused("ethtool.features", f"{name} cannot be changed on {snapshot.name}")
    for name in settings.private_flags:
        if name not in snapshot.flags:
            raise Refused("ethtool.privateFlags", f"{snapshot.name} has no flag {name}")
    return Record(
        allocation=allocation, boot=boot, mac=settings.mac or snapshot.mac, addresses=addresses, snapshot=snapshot
    )


def _own_mac(allocation: Allocation) -> str:
    """A locally administered address, always the same for a claim's device and a pod."""
    device = f"{allocation.request}\0{allocation.device.name}\0{allocation.share_id}"
    identity = f"{allocation.pod.uid}\0{allocation.claim.uid}\0{device}"
    packed = bytearray(hashlib.sha256(identity.encode()).digest()[:6])
    packed[0] = packed[0] & 0xFC | 0x02
    return packed.hex(":")


def _check_kind(host: NamespaceHandle, kind: str) -> None:
    if not supports(host.netlink, kind):
        raise Refused("", f"the kernel does not support {kind} interfaces; it was built without {FEATURES[kind]}")


def _checked_parent(host: NamespaceHandle, allocation: Allocation) -> Link:
    made = allocation.settings.made
    name = made.bridge or allocation.device.link
    try:
        parent = KernelLinks(host.netlink).get(name)
    except errors.NoSuchLink:
        raise Refused("", f"device {allocation.device.name}: the link {name} is not on the host") from None
    if parent.name == "lo":
        raise Refused("", "interfaces cannot be made on the loopback interface")
    if made.kind == "veth" and parent.kind != "bridge":
        raise Refused("", f"a veth needs a bridge, and {name} is not a bridge")
    if made.kind in FEATURES:
        _check_kind(host, made.kind)
    if made.kind in ("veth", "macvlan", "vlan") and (allocation.settings.mtu or 0) > parent.mtu:
        raise Refused("interface.mtu", f"{allocation.settings.mtu} is more than {name} has, {parent.mtu}")
    return parent


def _checked_whole(host: NamespaceHandle, allocation: Allocation) -> Link:
    """Returns the link of a device that the host does not need. Raises Refused."""
    links = {present.ifindex: present for present in KernelLinks(host.netlink).list()}
    link = next((candidate for candidate in links.values() if candidate.name == allocation.device.link), None)
    if link is None:
        raise Refused("", f"device {allocation.device.name}: the link {allocation.device.link} is not on the host")
    if link.name == "lo":
        raise Refused("", "the loopback interface stays on the host")
    if link.kind in _STAYING:
        raise Refused("", f"{link.name} is a {link.kind}, which cannot be moved")
    if link.master:
        raise Refused("", f"{link.name} is a port of {links[link.master].name}")
    check_not_needed(host, links, link)
    return link


def check_not_needed(host: NamespaceHandle, links: dict[int, Link], link: Link) -> None:
    """Raises Refused for what the host's own traffic goes through."""
    routes = [route for family in (4, 6) for route in KernelRoutes(host.netlink).list(family)]
    if link.ifindex in needed(links, uplinks(routes)):
        raise Refused("", f"the host's default route goes through {link.name}: it stays there")


def make_ready(host: NamespaceHandle, record: Record, ports: BridgePorts) -> None:
    """Brings up a link that needs a DHCP lease; all other interfaces are made when the pod's namespace exists."""
    if not record.allocation.settings.dhcp:
        return
    links = DetailedLinks(host.netlink)
    if record.snapshot is not None:
        link = links.get(record.snapshot.name).link
        if link.mac != record.mac:  # before it is up: the DHCP server knows clients by it
            links.change(link.ifindex, Attributes(up=False))
            links.change(link.ifindex, Attributes(mac=record.mac))
        links.change(link.ifindex, Attributes(up=True))
        return
    executor = StepExecutor(record, host, None, ports)
    waiting = executor.locate_on_host()
    if waiting is None or waiting.alias != record.tag:
        executor.unmake(record.host_end)
        named = attributes(record)._replace(name=record.waiting_name)
        executor.ifindex = made_links.make(host, host, replace(make_step(record), attributes=named), ports)
        failpoint(WAITING)
    # The host does not configure IPv6 on a link that only waits for its pod.
    with suppress(errors.NoSuchSysctl):  # a kernel without IPv6
        host.visited(lambda: link_sysctls.write(record.waiting_name, {"ipv6/disable_ipv6": "1"}))
    links.change(executor.ifindex, Attributes(up=True))


def check_still_free(host: NamespaceHandle, link: Link | None, record: Record) -> None:
    """Checks again right before the move: the host may have got a default route through it. Raises Refused."""
    if link is None:
        raise Refused("", f"the link {record.allocation.device.link} is not on the host")
    if SavedRoutes(host.netlink).leads_out(link.ifindex):
        check_not_needed(host, {candidate.ifindex: candidate for candidate in KernelLinks(host.netlink).list()}, link)
