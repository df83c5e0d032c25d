"""Registers this node, reports its status and renews its lease."""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from podwire.interfaces import Clock
from podwire.kubelet.config.fields import NodeFacts
from podwire.kubelet.node import conditions, node_object
from podwire.kubelet.node.conditions import UNASKED, Readiness
from podwire.kubelet.node.lease import NodeLease
from podwire.kubelet.node.node_object import NodeSnapshot
from podwire.kubelet.node.settings import DEFAULT_LIMITS, Machine, NodeLimits, NodeSettings
from podwire.objects import nodes
from podwire.objects.nodes import ContainerImage, Node
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.client_side import Client, ClientError, PatchType, Scope
from podwire.protocols.k8sapi.client_side.events import Reference
from podwire.protocols.k8sapi.client_side.recorder import Recorder
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Added, Deleted, Object, Synced, Updated, version_of
from podwire.tasks.backoff import Pauses
from podwire.tasks.retry import retry

_log = logging.getLogger("podwire.kubelet.node")

NODES = Kind(group="", version="v1", resource="nodes", kind="Node", namespaced=False)


class NodeAgent:
    """The node is not ready until `set_runtime` says so."""

    def __init__(
        self,
        api: Client,
        clock: Clock,
        machine: Machine,
        settings: NodeSettings,
        recorder: Recorder,
        limits: NodeLimits = DEFAULT_LIMITS,
    ) -> None:
        self._api = api
        self._clock = clock
        self._machine = machine
        self._settings = settings
        self._recorder = recorder
        self._limits = limits
        self._lease = NodeLease(api, clock, settings.name, limits)
        self._runtime: Readiness = UNASKED
        self._runtime_version = ""
        self._images: tuple[ContainerImage, ...] = ()
        self._devices: Mapping[str, tuple[int, int] | None] = {}
        self._pressures: frozenset[str] | None = None
        self._snapshot: NodeSnapshot | None = None
        self._facts: tuple[NodeSnapshot, NodeFacts] | None = None
        self._object: Object | None = None
        self._node: Node | None = None
        self._reported = 0.0
        self._changed, self._stored_ready = asyncio.Event(), asyncio.Event()
        self.registered = asyncio.Event()
        """The API has had the node at least once."""

    def set_runtime(self, ready: bool, reason: str = "", message: str = "") -> None:
        """Set whether containers can run. A change is reported at once."""
        now = Readiness(ready, reason, message)
        if now != self._runtime:
            self._runtime = now
            self._changed.set()

    def set_images(self, images: Iterable[ContainerImage]) -> None:
        """Reported with the next heartbeat."""
        self._images = tuple(images)

    def set_devices(self, amounts: Mapping[str, tuple[int, int] | None]) -> None:
        """Set the resources of device plugins: capacity and allocatable, None for a resource that is gone. A change is
        reported at once."""
        if amounts != self._devices:
            self._devices = dict(amounts)
            self._changed.set()

    def set_pressures(self, conditions_: frozenset[str]) -> None:
        """Set the conditions of pressure; a change is reported at once."""
        if conditions_ != self._pressures:
            self._pressures = conditions_
            self._changed.set()

    def set_runtime_version(self, name: str, version: str) -> None:
        self._runtime_version = f"{name}://{version}"

    @property
    def facts(self) -> NodeFacts:
        """Facts of the node that pods may refer to."""
        snapshot = self._snapshot or self._look()
        if self._facts is None or self._facts[0] is not snapshot:
            self._facts = (snapshot, _facts(snapshot, self._settings))
        return self._facts[1]

    @property
    def name(self) -> str:
        return self._settings.name

    @property
    def node(self) -> Node | None:
        """The Node as the API has it; None while it does not."""
        return self._node

    @property
    def own_node(self) -> Node:
        """The Node as this kubelet would register it, for pods that need no API server."""
        return nodes.read(node_object.node(self._now(), self._settings, self._time()))

    async def ready(self) -> None:
        """Returns when the API has stored that the node is ready."""
        await self._stored_ready.wait()

    async def run(self) -> None:
        """Work until cancelled; if one part fails, all stop."""
        await self._register()
        async with asyncio.TaskGroup() as parts:
            parts.create_task(self._follow(), name="follow the node object")
            parts.create_task(self._heartbeat(), name="renew the lease")
            parts.create_task(self._report_changes(), name="report the status")

    async def _register(self) -> None:
        """Create the Node, or take over the one that exists; retried until the API has it."""
        await asyncio.to_thread(self._look)

        def on_failure(error: BaseException, _pause: float) -> None:
            _log.warning("cannot register node", extra={"node": self._settings.name, "error": str(error)})

        pauses = Pauses(*self._limits.backoff)
        await retry(self._create_or_take_over, pauses, ApiError, ClientError, on_failure=on_failure)
        _log.info("registered this node", extra={"node": self._settings.name})

    async def _create_or_take_over(self) -> None:
        snapshot = self._now()
        node = node_object.node(snapshot, self._settings, self._time())
        try:
            created = await self._api.create(node)
        except ApiError as error:
            if error.code != 409:
                raise
            await self._take_over(snapshot)
            return
        self.record("Normal", "Starting", "Starting kubelet.")
        self._record_transitions(node["status"]["conditions"], ())
        self._reported = self._clock.monotonic()
        self._store(created)

    async def _take_over(self, snapshot: NodeSnapshot) -> None:
        stored = await self._api.get(NODES, self._settings.name)
        patch = node_object.reconciled(stored, snapshot, self._settings)
        if patch is not None:
            stored = await self._api.patch(NODES, self._settings.name, patch)
        self.record("Normal", "Starting", "Starting kubelet.")
        before = ((stored.get("status") or {}).get("nodeInfo") or {}).get("bootID", "")
        if before and before != snapshot.facts.boot_id:
            message = f"Node {self._settings.name} has been rebooted, boot id: {snapshot.facts.boot_id}"
            self.record("Warning", "Rebooted", message)
        self._store(await self._report(stored, node_object.status(self._now(), self._settings)))

    async def _follow(self) -> None:
        """Follow the Node in the API; one that is deleted is registered again."""
        scope = Scope(field_selector=f"metadata.name={self._settings.name}")
        async with self._api.informer(NODES, scope) as informer:
            async for change in informer:
                match change:
                    case Added(object_) | Updated(object_, _):
                        self._updated(object_)
                    case Deleted(object_):
                        await self._deleted(object_)
                    case Synced() if not informer.objects:
                        await self._deleted(None)

    def _updated(self, object_: Object) -> None:
        self._store(object_)
        # Somebody may have overwritten our status; one who keeps doing so is answered once a period.
        if self._clock.monotonic() - self._reported >= self._limits.lease_period:
            self._changed.set()

    async def _deleted(self, object_: Object | None) -> None:
        known = self._object
        if object_ is not None and known is not None and known["metadata"]["uid"] != object_["metadata"]["uid"]:
            return  # an earlier Node of that name
        self._object = self._node = None
        await self._register()
        self._changed.set()

    async def _heartbeat(self) -> None:
        """Renew the lease and look at the machine, once a period of the monotonic clock."""
        while True:
            if self._object is not None:
                await self._lease.renew(self._object["metadata"]["uid"])
            await asyncio.sleep(self._limits.lease_period)
            await asyncio.to_thread(self._look)
            self._changed.set()

    async def _report_changes(self) -> None:
        """Report the status at once when it changed, else once a report period."""
        pauses = Pauses(*self._limits.backoff)
        while True:
            self._changed.clear()
            try:
                await self._report_if_due()
            except (ApiError, ClientError) as error:
                _log.info("cannot report node status", extra={"node": self._settings.name, "error": str(error)})
                await asyncio.sleep(pauses.next())
            else:
                pauses.reset()
                await self._changed.wait()

    async def _report_if_due(self) -> None:
        if self._object is None:
            return  # it is being registered again, with its status
        status = node_object.status(self._now(), self._settings)
        old = self._clock.monotonic() - self._reported >= self._limits.report_period
        if old or node_object.differs(self._object, status):
            self._store(await self._report(self._object, status))

    async def _report(self, stored: Object, status: Object) -> Object:
        patch = node_object.report(stored, status, self._time())
        try:
            sent = await self._api.patch(
                NODES, self._settings.name, patch, type_=PatchType.STRATEGIC, subresource="status"
            )
        except ApiError as error:
            if error.code != 404:
                raise
            return stored  # deleted: the watch reports it, and the node is registered again
        self._reported = self._clock.monotonic()
        self._record_transitions(status["conditions"], (stored.get("status") or {}).get("conditions") or ())
        return sent

    def record(self, type_: str, reason: str, message: str) -> None:
        """Record an event about this node."""
        name = self._settings.name
        self._recorder.tell(Reference(kind="Node", name=name, uid=name), type_, reason, message)

    def _record_transitions(self, conditions_: Sequence[Object], before: Sequence[Object]) -> None:
        for reason in conditions.events(conditions_, before):
            self.record("Normal", reason, f"Node {self._settings.name} status is now: {reason}")

    def _store(self, object_: Object) -> None:
        """Store the Node as the API has it; an older version that arrives late is ignored."""
        self.registered.set()
        if self._object is not None and _older(object_, self._object):
            return
        self._object, self._node = object_, nodes.read(object_)
        ready = self._node.condition(conditions.READY)
        if ready is not None and ready.status == "True":
            self._stored_ready.set()

    def _look(self) -> NodeSnapshot:
        """Look at the machine; in a worker thread, or once when nothing is known yet."""
        addresses = self._settings.addresses or tuple(str(address) for address in self._machine.addresses()[:1])
        self._snapshot = NodeSnapshot(
            facts=self._machine.facts(),
            left=self._machine.left(self._settings.directory),
            addresses=addresses or ("127.0.0.1",),
            runtime=UNASKED,
        )
        return self._snapshot

    def _now(self) -> NodeSnapshot:
        """The last look at the machine, with what was set since."""
        snapshot = self._snapshot or self._look()
        return replace(
            snapshot,
            runtime=self._runtime,
            runtime_version=self._runtime_version,
            images=self._images,
            devices=self._devices,
            pressures=self._pressures,
        )

    def _time(self) -> str:
        return rfc3339(self._clock.wall())


def _facts(snapshot: NodeSnapshot, settings: NodeSettings) -> NodeFacts:
    status = node_object.status(snapshot, settings)
    return NodeFacts(
        name=settings.name,
        ips=snapshot.addresses,
        allocatable=status["allocatable"],
        memory_capacity=snapshot.facts.memory,
    )


def _older(one: Object, other: Object) -> bool:
    """Versions are compared only within the life of one object."""
    if one["metadata"].get("uid") != other["metadata"].get("uid"):
        return False
    with suppress(ValueError):
        return int(version_of(one)) < int(version_of(other))
    return False
