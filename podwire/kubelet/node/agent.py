"""Registers this node, says how it is, and keeps its lease."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from podwire.interfaces import Clock
from podwire.kubelet.config.fields import NodeFacts
from podwire.kubelet.node import conditions, node_object
from podwire.kubelet.node.conditions import UNASKED, Readiness
from podwire.kubelet.node.lease import FIRST_PAUSE, LONGEST_PAUSE, PERIOD, NodeLease
from podwire.kubelet.node.node_object import NodeSnapshot
from podwire.kubelet.node.settings import Machine, NodeSettings
from podwire.kubelet.ports import Api
from podwire.objects import nodes
from podwire.objects.nodes import ContainerImage, Node
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.client_side import ClientError, PatchType, Scope
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Added, Deleted, Object, Synced, Updated, version_of

_log = logging.getLogger("podwire.kubelet.node")

NODES = Kind(group="", version="v1", resource="nodes", kind="Node", namespaced=False)
REPORT_PERIOD = 300.0
"""Seconds after which the status is sent though nothing has changed."""

Tell = Callable[[str, str, str], None]
"""Type, reason and message of an event about the node."""


class NodeAgent:
    """Until it is told otherwise, the node is not ready: whoever starts it asks the runtime first."""

    def __init__(self, api: Api, clock: Clock, machine: Machine, settings: NodeSettings, tell: Tell) -> None:
        self._api = api
        self._clock = clock
        self._machine = machine
        self._settings = settings
        self._tell = tell
        self._lease = NodeLease(api, clock, settings.name)
        self._runtime: Readiness = UNASKED
        self._runtime_version = ""
        self._images: tuple[ContainerImage, ...] = ()
        self._devices: Mapping[str, tuple[int, int] | None] = {}
        self._seen: NodeSnapshot | None = None
        self._facts: tuple[NodeSnapshot, NodeFacts] | None = None
        self._object: Object | None = None
        self._node: Node | None = None
        self._reported = 0.0
        self._news, self._stored_ready = asyncio.Event(), asyncio.Event()
        self.registered = asyncio.Event()
        """The API has had the node once."""

    def runtime_is(self, ready: bool, reason: str = "", message: str = "") -> None:
        """Whether containers can be run; `readiness` reads it from the runtime's status. A change is sent at once."""
        now = Readiness(ready, reason, message)
        if now != self._runtime:
            self._runtime = now
            self._news.set()

    def images_are(self, images: Sequence[ContainerImage]) -> None:
        """Sent with the next look at the machine: whoever pulls an image has more urgent things to say."""
        self._images = tuple(images)

    def devices_are(self, amounts: Mapping[str, tuple[int, int] | None]) -> None:
        """What device plugins bring: capacity and what of it pods may have, None for what is gone. Sent at once."""
        if amounts != self._devices:
            self._devices = dict(amounts)
            self._news.set()

    def runtime_version(self, name: str, version: str) -> None:
        self._runtime_version = f"{name}://{version}"

    @property
    def facts(self) -> NodeFacts:
        """What pods may learn of their node."""
        seen = self._seen or self._look()
        if self._facts is None or self._facts[0] is not seen:
            self._facts = (seen, _facts(seen, self._settings))
        return self._facts[1]

    @property
    def node(self) -> Node | None:
        """As the API has it; None while it does not."""
        return self._node

    async def ready(self) -> None:
        """Returns when the API has stored that the node is ready."""
        await self._stored_ready.wait()

    async def run(self) -> None:
        """Be a node until cancelled; if one part fails, all stop."""
        await self._register()
        async with asyncio.TaskGroup() as parts:
            parts.create_task(self._follow(), name="follow the node object")
            parts.create_task(self._beat(), name="renew the lease")
            parts.create_task(self._report_news(), name="report the status")

    async def _register(self) -> None:
        """Create the node, or take over the one that is there; again until the API has it."""
        await asyncio.to_thread(self._look)
        pause = FIRST_PAUSE
        while True:
            try:
                await self._create_or_take_over()
            except (ApiError, ClientError) as error:
                _log.warning("cannot register", extra={"node": self._settings.name, "why": str(error)})
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
            else:
                _log.info("registered", extra={"node": self._settings.name})
                return

    async def _create_or_take_over(self) -> None:
        seen = self._now()
        node = node_object.node(seen, self._settings, self._time())
        try:
            created = await self._api.create(node)
        except ApiError as error:
            if error.code != 409:
                raise
            await self._take_over(seen)
            return
        self._tell("Normal", "Starting", "Starting kubelet.")
        self._changed(node["status"]["conditions"], ())
        self._reported = self._clock.monotonic()
        self._have(created)

    async def _take_over(self, seen: NodeSnapshot) -> None:
        found = await self._api.get(NODES, self._settings.name)
        patch = node_object.reconciled(found, seen, self._settings)
        if patch is not None:
            found = await self._api.patch(NODES, self._settings.name, patch)
        self._tell("Normal", "Starting", "Starting kubelet.")
        before = ((found.get("status") or {}).get("nodeInfo") or {}).get("bootID", "")
        if before and before != seen.facts.boot_id:
            told = f"Node {self._settings.name} has been rebooted, boot id: {seen.facts.boot_id}"
            self._tell("Warning", "Rebooted", told)
        self._have(await self._report(found, node_object.status(self._now(), self._settings)))

    async def _follow(self) -> None:
        """Keep the copy of the node object; one that is deleted is registered again."""
        scope = Scope(field_selector=f"metadata.name={self._settings.name}")
        async with self._api.informer(NODES, scope) as informer:
            async for change in informer:
                match change:
                    case Added(object_) | Updated(object_, _):
                        self._heard(object_)
                    case Deleted(object_):
                        await self._deleted(object_)
                    case Synced() if not informer.objects:
                        await self._deleted(None)

    def _heard(self, object_: Object) -> None:
        self._have(object_)
        if self._clock.monotonic() - self._reported >= PERIOD:  # whoever keeps contradicting us is answered in turn
            self._news.set()

    async def _deleted(self, object_: Object | None) -> None:
        known = self._object
        if object_ is not None and known is not None and known["metadata"]["uid"] != object_["metadata"]["uid"]:
            return  # an earlier one, of which we hear only now
        self._object = self._node = None
        await self._register()
        self._news.set()

    async def _beat(self) -> None:
        """Renew the lease, look at the machine; again after a while. The pause does not depend on the time of day."""
        while True:
            if self._object is not None:
                await self._lease.renew(self._object["metadata"]["uid"])
            await asyncio.sleep(PERIOD)
            await asyncio.to_thread(self._look)
            self._news.set()

    async def _report_news(self) -> None:
        """Send the status at once when it says something new, else now and then."""
        pause = FIRST_PAUSE
        while True:
            self._news.clear()
            try:
                await self._report_if_due()
            except (ApiError, ClientError) as error:
                _log.info("status not sent", extra={"node": self._settings.name, "why": str(error)})
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
            else:
                pause = FIRST_PAUSE
                await self._news.wait()

    async def _report_if_due(self) -> None:
        if self._object is None:
            return  # being registered again, which says everything
        said = node_object.status(self._now(), self._settings)
        old = self._clock.monotonic() - self._reported >= REPORT_PERIOD
        if old or node_object.differs(self._object, said):
            self._have(await self._report(self._object, said))

    async def _report(self, found: Object, said: Object) -> Object:
        patch = node_object.report(found, said, self._time())
        try:
            sent = await self._api.patch(
                NODES, self._settings.name, patch, type_=PatchType.STRATEGIC, subresource="status"
            )
        except ApiError as error:
            if error.code != 404:
                raise
            return found  # deleted: we hear of it, and register again
        self._reported = self._clock.monotonic()
        self._changed(said["conditions"], (found.get("status") or {}).get("conditions") or ())
        return sent

    def _changed(self, said: Sequence[Object], before: Sequence[Object]) -> None:
        for reason in conditions.events(said, before):
            self._tell("Normal", reason, f"Node {self._settings.name} status is now: {reason}")

    def _have(self, object_: Object) -> None:
        """The node as the API has it; an older state, heard of late, changes nothing."""
        self.registered.set()
        if self._object is not None and _older(object_, self._object):
            return
        self._object, self._node = object_, nodes.read(object_)
        ready = self._node.condition(conditions.READY)
        if ready is not None and ready.status == "True":
            self._stored_ready.set()

    def _look(self) -> NodeSnapshot:
        """What the machine says; in a worker thread, or once where nobody looked before."""
        addresses = self._settings.addresses or tuple(str(each) for each in self._machine.addresses()[:1])
        self._seen = NodeSnapshot(
            facts=self._machine.facts(),
            left=self._machine.left(self._settings.directory),
            addresses=addresses or ("127.0.0.1",),
            runtime=UNASKED,
        )
        return self._seen

    def _now(self) -> NodeSnapshot:
        """The last look at the machine, with what we were told since."""
        seen = self._seen or self._look()
        return replace(
            seen,
            runtime=self._runtime,
            runtime_version=self._runtime_version,
            images=self._images,
            devices=self._devices,
        )

    def _time(self) -> str:
        return rfc3339(self._clock.wall())


def _facts(seen: NodeSnapshot, settings: NodeSettings) -> NodeFacts:
    said = node_object.status(seen, settings)
    return NodeFacts(
        name=settings.name,
        ips=seen.addresses,
        allocatable=said["allocatable"],
        memory_capacity=seen.facts.memory,
    )


def _older(one: Object, other: Object) -> bool:
    """Versions are compared only within the life of one object."""
    if one["metadata"].get("uid") != other["metadata"].get("uid"):
        return False
    with suppress(ValueError):
        return int(version_of(one)) < int(version_of(other))
    return False
