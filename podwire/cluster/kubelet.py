"""Runs a kubelet: a client of the API server and of a container runtime, and a server for logs, exec and attach."""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from podwire.cluster import tracing
from podwire.cluster.client_metrics import MeteredHttp, host_of
from podwire.cluster.kubelet_plugins import PluginSockets
from podwire.cluster.kubelet_server import Serving, serving
from podwire.cluster.runtime_metrics import MeteredRuntime
from podwire.durable.locks import FileLock, LockHeld, lock_file
from podwire.interfaces import Clock
from podwire.kubelet import Dependencies, Kubelet, KubeletPaths, KubeletSettings
from podwire.kubelet.claims import ClaimSettings
from podwire.kubelet.config.dns import DnsSettings, node_dns
from podwire.kubelet.devices import DeviceSettings
from podwire.kubelet.eviction.settings import EvictionSettings
from podwire.kubelet.eviction.thresholds import DEFAULT, Threshold
from podwire.kubelet.images.credential_providers import CredentialProviders, load_providers
from podwire.kubelet.images.garbage_collection import ImageGcSettings
from podwire.kubelet.images.node_credentials import NodeCredentials, docker_files
from podwire.kubelet.local_path import LocalPathVolumes
from podwire.kubelet.log_rotation import LogSettings
from podwire.kubelet.node import NodeSettings
from podwire.kubelet.server import KubeletMetrics
from podwire.linux.errors import LinuxError
from podwire.linux.fs import inotify
from podwire.linux.fs.mounts import KernelMounts
from podwire.linux.fs.trust import check_directory, check_files, make_directory
from podwire.linux.machine import KernelMachine
from podwire.objects.nodes import Taint
from podwire.objects.persistent_volumes import LOCAL_PATH, LOCAL_PATH_ROOT
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.client_side.recorder import Recorder
from podwire.protocols.k8sapi.kubeconfig import Access, BadKubeconfig, Pem
from podwire.protocols.k8sapi.status import ApiError
from podwire.trace.participants import API_SERVER, KUBELET, RUNTIME
from podwire.transports import credentials, grpc_client, http_client
from podwire.transports.clock import SystemClock
from podwire.transports.probe_sockets import ProbeSockets

_log = logging.getLogger("podwire.kubelet")

USER_AGENT = "podwire-kubelet"
CNI_DIRS = Path("/etc/cni/net.d"), Path("/opt/cni/bin"), Path("/var/lib/podwire/cni/bin")
"""Directories of network configurations and plugins: a change there retries pods that wait for a network."""
RETRY_SECONDS = 10.0
DEBOUNCE_SECONDS = 0.05
"""Files that are written together are one change."""


class BadEndpoint(Exception):
    """A runtime endpoint that is not a unix socket."""


class RunsAlready(Exception):
    """Another kubelet uses the same directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of a kubelet, as on the command line."""

    kubeconfig: Path
    runtime_endpoint: str
    node_name: str
    root_dir: Path = Path("/var/lib/kubelet")
    pod_logs_dir: Path = Path("/var/log/pods")
    address: str = "0.0.0.0"
    port: int = 10250
    node_ips: tuple[str, ...] = ()
    pod_cidrs: tuple[str, ...] = ()
    cluster_dns: tuple[str, ...] = ()
    cluster_domain: str = "cluster.local"
    resolv_conf: Path = Path("/etc/resolv.conf")
    max_pods: int = 110
    pod_pids: int = 4096
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    cni_dirs: tuple[Path, ...] = CNI_DIRS
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    client_ca: Path | None = None
    eviction_hard: tuple[Threshold, ...] = DEFAULT
    eviction: EvictionSettings = field(default_factory=EvictionSettings)
    image_gc: ImageGcSettings = field(default_factory=ImageGcSettings)
    logs: LogSettings = field(default_factory=LogSettings)
    devices: DeviceSettings = field(default_factory=DeviceSettings)
    claims: ClaimSettings = field(default_factory=ClaimSettings)
    manifests: Path | None = None
    """The directory of static pods."""
    credential_providers: tuple[Path, Path] | None = None
    """The configuration of credential providers, and the directory of their programs."""
    local_path_kubeconfig: Path | None = None
    """The identity that keeps directories of this node as PersistentVolumes; None: there are none."""


def socket_of(endpoint: str) -> Path:
    """Returns the path of `unix:///…`, or of a bare path."""
    path = endpoint.removeprefix("unix://")
    if not path.startswith("/"):
        raise BadEndpoint(f"{endpoint!r} is not a container runtime endpoint; expected unix:///PATH")
    return Path(path)


async def run(options: Options) -> None:
    """Works until cancelled.

    1. Lock the directory.  2. Connect to the API server and the runtime.  3. Serve.  4. Run the kubelet.
    """
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(_lock(options.root_dir))
        access = credentials.load(options.kubeconfig)
        api_tap = tracing.api_tap(KUBELET, options.node_name)
        connecting = http_client.connect(access, user_agent=USER_AGENT, tap=api_tap, callee=API_SERVER)
        http = await stack.enter_async_context(connecting)
        socket = socket_of(options.runtime_endpoint)
        tap = tracing.tap(KUBELET, options.node_name)
        meter = KubeletMetrics(node=options.node_name)
        connected = await stack.enter_async_context(
            grpc_client.connect(socket, tap=tap, caller=KUBELET, callee=RUNTIME)
        )
        cri = MeteredRuntime(connected, meter.metrics)
        api = Client(MeteredHttp(http, meter.metrics, host_of(access.server)))
        clock = SystemClock()
        outside = Dependencies(
            api=api,
            cri=cri,
            clock=clock,
            node_credentials=_node_credentials(options, clock),
            mounts=KernelMounts(),
            machine=KernelMachine(),
            sockets=ProbeSockets(),
            pod_started=meter.pod_started,
            record_damaged=meter.record_damaged,
            probed=meter.probed,
            network_files=lambda: changes_below(options.cni_dirs),
            manifest_changes=_manifest_changes(options.manifests),
            plugins=PluginSockets(tap),
        )
        settings = KubeletSettings(
            node=_node(options),
            paths=KubeletPaths(root=options.root_dir, logs=options.pod_logs_dir),
            dns=await _dns(options),
            eviction=options.eviction,
            image_gc=options.image_gc,
            logs=options.logs,
            devices=options.devices,
            claims=options.claims,
            manifests=options.manifests,
        )
        kubelet = Kubelet(outside, settings)
        how = _serving(options, access)
        await stack.enter_async_context(serving(how, kubelet.pod_workers, cri, api, meter, kubelet.volume_usage))
        if options.local_path_kubeconfig is not None:
            keeping = asyncio.create_task(_keep_local_volumes(options.local_path_kubeconfig, options.node_name, clock))
            stack.push_async_callback(_cancel, keeping)
        _log.info("kubelet is running", extra={"node": options.node_name, "api": access.server, "runtime": str(socket)})
        await kubelet.run()


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def _keep_local_volumes(kubeconfig: Path, node: str, clock: Clock) -> None:
    """Keeps the directories of this node that are PersistentVolumes, with an identity that may do only this.

    A failure is logged and retried: pods without such volumes do not depend on it.
    """
    while True:
        try:
            access = credentials.load(kubeconfig)
            tap = tracing.api_tap(KUBELET, node)
            async with http_client.connect(access, user_agent=USER_AGENT, tap=tap, callee=API_SERVER) as http:
                api = Client(http)
                recorder = Recorder(api, clock, component=LOCAL_PATH, host=node)
                await LocalPathVolumes(api, recorder, node, Path(LOCAL_PATH_ROOT)).run()
        except* (ApiError, BadKubeconfig, OSError) as failure:
            error = str(failure.exceptions[0])
            _log.warning("cannot keep local volumes", extra={"error": error, "retry_seconds": RETRY_SECONDS})
        await asyncio.sleep(RETRY_SECONDS)


def _manifest_changes(directory: Path | None) -> Callable[[], AsyncIterator[None]] | None:
    """Raises UntrustedPath, OSError: who can write a manifest is root on this node."""
    if directory is None:
        return None
    check_directory(directory)
    return lambda: changes_below((directory,))


def _node_credentials(options: Options, clock: Clock) -> NodeCredentials:
    """Raises BadProviders, OSError."""
    files = docker_files(options.root_dir, Path(os.environ.get("HOME") or "/root"))
    if options.credential_providers is None:
        return NodeCredentials(files)
    config, directory = options.credential_providers
    check_directory(directory)
    check_files(directory)
    return NodeCredentials(files, CredentialProviders(load_providers(config, directory), directory, clock))


def _serving(options: Options, access: Access) -> Serving:
    """The CA of callers is the one that the operator names, else that of the API server."""
    return Serving(
        node=options.node_name,
        root=options.root_dir,
        address=options.address,
        port=options.port,
        node_ips=options.node_ips,
        logs=options.pod_logs_dir,
        certificate=options.tls_certificate,
        key=options.tls_key,
        client_ca=Pem(file=str(options.client_ca)) if options.client_ca else access.ca,
        settings={"port": options.port, "maxPods": options.max_pods, "clusterDomain": options.cluster_domain},
    )


def _node(options: Options) -> NodeSettings:
    return NodeSettings(
        name=options.node_name,
        addresses=options.node_ips,
        pod_cidrs=options.pod_cidrs,
        labels=options.labels,
        taints=options.taints,
        max_pods=options.max_pods,
        pod_pids=options.pod_pids,
        thresholds=options.eviction_hard,
        port=options.port,
        directory=str(options.root_dir),
    )


async def _dns(options: Options) -> DnsSettings:
    resolv_conf, hosts = await asyncio.to_thread(lambda: (_text(options.resolv_conf), _text(Path("/etc/hosts"))))
    return DnsSettings(
        cluster_servers=options.cluster_dns,
        cluster_domain=options.cluster_domain,
        node=node_dns(resolv_conf),
        node_hosts=hosts,
    )


def _text(path: Path) -> str:
    """Reads a file; empty if it does not exist."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _lock(root: Path) -> FileLock:
    """Locks the directory of a kubelet; the kernel releases the lock when this process ends. Raises RunsAlready."""
    make_directory(root, 0o750)
    try:
        return lock_file(root / "kubelet.lock", name="kubelet", mode=0o644)
    except LockHeld as error:
        raise RunsAlready(f"another kubelet uses {root}; stop it, or give this one its own --root-dir") from error


async def changes_below(directories: tuple[Path, ...]) -> AsyncIterator[None]:
    """Yields when files in these directories change; directories need not exist yet."""
    try:
        watches = inotify.Inotify()
    except LinuxError as error:
        _log.warning("cannot watch directories of the kubelet", extra={"error": str(error)})
        return
    changed = asyncio.Event()
    loop = asyncio.get_running_loop()
    with contextlib.closing(watches):
        loop.add_reader(watches.fileno(), changed.set)
        try:
            while True:
                _watch_all(watches, directories)
                await changed.wait()
                await asyncio.sleep(DEBOUNCE_SECONDS)
                watches.read()
                changed.clear()
                yield
        finally:
            loop.remove_reader(watches.fileno())


_MASK = inotify.CLOSE_WRITE | inotify.MOVED_TO | inotify.MOVED_FROM | inotify.CREATE | inotify.DELETE


def _watch_all(watches: inotify.Inotify, directories: tuple[Path, ...]) -> None:
    for directory in directories:
        try:
            watches.add_nearest(directory, _MASK)
        except LinuxError as error:
            _log.warning("cannot watch directory of the kubelet", extra={"path": str(directory), "error": str(error)})
