"""Runs the network driver of a node: a client of the API server, a DRA driver of the kubelet, an NRI plugin of the
runtime."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from podwire import nri
from podwire.cluster import tracing
from podwire.cluster.health_endpoints import answer_health
from podwire.dradriver.addresses.address_store import AddressStore
from podwire.dradriver.addresses.manager import AddressManager, LeaseLimits, held_in
from podwire.dradriver.attach.attachments import Attachments
from podwire.dradriver.attach.netns_pins import NetnsPins
from podwire.dradriver.claims.cdi import HOOK_NAME, CdiFiles
from podwire.dradriver.claims.container_files import ContainerFiles
from podwire.dradriver.claims.damaged_records import DamagedRecords
from podwire.dradriver.claims.metadata import MetadataFiles
from podwire.dradriver.claims.prepared_devices import PreparedDevices
from podwire.dradriver.config import Config
from podwire.dradriver.dependencies import Dependencies
from podwire.dradriver.driver import Driver, DriverLimits, Parts, exclusive_start
from podwire.dradriver.instances import AnswerLock, InstanceLimits, InstanceLock
from podwire.dradriver.inventory.inventory import Inventory
from podwire.dradriver.names import COMPONENT, DRIVER
from podwire.dradriver.publish.claim_reports import ClaimReports, Recorder
from podwire.dradriver.publish.claim_status import Statuses
from podwire.dradriver.publish.metrics import Meter
from podwire.dradriver.publish.publisher import Publisher
from podwire.dradriver.publish.sockets import sockets
from podwire.linux.fs.trust import make_directory
from podwire.linux.net.sysfs import Sysfs
from podwire.protocols.grpc_methods import Handler, Method
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.kubeconfig import Access
from podwire.protocols.podresources import podresources_pb2 as resources
from podwire.protocols.podresources.methods import LIST
from podwire.shim import install_hook
from podwire.tasks.keyed_locks import KeyedLocks
from podwire.trace.participants import API_SERVER, NETWORK_DRIVER
from podwire.transports import credentials, grpc_client, grpc_server, http_client, http_server
from podwire.transports.clock import SystemClock

_log = logging.getLogger("podwire.dradriver")

KUBELET, STATE, CDI = Path("/var/lib/kubelet"), Path("/var/lib/podwire/network-driver"), Path("/var/run/cdi")
LIST_SECONDS = 5.0
GRACE_SECONDS = 5.0
"""Time for running calls when a socket is closed."""
HTTP_GRACE, HTTP_RETRY = 0.5, 2.0
"""Seconds for requests in flight; and until a port that is in use is tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of the driver, as on the command line."""

    node: str
    kubeconfig: Path | None = None
    """None: the service account of the pod in which this runs."""
    context: str = ""
    config: Config = field(default_factory=Config)
    pod_uid: str = ""
    """The uid of the driver's own pod: with it, a new instance and an old one can serve at once."""
    kubelet: Path = KUBELET
    state: Path = STATE
    boot: str = ""
    """Identifies the boot of the machine; empty: what the kernel says."""
    cdi: Path = CDI
    sysfs: Path = Path("/sys")
    nri_socket: Path | None = None
    address: str = "127.0.0.1"
    port: int | None = None
    """None: no HTTP endpoints."""
    limits: DriverLimits = field(default_factory=DriverLimits)
    instance_limits: InstanceLimits = field(default_factory=InstanceLimits)
    lease_limits: LeaseLimits = field(default_factory=LeaseLimits)


def access_of(options: Options) -> Access:
    """Raises BadKubeconfig."""
    return credentials.of(options.kubeconfig, context=options.context)


async def run(options: Options) -> None:
    """Works until cancelled. Raises OSError, BadConfig, NriError.

    1. Connect to the API server.  2. Serve the HTTP endpoints.  3. Wait for another instance, if there is one.  4. Run
    the runtime's plugin and the kubelet's driver concurrently; the plugin stops last, so that pods whose claims are
    prepared still get their devices.
    """
    access = access_of(options)
    tap = tracing.api_tap(NETWORK_DRIVER, options.node)
    paths = sockets(options.kubelet, DRIVER, options.pod_uid)
    lock = InstanceLock(paths.lock, options.pod_uid, options.instance_limits)
    async with contextlib.AsyncExitStack() as stack:
        connecting = http_client.connect(access, user_agent=COMPONENT, tap=tap, callee=API_SERVER)
        client = Client(await stack.enter_async_context(connecting))
        health = _Health(lock)
        if options.port is not None:
            await stack.enter_async_context(_health_endpoints(options, health))
        async with exclusive_start(lock, _SocketServer(), paths):  # it removes what other instances may be writing
            parts = await asyncio.to_thread(assemble, client, options, lock)
        stack.callback(parts.attachments.close)
        stack.callback(parts.inventory.close)
        health.driver = driver = Driver(parts)
        _log.info("network driver is running", extra={"node": options.node, "api": access.server})
        plugin = asyncio.ensure_future(nri.run(driver.plugin, socket=options.nri_socket))
        working = asyncio.ensure_future(driver.run())
        try:
            await asyncio.wait([plugin, working], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (working, plugin):
                task.cancel()
                await asyncio.wait([task])
            parts.answer_lock.release()
        for task in (plugin, working):
            if not task.cancelled():
                task.result()


def assemble(client: Client, options: Options, lock: InstanceLock | None = None) -> Parts:
    """Makes all parts, not running yet. Blocks; raises OSError, BadConfig."""
    clock, paths, state = SystemClock(), sockets(options.kubelet, DRIVER, options.pod_uid), options.state
    inventory = Inventory(sysfs=Sysfs(options.sysfs), clock=clock, config=options.config.offering)
    make_directory(state, 0o700)
    attachments = Attachments(state, boot=options.boot, trusted_bridges=options.config.offering.trusted_bridges)
    store = AddressStore(
        state / "addresses", options.config.pools, recorded=lambda: tuple(held_in(attachments.records()))
    )
    addresses = AddressManager(store, attachments, state / "leases", options.lease_limits)
    devices = PreparedDevices(inventory, attachments, records=state / "records", listed=state / "listed")
    cdi = CdiFiles(options.cdi, (install_hook(state / "bin", HOOK_NAME),), kept=state / "cdi")
    metadata = MetadataFiles(options.kubelet / "plugins" / DRIVER / "dra-device-metadata")
    dependencies = Dependencies(
        node=options.node,
        client=client,
        devices=devices,
        attachments=attachments,
        addresses=addresses,
        files=ContainerFiles(cdi, metadata, devices, attachments),
        pins=NetnsPins(state / "netns"),
        reports=ClaimReports(Statuses(client, clock), Recorder(client, clock, options.node)),
        locks=KeyedLocks(),
        instance_lock=lock or InstanceLock(paths.lock, options.pod_uid, options.instance_limits),
        damaged=DamagedRecords(state),
    )
    return Parts(
        dependencies=dependencies,
        inventory=inventory,
        attachments=attachments,
        devices=devices,
        publisher=Publisher(client, inventory, node=options.node),
        addresses=addresses,
        server=_SocketServer(),
        kubelet=_PodResources(options.kubelet / "pod-resources/kubelet.sock"),
        sockets=paths,
        answer_lock=AnswerLock(state / "voice.lock"),
        meter=Meter(clock.monotonic),
        trace=tracing.PodCalls(NETWORK_DRIVER, options.node).call,
        limits=options.limits,
    )


class _SocketServer:
    async def serve(self, path: Path, table: Iterable[Method], handlers: Mapping[str, Handler]) -> "_Served":
        return _Served(await grpc_server.serve(path, table, handlers))


class _Served:
    def __init__(self, server: grpc_server.GrpcServer) -> None:
        self._server = server

    async def close(self) -> None:
        await self._server.close(GRACE_SECONDS)


class _PodResources:
    """Each call connects anew, so that a restarted kubelet is reached at once."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    async def list(self) -> resources.ListPodResourcesResponse:
        async with grpc_client.connect(self._socket) as client:
            return await client.call(LIST, resources.ListPodResourcesRequest(), timeout=LIST_SECONDS)


# HTTP endpoints


class _Health:
    """The values that the endpoints report, also before the driver exists."""

    def __init__(self, lock: InstanceLock) -> None:
        self._lock = lock
        self.driver: Driver | None = None

    async def metrics(self) -> str:
        return await self.driver.metrics() if self.driver is not None else ""

    def not_ready(self) -> list[str]:
        return self.driver.not_ready() if self.driver is not None else [self._lock.waiting or "the driver is starting"]


@contextlib.asynccontextmanager
async def _health_endpoints(options: Options, health: _Health) -> AsyncIterator[None]:
    """Serves as soon as the port is free: during a rolling update the old instance has it."""
    serving = asyncio.ensure_future(_serve_health(options, health))
    try:
        yield
    finally:
        serving.cancel()
        await asyncio.wait([serving])


async def _serve_health(options: Options, health: _Health) -> None:
    server = None
    while server is None:
        try:
            server = await http_server.serve(
                lambda request: answer_health(request, health.metrics, health.not_ready),
                host=options.address,
                port=options.port or 0,
            )
        except OSError as error:
            _log.warning("cannot serve HTTP yet", extra={"port": options.port, "error": str(error)})
            await asyncio.sleep(HTTP_RETRY)
    _log.info("network driver serves HTTP", extra={"address": options.address, "port": server.port})
    try:
        await asyncio.Event().wait()
    finally:
        await server.close(HTTP_GRACE)
