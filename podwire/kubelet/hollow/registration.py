"""Registers hollow nodes with their slices, reports their status, and removes them at the end."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping

from podwire.interfaces import Clock
from podwire.kubelet.hollow.node import HollowNode
from podwire.kubelet.hollow.settings import INSTANCE, HollowSettings
from podwire.kubelet.node import node_object
from podwire.kubelet.node.agent import NODES
from podwire.kubelet.node.lease import LEASES, NAMESPACE
from podwire.linux.machine import Facts
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.client_side import Client, ClientError, PatchType, Scope
from podwire.protocols.k8sapi.client_side.events import NORMAL, Reference
from podwire.protocols.k8sapi.client_side.recorder import Recorder
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object
from podwire.tasks.backoff import Pauses
from podwire.tasks.retry import retry

log = logging.getLogger("podwire.hollow")

SLICES = Kind(group="resource.k8s.io", version="v1", resource="resourceslices", kind="ResourceSlice", namespaced=False)

REMOVAL_SECONDS = 60.0
"""Nodes that could not be removed by then stay: a server that is away must not keep the process."""


class NodeRegistration:
    def __init__(self, api: Client, clock: Clock, machine: Facts, settings: HollowSettings, recorder: Recorder) -> None:
        self._api = api
        self._clock = clock
        self._machine = machine
        self._settings = settings
        self._recorder = recorder

    async def register(self, nodes: Iterable[HollowNode]) -> None:
        """Returns when the API has all of them, however long that takes."""
        await _in_parallel(nodes, self._register, self._settings.requests)

    async def adopt(self, nodes: Mapping[str, HollowNode]) -> None:
        """Finds nodes that an earlier process has left, by one request: most of them need no other."""
        scope = Scope(label_selector=f"{INSTANCE}={self._settings.instance}")

        def on_failure(error: BaseException, _pause: float) -> None:
            log.warning("cannot list hollow nodes", extra={"error": str(error)})

        pauses = Pauses(*self._settings.limits.backoff)
        listing = await retry(
            lambda: self._api.list(NODES, scope), pauses, ApiError, ClientError, on_failure=on_failure
        )
        for object_ in listing.items:
            if (node := nodes.get(object_["metadata"]["name"])) is not None:
                node.stored = object_

    async def _register(self, node: HollowNode) -> None:
        def on_failure(error: BaseException, _pause: float) -> None:
            log.warning("cannot register hollow node", extra={"node": node.name, "error": str(error)})

        pauses = Pauses(*self._settings.limits.backoff)
        await retry(lambda: self._create_or_take_over(node), pauses, ApiError, ClientError, on_failure=on_failure)

    async def _create_or_take_over(self, node: HollowNode) -> None:
        seen, settings = self._settings.snapshot(node.number, self._machine), self._settings.node(node.number)
        known = node.stored
        try:
            stored = known or await self._api.create(node_object.node(seen, settings, self._time()))
        except ApiError as error:
            if error.code != 409:
                raise
            stored = known = await self._api.get(NODES, node.name)
        if known is not None:
            patch = node_object.reconciled(known, seen, settings)
            if patch is not None:
                stored = await self._api.patch(NODES, node.name, patch)
            status = node_object.status(seen, settings)
            if node_object.differs(stored, status):
                stored = await self._report(node, stored, status)
        node.stored, node.reported = stored, self._clock.monotonic()
        about = Reference(kind="Node", name=node.name, uid=node.name)
        self._recorder.tell(about, NORMAL, "Starting", "Starting kubelet.")
        if self._settings.dra_devices:
            await self._publish(node, stored["metadata"]["uid"])
        await node.lease.renew(stored["metadata"]["uid"])

    async def _publish(self, node: HollowNode, node_uid: str) -> None:
        """Creates the ResourceSlice of a node, or replaces one that an earlier process has left."""
        wanted = self._settings.resource_slice(node.number, node_uid)
        try:
            await self._api.create(wanted)
        except ApiError as error:
            if error.code != 409:
                raise
            stored = await self._api.get(SLICES, wanted["metadata"]["name"])
            owners = wanted["metadata"]["ownerReferences"]
            if stored["spec"] != wanted["spec"] or stored["metadata"].get("ownerReferences") != owners:
                pool = {**wanted["spec"]["pool"], "generation": stored["spec"]["pool"].get("generation", 0) + 1}
                version = stored["metadata"]["resourceVersion"]
                metadata = {**wanted["metadata"], "resourceVersion": version}
                spec = {**wanted["spec"], "pool": pool}
                await self._api.replace({**wanted, "metadata": metadata, "spec": spec})

    async def report_if_due(self, node: HollowNode) -> None:
        """Reports the status if somebody has changed it, else once a report period."""
        if node.stored is None:
            return
        status = node_object.status(
            self._settings.snapshot(node.number, self._machine), self._settings.node(node.number)
        )
        old = self._clock.monotonic() - node.reported >= self._settings.limits.report_period
        if not old and not node_object.differs(node.stored, status):
            return
        try:
            node.stored = await self._report(node, node.stored, status)
        except (ApiError, ClientError) as error:
            log.info("cannot report status of hollow node", extra={"node": node.name, "error": str(error)})
        else:
            node.reported = self._clock.monotonic()

    async def _report(self, node: HollowNode, stored: Object, status: Object) -> Object:
        patch = node_object.report(stored, status, self._time())
        return await self._api.patch(NODES, node.name, patch, type_=PatchType.STRATEGIC, subresource="status")

    async def remove(self, nodes: Iterable[HollowNode]) -> None:
        """Deletes the Nodes of this process with their leases and slices."""
        there = [node for node in nodes if node.stored is not None]
        try:
            async with asyncio.timeout(REMOVAL_SECONDS):
                await _in_parallel(there, self._remove, self._settings.requests)
        except TimeoutError:
            scope = Scope(label_selector=f"{INSTANCE}={self._settings.instance}")
            log.warning("cannot remove all hollow nodes in time", extra={"selector": scope.label_selector})
        else:
            log.info("removed hollow nodes", extra={"nodes": len(there)})

    async def _remove(self, node: HollowNode) -> None:
        uid = node.stored["metadata"]["uid"] if node.stored is not None else ""
        targets = [(NODES, "", node.name, uid), (LEASES, NAMESPACE, node.name, "")]
        if self._settings.dra_devices:
            targets.append((SLICES, "", f"{node.name}-{self._settings.dra_driver}", ""))
        for kind, namespace, name, own_uid in targets:
            try:
                await self._api.delete(kind, name, namespace, uid=own_uid)
            except (ApiError, ClientError) as error:
                if not isinstance(error, ApiError) or error.code != 404:
                    facts = {"kind": kind.kind, "name": name, "error": str(error)}
                    log.warning("cannot remove object of hollow node", extra=facts)

    def _time(self) -> str:
        return rfc3339(self._clock.wall())


async def _in_parallel(
    nodes: Iterable[HollowNode], work: Callable[[HollowNode], Awaitable[None]], workers: int
) -> None:
    remaining = iter(list(nodes))

    async def worker() -> None:
        for node in remaining:
            await work(node)

    async with asyncio.TaskGroup() as group:
        for _ in range(workers):
            group.create_task(worker())
