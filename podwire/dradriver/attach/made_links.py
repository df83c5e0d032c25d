"""Interfaces made for a claim, right in the pod's namespace, and what is made beside them: queues, VRFs."""

import errno
from collections.abc import Callable
from contextlib import suppress
from threading import Thread

from podwire.dradriver.attach import steps
from podwire.dradriver.attach.netns import Place
from podwire.dradriver.parameters.settings import Made, Vrf
from podwire.linux import errors
from podwire.linux.net.deferred_deletion import delete_link
from podwire.linux.net.link_attributes import Attributes, DetailedLinks
from podwire.linux.net.links import KernelLinks
from podwire.linux.net.netlink import Batch
from podwire.linux.net.stacked_links import Stacked
from podwire.linux.net.stacked_links import make as make_stacked
from podwire.linux.net.sysctls import KernelSysctls
from podwire.linux.net.taps import make_tap
from podwire.linux.net.traffic import KernelTraffic
from podwire.linux.values import Ifb, Veth

_ACROSS_VRFS = ("net.ipv4.tcp_l3mdev_accept", "net.ipv4.udp_l3mdev_accept")
"""So that a server that listens on no VRF in particular is reached by this one, too."""


def make(host: Place, there: Place, step: steps.Make) -> int:
    """Make an interface in a place, the pod or the host; returns its index. LinkExists, NoSuchLink, Unsupported.

    The other end of a veth is marked by the system call that makes it, and takes the pod's end along when it goes; a
    tap has a name of ours until it is marked, and the others are known by their MAC addresses.
    """
    name, rest = step.attributes.name or "", Attributes(alias=step.tag)
    match step.made.kind:
        case "veth":
            _make_veth(host, there, step)
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


def _make_veth(host: Place, there: Place, step: steps.Make) -> None:
    bridge = KernelLinks(host.netlink).get(step.parent)
    if bridge.kind != "bridge":
        raise errors.WrongKind(errno.EINVAL, f"make a veth on {step.parent}", "it is no bridge")
    KernelLinks(host.netlink).add(
        Veth(
            step.host_end,
            step.attributes.name or "",
            peer_netns=there.path,
            mtu=bridge.mtu,  # a bridge takes the least of its ports' for its own
            alias=step.tag,
            master=bridge.ifindex,
            up=True,
        )
    )


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


def delete_marked(place: Place, name: str, tag: str) -> None:
    """Nothing there is fine, and what is another's stays."""
    with suppress(errors.NoSuchLink):
        link = KernelLinks(place.netlink).get(name)
        if link.alias == tag:
            delete(place, link.ifindex)


def delete(place: Place, index: int) -> None:
    """Returns when the link is gone for everybody; nobody waits until the kernel has tidied up. NoSuchLink."""
    place.visited(lambda: delete_link(index, _in_a_thread))


def _in_a_thread(work: Callable[[], None]) -> None:
    Thread(target=work, name="podwire-departure", daemon=True).start()


def join_vrf(pod: Place, index: int, vrf: Vrf) -> None:
    """Two devices of a pod may be in one. Unsupported by a kernel without VRFs."""
    links = KernelLinks(pod.netlink)
    try:
        make_stacked(pod.netlink, Stacked(kind="vrf", table=vrf.table), Attributes(name=vrf.name, up=True))
    except errors.LinkExists:
        if links.get(vrf.name).kind != "vrf":
            raise
    links.change(index, master=links.get(vrf.name).ifindex)
    for each in _ACROSS_VRFS:
        KernelSysctls(pod.path).write(each, "1")


def shape(host: Place, pod: Place, index: int, step: steps.Shape) -> None:
    """Hold back what leaves the interface, and what comes in: at the other end of its cable, or by a detour."""
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
