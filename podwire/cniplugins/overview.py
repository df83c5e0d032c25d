"""What is attached and what is leased on this host, for people. Reads, and changes nothing."""

import os
from collections.abc import Iterator
from typing import NamedTuple

from podwire.cniplugins.attachments import Record, records
from podwire.ipam import host_local, ranges
from podwire.ipam.leases import Held, is_gone
from podwire.ipam.ranges import RangeSet
from podwire.linux import errors as linux
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
    """Whether the pod's namespace is there; in doubt it is."""


def attached(data: str) -> list[Attached]:
    """All attachments with records below a directory, the oldest first."""
    found: dict[tuple[str, str, str], Attached] = {}
    for plugin in sorted(os.listdir(data)) if os.path.isdir(data) else ():
        for each in records(f"{data}/{plugin}"):
            key = each.network, each.container_id, each.ifname
            told = _told(each, plugin, f"{data}/{plugin}/{'@'.join(key)}")
            found[key] = _joined(found[key], told) if key in found else told
    return sorted(found.values(), key=lambda each: each.since)


def _told(record: Record, plugin: str, path: str) -> Attached:
    try:
        since = os.stat(path).st_mtime
    except FileNotFoundError:
        since = 0.0  # it has just gone
    made = results.decode(record.result, LATEST) if record.result else results.Result()
    ips = tuple(str(each.address) for each in made.ips)
    return Attached(record.network, record.container_id, record.ifname, (plugin,), ips, since, _is_alive(record))


def _is_alive(record: Record) -> bool:
    if not record.netns:
        return True
    try:
        return record.inode in (0, identity(record.netns))
    except linux.LinuxError:
        return not is_gone(record.netns)


def _joined(one: Attached, other: Attached) -> Attached:
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
    """Owners whose namespace is gone: GC, or the next boot, frees what they have."""
    oldest: Held | None


class Unreadable(NamedTuple):
    path: str
    reason: str


def pools(directory: str) -> Iterator[Pool | Unreadable]:
    """Those that the networks of a directory lease addresses from, with our host-local."""
    for name in sorted(os.listdir(directory)) if os.path.isdir(directory) else ():
        path = os.path.join(directory, name)
        if name.endswith(ENDINGS):
            try:
                yield from _of_network(_parsed(path))
            except (CniError, OSError) as error:
                yield Unreadable(path, str(error))


def _parsed(path: str) -> NetworkList:
    with open(path, "rb") as file:
        return (parse_list if path.endswith(".conflist") else parse_single)(file.read(), path)


def _of_network(network: NetworkList) -> Iterator[Pool]:
    for plugin in network.plugins:
        ipam = plugin.get("ipam")
        if isinstance(ipam, dict) and ipam.get("type") == host_local.TYPE:
            yield from _of_plugin(network, plugin)


def _of_plugin(network: NetworkList, plugin: Object) -> Iterator[Pool]:
    config = plugin_config(dumped(request(network, plugin, None, {})))
    leases = host_local.leases(config)
    used, held = leases.used(), leases.held()
    for each in host_local.wish(config, Invocation("STATUS")).sets:
        taken = sum(ranges.found(each, ip) is not None for ip in used)
        inside = [lease for lease in held if _is_of(lease, each)]
        dead = sum(not lease.alive for lease in inside)
        size = ranges.size(each)
        oldest = inside[0] if inside else None
        yield Pool(network.name, ranges.told(each), size, taken, size - taken, dead, oldest)


def _is_of(lease: Held, set_: RangeSet) -> bool:
    return any(ranges.found(set_, ip) is not None for ip in lease.addresses)
