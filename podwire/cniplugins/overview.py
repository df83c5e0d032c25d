"""Reads attachments, address pools and the guard of ports, for `podwire cni list`, `pools` and `guard`."""

import contextlib
import os
from collections.abc import Iterator
from typing import NamedTuple

from podwire.cniplugins import tags
from podwire.cniplugins.attachments import Record, records
from podwire.ipam import host_local, ranges
from podwire.ipam.leases import LeaseInfo, is_gone
from podwire.ipam.ranges import RangeSet
from podwire.linux import errors as linux
from podwire.linux.net.network import KernelNetwork
from podwire.linux.nft import port_guard
from podwire.linux.nft.table import KernelElements
from podwire.linux.nft.values import Counter
from podwire.linux.proc.namespaces import identity
from podwire.protocols.cni import results
from podwire.protocols.cni.config import NetworkList, parse_list, parse_single, plugin_config, request
from podwire.protocols.cni.errors import CniError
from podwire.protocols.cni.values import Object, dumped
from podwire.protocols.cni.verbs import Invocation
from podwire.protocols.cni.versions import LATEST

ENDINGS = (".conflist", ".conf", ".json")


class Attached(NamedTuple):
    network: str
    container_id: str
    ifname: str
    plugins: tuple[str, ...]
    ips: tuple[str, ...]
    since: float
    """Seconds since 1970."""
    alive: bool
    """False if the pod's namespace certainly no longer exists."""


def attached(data: str) -> list[Attached]:
    """Lists all attachments with records below a directory, the oldest first; those of chained plugins are merged."""
    by_key: dict[tuple[str, str, str], Attached] = {}
    for plugin in sorted(os.listdir(data)) if os.path.isdir(data) else ():
        for record in records(f"{data}/{plugin}"):
            key = record.network, record.container_id, record.ifname
            part = _attached(record, plugin, f"{data}/{plugin}/{'@'.join(key)}")
            by_key[key] = _merge(by_key[key], part) if key in by_key else part
    return sorted(by_key.values(), key=lambda attachment: attachment.since)


def _attached(record: Record, plugin: str, path: str) -> Attached:
    try:
        since = os.stat(path).st_mtime
    except FileNotFoundError:
        since = 0.0  # it was removed at this moment
    made = results.decode(record.result, LATEST) if record.result else results.Result()
    ips = tuple(str(ip.address) for ip in made.ips)
    return Attached(record.network, record.container_id, record.ifname, (plugin,), ips, since, _is_alive(record))


def _is_alive(record: Record) -> bool:
    if not record.netns:
        return True
    try:
        return record.inode in (0, identity(record.netns))
    except linux.LinuxError:
        return not is_gone(record.netns)


def _merge(one: Attached, other: Attached) -> Attached:
    return one._replace(
        plugins=(*one.plugins, *other.plugins),
        ips=one.ips or other.ips,
        since=min(one.since, other.since),
        alive=one.alive and other.alive,
    )


class Pool(NamedTuple):
    network: str
    ranges: str
    size: int
    used: int
    free: int
    dead: int
    """Leases whose namespace no longer exists: GC, or the first call after a boot, releases them."""
    oldest: LeaseInfo | None


CLAIMED = "podwire:claim:"
"""The aliases of links that the network driver made begin so."""


class Guard(NamedTuple):
    """The guard of bridge ports on this host."""

    ports: int
    """Ports of pods that are guarded."""
    unguarded: int
    """Ports of pods that are not: of trusted networks and bridges, or added before the guard existed."""
    dropped: dict[str, Counter]
    """By the comment of the rules; empty if there are none."""


def guard() -> Guard:
    """Reads the guard of the network namespace of the calling thread."""
    with KernelNetwork() as network:
        links = [link for link in network.links.list() if link.master and _is_port_of_pod(link.alias)]
    guarded = sum(link.group == port_guard.GROUP for link in links)
    with contextlib.closing(KernelElements(family="bridge")) as table:
        dropped = port_guard.counted(table)
    return Guard(guarded, len(links) - guarded, dropped)


def _is_port_of_pod(alias: str) -> bool:
    return tags.parse(alias) is not None or alias.startswith(CLAIMED)


class Unreadable(NamedTuple):
    path: str
    reason: str


def pools(directory: str) -> Iterator[Pool | Unreadable]:
    """Lists the pools of the networks in a configuration directory that use our host-local."""
    for name in sorted(os.listdir(directory)) if os.path.isdir(directory) else ():
        path = os.path.join(directory, name)
        if name.endswith(ENDINGS):
            try:
                yield from _pools_of_network(_parse(path))
            except (CniError, OSError) as error:
                yield Unreadable(path, str(error))


def _parse(path: str) -> NetworkList:
    with open(path, "rb") as file:
        return (parse_list if path.endswith(".conflist") else parse_single)(file.read(), path)


def _pools_of_network(network: NetworkList) -> Iterator[Pool]:
    for plugin in network.plugins:
        ipam = plugin.get("ipam")
        if isinstance(ipam, dict) and ipam.get("type") == host_local.TYPE:
            yield from _pools_of_plugin(network, plugin)


def _pools_of_plugin(network: NetworkList, plugin: Object) -> Iterator[Pool]:
    config = plugin_config(dumped(request(network, plugin, None, {})))
    leases = host_local.leases(config)
    used, listed = leases.used(), leases.all()
    for set_ in host_local.parse_request(config, Invocation("STATUS")).sets:
        taken = sum(ranges.find_range(set_, ip) is not None for ip in used)
        inside = [lease for lease in listed if _is_in(lease, set_)]
        dead = sum(not lease.alive for lease in inside)
        size = ranges.size(set_)
        oldest = inside[0] if inside else None
        yield Pool(network.name, ranges.describe(set_), size, taken, size - taken, dead, oldest)


def _is_in(lease: LeaseInfo, set_: RangeSet) -> bool:
    return any(ranges.find_range(set_, ip) is not None for ip in lease.addresses)
