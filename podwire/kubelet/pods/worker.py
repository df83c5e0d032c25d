"""One pod of this node, from the first sight of it until nothing of it is left: looks, plans, acts, and sleeps.

Wakes when the pod changes, when something that it waits for changes, when the runtime tells of it, or at a time that
the plan has named.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable

import msgspec

from podwire import logs
from podwire.kubelet.config.dns import NameTooLong
from podwire.kubelet.config.environment import ConfigError
from podwire.kubelet.pods.actions import (
    Action,
    EndContainers,
    KillContainer,
    RemoveContainer,
    RemoveSandbox,
    RunSandbox,
    StartContainer,
    StopSandbox,
)
from podwire.kubelet.pods.admission import Rejection
from podwire.kubelet.pods.allocation import PodAllocation
from podwire.kubelet.pods.dependencies import Kit
from podwire.kubelet.pods.observed import ObservedPod
from podwire.kubelet.pods.plan import outcome, plan
from podwire.kubelet.pods.start import CannotStart, ContainerStarter, NoHandler
from podwire.kubelet.pods.state import PodState
from podwire.kubelet.pods.status import moved, pod_status, rejected
from podwire.kubelet.pods.status_manager import PODS
from podwire.kubelet.pods.termination import PodTermination
from podwire.kubelet.volumes import VolumesNotReady
from podwire.objects.pods import Pod, PodStatus
from podwire.objects.times import rfc3339
from podwire.protocols.grpc_status import NotFound, RpcError
from podwire.protocols.k8sapi.client_side import ClientError
from podwire.protocols.k8sapi.client_side.events import WARNING
from podwire.protocols.k8sapi.status import ApiError

log = logging.getLogger(__name__)

RETRY = "podwire.dev/retry"
"""The annotation by which a person asks to try again now."""

FAULT_SECONDS = 5.0
"""Until a pod is looked at again after something that nobody foresaw."""
UNREACHABLE_SECONDS = 0.5
"""Between two calls to an API server or a runtime that does not answer."""


class PodWorker:
    """`run` ends when nothing of the pod is left."""

    def __init__(self, kit: Kit, pod: Pod, admit: Callable[[Pod], Rejection | None]) -> None:
        self._kit = kit
        self._admit = admit
        self._starting = ContainerStarter(kit)
        self._ending = PodTermination(kit)
        self._woken = asyncio.Event()
        self.to_end = asyncio.Event()
        self._dirty = not kit.view.current
        self._gone = False
        """The API has no such pod any more."""
        self._adopted_ending = pod.deleting
        self._seen = kit.clock.monotonic()
        self.pod = pod
        self.memory = PodState(kit, pod)
        self._provisions = PodAllocation(kit, self.memory)
        if pod.deleting:
            self.to_end.set()

    def update(self, pod: Pod) -> None:
        """The API has changed it."""
        if pod.metadata.annotations.get(RETRY) != self.pod.metadata.annotations.get(RETRY):
            self.memory.retry()
        if pod.status.resource_claim_statuses != self.pod.status.resource_claim_statuses:
            self.memory.may_start()
        before, self.pod = self.pod, pod
        if pod.deleting:
            self.to_end.set()
        if moved(before, pod):
            self._woken.set()

    def deleted(self) -> None:
        """The API has it no more: what runs ends, and nobody is told."""
        self._gone = True
        self.to_end.set()
        self._woken.set()

    def wake(self, *, look: bool = False) -> None:
        """Something changed; with `look`, in the runtime."""
        self._dirty = self._dirty or look
        self._woken.set()

    @property
    def taken(self) -> bool:
        """It was let in, by this kubelet or by the one before it."""
        return self.memory.admitted or self.pod.status.start_time is not None

    @property
    def ended(self) -> bool:
        """It needs nothing of the node any more."""
        return outcome(self.pod, self._kit.view.observed(self.pod.uid)) is not None

    async def run(self) -> None:
        with logs.about(pod=self.pod.ref):
            self._kit.references.hold(self.pod)
            try:
                await self._live()
                await self._end()
            finally:
                self._kit.references.release(self.pod.uid)
                self._kit.probes.forget(self.pod.uid)
                self._kit.reports.forget(self.pod.uid)

    async def _live(self) -> None:
        """Until the pod is to end; whatever is being done for it then is given up."""
        while not self.to_end.is_set():
            self._woken.clear()
            ending = asyncio.ensure_future(self.to_end.wait())
            sync = asyncio.ensure_future(self._guarded_sync())
            try:
                await asyncio.wait((sync, ending), return_when=asyncio.FIRST_COMPLETED)
            finally:
                ending.cancel()
                if not sync.done():
                    sync.cancel()
                    await asyncio.wait((sync,))
            if not sync.cancelled():
                await self._sleep(sync.result())

    async def _guarded_sync(self) -> float | None:
        """When to look again."""
        now = self._kit.clock.monotonic
        try:
            return await self._sync()
        except RpcError as error:
            log.info("the runtime refused", extra={"why": str(error)})
            self._dirty = True
            return now() + UNREACHABLE_SECONDS
        except Exception:
            # A fault over one pod must not end the work for all others.
            log.exception("pod not synced")
            self._dirty = True
            return now() + FAULT_SECONDS

    async def _sleep(self, until: float | None) -> None:
        pause = None if until is None else max(0.0, until - self._kit.clock.monotonic())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._woken.wait()

    async def _look(self) -> ObservedPod:
        if self._dirty:
            self._dirty = False
            return await self._kit.view.look(self.pod.uid)
        return self._kit.view.observed(self.pod.uid)

    async def _sync(self) -> float | None:
        """1. Is it to run here?  2. Look, plan, act, until there is nothing to do.  3. When to look again."""
        self._kit.references.hold(self.pod)
        observed = await self._look()
        if self._turned_away(observed):
            return None
        if self.pod.status.phase == "Running":
            await self._refresh_volumes()
        while True:
            self._kit.probes.follow(self.pod, {each.name: each for each in observed.running}, self._ips(observed))
            await self.memory.remember(self.pod, observed)
            facts = self.memory.facts(self.pod, observed)
            todo = plan(self.pod, observed, facts)
            if not todo.actions or not self._may_act(todo.actions):
                return await self._rest(observed, todo.wake_at)
            if isinstance(todo.actions[-1], RunSandbox):
                again = await self._provisions.take(self.pod)
                self._report(observed)
                if again is not None:
                    return again
            worked = await self._act(todo.actions, observed)
            observed = await self._look()
            if not worked:
                self._report(observed)

    async def _rest(self, observed: ObservedPod, wake_at: float | None) -> float | None:
        """There is nothing to do. That a pod has ended nobody hears before its claims and devices are free."""
        freed = True
        if self.ended or self.memory.failure is not None:
            again = await self._provisions.let_go(self.pod)
            if again is not None:
                return again
            freed = await self._ending.free_devices(self.pod.uid)
        elif observed.running and (again := await self._provisions.keep(self.pod)) is not None:
            wake_at = min(again, wake_at or again)
        self._report(observed)
        return wake_at if freed else self._kit.clock.monotonic() + FAULT_SECONDS

    def _turned_away(self, observed: ObservedPod) -> bool:
        if self.memory.admitted or observed.sandboxes or self.pod.finished:
            self.memory.admitted = True
            return False
        if self.memory.rejected:
            return True
        rejection = self._admit(self.pod)
        if rejection is None:
            self.memory.admitted = True
            return False
        if rejection.passes:
            log.info("the pod waits until others have ended", extra={"why": rejection.told})
            return True
        self.memory.rejected = True
        self._kit.recorder.tell(self.pod, WARNING, rejection.reason, rejection.told)
        status = rejected(self.pod, rejection.reason, rejection.message, rfc3339(self._kit.clock.wall()))
        self._kit.reports.report(self.pod, status)
        return True

    def _may_act(self, actions: tuple[Action, ...]) -> bool:
        """Without a network there is no sandbox, except for pods that need none."""
        trouble = self._kit.network_trouble
        if not trouble or self.pod.spec.host_network or not isinstance(actions[-1], RunSandbox):
            return True
        message = f"network is not ready: {trouble}"
        self._kit.recorder.tell(self.pod, WARNING, "NetworkNotReady", message)
        return False

    async def _refresh_volumes(self) -> None:
        try:
            await self._kit.volumes.refresh(self.pod)
        except VolumesNotReady as error:
            log.info("volumes keep what they have", extra={"why": str(error)})

    async def _act(self, actions: tuple[Action, ...], observed: ObservedPod) -> bool:
        """Whether everything worked, so that looking again makes sense at once."""
        worked = True
        for each in actions:
            match each:
                case RunSandbox(attempt):
                    worked = await self._run_sandbox(attempt)
                case StartContainer():
                    worked = await self._start(each, observed) and worked
                case KillContainer(container, seen, why, grace):
                    period = self.pod.spec.termination_grace_period_seconds if grace is None else grace
                    await self._ending.container(self.pod, container, seen, why, period)
                case EndContainers(running):
                    await self._ending.containers(self.pod, running, self.pod.spec.termination_grace_period_seconds)
                case StopSandbox(id_):
                    await self._ending.stop_sandbox(id_)
                case RemoveSandbox(id_):
                    await self._ending.remove_sandbox(id_)
                case RemoveContainer(id_):
                    await self._ending.remove_container(id_)
            if not isinstance(each, RunSandbox | StartContainer):
                self._dirty = True
        return worked

    async def _run_sandbox(self, attempt: int) -> bool:
        """The volumes are made meanwhile: neither needs the other."""
        preparing = asyncio.ensure_future(self._prepare())
        try:
            made = await self._make_sandbox(attempt)
            return await preparing and made
        finally:
            preparing.cancel()

    async def _make_sandbox(self, attempt: int) -> bool:
        try:
            id_ = await self._starting.sandbox(self.pod, attempt)
            self._dirty = False  # until an event tells of something after this
            await self._kit.view.look_at(self.pod.uid, id_)
        except (RpcError, ConfigError, NameTooLong, NoHandler) as error:
            message = f"Failed to create pod sandbox: {error}"
            self._kit.recorder.tell(self.pod, WARNING, "FailedCreatePodSandBox", message)
            self.memory.sandbox_failed()
            self._dirty = True
            return False
        self.memory.sandbox_made()
        return True

    async def _prepare(self) -> bool:
        try:
            await self._kit.volumes.prepare(self.pod)
        except VolumesNotReady as error:
            for each in error.failures:
                self._kit.recorder.tell(self.pod, WARNING, "FailedMount", each)
            self.memory.volumes_failed()
            return False
        self.memory.volumes_worked()
        return True

    async def _start(self, action: StartContainer, observed: ObservedPod) -> bool:
        if not self.memory.volumes_ready and not await self._prepare():
            return False
        container = action.container
        self.memory.starts(container)
        try:
            await self._starting.container(self.pod, container, action.attempt, observed)
        except CannotStart as error:
            self.memory.cannot_start(container, error)
            self._dirty = True
            return False
        sandbox = observed.sandbox
        if sandbox is not None:
            self._dirty = False  # until an event tells of something after this
            try:
                await self._kit.view.look_at(self.pod.uid, sandbox.id)
            except NotFound:
                self._dirty = True
        return True

    def _ips(self, observed: ObservedPod) -> tuple[str, ...]:
        sandbox = observed.sandbox
        if self.pod.spec.host_network:
            return self._kit.node().ips
        return sandbox.ips if sandbox is not None else ()

    def _report(self, observed: ObservedPod) -> None:
        if self.pod.finished and not observed.containers:
            return  # what there was to tell has been told, or belongs to whoever ended it
        known = self._kit.reports.latest(self.pod.uid)
        told = msgspec.structs.replace(self.pod, status=msgspec.convert(known, PodStatus)) if known else self.pod
        status = pod_status(told, observed, self.memory.view(self.pod, observed))
        if status["phase"] == "Running" and known.get("phase", "Pending") == "Pending":
            self._kit.pod_started(self._kit.clock.monotonic() - self._seen)
        self._kit.reports.report(self.pod, status)

    async def _end(self) -> None:
        """1. Containers.  2. Their network.  3. Claims.  4. Tell how they ended.  5. Remove all.  6. Let go."""
        pause = UNREACHABLE_SECONDS
        while True:
            try:
                await self._end_once()
            except* RpcError as group:
                log.info("the runtime refused", extra={"why": str(group.exceptions[0])})
                self._kit.recorder.tell(self.pod, WARNING, "FailedKillPod", f"error killing pod: {group.exceptions[0]}")
            except* (ClientError, ApiError) as group:
                log.info("the API server does not let go", extra={"why": str(group.exceptions[0])})
            except* OSError as group:
                log.warning("cannot remove", extra={"why": str(group.exceptions[0])})
            except* Exception:
                log.exception("pod not ended")
            else:
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, FAULT_SECONDS)

    async def _end_once(self) -> None:
        observed = await self._kit.view.look(self.pod.uid)
        self._kit.probes.forget(self.pod.uid)
        await self._stop(observed)
        await self._ending.sandboxes(observed)
        await self._kit.claims.release(self.pod.uid)
        observed = await self._kit.view.look(self.pod.uid)
        await self.memory.remember(self.pod, observed)
        if not self._gone and observed.containers:
            self._report(observed)
        await self._ending.remove(self.pod.uid, observed)
        self._kit.view.forget(self.pod.uid)
        if not self._gone:
            await self._kit.reports.sent(self.pod.uid)
            await self._let_go()

    async def _stop(self, observed: ObservedPod) -> None:
        """Stop the containers; when less time is given meanwhile, they get that."""
        grace = self.memory.grace(self.pod, gone=self._gone, adopted=self._adopted_ending)
        stopping = asyncio.ensure_future(self._ending.containers(self.pod, observed.running, grace))
        try:
            while not stopping.done():
                self._woken.clear()
                woken = asyncio.ensure_future(self._woken.wait())
                await asyncio.wait((stopping, woken), return_when=asyncio.FIRST_COMPLETED)
                woken.cancel()
                less = self.memory.grace(self.pod, gone=self._gone, adopted=False)
                if not stopping.done() and less < grace:
                    grace = less
                    await asyncio.gather(*(self._ending.stop(each.id, grace) for each in observed.running))
        finally:
            stopping.cancel()
            await asyncio.wait((stopping,))
        stopping.result()

    async def _let_go(self) -> None:
        try:
            await self._kit.api.delete(PODS, self.pod.name, self.pod.namespace, grace_seconds=0, uid=self.pod.uid)
        except ApiError as error:
            if error.code not in (404, 409):
                raise
