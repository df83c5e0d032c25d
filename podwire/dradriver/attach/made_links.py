"""Makes interfaces for a claim directly in the pod's namespace, and the ifbs and VRFs that belong to them."""

import errno
from collections.abc import Callable
from contextlib import suppress
from threading import Thread

from podwire.dradriver.attach import steps
from podwire.dradriver.attach.ports import BridgePorts
from podwire.dradriver.parameters.settings import Made, Vrf
from podwire.linux import errors
from podwire.linux.net.deferred_deletion import delete_link
from podwire.linux.net.link_attributes import Attributes, DetailedLinks
from podwire.linux.net.links import KernelLinks
from podwire.linux.net.namespace_handle import NamespaceHandle
from podwire.linux.net.netlink import Batch
from podwire.linux.net.stacked_links import Stacked
from podwire.linux.net.stacked_links import make as make_stacked
from podwire.linux.net.sysctls import KernelSysctls
from podwire.linux.net.taps import make_tap
from podwire.linux.net.traffic import KernelTraffic
from podwire.linux.values import Ifb, Veth

_ACROSS_VRFS = ("net.ipv4.tcp_l3mdev_accept", "net.ipv4.udp_l3mdev_accept")
"""Servers that are not bound to a VRF accept connections through this one, too."""


def make(host: NamespaceHandle, there: NamespaceHandle, step: steps.Make, ports: BridgePorts) -> int:
    """Makes an interface in the pod or on the host; returns its index. Raises LinkExists, NoSuchLink, Unsupported.

    A crash must not leave a link without an owner. The host's end of a veth is tagged by the message that makes it, and
    the pod's end goes with it; a tap has a name of ours until it is tagged; others are found by their MAC addresses.
    """
    name, rest = step.attributes.name or "", Attributes(alias=step.tag)
    match step.made.kind:
        case "veth":
            bridge = KernelLinks(host.netlink).get(step.parent)
            if bridge.kind != "bridge":
                raise errors.WrongKind(errno.EINVAL, f"make a veth on {step.parent}", "it is not a bridge")
            KernelLinks(host.netlink).add(
                Veth(
                    step.host_end,
                    step.attributes.name or "",
                    peer_netns=there.path,
                    mtu=bridge.mtu,  # a bridge takes the least MTU of its ports
                    alias=step.tag,
                    master=bridge.ifindex,
                    up=True,
                    group=ports.group(bridge.name),
                )
            )
            rest = step.attributes._replace(name=None, alias=step.tag)
        case "tap":
            there.visited(lambda: make_tap(step.unfinished))
            name, rest = step.unfinished, step.attributes._replace(alias=step.tag)
        case _:
            parent = KernelLinks(host.netlink).get(step.parent)
            make_stacked(host.netlink, _stacked(step.made, parent.ifindex), step.attributes, there.netns)
    index = KernelLinks(there.netlink).get(name).ifindex
    DetailedLinks(there.netlink).change(index, rest)
    return index


def _stacked(made: Made, parent: int) -> Stacked:
    return Stacked(
        kind=made.kind,
        parent=parent,
        mode=made.mode,
        vni=made.vni,
        remote=made.remote,
        port=made.port,
        vlan=made.vlan,
    )


def delete_tagged(place: NamespaceHandle, name: str, tag: str) -> None:
    """Deletes a link if it exists and has this owner tag."""
    with suppress(errors.NoSuchLink):
        link = KernelLinks(place.netlink).get(name)
        if link.alias == tag:
            delete(place, link.ifindex)


def delete(place: NamespaceHandle, index: int) -> None:
    """Returns when the link is invisible; the kernel frees it in the background. Raises NoSuchLink."""
    place.visited(lambda: delete_link(index, _in_a_thread))


def _in_a_thread(work: Callable[[], None]) -> None:
    Thread(target=work, name="podwire-link-deletion", daemon=True).start()


def join_vrf(pod: NamespaceHandle, index: int, vrf: Vrf) -> None:
    """Puts a link into a VRF, which two devices may share. Raises Unsupported by a kernel without VRFs."""
    links = KernelLinks(pod.netlink)
    try:
        make_stacked(pod.netlink, Stacked(kind="vrf", table=vrf.table), Attributes(name=vrf.name, up=True))
    except errors.LinkExists:
        if links.get(vrf.name).kind != "vrf":
            raise
    links.change(index, master=links.get(vrf.name).ifindex)
    for name in _ACROSS_VRFS:
        KernelSysctls(pod.path).write(name, "1")


def shape(host: NamespaceHandle, pod: NamespaceHandle, index: int, step: steps.Shape) -> None:
    """Limits both directions: incoming traffic at the host's end of a veth, or through an ifb in the pod."""
    if step.host_end:
        KernelTraffic(host.netlink).shape(KernelLinks(host.netlink).get(step.host_end).ifindex, step.bucket)
        KernelTraffic(pod.netlink).shape(index, step.bucket)
        return
    links = KernelLinks(pod.netlink)
    links.add(Ifb(step.queue, links.get(index).mtu, step.tag, up=True))
    queue = links.get(step.queue).ifindex
    batch = Batch(pod.netlink)
    traffic = KernelTraffic(batch)
    traffic.shape(index, step.bucket)
    traffic.shape(queue, step.bucket)
    traffic.redirect(index, queue)
    batch.send()
