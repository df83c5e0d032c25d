"""Looks for what podwire made on this host: by the marks that everything bears, never by podwire's own memory."""

import contextlib
import re
from collections.abc import Callable, Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import msgspec

from podwire.cluster.runtime import Options
from podwire.durable import append_log
from podwire.inspect import claim_leftovers
from podwire.inspect.leakcheck import Leftover, owner_of_element, owner_of_link
from podwire.linux.cgroups.groups import KernelCgroups
from podwire.linux.errors import LinuxError
from podwire.linux.fs.mounts import mounted
from podwire.linux.net.network import KernelNetwork
from podwire.linux.nft.table import TABLE, KernelElements
from podwire.linux.proc import processes
from podwire.linux.proc.mount_namespaces import of_process
from podwire.nriplugins.network.policy.program import TABLE as POLICIES
from podwire.runtime.records import FILE
from podwire.runtime.sandboxes.kernel import MARK

NFT_SECONDS = 10.0
_COMMENT = re.compile(rb'"comment": ?"([^"]*)"')


def found(options: Options) -> set[Leftover]:
    """All traces in the calling thread's network and mount namespaces, and below the prefix."""
    looks: tuple[Callable[[Options], Iterator[Leftover]], ...] = (
        _namespaces, _mounts, _groups, _processes, _links, _elements, _judged, _files, _claims,
    )  # fmt: skip
    return {leftover for look in looks for leftover in look(options)}


def owners(options: Options) -> set[str]:
    """The ids of all sandboxes and containers that have a record, and the uids of claims that have one."""
    return {*(str(record["id"]) for record in _records(options, "*")), *claim_leftovers.owners(options.state)}


def _records(options: Options, kind: str) -> Iterator[dict[str, Any]]:
    for path in options.state.glob(f"runtime/{kind}/*/{FILE}"):
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            yield append_log.newest(path.read_bytes(), msgspec.json.decode, msgspec.MsgspecError)


def _claims(options: Options) -> Iterator[Leftover]:
    return claim_leftovers.found(options.state, options.run, options.prefix / "var/lib/kubelet")


def _namespaces(options: Options) -> Iterator[Leftover]:
    for kind, directory in (("netns", options.run / "netns"), ("ipcns", options.run / "podwire/ipcns")):
        for path in directory.glob(f"{MARK}*"):
            yield Leftover(kind, str(path), path.name.removeprefix(MARK))


def _mounts(options: Options) -> Iterator[Leftover]:
    places = (options.run / "podwire/shm", options.state / "runtime/containers")
    for mount in mounted():
        for place in places:
            if Path(mount.target).is_relative_to(place) and mount.target != str(place):
                yield Leftover("mount", mount.target, Path(mount.target).relative_to(place).parts[0])


def _groups(options: Options) -> Iterator[Leftover]:
    for group in KernelCgroups().below(options.cgroup_parent):
        yield Leftover("cgroup", group, group.removeprefix(f"{options.cgroup_parent}/").partition("/")[0])


def _processes(options: Options) -> Iterator[Leftover]:
    """Whoever is in a container's cgroup, and the shims, which are in none.

    On every node the shims are called alike; ours are those in the network namespace that we look from.
    """
    cgroups = KernelCgroups()
    for group in _groups(options):
        for pid in cgroups.pids(group.name):
            yield Leftover("process", str(pid), group.owner)
    here = Path("/proc/thread-self/ns/net").stat().st_ino
    homes = f"{options.state}/runtime/containers/".encode()
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (path / "cmdline").read_bytes().split(b"\0")
            below = next((word for word in words if word.startswith(homes)), None)
            if below is None or not any(word.endswith(b"podwire-shim") for word in words):
                continue
            if of_process(int(path.name), "net") == here:
                yield Leftover("shim", path.name, below.removeprefix(homes).decode().partition("/")[0])


def _links(_options: Options) -> Iterator[Leftover]:
    with contextlib.closing(KernelNetwork()) as network:
        for link in network.links.list():
            if (owner := owner_of_link(link.alias)) is not None:
                yield Leftover("link", link.name, owner)


def _elements(_options: Options) -> Iterator[Leftover]:
    """The elements of our nft tables; none where there is no table, or no nft that could have made one."""
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    for family in ("inet", "bridge"):
        try:
            done = processes.run(("nft", "-j", "list", "table", family, TABLE), env=environment, deadline=NFT_SECONDS)
        except LinuxError:
            return
        for comment in _COMMENT.findall(done.stdout):
            if (owner := owner_of_element(comment.decode())) is not None:
                yield Leftover("nft element", comment.decode(), owner)


def _judged(options: Options) -> Iterator[Leftover]:
    """Addresses that policies hold of pods of this node: a pod is beside itself in these sets."""
    owners = {
        address: record["id"] for record in _records(options, "sandboxes") for address in record.get("addresses") or ()
    }
    with contextlib.closing(KernelElements(None, POLICIES)) as table:
        for name in ("self4", "self6"):
            with contextlib.suppress(LinuxError):  # there are no policies
                for element in table.list(name):
                    first, second = element.key[: len(element.key) // 2], element.key[len(element.key) // 2 :]
                    if first == second:
                        address = str(ip_address(first))
                        yield Leftover("judged address", address, owners.get(address, ""))


def _files(options: Options) -> Iterator[Leftover]:
    places = {
        "sandbox": options.state / "runtime/sandboxes",
        "container": options.state / "runtime/containers",
        "writable layer": options.state / "images/containers",
        "shared memory": options.run / "podwire/shm",
        "OCI state": options.run / "podwire/crun",
    }
    for kind, place in places.items():
        for path in place.glob("*"):
            yield Leftover(kind, str(path), path.name)
    for path in (options.state / "cni/cache").glob("*@*"):
        yield Leftover("CNI attachment", str(path), path.name.partition("@")[0])
    for path in (options.state / "cni/attachments").glob("*/*@*@*"):
        yield Leftover("CNI record", str(path), path.name.split("@")[1])
    for path in (options.state / "cni/networks").glob("*/@*@*"):
        yield Leftover("lease", str(path), path.name.split("@")[1])
