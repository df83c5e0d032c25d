"""The bridge, the pod's link and all that they need, told to the kernel."""

import os
import time
from contextlib import suppress

from podwire.cniplugins.attachments import Record
from podwire.cniplugins.bridge.settings import Plan, Settings
from podwire.cniplugins.pod_link import address, announce, route, wait_until_found, write_ipv6
from podwire.cniplugins.skeleton import Later
from podwire.linux import errors as linux
from podwire.linux.net.deferred_deletion import delete_link
from podwire.linux.net.network import KernelNetwork
from podwire.linux.net.sysctls import KernelSysctls
from podwire.linux.proc.stopwatch import step
from podwire.linux.values import Bridge, Interface, Link, Veth
from podwire.protocols.cni.errors import CniError, Code

PATIENCE = 2.5
"""Seconds until a new port of the bridge must pass packets."""
OURS = "podwire"
"""The alias of bridges that were not there before."""
_STEP = 0.001
FORWARDING = {4: "net.ipv4.ip_forward", 6: "net.ipv6.conf.all.forwarding"}


def ensure_bridge(host: KernelNetwork, settings: Settings) -> Link:
    """The bridge, made if it is not there. Its MAC address is its own, so it does not follow the ports."""
    try:
        bridge = host.links.get(settings.bridge)
    except linux.NoSuchLink:
        bridge = _new_bridge(host, settings)
    check_kind(bridge)
    if bridge.alias == OURS and not bridge.up:  # whoever made it may have died before this
        write_ipv6(None, bridge.name, accept_ra="0", accept_dad="0")
    if not bridge.up or (settings.promiscuous and not bridge.promiscuous):
        host.links.change(bridge.ifindex, up=True, promiscuous=True if settings.promiscuous else None)
    return bridge


def check_kind(bridge: Link) -> None:
    if bridge.kind != "bridge":
        raise CniError(Code.IN_USE, f"bridge: {bridge.name} is there already, and is no bridge")


def _new_bridge(host: KernelNetwork, settings: Settings) -> Link:
    mac = (b"\x0a\x58" + os.urandom(4)).hex(":")
    with suppress(linux.LinkExists):  # another pod was faster
        host.links.add(Bridge(settings.bridge, settings.mtu, mac, alias=OURS))
    return host.links.get(settings.bridge)


def add_gateways(host: KernelNetwork, bridge: Link, settings: Settings, plan: Plan) -> None:
    """Put the gateways onto the bridge and let this host forward; addresses that disagree are in the way."""
    has = [each.interface for each in host.addresses.list(bridge.ifindex)]
    for each in plan.gateways:
        if each not in has:
            for other in _in_the_way(each, has, plan.gateways):
                if not settings.force_address:
                    raise CniError(Code.IN_USE, f"bridge: {bridge.name} has the address {other} and should have {each}")
                with suppress(linux.NoSuchAddress):
                    host.addresses.delete(bridge.ifindex, other)
            with suppress(linux.AddressExists):
                host.addresses.add(bridge.ifindex, each)
    forward({each.version for each in plan.gateways})


def forward(families: set[int]) -> None:
    """Let this host pass on packets that are not its own."""
    sysctls = KernelSysctls()
    for family in families:
        if sysctls.read(FORWARDING[family]) != "1":
            sysctls.write(FORWARDING[family], "1")


def _in_the_way(wanted: Interface, has: list[Interface], gateways: tuple[Interface, ...]) -> list[Interface]:
    """Addresses that cannot be there beside a gateway: other IPv4 ones, and IPv6 ones of a network that overlaps."""
    others = [each for each in has if each.version == wanted.version and each not in gateways]
    if wanted.version == 4:
        return others
    return [each for each in others if each.network.overlaps(wanted.network) and not each.is_link_local]


def connect(host: KernelNetwork, bridge: Link, settings: Settings, plan: Plan, record: Record, netns: str) -> None:
    """Make the pair: the pod's end in the pod, the host's end up, in the bridge, with its owner's mark."""
    veth = Veth(
        name=record.link,
        peer=record.ifname,
        peer_netns=netns,
        mtu=settings.mtu,
        peer_mac=plan.mac,
        alias=record.alias,
        master=bridge.ifindex,
        up=True,
    )
    try:
        host.links.add(veth)
    except linux.LinkExists as error:
        raise CniError(Code.IN_USE, f"CNI_IFNAME: {record.ifname} is there already") from error
    if settings.hairpin or settings.isolated:
        index = host.links.get(record.link).ifindex
        host.links.set_port(index, hairpin=settings.hairpin, isolated=settings.isolated)


def configure(pod: KernelNetwork, plan: Plan, record: Record, netns: str) -> Link:
    """Give the pod's end its addresses and routes; all can be used when this returns."""
    # A pod listens to no router but its gateway: others in the bridge could pose as one.
    write_ipv6(netns, record.ifname, accept_ra="0", accept_dad="0")
    if plan.ips:
        announce(netns, record.ifname)
    inside = address(pod, netns, record.ifname, plan.ips)
    route(pod, inside.ifindex, plan.ips, plan.routes)
    wait_until_found(netns, record.ifname, (each.address.ip for each in plan.ips))
    return inside


def wait_for_port(host: KernelNetwork, name: str) -> Link:
    """A port passes packets only when the kernel has noticed that both ends are up."""
    until = time.monotonic() + PATIENCE
    with step("waiting"):
        while True:
            link = host.links.get(name)
            if link.state == "up":
                return link
            if time.monotonic() > until:
                raise CniError(Code.REFUSED, f"the link {name} is {link.state} after {PATIENCE:g} s")
            time.sleep(_STEP)


def disconnect(record: Record, later: Later) -> None:
    """Delete the pair, if it is there and ours; the pod's end goes with it, wherever it is."""
    if not record.link:
        return
    with KernelNetwork() as host, suppress(linux.NoSuchLink):
        link = host.links.get(record.link)
        if record.marks(link.alias):
            delete_link(link.ifindex, later)
