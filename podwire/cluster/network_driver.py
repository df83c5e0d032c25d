"""Runs the network driver of a node: a client of the API server, a driver of the kubelet, a plugin of the runtime."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from podwire import nri
from podwire.cluster import tracing
from podwire.cluster.health_endpoints import page
from podwire.cluster.own_calls import PodCalls
from podwire.dradriver.addresses.address_store import Addresses
from podwire.dradriver.addresses.manager import Leasing
from podwire.dradriver.attach.attachments import Attachments
from podwire.dradriver.attach.netns_pins import Pins
from podwire.dradriver.claims.cdi import CdiFiles
from podwire.dradriver.claims.damaged_records import Damage
from podwire.dradriver.claims.metadata import MetadataFiles
from podwire.dradriver.claims.prepared_devices import Holding
from podwire.dradriver.config import Config
from podwire.dradriver.driver import Driver, Parts
from podwire.dradriver.instances import InstanceLock, Voice
from podwire.dradriver.inventory.inventory import Inventory
from podwire.dradriver.kit import Kit
from podwire.dradriver.names import COMPONENT, DRIVER
from podwire.dradriver.ports import Passing
from podwire.dradriver.publish.claim_status import Statuses
from podwire.dradriver.publish.events import Recorder
from podwire.dradriver.publish.metrics import Meter
from podwire.dradriver.publish.publisher import Publisher
from podwire.dradriver.publish.sockets import sockets
from podwire.dradriver.shims import installed
from podwire.dradriver.waiting import begun
from podwire.linux.net.sysfs import Sysfs
from podwire.protocols.grpc_methods import Handler, Method
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.kubeconfig import Access
from podwire.protocols.podresources import podresources_pb2 as resources
from podwire.protocols.podresources.methods import LIST
from podwire.tasks.keyed_locks import KeyedLocks
from podwire.trace.participants import API_SERVER, NETWORK_DRIVER
from podwire.transports import credentials, grpc_client, grpc_server, http_client, http_server
from podwire.transports.clock import SystemClock

_log = logging.getLogger("podwire.dradriver")

KUBELET, STATE, CDI = Path("/var/lib/kubelet"), Path("/var/lib/podwire/network-driver"), Path("/var/run/cdi")
LIST_SECONDS = 5.0
GRACE_SECONDS = 5.0
"""How long calls that are being answered may take when their socket goes."""
PAGES_GRACE, PAGES_AGAIN = 0.5, 2.0
"""Seconds that requests in flight have left; and until a port that somebody else has is tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to run the driver; the command line's flags."""

    node: str
    kubeconfig: Path | None = None
    """None: the service account of the pod that this is."""
    context: str = ""
    config: Config = field(default_factory=Config)
    pod_uid: str = ""
    """Of the driver's own pod: with it, a new instance and an old one can be there at once."""
    kubelet: Path = KUBELET
    state: Path = STATE
    cdi: Path = CDI
    sysfs: Path = Path("/sys")
    nri_socket: Path | None = None
    address: str = "127.0.0.1"
    port: int | None = None
    """None: no pages."""


def access_of(options: Options) -> Access:
    """Raises BadKubeconfig."""
    return credentials.of(options.kubeconfig, context=options.context)


async def run(options: Options) -> None:
    """Work until cancelled. Raises OSError, BadConfig, NriError.

    1. A client of the API server.  2. The pages.  3. This instance's turn, should there be another.  4. The plugin of
    the runtime and the driver of the kubelet, side by side; the plugin is the last to go, so that pods whose claims are
    prepared still get their devices.
    """
    access = access_of(options)
    tap = tracing.api_tap(NETWORK_DRIVER, options.node)
    places = sockets(options.kubelet, DRIVER, options.pod_uid)
    lock = InstanceLock(places.lock, options.pod_uid)
    async with contextlib.AsyncExitStack() as stack:
        connecting = http_client.connect(access, user_agent=COMPONENT, tap=tap, callee=API_SERVER)
        client = Client(await stack.enter_async_context(connecting))
        shown = _Shown(lock)
        if options.port is not None:
            await stack.enter_async_context(_pages(options, shown))
        async with begun(lock, _Door(), places):  # it tidies up where others write
            parts = await asyncio.to_thread(assemble, client, options, lock)
        stack.callback(parts.attachments.close)
        stack.callback(parts.inventory.close)
        shown.driver = driver = Driver(parts)
        _log.info("working", extra={"node": options.node, "api": access.server})
        await _together(driver, parts, options)


async def _together(driver: Driver, parts: Parts, options: Options) -> None:
    plugin = asyncio.ensure_future(nri.run(driver.plugin, socket=options.nri_socket))
    working = asyncio.ensure_future(driver.run())
    try:
        await asyncio.wait([plugin, working], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (working, plugin):
            task.cancel()
            await asyncio.wait([task])
        parts.voice.give_up()
    for task in (plugin, working):
        if not task.cancelled():
            task.result()


def assemble(client: Client, options: Options, lock: InstanceLock | None = None) -> Parts:
    """All of it, not running yet. Blocks; raises OSError, BadConfig."""
    clock, places = SystemClock(), sockets(options.kubelet, DRIVER, options.pod_uid)
    inventory = Inventory(sysfs=Sysfs(options.sysfs), clock=clock, config=options.config.offering)
    attachments = Attachments(options.state)
    events = Recorder(client, clock, options.node)
    addresses = Addresses(options.state / "addresses", options.config.pools)
    leasing = Leasing(addresses, attachments, options.state / "leases")
    holding = Holding(inventory, attachments, records=options.state / "records", listed=options.state / "listed")
    kit = Kit(
        node=options.node,
        api=client,
        devices=holding,
        attachments=attachments,
        addressing=leasing,
        cdi=CdiFiles(options.cdi, installed(options.state / "bin"), kept=options.state / "cdi"),
        metadata=MetadataFiles(options.kubelet / "plugins" / DRIVER / "dra-device-metadata"),
        pins=Pins(options.state / "netns"),
        statuses=Statuses(client, clock),
        events=events,
        meter=Meter(clock.monotonic),
        trace=_Trace(NETWORK_DRIVER, options.node),
        turns=KeyedLocks(),
        lock=lock or InstanceLock(places.lock, options.pod_uid),
        damage=Damage(options.state),
    )
    return Parts(
        kit=kit,
        inventory=inventory,
        attachments=attachments,
        holding=holding,
        publisher=Publisher(client, inventory, node=options.node),
        addressing=leasing,
        door=_Door(),
        kubelet=_PodResources(options.kubelet / "pod-resources/kubelet.sock"),
        sockets=places,
        voice=Voice(options.state / "voice.lock"),
    )


class _Door:
    async def serve(self, path: Path, table: Iterable[Method], handlers: Mapping[str, Handler]) -> "_Served":
        return _Served(await grpc_server.serve(path, table, handlers))


class _Served:
    def __init__(self, server: grpc_server.GrpcServer) -> None:
        self._server = server

    async def close(self) -> None:
        await self._server.close(GRACE_SECONDS)


class _PodResources:
    """Each call connects anew, so that a kubelet that was restarted is met at once."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    async def list(self) -> resources.ListPodResourcesResponse:
        async with grpc_client.connect(self._socket) as client:
            return await client.call(LIST, resources.ListPodResourcesRequest(), timeout=LIST_SECONDS)


# The pages.


class _Shown:
    """What operators are told, also before there is a driver."""

    def __init__(self, lock: InstanceLock) -> None:
        self._lock = lock
        self.driver: Driver | None = None

    async def metrics(self) -> str:
        return await self.driver.metrics() if self.driver is not None else ""

    def lacking(self) -> list[str]:
        return self.driver.lacking() if self.driver is not None else [self._lock.waiting or "the driver is starting"]


@contextlib.asynccontextmanager
async def _pages(options: Options, shown: _Shown) -> AsyncIterator[None]:
    """From when the port is free: while the driver is updated, the old instance has it."""
    serving = asyncio.ensure_future(_serve_pages(options, shown))
    try:
        yield
    finally:
        serving.cancel()
        await asyncio.wait([serving])


async def _serve_pages(options: Options, shown: _Shown) -> None:
    server = None
    while server is None:
        try:
            server = await http_server.serve(
                lambda request: page(request, shown.metrics, shown.lacking),
                host=options.address,
                port=options.port or 0,
            )
        except OSError as error:
            _log.warning("no pages yet", extra={"port": options.port, "why": str(error)})
            await asyncio.sleep(PAGES_AGAIN)
    _log.info("serving", extra={"address": options.address, "port": server.port})
    try:
        await asyncio.Event().wait()
    finally:
        await server.close(PAGES_GRACE)


# The trace.


class _Trace(PodCalls):
    def works(self, uid: str, what: str) -> AbstractContextManager[Passing]:
        return self.call(uid, what)
