"""What is decided and done about a device before there is a pod: judged, looked at, put on record, made ready."""

import hashlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from podwire.dradriver.attach import made_links, snapshots
from podwire.dradriver.attach.executor import Hands
from podwire.dradriver.attach.netns import Place
from podwire.dradriver.attach.plan import attributes, make_step
from podwire.dradriver.attach.records import Record
from podwire.dradriver.attach.snapshots import Snapshot
from podwire.dradriver.claims.allocations import Order, Refused
from podwire.dradriver.inventory.uplinks import needed, uplinks
from podwire.dradriver.parameters.settings import WHOLE, Interface
from podwire.failpoints import declare, failpoint
from podwire.linux import errors
from podwire.linux.net import link_sysctls
from podwire.linux.net.link_attributes import Attributes, DetailedLinks
from podwire.linux.net.links import KernelLinks
from podwire.linux.net.routes import KernelRoutes
from podwire.linux.net.snapshot_routes import SavedRoutes
from podwire.linux.net.stacked_links import FEATURES, supports
from podwire.linux.values import Link

WAITING = declare("network-driver.waiting", "an interface that waits for a DHCP server's answer is made, and is not up")
_STAYING = ("bond", "bridge", "team", "vrf")
"""Kinds of links that the kernel moves nowhere."""


def check_free(order: Order, records: Iterable[Record]) -> None:
    """A device that moves is for one claim at a time, and a share is for one. Raises Refused."""
    for other in records:
        same = other.order.offered.device == order.offered.device and other.order.claim.uid != order.claim.uid
        if same and (order.settings.made.kind == WHOLE or other.order.share_id == order.share_id):
            whose = f"{other.order.claim.namespace}/{other.order.claim.name}"
            raise Refused("", f"device {order.offered.device} is prepared for claim {whose}")


def decided(host: Place, order: Order, addresses: tuple[Interface, ...] | None, boot: str) -> Record:
    """The record of an order, with the snapshot. Changes nothing. Raises Refused, LinuxError."""
    settings = order.settings
    if settings.vrf is not None:
        _check_kind(host, "vrf")
    if settings.made.kind != WHOLE:
        parent = _checked_parent(host, order)
        mac = parent.mac if settings.made.kind == "ipvlan" else settings.mac or _own_mac(order)
        return Record(order=order, boot=boot, mac=mac, addresses=addresses)
    snapshot = snapshots.taken(host, _checked_whole(host, order).ifindex)
    for name in settings.features:
        if name not in snapshot.changeable:
            raise Refused("ethtool.features", f"{name} cannot be changed on {snapshot.name}")
    for name in settings.private_flags:
        if name not in snapshot.flags:
            raise Refused("ethtool.privateFlags", f"{snapshot.name} has no flag {name}")
    return Record(order=order, boot=boot, mac=settings.mac or snapshot.mac, addresses=addresses, snapshot=snapshot)


def _own_mac(order: Order) -> str:
    """One that no manufacturer gives out, always the same for a claim's device and a pod."""
    told = f"{order.pod.uid}\0{order.claim.uid}\0{order.request}\0{order.offered.device}\0{order.share_id}"
    packed = bytearray(hashlib.sha256(told.encode()).digest()[:6])
    packed[0] = packed[0] & 0xFC | 0x02
    return packed.hex(":")


def _check_kind(host: Place, kind: str) -> None:
    if not supports(host.netlink, kind):
        raise Refused("", f"this kernel has no {kind} interfaces: it is built without {FEATURES[kind]}")


def _checked_parent(host: Place, order: Order) -> Link:
    made = order.settings.made
    name = made.bridge or order.offered.link
    try:
        parent = KernelLinks(host.netlink).get(name)
    except errors.NoSuchLink:
        raise Refused("", f"device {order.offered.device}: the link {name} is not on the host") from None
    if parent.name == "lo":
        raise Refused("", "nothing is made on the loopback interface")
    if made.kind == "veth" and parent.kind != "bridge":
        raise Refused("", f"a veth is made on a bridge, and {name} is none")
    if made.kind in FEATURES:
        _check_kind(host, made.kind)
    if made.kind in ("veth", "macvlan", "vlan") and (order.settings.mtu or 0) > parent.mtu:
        raise Refused("interface.mtu", f"{order.settings.mtu} is more than {name} has, {parent.mtu}")
    return parent


def _checked_whole(host: Place, order: Order) -> Link:
    """The link of a device, which the host can do without. Raises Refused."""
    links = {each.ifindex: each for each in KernelLinks(host.netlink).list()}
    link = next((each for each in links.values() if each.name == order.offered.link), None)
    if link is None:
        raise Refused("", f"device {order.offered.device}: the link {order.offered.link} is not on the host")
    if link.name == "lo":
        raise Refused("", "the loopback interface stays on the host")
    if link.kind in _STAYING:
        raise Refused("", f"{link.name} is a {link.kind}, which cannot be moved")
    if link.master:
        raise Refused("", f"{link.name} is a port of {links[link.master].name}")
    check_not_needed(host, links, link)
    return link


def check_not_needed(host: Place, links: dict[int, Link], link: Link) -> None:
    """Raises Refused for what the host's own traffic goes through."""
    routes = [each for family in (4, 6) for each in KernelRoutes(host.netlink).list(family)]
    if link.ifindex in needed(links, uplinks(routes)):
        raise Refused("", f"the host's default route goes through {link.name}: it stays there")


def ready(host: Place, record: Record) -> None:
    """Whoever asks a DHCP server needs the link on the host, and up; all others are made when there is a pod."""
    if not record.order.settings.dhcp:
        return
    if record.snapshot is not None:
        _ready_whole(host, record.snapshot, record.mac)
        return
    hands = Hands(record, host, None)
    link = hands.look_on_host()
    if link is None or link.alias != record.tag:
        hands.unmake(record.host_end)
        wanted = attributes(record)._replace(name=record.waiting_name)
        hands.ifindex = made_links.make(host, host, replace(make_step(record), attributes=wanted))
        failpoint(WAITING)
    _stay_silent(host, record.waiting_name)
    DetailedLinks(host.netlink).change(hands.ifindex, Attributes(up=True))


def _stay_silent(host: Place, link: str) -> None:
    """The host takes no addresses and no routes by a link that only waits there for its pod."""
    with suppress(errors.NoSuchSysctl):  # a kernel without IPv6
        host.visited(lambda: link_sysctls.write(link, {"ipv6/disable_ipv6": "1"}))


def _ready_whole(host: Place, snapshot: Snapshot, mac: str) -> None:
    """It asks with the MAC address that it is to have."""
    links = DetailedLinks(host.netlink)
    now = links.get(snapshot.name).link
    if now.mac != mac:
        links.change(now.ifindex, Attributes(up=False))
        links.change(now.ifindex, Attributes(mac=mac))
    links.change(now.ifindex, Attributes(up=True))


def check_free_to_go(host: Place, link: Link | None, record: Record) -> None:
    """Once more, when it is about to go: the host may need by now what it did not need before. Raises Refused."""
    if link is None:
        raise Refused("", f"the link {record.order.offered.link} is not on the host")
    if SavedRoutes(host.netlink).leads_out(link.ifindex):
        check_not_needed(host, {each.ifindex: each for each in KernelLinks(host.netlink).list()}, link)
