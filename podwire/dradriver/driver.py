"""The driver put together: what it serves and follows, in which order it starts and stops, what it measures."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from podwire.dradriver import dra_hooks
from podwire.dradriver.addresses.manager import AddressManager
from podwire.dradriver.attach.attachments import Attachments
from podwire.dradriver.attach.pods import PodAttacher
from podwire.dradriver.attach.records import ATTACHED, Record
from podwire.dradriver.claims.allocations import Allocation, ClaimRef
from podwire.dradriver.claims.character_device_plugin import CharacterDevices, PodResources
from podwire.dradriver.claims.claim_reconciler import ClaimReconciler
from podwire.dradriver.claims.prepared_devices import PreparedDevices
from podwire.dradriver.claims.resolution import ResolvedClaim
from podwire.dradriver.dependencies import Dependencies
from podwire.dradriver.dra_hooks import DraHooks
from podwire.dradriver.instances import AnswerLock, Busy, InstanceLock
from podwire.dradriver.inventory.health import Health
from podwire.dradriver.inventory.inventory import Inventory
from podwire.dradriver.inventory.link_watch import LinkWatch, LinkWatchLimits
from podwire.dradriver.nri_hooks import NetworkDriverPlugin, NriLimits
from podwire.dradriver.publish.health_stream import DeviceHealthStream
from podwire.dradriver.publish.interface_counters import read_counters
from podwire.dradriver.publish.metrics import Meter, observe
from podwire.dradriver.publish.publisher import Publisher
from podwire.dradriver.publish.registration import Registration
from podwire.dradriver.publish.sockets import Sockets, SocketServer
from podwire.protocols.deviceplugin.methods import PLUGIN
from podwire.protocols.prometheus import Labels, Samples
from podwire.protocols.registration.methods import ALL as REGISTRATION

Trace = Callable[[str, str], AbstractContextManager[object]]
"""Traces an action of the driver for a pod: its uid, and what is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverLimits:
    """Seconds."""

    linger: float = 2.0
    """At shutdown, for pods whose claims are prepared to be attached."""
    final_writes: float = 1.0
    """At shutdown, for statuses and events that are not written yet."""
    freed: float = 5.0
    """A claim waits so long until the previous claim of its device is unprepared."""
    reconcile: float = 30.0
    """Between two comparisons of the records with the API server's claims and pods."""
    link_watch: LinkWatchLimits = field(default_factory=LinkWatchLimits)
    nri: NriLimits = field(default_factory=NriLimits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of the driver, made by the caller, which has the transports."""

    dependencies: Dependencies
    inventory: Inventory
    attachments: Attachments
    devices: PreparedDevices
    publisher: Publisher
    addresses: AddressManager
    server: SocketServer
    kubelet: PodResources
    sockets: Sockets
    answer_lock: AnswerLock
    meter: Meter
    trace: Trace
    limits: DriverLimits = field(default_factory=DriverLimits)


class Driver:
    def __init__(self, parts: Parts) -> None:
        self._parts, self._dependencies = parts, parts.dependencies
        self._health = DeviceHealthStream(parts.dependencies.node, parts.inventory.health)
        self._registration = Registration(parts.sockets.dra, parts.publisher.publish_now)
        self._chardev = CharacterDevices(parts.attachments, parts.kubelet, parts.sockets.chardev)
        self._pods = PodAttacher(parts.dependencies)
        self._hooks = DraHooks(parts.dependencies, self._pods, patience=parts.limits.freed)
        self._reconciler = ClaimReconciler(parts.dependencies, self._pods, self._hooks, parts.limits.reconcile)
        self.plugin = NetworkDriverPlugin(parts.attachments, self._pods, parts.answer_lock, parts.limits.nri)
        self._serving = False
        self._observe()

    def _observe(self) -> None:
        """All metrics and traces of the hooks: methods of these objects are wrapped, and know nothing of it."""
        parts, meter, trace = self._parts, self._parts.meter, self._parts.trace
        attachments, addresses = parts.attachments, parts.addresses

        def phase(name: str) -> Callable[..., AbstractContextManager[object]]:
            return lambda *_arguments: meter.phase(name)

        def action(name: str, pod_of: Callable[..., str]) -> Callable[..., AbstractContextManager[object]]:
            return lambda *arguments: trace(pod_of(*arguments), name)

        def first_pod(allocations: Sequence[Allocation], *_rest: object) -> str:
            return allocations[0].pod.uid

        def pod_of_claim(claim_uid: str) -> str:
            return next((record.allocation.pod.uid for record in attachments.of_claim(claim_uid)), "")

        def pod_uid(uid: str, *_rest: object) -> str:
            return uid

        observe(attachments, "prepare", action("prepare devices", first_pod), phase("prepare"))
        observe(attachments, "attach", action("attach devices", pod_uid), phase("attach"))
        observe(attachments, "detach", action("detach devices", pod_uid), phase("detach"))
        observe(attachments, "unprepare", action("unprepare devices", pod_of_claim), phase("unprepare"))
        observe(attachments, "reconcile", phase("reconcile"))
        observe(addresses, "reserve", phase("addresses"))
        observe(addresses, "lease", phase("lease"))
        observe(self._dependencies.files, "write_prepared", phase("describe"))
        observe(self._hooks, "resolve", phase("read"))
        for method, request in (
            ("attach", "RunPodSandbox"),
            ("check", "CreateContainer"),
            ("detach", "StopPodSandbox"),
        ):
            observe(self._pods, method, lambda *_arguments, request=request: meter.counted(request))
        observe(self._chardev, "allocate", lambda *_arguments: meter.counted("Allocate"))
        observe(self._chardev, "answer", action("hand out character devices", first_pod))

    async def run(self) -> None:
        """Works until cancelled, concurrently with the plugin's connection to the runtime.

        Start: 1. Hold what is prepared and look at the host, before anything is published.   2. Release what claims
        without records left.   3. Follow links, records, slices, leases; write statuses and events.   4. Serve DRA,
        then the registration socket by which kubelets find it.

        Shutdown is the other way round: the registration socket goes first, so that no kubelet finds the driver; then
        the DRA socket, so that no claim is prepared; then pods that are about to start get their devices; statuses
        and events are written last. The caller disconnects the NRI plugin after that.
        """
        parts = self._parts
        await asyncio.to_thread(parts.devices.sync_all)
        await asyncio.to_thread(parts.inventory.look)
        # Releases addresses that were reserved before a crash and have no record; CDI files likewise.
        dependencies = self._dependencies
        async with dependencies.instance_lock.held():
            records = await asyncio.to_thread(dependencies.attachments.records)
            await self._parts.addresses.reconcile(records)
            claims = {record.allocation.claim.uid for record in records}
            await asyncio.to_thread(dependencies.files.cdi.keep_only, claims)
        for damaged in await asyncio.to_thread(dependencies.damaged.list):
            claim = await asyncio.to_thread(dependencies.files.find_claim, damaged.claim_uid)
            dependencies.reports.record_damaged(damaged, claim)
        async with asyncio.TaskGroup() as group:
            group.create_task(LinkWatch(parts.inventory, parts.limits.link_watch).run(), name="inventory")
            group.create_task(parts.devices.run(), name="prepared devices")
            group.create_task(parts.publisher.run(), name="slices")
            group.create_task(self._follow_health(), name="device health")
            group.create_task(self._report_health(), name="health of devices in pods")
            group.create_task(self._dependencies.reports.statuses.run(), name="claim statuses")
            group.create_task(self._dependencies.reports.events.run(), name="events")
            group.create_task(parts.addresses.run(), name="leases")
            group.create_task(self._follow_leases(), name="leases in pods")
            group.create_task(self._reconciler.run(), name="orphaned claims")
            await self._serve()

    async def _serve(self) -> None:
        parts = self._parts
        dra_handlers = dra_hooks.handlers(self._hooks, self._health, parts.meter.count)
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self._shut_down)
            for path, table, handlers in (
                (parts.sockets.dra, dra_hooks.TABLE, dra_handlers),
                (parts.sockets.chardev, PLUGIN, self._chardev.handlers),
                (parts.sockets.registration, REGISTRATION, self._registration.handlers),
            ):
                stack.push_async_callback((await parts.server.serve(path, table, handlers)).close)
            self._serving = True
            await self._register_character_devices()

    async def _register_character_devices(self) -> None:
        """Serves the registration socket again whenever a kubelet lost us: it notices a socket that is created anew."""
        parts, lost = self._parts, self._chardev.lost
        while True:
            lost.clear()
            path = parts.sockets.chardev_registration
            server = await parts.server.serve(path, REGISTRATION, self._chardev.registration)
            try:
                await lost.wait()
            finally:
                await server.close()

    async def _shut_down(self) -> None:
        """The end of `run`, when no socket is served any more."""
        limits, reports = self._parts.limits, self._dependencies.reports
        self._serving = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limits.linger):
                await self._pods.idle()
        await self.plugin.drain(limits.linger)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limits.final_writes):
                await asyncio.gather(reports.statuses.idle(), reports.events.idle())

    async def _follow_leases(self) -> None:
        """Applies changed leases concurrently: a pod may be locked for long."""
        async with asyncio.TaskGroup() as group:
            async for key in self._parts.addresses.changes():
                group.create_task(self._pods.follow_lease(key), name=f"lease of {key}")

    async def _follow_health(self) -> None:
        async for _ in self._parts.inventory.changes():
            self._health.changed()

    async def _report_health(self) -> None:
        """Apart from the kubelets' streams: a pod may be locked for long."""
        async for _ in self._parts.inventory.changes():
            health = self._parts.inventory.health()
            await self._pods.report_health({name: state.message for name, state in health.items() if not state.healthy})

    # Operators

    def not_ready(self) -> list[str]:
        """Reasons why new pods cannot be served; none when they can."""
        reasons = []
        if not self._serving:
            reasons.append("the driver's sockets are not served yet")
        if self._registration.refusal:
            reasons.append(f"no kubelet: {self._registration.refusal}")
        if not self.plugin.ready.is_set():
            reasons.append("no runtime is connected")
        if self._dependencies.instance_lock.waiting:
            reasons.append(self._dependencies.instance_lock.waiting)
        return reasons

    async def metrics(self) -> str:
        records = await asyncio.to_thread(self._dependencies.attachments.records)
        counters = await asyncio.to_thread(read_counters, records)
        damaged = await asyncio.to_thread(self._dependencies.damaged.list)
        attached = sum(record.stage == ATTACHED for record in records)
        gauges: dict[str, tuple[str, Samples]] = {
            "devices": ("Devices that are offered", _by_health(self._parts.inventory.health().values())),
            "prepared_devices": ("Devices that claims have", [((), len(records))]),
            "attached_devices": ("Devices that are in pods", [((), attached)]),
            "damaged_records": ("Records that could not be read", [((), len(damaged))]),
            "recovered_links": (
                "Links that were brought back although their records were lost",
                [((), self._dependencies.reports.recovered)],
            ),
            "statuses_waiting": (
                "Claims whose status is not written yet",
                [((), self._dependencies.reports.statuses.pending)],
            ),
            "ready": ("Whether new pods can be served", [((), 0 if self.not_ready() else 1)]),
        }
        for counter in counters[0].values if counters else ():
            samples = [(_labels(interface.record), float(interface.values[counter])) for interface in counters]
            gauges[f"interface_{counter}"] = ("Of interfaces in pods", samples)
        return self._parts.meter.text(gauges)


def _by_health(health: Iterable[Health]) -> Samples:
    states = [device.healthy for device in health]
    return [((("healthy", "true" if value else "false"),), states.count(value)) for value in (True, False)]


def _labels(record: Record) -> Labels:
    allocation = record.allocation
    return (
        ("namespace", allocation.pod.namespace),
        ("pod", allocation.pod.name),
        ("claim", allocation.claim.name),
        ("request", allocation.request),
        ("device", allocation.device.name),
        ("interface", allocation.settings.name),
    )


# The start beside another instance


class Standby:
    """Implements NodeClaims while another instance works: every call fails with the name of the lock's holder.

    Otherwise kubelets would go on calling the other instance, which may be stopped, and report nothing but a timeout.
    """

    def __init__(self, lock: InstanceLock) -> None:
        self._lock = lock

    async def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, ResolvedClaim | str]:
        return dict.fromkeys((claim.uid for claim in claims), self._lock.holder())

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, str]:
        return dict.fromkeys((claim.uid for claim in claims), self._lock.holder())


@contextlib.asynccontextmanager
async def exclusive_start(lock: InstanceLock, server: SocketServer, sockets: Sockets) -> AsyncIterator[None]:
    """Holds the InstanceLock, however long that takes; see instances. Raises OSError.

    Raises Busy when the other instance has the very same sockets, so that this one cannot answer kubelets.
    """
    async with contextlib.AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(lock.held(lock.limits.start))
        except Busy as busy:
            async with _standby(lock, server, sockets, busy):
                await stack.enter_async_context(lock.held())
        yield


@contextlib.asynccontextmanager
async def _standby(lock: InstanceLock, server: SocketServer, sockets: Sockets, busy: Busy) -> AsyncIterator[None]:
    health = DeviceHealthStream("", dict)
    registration = Registration(sockets.dra, lambda: None)
    async with contextlib.AsyncExitStack() as stack:
        for path, table, handlers in (
            (sockets.dra, dra_hooks.TABLE, dra_hooks.handlers(Standby(lock), health)),
            (sockets.registration, REGISTRATION, registration.handlers),
        ):
            try:
                served = await server.serve(path, table, handlers)
            except OSError:
                raise busy from None
            stack.push_async_callback(served.close)
        yield
