"""The worker of one pod, from the first sight of it until nothing of it is left: look, plan, act, sleep.

Start of a pod (`_sync`)                                        End of a pod (`_end`)
1. admission: may it run on this node?                          1. containers: preStop hooks, SIGTERM, SIGKILL
2. claims are prepared, devices are held (fail-closed)          2. sandboxes are stopped: the network is removed
3. the sandbox, and meanwhile the volumes                       3. claims are unprepared by their drivers
4. init containers one by one, then app containers: image,      4. the last status is reported
   devices, environment, mounts, create, start, postStart       5. sandboxes, devices, volumes, logs are removed
5. the status is reported                                       6. the pod is deleted from the API

A pod that ends by itself (phase Succeeded or Failed) goes through 2 to 4 of its end when it does, keeps its containers
for `kubectl logs`, and its devices are free; 5 and 6 wait for its deletion. Every step is idempotent: after a crash of
the kubelet the next one begins with the first step again. `wakeups.py` lists the events that wake a worker.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable

import msgspec

from podwire import logs
from podwire.kubelet.config.dns import NameTooLong
from podwire.kubelet.config.environment import ConfigError
from podwire.kubelet.config.resources import qos_class
from podwire.kubelet.pods.actions import (
    Action,
    EndContainers,
    KillContainer,
    RemoveContainer,
    RemoveSandbox,
    RunSandbox,
    StartContainer,
    StopSandbox,
    UpdateContainer,
)
from podwire.kubelet.pods.admission import Rejection
from podwire.kubelet.pods.container_start import CannotStart
from podwire.kubelet.pods.container_status import StatusInputs
from podwire.kubelet.pods.dependencies import PodDependencies
from podwire.kubelet.pods.observed import ObservedPod
from podwire.kubelet.pods.plan import outcome, plan
from podwire.kubelet.pods.sandbox_start import NoHandler
from podwire.kubelet.pods.state import PodState
from podwire.kubelet.pods.status import needs_sync, pod_status, rejected_status
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


class PodWorker:
    """`run` ends when nothing of the pod is left."""

    def __init__(
        self,
        dependencies: PodDependencies,
        pod: Pod,
        admit: Callable[[Pod], Rejection | None],
        resize_obstacle: Callable[[Pod], tuple[str, str] | None],
        resized: Callable[[], None],
    ) -> None:
        """`resize_obstacle` returns the reason and the message of a resize that must wait. `resized` is called after
        one that was allocated, as others may have waited for resources."""
        self._deps = dependencies
        self._limits = dependencies.limits
        self._clock = dependencies.clock
        self._recorder = dependencies.recorder
        self._cache = dependencies.cache
        self._admit = admit
        self._resize_obstacle = resize_obstacle
        self._resized = resized
        self._woken = asyncio.Event()
        self.terminating = asyncio.Event()
        self.content_removed = asyncio.Event()
        """Nothing of the pod is on the node any more; set for an evicted or discarded pod before it is deleted from the
        API."""
        self._interrupted = asyncio.Event()
        self._discarded = False
        """The pod has finished, and its node needs the disk."""
        self._stale = not self._cache.current
        """The runtime must be asked; what the cache has of the pod may be old."""
        self._gone = False
        """The API does not have the pod any more."""
        self._adopted_terminating = pod.deleting
        self._first_seen = self._clock.monotonic()
        self.desired = pod
        """The pod as the API has it."""
        self.pod = dependencies.allocations.allocated(pod)
        """The pod with the resources that are allocated for it: the same object unless it is to be resized."""
        self.state = PodState(self._clock, self._recorder, self._limits)
        if pod.deleting:
            self.terminating.set()

    def update(self, pod: Pod) -> None:
        """The pod changed in the API."""
        if pod.metadata.annotations.get(RETRY) != self.pod.metadata.annotations.get(RETRY):
            self.state.retry_now()
        if pod.status.resource_claim_statuses != self.pod.status.resource_claim_statuses:
            self.state.may_start()
        before, self.desired = self.desired, pod
        self.pod = self._deps.allocations.allocated(pod)
        if pod.deleting:
            self.terminating.set()
        if needs_sync(before, pod):
            self._woken.set()

    def deleted(self) -> None:
        """The API does not have the pod any more: it is terminated, and no status is reported."""
        self._gone = True
        self.terminating.set()
        self._woken.set()

    def wake(self) -> None:
        self._woken.set()

    @property
    def observed(self) -> ObservedPod:
        return self._cache.observed(self.pod.uid)

    @property
    def active(self) -> bool:
        """Whether the pod uses resources and is not being ended already."""
        return self.admitted and not self.ended and not self.terminating.is_set() and self.state.failure is None

    def evict(self, message: str, grace: int, *, disruption: bool) -> None:
        """End the pod with the reason Evicted, whatever is being done for it, and remove all of it from the node."""
        self.state.evict(message, grace, disruption=disruption)
        self._interrupted.set()
        self._woken.set()

    def discard(self) -> bool:
        """Remove the containers and files of a pod that has finished; returns whether it has.

        `content_removed` follows. The API has its status, which needs nothing of the node; its logs are lost."""
        if not self.pod.finished or self.terminating.is_set() or self.content_removed.is_set():
            return False
        if not self._discarded:
            self._discarded = True
            self._woken.set()
        return True

    def objects_changed(self) -> None:
        self.state.may_start()
        self._woken.set()

    def network_changed(self) -> None:
        self.state.sandbox.retry_now()
        self._woken.set()

    def devices_changed(self) -> None:
        if self.state.allocation.waits_for_devices:
            self.state.may_start()
            self._woken.set()

    def claims_changed(self) -> None:
        if self.state.allocation.waits_for_claims:
            self.state.may_start()
            self._woken.set()

    def claim_changed(self) -> None:
        self.claims_changed()
        self._woken.set()

    def runtime_changed(self) -> None:
        self._stale = True
        if not self._cache.observed(self.pod.uid).sandboxes:
            self.state.sandbox.retry_now()
        self._woken.set()

    def device_changed(self, problem: str) -> None:
        if problem:
            self._recorder.tell(self.pod, WARNING, "DeviceUnhealthy", problem)
        self._woken.set()

    @property
    def admitted(self) -> bool:
        """Whether this kubelet, or the one before it, has admitted the pod."""
        return self.state.admitted or self.pod.status.start_time is not None

    @property
    def waits_for_resize(self) -> bool:
        return self.state.resize.pending is not None

    @property
    def ended(self) -> bool:
        """Whether the pod needs no resources of the node any more."""
        return outcome(self.pod, self._cache.observed(self.pod.uid)) is not None

    async def run(self) -> None:
        with logs.about(pod=self.pod.ref), contextlib.ExitStack() as stack:
            stack.callback(self._deps.statuses.forget, self.pod.uid)
            stack.callback(self._deps.probes.forget, self.pod.uid)
            stack.callback(self._deps.objects.release, self.pod.uid)
            stack.callback(self._deps.sandbox_queue.succeeded, self.pod.uid)
            self._deps.objects.hold(self.pod)
            await self._live()
            await self._end()
            self.content_removed.set()

    async def _live(self) -> None:
        """Sync until the pod is to terminate, which cancels the sync that is under way; so does an eviction."""
        while not self.terminating.is_set():
            self._woken.clear()
            self._interrupted.clear()
            interrupts = [asyncio.ensure_future(event.wait()) for event in (self.terminating, self._interrupted)]
            sync = asyncio.ensure_future(self._sync_or_retry())
            try:
                await asyncio.wait((sync, *interrupts), return_when=asyncio.FIRST_COMPLETED)
            finally:
                for interrupt in interrupts:
                    interrupt.cancel()
                if not sync.done():
                    sync.cancel()
                    await asyncio.wait((sync,))
            await self._hand_over()
            self._deps.sandbox_queue.unused(self.pod.uid)
            if not sync.cancelled() and not self._interrupted.is_set():
                await self._sleep(sync.result())

    async def _hand_over(self) -> None:
        """A sync that was cancelled may have left calls in flight that create something for the pod: wait for them, but
        not longer than the grace period, which may be shortened meanwhile."""
        calls, began = self._deps.creating_calls, self._clock.monotonic()
        while in_flight := calls.of_pod(self.pod.uid):
            self._stale = True
            self._woken.clear()
            if self.terminating.is_set():
                grace = self.state.grace_period(self.pod, gone=self._gone, adopted=False)
            else:
                grace = self.state.kill_grace(self.pod)
            left = max(float(grace), self._limits.hand_over) - (self._clock.monotonic() - began)
            if left <= 0:
                calls.abandon(self.pod.uid)
                return
            woken = asyncio.ensure_future(self._woken.wait())
            try:
                await asyncio.wait((*in_flight, woken), timeout=left, return_when=asyncio.FIRST_COMPLETED)
            finally:
                woken.cancel()

    async def _sync_or_retry(self) -> float | None:
        """Returns the time of the next sync. An error over one pod must not end the work for all others.

        Containers that are killed together fail together: an exception group of RpcErrors is one failed call.
        """
        try:
            return await self._sync()
        except* RpcError as group:
            log.info("cannot sync pod: runtime call failed", extra={"error": str(group.exceptions[0])})
            pause = self._limits.unreachable_retry
        except* Exception:
            log.exception("cannot sync pod: unexpected error")
            pause = self._limits.fault_retry
        self._stale = True
        return self._clock.monotonic() + pause

    async def _sleep(self, until: float | None) -> None:
        pause = None if until is None else max(0.0, until - self._clock.monotonic())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._woken.wait()

    async def _observe(self) -> ObservedPod:
        if self._stale:
            self._stale = False
            return await self._cache.refresh(self.pod.uid)
        return self._cache.observed(self.pod.uid)

    async def _sync(self) -> float | None:
        """1. Admission.  2. Look, plan, act, until there is nothing to do.  3. Returns the time of the next sync."""
        if self.content_removed.is_set():
            await self._remove_late_sandboxes()
            return None
        self._deps.objects.hold(self.pod)
        observed = await self._observe()
        if not self._admission(observed):
            return None
        if self.pod.status.phase == "Running":
            try:
                await self._deps.volumes.refresh(self.pod)
            except VolumesNotReady as error:
                log.info("cannot refresh volumes", extra={"error": str(error)})
        while True:
            running = {container.name: container for container in observed.running}
            self._deps.probes.follow(self.pod, running, self._ips(observed))
            await self.state.observe(self.pod, observed, self._deps.node.paths)
            await self._follow_resize(observed)
            results = self._deps.probes.results(self.pod, observed)
            facts = self.state.facts(self.pod, results, self._deps.statuses.latest(self.pod.uid))
            todo = plan(self.pod, observed, facts)
            if not todo.actions or not self._network_permits(todo.actions):
                return await self._rest(observed, todo.wake_at)
            if isinstance(todo.actions[-1], RunSandbox):
                retry_at = await self._deps.allocation.allocate(self.pod, self.state)
                self._report(observed)
                if retry_at is not None:
                    return retry_at
            worked = await self._act(todo.actions, observed)
            observed = await self._observe()
            if not worked:
                self._report(observed)

    async def _rest(self, observed: ObservedPod, wake_at: float | None) -> float | None:
        """There is nothing to do. The end of a pod is reported after its claims and devices are released: others that
        wait for its end may use them then."""
        released = True
        if self.ended or self.state.failure is not None:
            retry_at = await self._deps.allocation.unprepare_claims(self.pod, self.state)
            if retry_at is not None:
                return retry_at
            released = await self._deps.termination.release_devices(self.pod.uid)
            released = await self._deps.termination.release_volumes(self.pod) and released
        elif observed.running:
            retry_at = await self._deps.allocation.keep_claims(self.pod, self.state)
            if retry_at is not None:
                wake_at = min(retry_at, wake_at or retry_at)
        self._report(observed)
        evicted = self.state.eviction is not None or (self.pod.finished and self.pod.status.reason == "Evicted")
        if released and (evicted or self._discarded):
            released = await self._remove_content(observed)
        return wake_at if released else self._clock.monotonic() + self._limits.fault_retry

    async def _remove_content(self, observed: ObservedPod) -> bool:
        """An evicted pod stays in the API for people to see; its containers, logs and volumes go at once. The same
        holds for a finished pod on a full disk."""
        try:
            await self._deps.termination.remove_pod(self.pod.uid, observed)
        except OSError as error:
            log.warning("cannot remove files of ended pod", extra={"error": str(error)})
            return False
        self._cache.forget(self.pod.uid)
        self.content_removed.set()
        return True

    async def _remove_late_sandboxes(self) -> None:
        """The runtime may have completed a call for such a pod after everything of the pod was removed."""
        observed = await self._observe()
        if observed.sandboxes:
            await self._deps.termination.stop_sandboxes(observed)
            await self._deps.termination.remove_pod(self.pod.uid, observed)
            self._cache.forget(self.pod.uid)

    def _admission(self, observed: ObservedPod) -> bool:
        if self.state.admitted or observed.sandboxes or self.pod.finished:
            self.state.admitted = True
            return True
        if self.state.rejected:
            return False
        rejection = self._admit(self.pod)
        if rejection is None:
            self.state.admitted = True
            return True
        if rejection.temporary:
            log.info("pod admission waits for terminating pods", extra={"error": rejection.event_message})
            return False
        self.state.rejected = True
        self._recorder.tell(self.pod, WARNING, rejection.reason, rejection.event_message)
        now = rfc3339(self._clock.wall())
        self._deps.statuses.report(self.pod, rejected_status(self.pod, rejection.reason, rejection.message, now))
        return False

    def _network_permits(self, actions: tuple[Action, ...]) -> bool:
        """Without a network there is no sandbox, except for pods on the node's network."""
        error = self._deps.runtime.network_error
        if not error or self.pod.spec.host_network or not isinstance(actions[-1], RunSandbox):
            return True
        self._recorder.tell(self.pod, WARNING, "NetworkNotReady", f"network is not ready: {error}")
        return False

    async def _act(self, actions: tuple[Action, ...], observed: ObservedPod) -> bool:  # noqa: C901 - one case per action
        """Returns whether everything worked."""
        worked, termination = True, self._deps.termination
        grace = self.state.kill_grace(self.pod)
        for action in actions:
            match action:
                case RunSandbox(attempt):
                    worked = await self._run_sandbox(attempt)
                case StartContainer():
                    worked = await self._start(action, observed) and worked
                case KillContainer(container, running, message, own_grace):
                    period = grace if own_grace is None else own_grace
                    await termination.kill_container(self.pod, container, running, message, period)
                case UpdateContainer(container, running):
                    worked = await self._deps.resizer.update(self.pod, container, running, self.state.resize) and worked
                case EndContainers(containers):
                    await termination.kill_containers(self.pod, containers, grace)
                case StopSandbox(id_):
                    await termination.stop_sandbox(id_)
                case RemoveSandbox(id_):
                    await termination.remove_sandbox(id_)
                case RemoveContainer(id_):
                    removed = next(container for container in observed.containers if container.id == id_)
                    await termination.remove_container(self.pod.uid, removed)
            if not isinstance(action, RunSandbox | StartContainer | UpdateContainer):
                self._stale = True
        return worked

    async def _follow_resize(self, observed: ObservedPod) -> None:
        """The API may change the pod while its new allocation is written, so `self.pod` follows the newest one."""
        if await self._deps.resizer.follow(self.desired, self.pod, observed, self.state.resize, self._resize_obstacle):
            self.pod = self._deps.allocations.allocated(self.desired)
            self._resized()

    async def _run_sandbox(self, attempt: int) -> bool:
        """Volumes are set up meanwhile: neither needs the other."""
        volumes = asyncio.ensure_future(self._set_up_volumes())
        try:
            created = await self._create_sandbox(attempt)
            return await volumes and created
        finally:
            volumes.cancel()

    async def _create_sandbox(self, attempt: int) -> bool:
        queue = self._deps.sandbox_queue
        queue.begin(self.pod.uid)
        try:
            id_ = await self._deps.sandboxes.run(self.pod, attempt)
            self._stale = False  # until an event reports a later change
            await self._cache.refresh_sandbox(self.pod.uid, id_)
        except (RpcError, ConfigError, NameTooLong, NoHandler, OSError) as error:
            message = f"Failed to create pod sandbox: {error}"
            self._recorder.tell(self.pod, WARNING, "FailedCreatePodSandBox", message)
            self.state.sandbox.failed()
            if queue.failed(self.pod.uid):
                self.state.sandbox.retry_now()
            self._stale = True
            return False
        queue.succeeded(self.pod.uid)
        self.state.sandbox.succeeded()
        return True

    async def _set_up_volumes(self) -> bool:
        try:
            await self._deps.volumes.prepare(self.pod)
        except VolumesNotReady as error:
            for failure in error.failures:
                reason = "FailedMapVolume" if failure.startswith("MapVolume.") else "FailedMount"
                self._recorder.tell(self.pod, WARNING, reason, failure)
            self.state.volumes.failed()
            return False
        self.state.volumes.succeeded()
        self.state.volumes_ready = True
        return True

    async def _start(self, action: StartContainer, observed: ObservedPod) -> bool:
        if not self.state.volumes_ready and not await self._set_up_volumes():
            return False
        self.state.containers.starts(action.container)
        try:
            await self._deps.containers.start(self.pod, action.container, action.attempt, observed)
        except CannotStart as error:
            self.state.cannot_start(action.container, error)
            self._stale = True
            return False
        if observed.sandbox is not None:
            self._stale = False  # until an event reports a later change
            try:
                await self._cache.refresh_sandbox(self.pod.uid, observed.sandbox.id)
            except NotFound:
                self._stale = True
        return True

    def _ips(self, observed: ObservedPod) -> tuple[str, ...]:
        if self.pod.spec.host_network:
            return self._deps.node.facts().ips
        return observed.sandbox.ips if observed.sandbox is not None else ()

    def _report(self, observed: ObservedPod) -> None:
        if self.content_removed.is_set() or (self.pod.finished and not observed.containers):
            return  # the last status was reported, or belongs to the one who ended the pod
        known = self._deps.statuses.latest(self.pod.uid)
        pod = msgspec.structs.replace(self.pod, status=msgspec.convert(known, PodStatus)) if known else self.pod
        results = self._deps.probes.results(self.pod, observed)
        inputs = StatusInputs(
            now=rfc3339(self._clock.wall()),
            runtime=self._deps.runtime.name,
            host_ips=self._deps.node.facts().ips,
            qos=qos_class(self.pod),
            ready=results.ready,
            started=results.started,
            waiting=self.state.containers.waiting,
            messages=self.state.containers.messages,
            devices=self._deps.allocation.device_statuses(self.pod, self.state),
            failure=self.state.failure,
            disruption=self.state.eviction.disruption if self.state.eviction is not None else "",
            actuated=self.state.resize.actuated,
            resize=self.state.resize.conditions,
        )
        status = pod_status(pod, observed, inputs)
        if status["phase"] == "Running" and known.get("phase", "Pending") == "Pending":
            self._deps.pod_started(self._clock.monotonic() - self._first_seen)
        self._deps.statuses.report(self.pod, status)

    async def _end(self) -> None:
        """Tries the steps of the pod's end until all of them succeed."""
        pause = self._limits.unreachable_retry
        while True:
            try:
                await self._end_once()
            except* RpcError as group:
                error = str(group.exceptions[0])
                log.info("cannot terminate pod: runtime call failed", extra={"error": error})
                self._recorder.tell(self.pod, WARNING, "FailedKillPod", f"error killing pod: {error}")
            except* (ClientError, ApiError) as group:
                log.info("cannot delete pod from the API server", extra={"error": str(group.exceptions[0])})
            except* OSError as group:
                log.warning("cannot remove files of pod", extra={"error": str(group.exceptions[0])})
            except* Exception:
                log.exception("cannot terminate pod: unexpected error")
            else:
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, self._limits.fault_retry)

    async def _end_once(self) -> None:
        """The numbers are those of the module's docstring."""
        uid, termination = self.pod.uid, self._deps.termination
        observed = await self._cache.refresh(uid)
        self._deps.probes.forget(uid)
        await self._stop_containers(observed)  # 1
        await termination.stop_sandboxes(observed)  # 2
        await termination.unprepare_claims(uid)  # 3
        observed = await self._cache.refresh(uid)
        await self.state.observe(self.pod, observed, self._deps.node.paths)
        if not self._gone and observed.containers:
            self._report(observed)  # 4
        await termination.remove_pod(uid, observed)  # 5
        self._cache.forget(uid)
        if not self._gone:
            await self._deps.statuses.delete_pod(self.pod)  # 6

    async def _stop_containers(self, observed: ObservedPod) -> None:
        """Stop the containers; if the grace period is shortened meanwhile, stop them again with the shorter one."""
        grace = self.state.grace_period(self.pod, gone=self._gone, adopted=self._adopted_terminating)
        stopping = asyncio.ensure_future(self._deps.termination.kill_containers(self.pod, observed.running, grace))
        try:
            while not stopping.done():
                self._woken.clear()
                woken = asyncio.ensure_future(self._woken.wait())
                await asyncio.wait((stopping, woken), return_when=asyncio.FIRST_COMPLETED)
                woken.cancel()
                shorter = self.state.grace_period(self.pod, gone=self._gone, adopted=False)
                if not stopping.done() and shorter < grace:
                    grace = shorter
                    stop = self._deps.termination.stop_container
                    await asyncio.gather(*(stop(container.id, grace) for container in observed.running))
        finally:
            stopping.cancel()
            await asyncio.wait((stopping,))
        stopping.result()
