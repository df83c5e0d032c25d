"""Cache of the runtime's sandboxes and containers, kept up to date by its events (the evented PLEG of other kubelets).

A runtime that sends no events is listed after each action and every second. A runtime may serve others than this
kubelet: sandboxes without its owner tag are ignored, and so never removed. An event is only a hint that something
changed: the pod's worker then asks for the present state, so that a late event never overwrites a later answer.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Protocol

from podwire.kubelet.pods.limits import RuntimeLimits
from podwire.kubelet.pods.network_checks import NetworkChecks
from podwire.kubelet.pods.observed import (
    NOTHING,
    OWNER,
    UID,
    IdAndState,
    ObservedContainer,
    ObservedPod,
    Sandbox,
    newest_first,
    observe_container,
    observe_sandbox,
)
from podwire.kubelet.pods.wakeups import Wakeups
from podwire.kubelet.ports import Cri
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.cri import methods
from podwire.protocols.grpc_status import NotFound, RpcError, Unimplemented

log = logging.getLogger(__name__)


class Connection(Protocol):
    """Notified when the runtime answers and when it does not any more; RuntimeHealth is one."""

    def connected(self) -> None: ...

    def disconnected(self, error: str) -> None: ...


class RuntimeCache:
    def __init__(
        self,
        cri: Cri,
        owner: str,
        wakeups: Wakeups,
        connection: Connection,
        network_checks: NetworkChecks,
        limits: RuntimeLimits,
    ) -> None:
        """`owner` is the owner tag of this kubelet's sandboxes."""
        self._cri = cri
        self._owner = owner
        self._wakeups = wakeups
        self._connection = connection
        self._network_checks = network_checks
        self._limits = limits
        self._pods: dict[str, ObservedPod] = {}
        self._acted_on: set[str] = set()
        self._deferred: dict[str, dict[str, pb.ContainerEventResponse]] = {}
        """The last event about each sandbox of pods that are being refreshed: the answer may include its change."""
        self._action = asyncio.Event()
        self._audit_requested = asyncio.Event()
        self._containers_in_status = True
        """Whether PodSandboxStatus includes the containers' statuses (CRI of Kubernetes 1.26 and later)."""
        self._listening = False
        self._logged_no_events = False
        self._listed = False
        """The runtime was listed since the last connection."""
        self._stray_candidates: set[str] = set()
        self.strays: set[str] = set()
        """Containers of this kubelet without a sandbox, in the last two listings."""
        self.complete = asyncio.Event()
        """The runtime was listed at least once."""

    def observed(self, uid: str) -> ObservedPod:
        return self._pods.get(uid, NOTHING)

    def first_id(self, uid: str) -> int:
        """The first user id of a pod with a user namespace, by its sandboxes; 0 if there is none."""
        return next((sandbox.first_id for sandbox in self.observed(uid).sandboxes if sandbox.first_id), 0)

    @property
    def uids(self) -> set[str]:
        return set(self._pods)

    @property
    def current(self) -> bool:
        """Whether a pod that no event mentioned does not exist in the runtime."""
        return self._listening

    def forget(self, uid: str) -> None:
        """Everything of the pod was removed."""
        self._pods.pop(uid, None)
        self._acted_on.discard(uid)

    def audit(self) -> None:
        """Have the runtime listed soon: an event may have been reported to a worker that was about to end."""
        self._audit_requested.set()

    async def refresh(self, uid: str) -> ObservedPod:
        """Ask the runtime for the present state of one pod. Raises RpcError."""
        return self._store(uid, await self._fetch(uid))

    async def refresh_sandbox(self, uid: str, sandbox: str) -> ObservedPod:
        """Refresh after an action in a sandbox: in one call, where the runtime supports it. Raises RpcError."""
        if not self._listening:
            self._acted_on.add(uid)
            self._action.set()
        with self._deferred_events(uid):
            if not self._containers_in_status:
                return await self.refresh(uid)
            request = pb.PodSandboxStatusRequest(pod_sandbox_id=sandbox)
            response = await self._cri.call(methods.POD_SANDBOX_STATUS, request, timeout=self._limits.call)
            if not response.timestamp:
                return await self.refresh(uid)
            before = self.observed(uid)
            others = [other for other in before.sandboxes if other.id != sandbox]
            elsewhere = [container for container in before.containers if container.sandbox != sandbox]
            here = [observe_container(status, sandbox) for status in response.containers_statuses]
            sandboxes = [*others, observe_sandbox(response.status)]
            return self._store(uid, newest_first(sandboxes, [*elsewhere, *here]))

    async def run(self) -> None:
        """Follow the runtime until cancelled."""
        first, longest = self._limits.reconnect
        pause, logged = first, ""
        while True:
            self._listed = False
            try:
                await self._follow()
            except RpcError as error:
                self._connection.disconnected(str(error))
                if str(error) != logged:  # once, not with every attempt
                    logged = str(error)
                    log.info("container runtime does not answer", extra={"error": logged})
            if self._listed:
                pause, logged = first, ""
            else:
                pause = min(pause * 2, longest)
            await asyncio.sleep(pause)

    async def _follow(self) -> None:
        """Follow one connection. The runtime may have been replaced by another version: its features are unknown."""
        self._containers_in_status = True
        events = self._cri.stream(methods.GET_CONTAINER_EVENTS, pb.GetEventsRequest())
        reading = asyncio.create_task(self._read(events))
        try:
            await asyncio.sleep(0)  # subscribe before listing
            await self._list()
            self._listening = not reading.done()
            # The two calls may overtake each other: a change between the listing and the subscription is found by
            # listing once more.
            await asyncio.wait((reading,), timeout=self._limits.relist)
            if not reading.done():
                await self._list()
                self._network_checks.check_all(self._pods)
            await self._audit(reading)
            await reading
        except Unimplemented:
            self._listening = False
            if not self._logged_no_events:
                self._logged_no_events = True
                log.warning("runtime sends no container events, listing it every second instead")
            await self._relist()
        finally:
            self._listening = False
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _audit(self, reading: "asyncio.Task[None]") -> None:
        """List the runtime from time to time, and soon after pods have ended: once for all that end together."""
        while not reading.done():
            requested = asyncio.ensure_future(self._audit_requested.wait())
            try:
                tasks = (reading, requested)
                await asyncio.wait(tasks, timeout=self._limits.audit, return_when=asyncio.FIRST_COMPLETED)
            finally:
                requested.cancel()
            await asyncio.wait((reading,), timeout=self._limits.relist)
            if not reading.done():
                self._audit_requested.clear()
                await self._list()

    async def _read(self, events: AsyncIterator[pb.ContainerEventResponse]) -> None:
        async for event in events:
            sandbox = event.pod_sandbox_status
            uid = sandbox.metadata.uid
            if not uid or not self._owns(sandbox.annotations):
                continue
            if self._is_network_check(uid, event):
                self._network_checks.check(uid, sandbox.id)
            if uid in self._deferred:
                self._deferred[uid][sandbox.id] = event
            elif not self._is_known(uid, event):
                self._wakeups.runtime_changed(uid)

    def _is_network_check(self, uid: str, event: pb.ContainerEventResponse) -> bool:
        """Whether an event reports the creation of a sandbox that exists already: see `network_checks.py`."""
        id_ = event.pod_sandbox_status.id
        created = event.container_id == id_ and event.container_event_type == pb.CONTAINER_CREATED_EVENT
        return created and any(sandbox.id == id_ and sandbox.ready for sandbox in self.observed(uid).sandboxes)

    @contextlib.contextmanager
    def _deferred_events(self, uid: str) -> Iterator[None]:
        """Events of an action arrive while its pod is refreshed, and would cause another refresh."""
        deferred = self._deferred.setdefault(uid, {})
        try:
            yield
        finally:
            self._deferred.pop(uid, None)
            for event in deferred.values():
                if not self._is_known(uid, event):
                    self._wakeups.runtime_changed(uid)

    def _owns(self, annotations: Mapping[str, str]) -> bool:
        return annotations.get(OWNER) == self._owner

    def _is_known(self, uid: str, event: pb.ContainerEventResponse) -> bool:
        """Whether the cache has the state that an event reports."""
        sandbox = observe_sandbox(event.pod_sandbox_status)
        reported = {status.id: observe_container(status, sandbox.id) for status in event.containers_statuses}
        observed = self.observed(uid)
        cached = {container.id: container for container in observed.containers if container.sandbox == sandbox.id}
        return sandbox in observed.sandboxes and reported == cached

    async def _relist(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            until = loop.time() + self._limits.relist
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    while True:
                        await self._action.wait()
                        await asyncio.sleep(self._limits.after_action)
                        await self._check_acted_on()
            await self._list()

    async def _check_acted_on(self) -> None:
        uids, self._acted_on = self._acted_on, set()
        self._action.clear()
        for uid in uids:
            if await self._fetch(uid) != self.observed(uid):
                self._wakeups.runtime_changed(uid)

    async def _list(self) -> None:
        """Report the pods whose lists of ids and states differ from the cache, including those that are gone."""
        containers = await self._list_containers(None)  # first: the sandbox of each is older, so it is listed, or gone
        sandboxes = await self._list_sandboxes(None)
        uids = {sandbox.id: sandbox.metadata.uid for sandbox in sandboxes}
        listed: dict[str, set[IdAndState]] = {uid: set() for uid in (*self._pods, *uids.values())}
        for sandbox in sandboxes:
            listed[uids[sandbox.id]].add((sandbox.id, sandbox.state))
        strays = set()
        for container in containers:
            if container.pod_sandbox_id in uids:
                listed[uids[container.pod_sandbox_id]].add((container.id, container.state))
            elif self._owns(container.annotations):
                strays.add(container.id)
        self._note_strays(strays)
        for uid, states in listed.items():
            if states == self.observed(uid).states:
                continue
            if not self.complete.is_set():
                await self.refresh(uid)
            # Later on the listing may be older than what a worker has seen meanwhile, so it is a hint as well.
            self._wakeups.runtime_changed(uid)
        self._listed = True
        self.complete.set()
        self._connection.connected()
        self._wakeups.orphans_possible()

    def _note_strays(self, listed: set[str]) -> None:
        """The sandbox of a container may have been removed between the two listings, and the container with it: one is
        a stray when it is listed twice."""
        self.strays = listed & self._stray_candidates
        self._stray_candidates = listed
        if listed - self.strays:
            self.audit()

    def _store(self, uid: str, now: ObservedPod) -> ObservedPod:
        if now == NOTHING:
            self._pods.pop(uid, None)
        else:
            self._pods[uid] = now
        return now

    async def _fetch(self, uid: str) -> ObservedPod:
        sandboxes: list[Sandbox] = []
        containers: list[ObservedContainer] = []
        listed = await self._list_sandboxes(uid)
        included = self._containers_in_status
        for sandbox in listed:
            try:
                request = pb.PodSandboxStatusRequest(pod_sandbox_id=sandbox.id)
                response = await self._cri.call(methods.POD_SANDBOX_STATUS, request, timeout=self._limits.call)
            except NotFound:
                continue
            sandboxes.append(observe_sandbox(response.status))
            included = included and response.timestamp != 0  # set only by a runtime that includes the containers
            containers += [observe_container(status, sandbox.id) for status in response.containers_statuses]
        if listed and not included:
            self._containers_in_status = False
            containers = []
            for container in await self._list_containers(uid):
                try:
                    asked = pb.ContainerStatusRequest(container_id=container.id)
                    answer = await self._cri.call(methods.CONTAINER_STATUS, asked, timeout=self._limits.call)
                except NotFound:
                    continue
                containers.append(observe_container(answer.status, container.pod_sandbox_id))
        return newest_first(sandboxes, containers)

    async def _list_sandboxes(self, uid: str | None) -> list[pb.PodSandbox]:
        request = pb.ListPodSandboxRequest()
        if uid is not None:
            request.filter.label_selector[UID] = uid
        response = await self._cri.call(methods.LIST_POD_SANDBOX, request, timeout=self._limits.call)
        return [sandbox for sandbox in response.items if self._owns(sandbox.annotations)]

    async def _list_containers(self, uid: str | None) -> list[pb.Container]:
        request = pb.ListContainersRequest()
        if uid is not None:
            request.filter.label_selector[UID] = uid
        response = await self._cri.call(methods.LIST_CONTAINERS, request, timeout=self._limits.call)
        return list(response.containers)
