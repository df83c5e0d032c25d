"""Finds resources that podwire created on this node, by their owner tags, never by records."""

import contextlib
import re
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from glob import iglob
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec
from google.protobuf.message import DecodeError

from podwire.cluster.runtime import Options
from podwire.cniplugins import nat
from podwire.cniplugins.install import HELPERS
from podwire.cniplugins.overview import attached
from podwire.cniplugins.tags import shown_id
from podwire.dradriver.attach.records import OWN_NAME, TAG
from podwire.dradriver.claims.damaged_records import SUFFIX
from podwire.dradriver.names import DRIVER
from podwire.durable import append_log
from podwire.durable.locks import LockHeld, lock_file
from podwire.inspect.leakcheck import Leftover, owner_of_element, owner_of_link
from podwire.linux.cgroups.groups import KernelCgroups
from podwire.linux.errors import LinuxError
from podwire.linux.fs.mounts import mounted
from podwire.linux.net.network import KernelNetwork
from podwire.linux.nft.table import TABLE, KernelElements
from podwire.linux.proc import processes
from podwire.linux.proc.marked import find_marked, marked_environment
from podwire.linux.proc.mount_namespaces import of_process
from podwire.nriplugins.network.policy.program import TABLE as POLICIES
from podwire.protocols.cni.caller import VARIABLE as CALLER
from podwire.protocols.cni.caller import Caller
from podwire.protocols.cri import cri_pb2 as pb
from podwire.runtime.containers.pod_cgroups import owner_of_group
from podwire.runtime.records import FILE
from podwire.runtime.sandboxes.kernel import PREFIX as NETNS_PREFIX

NFT_SECONDS = 10.0
_CDI = f"{DRIVER}-claim@"
_COMMENT = re.compile(rb'"comment": ?"([^"]*)"')


def find_resources(options: Options, *, network: bool = True) -> set[Leftover]:
    """Returns all resources below the prefix, and those in the network namespace of the calling thread.

    Tags in a network namespace do not name the prefix. `network` is False where no pod of this prefix can be in the
    namespace: then its links, nft elements and policy addresses belong to other clusters or runtimes.
    """
    searches: list[Callable[[Options], Iterator[Leftover]]] = [
        _namespaces,
        _mounts,
        _groups,
        _processes,
        _files,
        _helpers,
    ]
    searches += [_links, _elements, _chains, _policy_addresses] if network else []
    resources = {leftover for search in searches for leftover in search(options)}
    kubelet = options.prefix / "var/lib/kubelet"
    return resources | set(claim_resources(options.state, options.run, kubelet, network=network))


def foreign_owners(options: Options) -> set[str]:
    """Returns the ids of living pods that other runtimes attached with our CNI plugins."""
    alive = {entry.container_id for entry in attached(str(options.state / "cni/attachments")) if entry.alive}
    foreign = {id_ for id_ in alive if not (options.run / "netns" / f"{NETNS_PREFIX}{id_}").exists()}
    return foreign | {shown_id(id_) for id_ in foreign}  # owner tags have the latter


def owners(options: Options) -> set[str]:
    """Returns the ids of recorded sandboxes, containers and claims."""
    return {*(str(record["id"]) for record in _records(options, "*")), *claim_owners(options.state)}


def claim_resources(state: Path, run: Path, kubelet: Path, *, network: bool = True) -> Iterator[Leftover]:
    """Yields links, CDI files and damaged records of claims on the node of the calling thread.

    A damaged record has no owner: its resources may be left over.
    """
    for directory in (run / "cdi", state / "network-driver/cdi"):
        for path in directory.glob(f"{_CDI}*.json"):
            yield Leftover("CDI file", str(path), path.stem.removeprefix(_CDI))
    damaged = [*(state / "network-driver/records").glob(f"*/*{SUFFIX}"), *(kubelet / "claims").glob(f"*{SUFFIX}")]
    for path in (*damaged, *(state / "device-plugin/pools").glob(f"*/*{SUFFIX}")):
        yield Leftover("damaged record", str(path), "")
    if not network:
        return
    with contextlib.closing(KernelNetwork()) as kernel:
        for link in kernel.links.list():
            if OWN_NAME.fullmatch(link.name) and link.alias.startswith(TAG):
                yield Leftover("link", link.name, link.alias.removeprefix(TAG).partition("/")[0])


def matching(directory: Path, pattern: str) -> Iterator[Path]:
    """Yields files as `directory.glob(pattern)`, which fails when a directory below is removed meanwhile."""
    return (directory / name for name in iglob(pattern, root_dir=directory))  # noqa: PTH207 - see above


def claim_owners(state: Path) -> Iterator[str]:
    """Returns the claims that the driver has records of."""
    for path in matching(state / "network-driver/records", "*/*.json"):
        yield unquote(path.name.partition("~")[0])


class SandboxPod(NamedTuple):
    """The pod for which a sandbox was made."""

    uid: str
    name: str
    """NAMESPACE/NAME."""


def sandbox_pods(options: Options) -> dict[str, SandboxPod]:
    """Returns the pods of recorded sandboxes, by the ids of the sandboxes."""
    found = {}
    for record in _records(options, "sandboxes"):
        with contextlib.suppress(DecodeError, ValueError):  # a damaged record, which the runtime reports
            pod = pb.PodSandboxConfig.FromString(b64decode(record.get("config", ""))).metadata
            found[str(record["id"])] = SandboxPod(pod.uid, f"{pod.namespace}/{pod.name}")
    return found


def _records(options: Options, kind: str) -> Iterator[dict[str, Any]]:
    for path in options.state.glob(f"runtime/{kind}/*/{FILE}"):
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            line = append_log.newest(path.read_bytes(), msgspec.json.decode, msgspec.MsgspecError)
            yield line.get("record", line)  # format 1 had no envelope


def _namespaces(options: Options) -> Iterator[Leftover]:
    for kind, directory in (
        ("netns", options.run / "netns"),
        ("ipcns", options.run / "podwire/ipcns"),
        ("userns", options.run / "podwire/userns"),
        ("pidns", options.run / "podwire/pidns"),
    ):
        for path in directory.glob(f"{NETNS_PREFIX}*"):
            yield Leftover(kind, str(path), path.name.removeprefix(NETNS_PREFIX))


def _mounts(options: Options) -> Iterator[Leftover]:
    parents = (options.run / "podwire/shm", options.run / "podwire/rootfs", options.state / "runtime/containers")
    for mount in mounted():
        for parent in parents:
            if Path(mount.target).is_relative_to(parent) and mount.target != str(parent):
                yield Leftover("mount", mount.target, Path(mount.target).relative_to(parent).parts[0])


def _groups(options: Options) -> Iterator[Leftover]:
    for group in KernelCgroups().below(options.cgroup_parent):
        yield Leftover("cgroup", group, owner_of_group(group.removeprefix(f"{options.cgroup_parent}/")))


def _processes(options: Options) -> Iterator[Leftover]:
    """Finds processes in cgroups of containers, and shims and CNI plugins, which are in none.

    Shims have the same command line on every node; ours are those in our network namespace.
    """
    cgroups = KernelCgroups()
    for group in _groups(options):
        for pid in cgroups.pids(group.name):
            yield Leftover("process", str(pid), group.owner)
    yield from _plugin_processes(options)
    here = Path("/proc/thread-self/ns/net").stat().st_ino
    containers = f"{options.state}/runtime/containers/".encode()
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (path / "cmdline").read_bytes().split(b"\0")
            below = next((word for word in words if word.startswith(containers)), None)
            if below is None or not any(word.endswith(b"podwire-shim") for word in words):
                continue
            if of_process(int(path.name), "net") == here:
                yield Leftover("shim", path.name, below.removeprefix(containers).decode().partition("/")[0])


def _plugin_processes(options: Options) -> Iterator[Leftover]:
    """Finds processes of CNI plugins by the mark of our runtime, which names the directory of its state."""
    with contextlib.suppress(FileNotFoundError):
        state = (options.state / "cni").stat()
        mark = f"{state.st_dev}-{state.st_ino}"

        def is_ours(environment: Mapping[str, str]) -> bool:
            caller = Caller.parse(environment[CALLER])
            return caller is not None and caller.state == mark

        for pid in find_marked(CALLER, is_ours):
            environment = marked_environment(pid, CALLER) or {}
            yield Leftover("CNI plugin", str(pid), environment.get("CNI_CONTAINERID", ""))


def _helpers(options: Options) -> Iterator[Leftover]:
    """Finds files of killed CNI helpers, which the next one removes. One that lives ends by itself when it is idle."""
    for path in (options.run / "podwire" / HELPERS).glob("*.lock"):
        with contextlib.suppress(LockHeld, OSError), lock_file(path):
            yield Leftover("CNI helper", str(path), "")


def _links(_options: Options) -> Iterator[Leftover]:
    with contextlib.closing(KernelNetwork()) as network:
        for link in network.links.list():
            if (owner := owner_of_link(link.alias)) is not None:
                yield Leftover("link", link.name, owner)


def _elements(_options: Options) -> Iterator[Leftover]:
    """Finds elements of our nft tables; none without a table, or without nft."""
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    for family in ("inet", "bridge"):
        try:
            done = processes.run(("nft", "-j", "list", "table", family, TABLE), env=environment, deadline=NFT_SECONDS)
        except LinuxError:
            return
        for comment in _COMMENT.findall(done.stdout):
            if (owner := owner_of_element(comment.decode())) is not None:
                yield Leftover("nft element", comment.decode(), owner)


def _chains(_options: Options) -> Iterator[Leftover]:
    """Finds chains of subnets that no pod uses; they are removed with the last one."""
    with contextlib.closing(KernelElements()) as table, contextlib.suppress(LinuxError):
        for name in nat.unused_chains(table):
            yield Leftover("nft chain", name, "")


def _policy_addresses(options: Options) -> Iterator[Leftover]:
    """Finds addresses that policies hold for pods of this node: a pod is a pair with itself in these sets."""
    owners = {
        address: record["id"] for record in _records(options, "sandboxes") for address in record.get("addresses") or ()
    }
    with contextlib.closing(KernelElements(None, POLICIES)) as table:
        for name in ("self4", "self6"):
            with contextlib.suppress(LinuxError):  # no policies
                for element in table.list(name):
                    first, second = element.key[: len(element.key) // 2], element.key[len(element.key) // 2 :]
                    if first == second:
                        address = str(ip_address(first))
                        yield Leftover("policy address", address, owners.get(address, ""))


def _files(options: Options) -> Iterator[Leftover]:
    directories = {
        "sandbox": options.state / "runtime/sandboxes",
        "container": options.state / "runtime/containers",
        "writable layer": options.state / "images/containers",
        "shared memory": options.run / "podwire/shm",
        "OCI state": options.run / "podwire/crun",
    }
    for kind, directory in directories.items():
        for path in directory.glob("*"):
            yield Leftover(kind, str(path), path.name)
    for path in (options.state / "cni/cache").glob("*@*"):
        yield Leftover("CNI attachment", str(path), path.name.partition("@")[0])
    for path in matching(options.state / "cni/attachments", "*/*@*@*"):
        yield Leftover("CNI record", str(path), path.name.split("@")[1])
    for path in matching(options.state / "cni/networks", "*/@*@*"):
        yield Leftover("lease", str(path), path.name.split("@")[1])
