"""Links of the reference plugins, which have no owner tags.

A link of the pod is taken for theirs if it has the name and the kind, no tag of ours on either end, and either the MAC
address of `prevResult` or an address that is leased to the attachment. So a namespace that belongs to another pod by
now is not touched.
"""

from contextlib import suppress
from ipaddress import ip_interface

from podwire.cniplugins import ipam_delegate, tags
from podwire.cniplugins.attachments import Record
from podwire.cniplugins.pod_check import check_pod, expect, expect_link
from podwire.cniplugins.pod_link import pod_path
from podwire.cniplugins.skeleton import Call
from podwire.linux import errors as linux
from podwire.linux.net.network import KernelNetwork
from podwire.linux.values import Link
from podwire.protocols.cni import results
from podwire.protocols.cni.results import Result
from podwire.protocols.cni.values import Address
from podwire.protocols.cni.versions import LATEST


def find_link(host: KernelNetwork, pod: KernelNetwork, call: Call, made: Result, *kinds: str) -> Link | None:
    """Returns the pod's link of an attachment that the reference plugin made; None if it is another one's."""
    try:
        link = pod.links.get(call.invocation.ifname)
    except linux.NoSuchLink:
        return None
    if (kinds and link.kind not in kinds) or link.alias.startswith(tags.PREFIX) or _is_peer_tagged(host, link):
        return None
    macs = {interface.mac.lower() for interface in made.interfaces if interface.name == link.name and interface.sandbox}
    if link.mac in macs:
        return link
    leased = ipam_delegate.leased(call)
    addresses = {address.interface.ip for address in pod.addresses.list(link.ifindex)} if leased else set()
    return link if addresses.intersection(leased) else None


def _is_peer_tagged(host: KernelNetwork, link: Link) -> bool:
    if link.kind != "veth" or link.peer_netns is None:
        return False
    with suppress(linux.NoSuchLink):
        peer = host.links.get(link.peer)
        return peer.kind == "veth" and peer.peer == link.ifindex and peer.alias.startswith(tags.PREFIX)
    return False


def delete_pod_link(call: Call, record: Record, *kinds: str) -> None:
    """Deletes the pod's link; the other end of a pair goes with it."""
    path = pod_path(call, record)
    if path is None:
        return  # the kernel has deleted it with the namespace
    with KernelNetwork() as host, KernelNetwork(path) as pod:
        link = find_link(host, pod, call, made_by(record), *kinds)
        if link is not None:
            with suppress(linux.NoSuchLink):
                pod.links.delete(link.ifindex)


def made_by(record: Record) -> Result:
    """Returns the result that the runtime sent with its call; empty without one."""
    return results.decode(record.result, LATEST) if record.result else Result()


def pod_addresses(call: Call, record: Record) -> list[Address]:
    """Returns the pod's addresses: of the result, else of its link."""
    made = [ip.address.ip for ip in made_by(record).ips]
    path = pod_path(call, record)
    if made or path is None:
        return made
    with KernelNetwork(path) as pod, suppress(linux.NoSuchLink):
        link = pod.links.get(call.invocation.ifname)
        return [address.interface.ip for address in pod.addresses.list(link.ifindex)]
    return []


def check_link(host: KernelNetwork, pod: KernelNetwork, call: Call, previous: Result, *kinds: str) -> Link | None:
    """Expects addresses and routes of `prevResult`. Returns the pod's link; None if the reference did not make it."""
    link = find_link(host, pod, call, previous, *kinds)
    if link is None:
        return None
    own = [index for index, interface in enumerate(previous.interfaces) if interface.sandbox]
    own = [index for index in own if previous.interfaces[index].name == link.name]
    if not own:
        return None
    ips = tuple(ip for ip in previous.ips if ip.interface in (None, own[0]))
    made = previous._replace(interfaces=(previous.interfaces[own[0]],), ips=ips)
    if ipam_delegate.ipam_type(call.config.raw):
        ipam_delegate.check(call)
    check_pod(pod, call.invocation.netns, previous, made)
    return link


def check_port(host: KernelNetwork, link: Link, bridge: str) -> None:
    """Expects the other end of a pod's link to be a port of a bridge."""
    port, master = host.links.get(link.peer), expect_link(host, bridge)
    expect(port.up and master.up, f"{port.name} or {bridge} is down")
    expect(port.master == master.ifindex, f"{port.name} is not a port of the bridge {bridge}")


def check_gateways(host: KernelNetwork, bridge: str, previous: Result) -> None:
    present = {address.interface for address in host.addresses.list(expect_link(host, bridge).ifindex)}
    for ip in previous.ips:
        if ip.gateway is not None:
            gateway = ip_interface((ip.gateway, ip.address.network.prefixlen))
            expect(gateway in present, f"{bridge} does not have the address {gateway}")
