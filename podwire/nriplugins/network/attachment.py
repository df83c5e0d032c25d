"""The attachment of a pod to its node, read from the kernel; it decides where its policies are enforced."""

from collections.abc import Iterable
from ipaddress import ip_address
from typing import NamedTuple

from podwire.linux.errors import NoSuchLink
from podwire.linux.net.network import KernelNetwork
from podwire.linux.values import Address, Link
from podwire.nriplugins.network.policy.values import Attachment


class HostAttachment(NamedTuple):
    """The kind, and a link: the node's end of a routed veth, the bridge of a bridged one, else the pod's own link."""

    way: Attachment
    link: str


def find_attachment(netns: str, ips: Iterable[str], node: KernelNetwork) -> HostAttachment:
    """Raises LinuxError for a namespace that is gone."""
    with KernelNetwork(netns) as inside:
        link = own_link(inside.links.list(), inside.addresses.list(), ips)
    if link is None:
        return HostAttachment(Attachment.INSIDE, "")
    if link.kind != "veth" or link.peer_netns is None:
        return HostAttachment(Attachment.INSIDE, link.name)
    try:
        host = node.links.get(link.peer)
        return decide(link, host, node.links.get(host.master) if host.master else None)
    except NoSuchLink:
        return HostAttachment(Attachment.INSIDE, link.name)


def own_link(links: Iterable[Link], addresses: Iterable[Address], ips: Iterable[str]) -> Link | None:
    """The link that has the first of these addresses that any link has."""
    holders = {address.interface.ip: address.ifindex for address in addresses}
    index = next((holders[ip] for text in ips if (ip := ip_address(text)) in holders), None)
    return next((link for link in links if link.ifindex == index), None)


def decide(link: Link, host: Link, master: Link | None) -> HostAttachment:
    """Decides by a veth, the node's link with the index of its peer, and that link's master."""
    if host.kind != "veth" or host.peer != link.ifindex or host.peer_netns is None:
        return HostAttachment(Attachment.INSIDE, link.name)  # an index of another namespace
    if master is not None and master.kind == "bridge":
        return HostAttachment(Attachment.BRIDGED, master.name)
    return HostAttachment(Attachment.ROUTED, host.name)
