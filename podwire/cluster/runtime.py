"""Runs a container runtime: its parts, its socket and its streaming server."""

import asyncio
import contextlib
import hashlib
import logging
import os
import re
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from podwire.cluster import tracing
from podwire.cluster.nri import Nri as BuiltNri
from podwire.cluster.nri import Options as Nri
from podwire.cluster.nri import build as build_nri
from podwire.cluster.nri import settings as nri_settings
from podwire.cluster.registries import DIRECTORY, hosts_finder, registry_client
from podwire.durable.files import private_directory
from podwire.durable.locks import FileLock, LockHeld, lock_file
from podwire.interfaces import Clock
from podwire.linux.cgroups.groups import KernelCgroups, mount_devices_hierarchy
from podwire.linux.errors import LinuxError
from podwire.linux.fs.mounts import KernelMounts
from podwire.linux.fs.trust import check_directory, check_files, make_directory
from podwire.linux.proc import processes
from podwire.linux.proc.namespaces import KernelNamespaces
from podwire.linux.proc.processes import boot_id
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.cri import methods
from podwire.runtime.cdi import Registry
from podwire.runtime.cni import Checker, CheckSettings, CniNetwork, Conflists, Plugins, Reconciler
from podwire.runtime.cni.check import DEFAULT_SETTINGS, PodCallbacks
from podwire.runtime.containers.bundles import Bundles
from podwire.runtime.containers.host import HostPrivileges
from podwire.runtime.containers.lifecycle import Containers
from podwire.runtime.containers.pod_pids import PodPids
from podwire.runtime.containers.shim import ShimClient
from podwire.runtime.cri.events import Events
from podwire.runtime.cri.image_service import ImageService
from podwire.runtime.cri.metrics import Metrics
from podwire.runtime.cri.runtime_service import RuntimeService
from podwire.runtime.cri.stats import Stats
from podwire.runtime.images import Images
from podwire.runtime.images.pull import Puller
from podwire.runtime.limits import RuntimeLimits
from podwire.runtime.records import ContainerRecord, LostRecords, SandboxRecord, open_records
from podwire.runtime.sandboxes.kernel import SandboxKernel
from podwire.runtime.sandboxes.lifecycle import Sandboxes
from podwire.runtime.streaming.exec import ExecService
from podwire.runtime.streaming.portforward import PortForwardService
from podwire.runtime.streaming.server import StreamingServer
from podwire.shim import find_shim
from podwire.trace.participants import KUBELET, RUNTIME
from podwire.transports import grpc_server, http_server
from podwire.transports.clock import SystemClock
from podwire.transports.console_socket import ConsoleSocket
from podwire.transports.netns_client import connect_port
from podwire.transports.unix_client import UnixConnection

_log = logging.getLogger("podwire.runtime")

THREADS = min(32, 4 * (os.cpu_count() or 1) + 8)
"""Concurrent blocking calls into the kernel and the disk. A thread that was started once stays; beyond a few for each
processor they only wait for each other."""

PID_NAMESPACES = "podwire/pidns"
"""Below `run`: where pid namespaces that containers share are pinned."""

OCI_RUNTIMES = ("crun", "runc")
GRACE = 2.0
VERSION_SECONDS = 10.0
"""The OCI runtime says its version."""


class NoRuntime(Exception):
    """Neither crun nor runc is installed."""


class RunsAlready(Exception):
    """Another runtime uses the same prefix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of a container runtime, as on the command line."""

    socket: Path
    prefix: Path = Path("/")
    cni_conf_dir: Path | None = None
    cni_bin_dirs: tuple[Path, ...] = ()
    oci_runtimes: tuple[str, ...] = OCI_RUNTIMES
    """OCI runtimes; the first that is installed is used."""
    nri: Nri = field(default_factory=Nri)
    cgroup_root: str = ""
    """The parent of all cgroups, if it does not follow from the prefix."""
    cni_checking: CheckSettings = DEFAULT_SETTINGS
    """Interval of CHECK for networks of pods, and the reaction to a failure."""
    name: str = ""
    """Identifies this runtime among several that share one image store."""
    forgives_missing_plugins: bool = False
    """Whether DEL succeeds without its plugin: for `podwire down`, which removes namespaces as a whole."""

    @property
    def state(self) -> Path:
        return self.prefix / "var/lib/podwire"

    @property
    def run(self) -> Path:
        return self.prefix / "run"

    @property
    def cgroup_parent(self) -> str:
        """One parent per prefix, so that two runtimes on a machine never remove containers of each other."""
        if self.cgroup_root:
            return self.cgroup_root
        if self.prefix == Path("/"):
            return "podwire"
        return f"podwire-{hashlib.sha256(str(self.prefix.resolve()).encode()).hexdigest()[:12]}"


@dataclass(frozen=True, slots=True)
class Running:
    """A runtime that answers at its socket."""

    sandboxes: Sandboxes
    containers: Containers
    socket: Path


@dataclass(frozen=True, slots=True)
class _Parts:
    """The parts of a runtime; nothing runs yet."""

    images: Images
    network: CniNetwork
    shims: ShimClient
    bundles: Bundles
    kernel: SandboxKernel
    nri: BuiltNri
    sandboxes: Sandboxes
    containers: Containers
    events: Events
    clock: SystemClock


@contextlib.asynccontextmanager
async def running(options: Options) -> AsyncIterator[Running]:
    """Runs a runtime while the context is open; containers keep running afterwards.

    1. Build.  2. Adopt what a previous instance left: sandboxes and containers are recovered, reported to NRI plugins,
    finished, and orphans removed.  3. Streaming server.  4. The CRI socket.
    """
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS, thread_name_prefix="podwire"))
    async with contextlib.AsyncExitStack() as stack:
        parts = await _built(options, stack)
        streaming_server = StreamingServer(parts.clock)
        executions = ExecService(parts.shims, parts.bundles, streaming_server, ConsoleSocket)
        service = RuntimeService(
            parts.sandboxes,
            parts.containers,
            executions,
            PortForwardService(streaming_server, connect_port),
            Stats(parts.bundles, parts.clock),
            Metrics(parts.bundles, parts.clock),
            parts.network,
            parts.events,
            parts.clock,
            pb.RuntimeHandlerFeatures(
                recursive_read_only_mounts=parts.bundles.host.recursive_read_only,
                user_namespaces=parts.bundles.host.user_namespaces,
            ),
        )
        parts.events.describe = service.describe
        await _resume(parts, service, stack)
        await stack.enter_async_context(_checker(options, parts.network, parts.sandboxes, parts.clock).running())
        streaming = await http_server.serve(streaming_server.handle, host="127.0.0.1", port=0)
        stack.push_async_callback(streaming.close, GRACE)
        streaming_server.base_url = f"http://127.0.0.1:{streaming.port}"
        http = await stack.enter_async_context(registry_client())
        puller = Puller(parts.images, http, hosts_finder(options.prefix / DIRECTORY))
        stack.callback(puller.close)
        handlers = {**service.handlers(), **ImageService(parts.images, puller, parts.clock).handlers()}
        server = await grpc_server.serve(
            options.socket, methods.ALL, handlers, tap=tracing.cri_tap(), caller=KUBELET, callee=RUNTIME
        )
        stack.push_async_callback(server.close, GRACE)
        _log.info("runtime is serving", extra={"socket": str(options.socket), "runtime": parts.shims.runtime})
        yield Running(parts.sandboxes, parts.containers, options.socket)


async def _built(options: Options, stack: contextlib.AsyncExitStack) -> _Parts:
    clock = SystemClock()
    events = Events(clock)
    nri_options = nri_settings(options.nri, options.prefix)
    of_nri = (nri_options.plugin_path, nri_options.plugin_config_path)
    for directory in (*_cni_directories(options), *(path for path in of_nri if path is not None)):
        check_directory(directory)
        check_files(directory)
    stack.enter_context(_lock(options.state))
    images = await asyncio.to_thread(lambda: Images(options.state / "images", owner=options.name))
    stack.callback(images.close)
    network = await asyncio.to_thread(_network, options)
    stack.push_async_callback(network.close)
    shims = _shims(options)
    host = await asyncio.to_thread(_host, shims.runtime, shims.root)
    bundles = _bundles(options, images, host, shims.shim)
    stack.callback(bundles.remove_cgroup_parent)
    if options.nri.socket is None:
        private_directory(options.run / "nri")
    nri = build_nri(nri_options, bundles, lambda sandbox: events.sandbox(sandbox, "DELETED"))
    kernel = _kernel(options)
    lost = LostRecords()
    records = open_records(options.state / "runtime/sandboxes", SandboxRecord, lost)
    sandboxes = Sandboxes(
        records, kernel, network, nri.hooks, events, clock, boot_id(), user_namespaces=host.user_namespaces, lost=lost
    )
    of_containers = open_records(options.state / "runtime/containers", ContainerRecord, lost)
    containers = Containers(of_containers, sandboxes, bundles, shims, nri.hooks, events, clock)
    return _Parts(images, network, shims, bundles, kernel, nri, sandboxes, containers, events, clock)


async def _resume(parts: _Parts, service: RuntimeService, stack: contextlib.AsyncExitStack) -> None:
    """Continues where the previous runtime stopped, and keeps networks checked from now on.

    NRI plugins register before anything is undone, so that they are notified of it.
    """
    await parts.sandboxes.recover()
    await parts.containers.recover()
    parts.nri.updater.containers = parts.containers
    parts.nri.hooks.adopt(parts.sandboxes, parts.containers)
    await stack.enter_async_context(parts.nri.host.running())
    await parts.sandboxes.finish()
    await parts.containers.finish()
    stack.push_async_callback(parts.containers.close)
    await service.finish_stops()
    await stack.enter_async_context(Reconciler(parts.network, _orphan_removal(service, parts.kernel)).running())


def _lock(state: Path) -> FileLock:
    """Locks the state of a runtime: no other may recover or remove our sandboxes. Raises RunsAlready."""
    make_directory(state, 0o700)
    try:
        return lock_file(state / "runtime.lock", name="runtime", mode=0o644)
    except LockHeld as error:
        raise RunsAlready(
            f"another podwire runtime uses {state}; stop it, or give this one its own --prefix"
        ) from error


def _orphan_removal(service: RuntimeService, kernel: SandboxKernel) -> Callable[[set[str]], Awaitable[None]]:
    """Returns what follows when pods are detached at last: stopped sandboxes are finished, namespaces without a sandbox
    removed."""

    async def remove_orphans(ids: set[str]) -> None:
        await service.finish_stops()
        for id_ in ids:
            if service.sandboxes.find(id_) is None and (left := await asyncio.to_thread(kernel.remove, id_)):
                _log.error("cannot remove orphaned sandbox", extra={"sandbox": id_, "error": "; ".join(left)})

    return remove_orphans


def _kernel(options: Options) -> SandboxKernel:
    return SandboxKernel(
        KernelNamespaces(options.run / "netns", "net"),
        KernelNamespaces(options.run / "podwire/ipcns", "ipc"),
        KernelMounts(),
        options.run / "podwire/shm",
        KernelNamespaces(options.run / "podwire/userns", "user"),
        KernelNamespaces(options.run / PID_NAMESPACES, "pid"),
    )


def _host(runtime: str, root: Path) -> HostPrivileges:
    """Returns what kernel and OCI runtime together support.

    Recursive read-only mounts need Linux 5.12, and crun 1.4 or runc 1.1. User namespaces need mapped mounts of tmpfs
    (Linux 6.3), and crun 1.8, which joins namespaces by path and maps mounts.
    """
    kernel = re.match(rb"(\d+)\.(\d+)", os.uname().release.encode())
    try:
        # crun creates the directory of its state even for this; by default that is one of the host's
        done = processes.run([runtime, "--root", str(root), "--version"], env={}, deadline=VERSION_SECONDS)
    except LinuxError:
        return HostPrivileges()
    version = re.search(rb"version (\d+)\.(\d+)", done.stdout)
    if kernel is None or version is None:
        return HostPrivileges()
    linux, oci = ((int(match[1]), int(match[2])) for match in (kernel, version))
    is_crun = Path(runtime).name == "crun"
    return HostPrivileges(
        recursive_read_only=linux >= (5, 12) and oci >= ((1, 4) if is_crun else (1, 1)),
        user_namespaces=linux >= (6, 3) and is_crun and oci >= (1, 8) and Path("/proc/self/ns/user").exists(),
    )


def _bundles(options: Options, images: Images, host: HostPrivileges, shim: Path) -> Bundles:
    directory = options.state / "runtime/containers"
    devices = Registry([options.prefix / path for path in ("etc/cdi", "run/cdi")])
    cgroups = _cgroups()
    return Bundles(
        directory,
        images,
        cgroups,
        KernelMounts(),
        host,
        devices,
        options.cgroup_parent,
        options.run / "podwire/rootfs",
        PodPids(shim, cgroups, KernelNamespaces(options.run / PID_NAMESPACES, "pid"), RuntimeLimits().start),
    )


def _cgroups() -> KernelCgroups:
    """Returns the cgroups of this machine, with a hierarchy that limits devices if the kernel has one."""
    if not (cgroups := KernelCgroups()).limits_devices:
        try:
            mount_devices_hierarchy()
        except LinuxError as error:
            _log.warning("cannot limit devices of containers", extra={"error": str(error)})
        return KernelCgroups()
    return cgroups


def _cni_directories(options: Options) -> tuple[Path, ...]:
    """The directory of configurations, and those of plugins."""
    binaries = options.cni_bin_dirs or (options.state / "cni/bin", options.prefix / "opt/cni/bin")
    return options.cni_conf_dir or options.prefix / "etc/cni/net.d", *binaries


def _network(options: Options) -> CniNetwork:
    conf_dir, *binaries = _cni_directories(options)
    conflists = Conflists(conf_dir)
    cache = options.state / "cni/cache"
    make_directory(cache, 0o700)
    plugins = Plugins(tuple(binaries), run=tracing.cni_run(tracing.tap(RUNTIME)), state=cache.parent)
    return CniNetwork(conflists, plugins, cache, forgives_missing_plugins=options.forgives_missing_plugins)


def _checker(options: Options, network: CniNetwork, sandboxes: Sandboxes, clock: Clock) -> Checker:
    def is_ready(id_: str) -> bool:
        return (found := sandboxes.find(id_)) is not None and found.ready

    return Checker(
        network,
        options.cni_checking,
        PodCallbacks(is_ready, sandboxes.notify_check_changed, sandboxes.lose_network),
        clock,
    )


def find_oci_runtime(names: Sequence[str] = OCI_RUNTIMES) -> str:
    """Returns the path of the first OCI runtime that is installed. Raises NoRuntime."""
    runtime = next((path for name in names if (path := shutil.which(name))), None)
    if runtime is None:
        raise NoRuntime(f"{' or '.join(names)} is needed to run containers, but not on PATH; install one of them")
    return runtime


def must_cover_unified(runtime: str) -> bool:
    """Whether the version 2 tree must be hidden from the OCI runtime: crun refuses hybrids of both versions."""
    return Path("/sys/fs/cgroup/unified/cgroup.controllers").exists() and Path(runtime).name == "crun"


def _shims(options: Options) -> ShimClient:
    runtime = find_oci_runtime(options.oci_runtimes)
    root = options.run / "podwire" / Path(runtime).name
    make_directory(root, 0o700)
    cover = must_cover_unified(runtime)
    run = tracing.oci_run(tracing.tap(RUNTIME))
    return ShimClient(
        shim=find_shim(), runtime=runtime, root=root, cover_unified=cover, connect=UnixConnection.connect, run=run
    )
