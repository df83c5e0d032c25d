"""Hands running attachments over to the reference plugins, by their records: the way back, without stopping a pod.

For each attachment, in this order, so that a repeated run completes one that was killed:

| step | action | after a crash |
|---|---|---|
| 1 | `hand_over` of each plugin: the reference's rules are made, then ours are removed | both, or one of them |
| 2 | links lose their owner tags and their group | as if the reference plugins had made them; the records still exist |
| 3 | the lease becomes one of the reference's host-local | as step 2 |
| 4 | the records are removed, that of the plugin which made the link last | the next run does the rest |

From then on DEL of the reference plugins removes everything; DEL of ours, too, as for any pod of theirs (`reference/`).
An attachment whose link no longer exists is released instead.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

from podwire.cniplugins import ipam_delegate, nft_tables, tags
from podwire.cniplugins.attachments import Attachments, Record
from podwire.cniplugins.dead_attachments import as_del, of_attachment, release
from podwire.cniplugins.order import OrderedPlugin
from podwire.cniplugins.overview import Attached, attached
from podwire.cniplugins.skeleton import Call
from podwire.linux import errors as linux
from podwire.linux.net.network import KernelNetwork
from podwire.linux.nft.port_guard import GROUP
from podwire.linux.values import Link
from podwire.protocols.cni.results import IP, Interface, Result


class Done(NamedTuple):
    attachment: Attached
    is_handed_over: bool
    """False: it was released, because its link no longer exists."""


def hand_over(data: str, path: str, variant: str, warn: Callable[[str], None]) -> Iterator[Done]:
    """Yields each attachment below a directory of records. Raises CniError, LinuxError, OSError.

    `path` is CNI_PATH, for IPAM plugins of others; `variant` is the host's iptables, `nft` or `legacy`.
    """
    for attachment in attached(data):
        records = list(of_attachment(data, attachment))
        made = next(filter(None, (_pod_link(record) for _, record in records)), None) if attachment.alive else None
        if made is None:
            release(records, data, path, warn)
        else:
            for plugin, record in records:
                _hand_over(plugin, as_del(record, data, path, warn), made, variant)
        yield Done(attachment, made is not None)
    nft_tables.remove_unused()


def _hand_over(plugin: OrderedPlugin, call: Call, made: Result, variant: str) -> None:
    attachments = Attachments(call.config, plugin.name)
    with attachments.lock(call):
        record = attachments.find(call)
        if record is None:
            return  # a DEL came first
        plugin.hand_over(call, record, made, variant)
        with KernelNetwork() as host, KernelNetwork(record.netns) as pod:
            for network in (host, pod):
                _untag(network, record)
        if not plugin.chained:
            ipam_delegate.hand_over(call)
        attachments.remove(record)


def _untag(network: KernelNetwork, record: Record) -> None:
    """Gives a borrowed device the alias by which the reference host-device knows its name, and other links none."""
    for link in network.links.list():
        if record.owns(link.alias):
            tag = tags.parse(link.alias)
            alias = tag.device if tag is not None else ""
            network.links.change(link.ifindex, alias=alias, group=0 if link.group == GROUP else None)


def _pod_link(record: Record) -> Result | None:
    """Returns bridge, host's end, pod's end and addresses as they are; None if the pod no longer has the link."""
    try:
        with KernelNetwork(record.netns) as pod, KernelNetwork() as host:
            inside = pod.links.get(record.ifname)
            interfaces = [Interface(link.name, link.mac) for link in _host_links(host, inside)]
            interfaces.append(Interface(inside.name, inside.mac, record.netns))
            own = [address.interface for address in pod.addresses.list(inside.ifindex)]
    except linux.Missing:
        return None
    ips = [IP(address, interface=len(interfaces) - 1) for address in own if not address.is_link_local]
    return Result(tuple(interfaces), tuple(ips))


def _host_links(host: KernelNetwork, inside: Link) -> Iterator[Link]:
    """Yields the bridge, if there is one, and the host's end of a veth pair."""
    if inside.kind == "veth":
        with suppress(linux.NoSuchLink):
            end = host.links.get(inside.peer)
            if end.kind == "veth" and end.peer == inside.ifindex:
                if end.master:
                    yield host.links.get(end.master)
                yield end
