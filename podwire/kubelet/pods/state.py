"""State of one pod beyond the API's and the runtime's, by concern. A restart of the kubelet may lose all of it."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from podwire.interfaces import Clock
from podwire.kubelet.claims import ClaimsNotReady
from podwire.kubelet.config.container import container_hash
from podwire.kubelet.devices import DevicesNotReady
from podwire.kubelet.events import field_path
from podwire.kubelet.paths import KubeletPaths
from podwire.kubelet.pods import termination_message
from podwire.kubelet.pods.container_start import CannotStart
from podwire.kubelet.pods.limits import PodLimits
from podwire.kubelet.pods.observed import ObservedContainer, ObservedPod
from podwire.kubelet.pods.plan import Facts, restarts
from podwire.kubelet.pods.resize import ResizeState
from podwire.kubelet.probes import ProbeResults
from podwire.objects.containers import Container
from podwire.objects.pods import Pod
from podwire.objects.times import parse
from podwire.protocols.k8sapi.client_side.events import WARNING
from podwire.protocols.k8sapi.client_side.recorder import Recorder
from podwire.tasks.backoff import Backoff, Pauses

DeviceStatuses = dict[str, list[dict[str, object]]]
"""By container: the entries of `allocatedResourcesStatus`."""


class Retry:
    """When one thing that failed may be tried again: `not_before` is monotonic, 0 for now."""

    def __init__(self, clock: Clock, pauses: tuple[float, float]) -> None:
        self._clock = clock
        self._pauses = Pauses(*pauses)
        self.not_before = 0.0

    def failed(self) -> float:
        """The time of the next attempt: after each failure in a row the pause doubles."""
        self.not_before = self._clock.monotonic() + self._pauses.next()
        return self.not_before

    def succeeded(self) -> None:
        self.not_before = 0.0
        self._pauses.reset()

    def retry_now(self) -> None:
        """Something that the failure may depend on has changed; should it fail again, the pause still doubles."""
        self.not_before = 0.0

    def hold_until(self, time: float) -> None:
        self.not_before = time


class AllocationState:
    """Claims and devices that the pod waits for."""

    def __init__(self, clock: Clock, limits: PodLimits) -> None:
        self.waits_for_devices = False
        self.waits_for_claims = False
        self.claims = Retry(clock, limits.claim_backoff)
        self._last_claims: DeviceStatuses = {}

    @property
    def waits(self) -> bool:
        return self.waits_for_devices or self.waits_for_claims

    def statuses(self, plugins: DeviceStatuses, claims: DeviceStatuses) -> DeviceStatuses:
        """Health of the devices of each container. Claims are unprepared when the pod has ended; its status keeps what
        was last known of their devices."""
        self._last_claims = claims or self._last_claims
        names = plugins.keys() | self._last_claims.keys()
        return {name: [*plugins.get(name, ()), *self._last_claims.get(name, ())] for name in names}


class ContainerStates:
    """Why containers do not run, since when, and when each may start again. Times are monotonic.

    A container that exits and is to run again waits for the crash back-off. One that was created but could not be
    started counts as one that crashed at once. One that cannot be created waits until `CannotStart.retry_at`, or, if
    that is None, for an event; then the longest volume back-off only keeps it from waiting for ever.
    """

    def __init__(self, clock: Clock, recorder: Recorder, limits: PodLimits) -> None:
        self._clock = clock
        self._recorder = recorder
        self._longest_wait = limits.volume_backoff[1]
        self._crashes = Backoff(*limits.crash_backoff)
        self.waiting: dict[str, tuple[str, str]] = {}
        """By container name: reason and message."""
        self.not_before: dict[str, float] = {}
        """By container name: the earliest time of its next start."""
        self.messages: dict[str, str] = {}
        """By container id: termination message."""
        self._exited_at: dict[str, float] = {}
        """By container id."""
        self._failed_at: dict[str, float] = {}
        """By container name: when it was created but could not be started."""
        self._names: dict[str, str] = {}
        """Container id to name."""

    def retry_now(self) -> None:
        """Forget back-offs."""
        self.not_before.clear()
        self._exited_at.clear()
        self._failed_at.clear()
        for name in self.waiting:
            self._crashes.clear(name)

    def hold_all(self, containers: Sequence[Container], reason: str, message: str) -> None:
        for container in containers:
            self.waiting[container.name] = (reason, message)

    def may_start(self) -> None:
        """Something that containers may wait for has changed; it does not shorten a crash back-off."""
        for name, (reason, _) in self.waiting.items():
            if reason != "CrashLoopBackOff":
                self.not_before.pop(name, None)

    def starts(self, container: Container) -> None:
        exited = {self._names[id_] for id_ in self._exited_at if id_ in self._names}
        if container.name in exited or container.name in self._failed_at:
            self._crashes.tried(container.name, self._clock.monotonic())
        self.not_before.pop(container.name, None)
        self.waiting.pop(container.name, None)
        self._failed_at.pop(container.name, None)

    def cannot_start(self, container: Container, error: CannotStart) -> None:
        self.waiting[container.name] = (error.reason, str(error))
        now = self._clock.monotonic()
        if error.created:
            self._failed_at[container.name] = now
        else:
            self.not_before[container.name] = error.retry_at or now + self._longest_wait

    async def observe(self, pod: Pod, observed: ObservedPod, paths: KubeletPaths) -> None:
        """Note which containers exited, read their termination messages once, and hold back those that crash."""
        for container in self.newly_exited(observed):
            self.messages[container.id] = await asyncio.to_thread(_message, pod, container, paths)
        self.hold_back(pod, observed)

    def newly_exited(self, observed: ObservedPod) -> list[ObservedContainer]:
        """Note which containers exited; returns those whose termination message is not known yet."""
        now = self._clock.monotonic()
        exited = [
            container for container in observed.containers if container.exited and container.id not in self.messages
        ]
        for container in exited:
            self._exited_at.setdefault(container.id, now)
        return exited

    def hold_back(self, pod: Pod, observed: ObservedPod) -> None:
        """Hold back containers that crash, once the messages of all that exited are known."""
        for id_ in self.messages.keys() - {container.id for container in observed.containers}:
            del self.messages[id_]
            self._exited_at.pop(id_, None)
        self._names = {container.id: container.name for container in observed.containers}
        for spec in pod.spec.every_container:
            self._hold_back(pod, spec, observed.latest(spec.name))

    def _hold_back(self, pod: Pod, container: Container, latest: ObservedContainer | None) -> None:
        name = container.name
        if latest is None or latest.running or name in self.not_before:
            return
        if latest.exited and not restarts(pod, container, latest):
            self.waiting.pop(name, None)
            return
        if not latest.exited and name not in self._failed_at:
            return
        until = self._crashes.until(name, self._exited_at.get(latest.id) or self._failed_at.get(name, 0.0))
        if until <= self._clock.monotonic():
            return
        self.not_before[name] = until
        pod_name = f"{pod.name}_{pod.namespace}({pod.uid})"
        pause = _go_duration(self._crashes.delay(name))
        message = f"back-off {pause} restarting failed container={name} pod={pod_name}"
        self.waiting[name] = ("CrashLoopBackOff", message)
        event = f"Back-off restarting failed container {name} in pod {pod_name}"
        self._recorder.tell(pod, WARNING, "BackOff", event, field_path=field_path(pod, container))


class Eviction(NamedTuple):
    """How an evicted pod ends."""

    grace: int
    disruption: str
    """The message of its DisruptionTarget condition; empty if it was evicted for a limit of its own."""


class PodState:
    def __init__(self, clock: Clock, recorder: Recorder, limits: PodLimits) -> None:
        self._clock = clock
        self._limits = limits
        self._hashes: tuple[int, dict[str, str]] = (-1, {})
        self.containers = ContainerStates(clock, recorder, limits)
        self.sandbox = Retry(clock, limits.sandbox_backoff)
        self.volumes = Retry(clock, limits.volume_backoff)
        self.volumes_ready = False
        self.allocation = AllocationState(clock, limits)
        self.resize = ResizeState()
        self.admitted = False
        self.rejected = False
        self.failure: tuple[str, str] | None = None
        """Why the pod as a whole has failed: reason and message."""
        self.eviction: Eviction | None = None

    def evict(self, message: str, grace: int, *, disruption: bool) -> None:
        self.failure = ("Evicted", message)
        self.eviction = Eviction(grace, message if disruption else "")

    def kill_grace(self, pod: Pod) -> int:
        """The grace period of containers that are killed while the API still wants the pod."""
        given = pod.spec.termination_grace_period_seconds
        return given if self.eviction is None else min(given, self.eviction.grace)

    def retry_now(self) -> None:
        """Somebody asked, by an annotation of the pod, that everything is tried again now."""
        self.containers.retry_now()
        self.sandbox.succeeded()
        self.volumes.retry_now()
        self.allocation.claims.succeeded()

    def may_start(self) -> None:
        """Something that the pod may wait for has changed: an object, a device, a claim."""
        self.containers.may_start()
        self.volumes.retry_now()
        if self.allocation.waits:
            self.sandbox.retry_now()
            self.allocation.claims.retry_now()

    def devices_missing(self, pod: Pod, error: DevicesNotReady) -> float:
        """Nothing is created for the pod before it has its devices. Returns the time of the next attempt."""
        self.allocation.waits_for_devices = True
        until = self._clock.monotonic() + self._limits.device_retry
        self._hold(pod, error.reason, str(error), until)
        return until

    def claims_missing(self, pod: Pod, error: ClaimsNotReady) -> float:
        """Nothing is created for the pod before its claims are prepared. Returns the time of the next attempt."""
        self.allocation.waits_for_claims = True
        until = self.allocation.claims.failed()
        self._hold(pod, error.reason, str(error), until)
        return until

    def _hold(self, pod: Pod, reason: str, message: str, until: float) -> None:
        self.sandbox.hold_until(until)
        self.containers.hold_all((*pod.spec.init_containers, *pod.spec.containers), reason, message)

    def allocated(self) -> None:
        """The pod has all its claims and devices."""
        self.allocation.claims.succeeded()
        if self.allocation.waits:
            self.allocation.waits_for_devices = self.allocation.waits_for_claims = False
            self.containers.waiting.clear()

    def cannot_start(self, container: Container, error: CannotStart) -> None:
        self.allocation.waits_for_devices |= isinstance(error.__cause__, DevicesNotReady)
        self.allocation.waits_for_claims |= isinstance(error.__cause__, ClaimsNotReady)
        self.containers.cannot_start(container, error)

    async def observe(self, pod: Pod, observed: ObservedPod, paths: KubeletPaths) -> None:
        await self.containers.observe(pod, observed, paths)

    def facts(self, pod: Pod, probes: ProbeResults, status: Mapping[str, Any]) -> Facts:
        """Inputs of the plan; `status` is the one that was reported last."""
        if self._hashes[0] != pod.metadata.generation:
            hashes = {container.name: container_hash(container) for container in pod.spec.every_container}
            self._hashes = (pod.metadata.generation, hashes)
        return Facts(
            now=self._clock.monotonic(),
            sandbox_held=self.sandbox.not_before,
            volumes_held=self.volumes.not_before,
            held=self.containers.not_before,
            started=probes.started,
            unhealthy=probes.unhealthy,
            hashes=self._hashes[1],
            deadline=self._deadline(pod, status.get("startTime")),
            actuated=self.resize.actuated,
            resizing=self.resize.in_progress is not None,
            resize_held=self.resize.not_before,
        )

    def _deadline(self, pod: Pod, start_time: str | None) -> float | None:
        if self.failure is not None:
            return 0.0
        if pod.spec.active_deadline_seconds is None or start_time is None:
            return None
        left = parse(start_time) + pod.spec.active_deadline_seconds - self._clock.wall()
        if left <= 0:
            self.failure = ("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
        return self._clock.monotonic() + left

    def grace_period(self, pod: Pod, *, gone: bool, adopted: bool) -> int:
        """Seconds for containers to exit by themselves. `gone`: the API does not have the pod any more. `adopted`: it
        was being deleted when this kubelet started, so that only the rest of its grace period is left."""
        if gone:
            return self._limits.forced_grace
        given = pod.metadata.deletion_grace_period_seconds
        if given is None:
            return pod.spec.termination_grace_period_seconds
        if adopted and pod.metadata.deletion_timestamp is not None:
            # Timestamps are whole seconds, rounded down.
            left = parse(pod.metadata.deletion_timestamp) + 1 - self._clock.wall()
            return max(0, min(given, int(left)))
        return given


def _message(pod: Pod, exited: ObservedContainer, paths: KubeletPaths) -> str:
    container = next((spec for spec in pod.spec.every_container if spec.name == exited.name), None)
    if container is None:
        return ""
    file = paths.termination_message(pod.uid, exited.name, exited.attempt)
    count = len(pod.spec.every_container)
    return termination_message.read(container, file, exited.log_path, exited.exit_code, containers=count)


def _go_duration(seconds: float) -> str:
    """A duration as Go prints it: 10s, 1m20s, 5m0s."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
