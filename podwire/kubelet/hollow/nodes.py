"""All hollow nodes of this process. They share one watch of pods, one of nodes and one of claims.

Heartbeats are spread over the period of the leases, so that the API server gets them evenly. Work on pods is a queue:
a pod is synced after a change in the API, a result of a probe, or at the time that its last sync has named.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from podwire.interfaces import Clock
from podwire.kubelet.events import ContainerEvents
from podwire.kubelet.hollow.behaviour import failing_probes
from podwire.kubelet.hollow.node import HollowNode
from podwire.kubelet.hollow.pod import HollowPod, SharedParts
from podwire.kubelet.hollow.registration import NodeRegistration
from podwire.kubelet.hollow.settings import INSTANCE, HollowSettings
from podwire.kubelet.node.agent import NODES
from podwire.kubelet.node.lease import NodeLease
from podwire.kubelet.pods.limits import PodLimits, StatusLimits
from podwire.kubelet.pods.status import needs_sync
from podwire.kubelet.pods.status_manager import PODS, StatusManager
from podwire.kubelet.probes import Probes
from podwire.kubelet.probes.check import Result, Subject
from podwire.linux.machine import Facts
from podwire.objects import pods
from podwire.objects.containers import Probe
from podwire.objects.pods import Pod
from podwire.protocols.k8sapi.client_side import Client, ClientError, Informer, Scope
from podwire.protocols.k8sapi.client_side.events import Reference
from podwire.protocols.k8sapi.client_side.recorder import Recorder
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Added, Deleted, Object, Synced, Updated, key_of
from podwire.tasks.backoff import Pauses
from podwire.tasks.retry import retry
from podwire.tasks.slices import Turns, in_slices

log = logging.getLogger("podwire.hollow")

CLAIMS = Kind(group="resource.k8s.io", version="v1", resource="resourceclaims", kind="ResourceClaim")
PLACED = Scope(field_selector="spec.nodeName!=")


class HollowNodes:
    def __init__(self, api: Client, clock: Clock, machine: Facts, settings: HollowSettings) -> None:
        self._api = api
        self._clock = clock
        self._settings = settings
        numbers = range(settings.first, settings.first + settings.nodes)
        recorder = _Events(api, clock, component="kubelet", host=_host, enabled=settings.events)
        self._registration = NodeRegistration(api, clock, machine, settings, recorder)
        self.nodes = {
            (node := HollowNode(settings, number, self._lease(number))).name: node for number in numbers
        }  # fmt: skip
        self._recorder = recorder
        self._pods: dict[str, HollowPod] = {}
        self._due: dict[str, None] = {}
        """Uids of pods that are to be synced, in this order."""
        self._woken = asyncio.Event()
        self._claims: Informer | None = None
        self._tasks: asyncio.TaskGroup
        self.registered = asyncio.Event()
        self.started = 0
        """Pods that have run here."""
        self._probes = Probes(self._probe, clock, self._wake, ContainerEvents(recorder).record)
        self._statuses = StatusManager(api, StatusLimits())
        self._shared = SharedParts(
            clock=clock,
            recorder=recorder,
            events=ContainerEvents(recorder),
            probes=self._probes,
            statuses=self._statuses,
            limits=PodLimits(),
            find_claim=self._find_claim,
            started=self._count_started,
            remove=self._remove,
            start=self._start,
        )

    def _lease(self, number: int) -> NodeLease:
        return NodeLease(self._api, self._clock, self._settings.name(number), self._settings.limits)

    async def run(self) -> None:
        """Works until cancelled; then removes its Nodes, unless they are to be kept."""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                for part in (self._recorder.run(), self._statuses.run(), self._probes.run()):
                    self._start(part)
                await self._registration.adopt(self.nodes)
                await self._registration.register(self.nodes.values())
                log.info("registered hollow nodes", extra={"nodes": len(self.nodes)})
                self.registered.set()
                for part in (self._follow_nodes(), self._follow_pods(), self._heartbeats(), self._work()):
                    self._start(part)
        finally:
            for pod in self._pods.values():
                if pod.timer is not None:
                    pod.timer.cancel()
            if not self._settings.keep:
                await self._registration.remove(self.nodes.values())

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self._tasks.create_task(work)

    async def _follow_nodes(self) -> None:
        scope = Scope(label_selector=f"{INSTANCE}={self._settings.instance}")
        async with self._api.informer(NODES, scope) as informer:
            async for change in informer:
                match change:
                    case Added(object_) | Updated(object_):
                        if (node := self.nodes.get(object_["metadata"]["name"])) is not None:
                            node.stored = object_
                    case Deleted(object_):
                        if (node := self.nodes.get(object_["metadata"]["name"])) is not None:
                            self._register_again(node)
                    case Synced():
                        there = {name for _namespace, name in informer.objects}
                        for node in self.nodes.values():
                            if node.name not in there:
                                self._register_again(node)

    def _register_again(self, node: HollowNode) -> None:
        """The API does not have a node any more."""
        node.stored = None
        self._start(self._registration.register((node,)))

    async def _follow_pods(self) -> None:
        turns = Turns()  # leases are renewed while thousands of pods are listed
        async with self._api.informer(PODS, PLACED) as informer:
            async for change in informer:
                await turns.next()
                match change:
                    case Added(object_) | Updated(object_):
                        self._present(object_)
                    case Deleted(object_):
                        if (pod := self._pods.pop(object_["metadata"].get("uid", ""), None)) is not None:
                            self._gone(pod)

    def _present(self, object_: Object) -> None:
        node = self.nodes.get(object_["spec"].get("nodeName", ""))
        if node is None:
            return
        try:
            pod = pods.read(object_)
        except msgspec.ValidationError as error:
            log.warning("cannot read pod of hollow node", extra={"pod": "/".join(key_of(object_)), "error": str(error)})
            return
        self._statuses.update(pod, object_)
        known = self._pods.get(pod.uid)
        if known is None:
            known = self._pods[pod.uid] = node.pods[pod.uid] = HollowPod(self._shared, node, pod)
            if pod.spec.resource_claims and self._claims is None:
                self._claims = self._api.informer(CLAIMS)
                self._start(self._follow_claims(self._claims))
        else:
            before = known.pod
            known.update(pod)
            if not needs_sync(before, pod):
                return
        self._wake(pod.uid)

    def _gone(self, pod: HollowPod) -> None:
        node = self.nodes.get(pod.pod.spec.node_name)
        pod.drop()
        for other in node.pods.values() if node is not None else ():
            if not other.state.admitted:
                self._wake(other.pod.uid)  # it may have waited for the resources

    async def _follow_claims(self, informer: Informer) -> None:
        """Claims are watched from the first pod with one on."""
        async with informer:
            async for change in informer:
                match change:
                    case Added(object_) | Updated(object_):
                        reserved = (object_.get("status") or {}).get("reservedFor") or ()
                        waiting = [self._pods.get(user.get("uid", "")) for user in reserved]
                    case Synced():
                        waiting = list(self._pods.values())
                    case _:
                        continue
                for pod in waiting:
                    if pod is not None and pod.state.allocation.waits:
                        pod.claims_changed()
                        self._wake(pod.pod.uid)

    def _find_claim(self, namespace: str, name: str) -> Object | None:
        return self._claims.objects.get((namespace, name)) if self._claims is not None else None

    def _count_started(self) -> None:
        self.started += 1

    async def _probe(self, probe: Probe, subject: Subject) -> Result:
        """A probe passes unless an annotation of the pod names it."""
        container = subject.container
        kinds = {"startup": container.startup_probe, "liveness": container.liveness_probe,
                 "readiness": container.readiness_probe}  # fmt: skip
        pod = self._pods.get(subject.container_id.rpartition("-")[0].rpartition("-")[0])
        failing = failing_probes(pod.pod, container) if pod is not None else frozenset()
        failed = next((name for name, own in kinds.items() if own is probe and name in failing), "")
        return Result(passed=not failed, text=f"simulated failure of the {failed} probe" if failed else "")

    def _wake(self, uid: str) -> None:
        self._due[uid] = None
        self._woken.set()

    async def _work(self) -> None:
        """Syncs pods that are due, in slices: requests and watches go on meanwhile."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            due, self._due = self._due, {}
            async for uid in in_slices(due):
                if (pod := self._pods.get(uid)) is not None:
                    self._sync(pod)

    def _sync(self, pod: HollowPod) -> None:
        if pod.timer is not None:
            pod.timer.cancel()
            pod.timer = None
        try:
            wake_at = pod.sync()
        except Exception:  # an error over one pod must not end the work for all others
            log.exception("cannot sync pod of hollow node", extra={"pod": pod.pod.ref})
            wake_at = self._clock.monotonic() + self._shared.limits.fault_retry
        if wake_at is not None:
            pause = max(0.0, wake_at - self._clock.monotonic())
            pod.timer = asyncio.get_running_loop().call_later(pause, self._wake, pod.pod.uid)

    async def _remove(self, pod: HollowPod) -> None:
        """Deletes a pod that has ended; its watch event removes it here."""

        def on_failure(error: BaseException, _pause: float) -> None:
            log.info("cannot delete pod of hollow node", extra={"pod": pod.pod.ref, "error": str(error)})

        pauses = Pauses(*StatusLimits().backoff)
        await retry(lambda: self._statuses.delete_pod(pod.pod), pauses, ApiError, ClientError, on_failure=on_failure)

    async def _heartbeats(self) -> None:
        """Renews the leases, each once a period, one after the other."""
        loop, period = asyncio.get_running_loop(), self._settings.limits.lease_period
        while True:
            began = loop.time()
            for at, node in enumerate(list(self.nodes.values())):
                await asyncio.sleep(began + at * period / len(self.nodes) - loop.time())
                if not node.busy:  # a slow server gets no second request
                    node.busy = True
                    self._start(self._heartbeat(node))
            await asyncio.sleep(began + period - loop.time())

    async def _heartbeat(self, node: HollowNode) -> None:
        try:
            if node.stored is not None:
                await node.lease.renew(node.stored["metadata"]["uid"])
                await self._registration.report_if_due(node)
        finally:
            node.busy = False


class _Events(Recorder):
    """Events of all nodes, or none."""

    def __init__(
        self, api: Client, clock: Clock, *, component: str, host: Callable[[Pod | Reference], str], enabled: bool
    ) -> None:
        super().__init__(api, clock, component=component, host=host)
        self._enabled = enabled

    def tell(self, about: Pod | Reference, type_: str, reason: str, message: str, **more: Any) -> None:
        if self._enabled:
            super().tell(about, type_, reason, message, **more)


def _host(about: Pod | Reference) -> str:
    return about.spec.node_name if isinstance(about, Pod) else about.name
