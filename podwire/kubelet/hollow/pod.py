"""One pod of a hollow node: look, plan, act in memory, report; the order is that of a kubelet's worker.

`sync` never waits. It says when it has to be called again, unless an event comes earlier: a change in the API, or the
result of a probe.
"""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from podwire.interfaces import Clock
from podwire.kubelet.claims.errors import ClaimsNotReady
from podwire.kubelet.config.resources import qos_class
from podwire.kubelet.devices import DevicesNotReady
from podwire.kubelet.events import ContainerEvents
from podwire.kubelet.hollow.behaviour import BadAnnotation, Behaviour, behaviour
from podwire.kubelet.hollow.runtime import SimulatedPod
from podwire.kubelet.hollow.settings import RUNTIME
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
from podwire.kubelet.pods.container_start import CannotStart
from podwire.kubelet.pods.container_status import StatusInputs
from podwire.kubelet.pods.limits import PodLimits
from podwire.kubelet.pods.observed import ObservedContainer, ObservedPod
from podwire.kubelet.pods.plan import outcome, plan
from podwire.kubelet.pods.state import PodState
from podwire.kubelet.pods.status import pod_status, rejected_status
from podwire.kubelet.pods.status_manager import StatusManager
from podwire.kubelet.probes import Probes
from podwire.objects.containers import Container
from podwire.objects.pods import Pod, PodStatus
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.client_side.events import NORMAL, WARNING
from podwire.protocols.k8sapi.client_side.recorder import Recorder
from podwire.protocols.k8sapi.watch import Object

MOST_STEPS = 100
"""Plans in one sync; containers that exit at once are held back by the crash back-off long before."""


class PodHost(Protocol):
    """The node of a pod; HollowNode is one."""

    @property
    def addresses(self) -> tuple[str, ...]: ...

    def admit(self, pod: Pod) -> Rejection | None: ...

    def address(self, pod: Pod) -> tuple[str, ...]: ...

    def adopt_address(self, pod: Pod, address: str) -> None: ...

    def allocate(self, pod: Pod, find_claim: Callable[[str, str], Object | None]) -> None: ...

    def release(self, uid: str) -> None: ...

    def forget(self, uid: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedParts:
    """Parts that all pods of all nodes share."""

    clock: Clock
    recorder: Recorder
    events: ContainerEvents
    probes: Probes
    statuses: StatusManager
    limits: PodLimits
    find_claim: Callable[[str, str], Object | None]
    started: Callable[[], None]
    """Called when a pod runs for the first time."""
    remove: Callable[["HollowPod"], Coroutine[Any, Any, None]]
    """Deletes a pod that has ended from the API."""
    start: Callable[[Coroutine[Any, Any, None]], object]
    """Starts a task."""


class HollowPod:
    __slots__ = ("_delayed", "_ended", "_released", "_shared", "_simulated", "host", "pod", "state", "timer")

    def __init__(self, shared: SharedParts, host: PodHost, pod: Pod) -> None:
        self._shared = shared
        self.host = host
        self.pod = pod
        self.timer: Any = None
        """The handle of its next sync."""
        self.state = PodState(shared.clock, shared.recorder, shared.limits)
        self._simulated = SimulatedPod(pod.uid, shared.clock.wall)
        self._delayed: set[str] | None = None
        """Names of containers whose start was delayed."""
        self._ended = False
        self._released = False
        if pod.status.phase == "Running" and not pod.deleting:
            self.state.admitted = True
            host.adopt_address(pod, str(shared.statuses.latest(pod.uid).get("podIP") or ""))
            self._simulated.adopt(pod, host.address(pod), self._behaviour, shared.clock.monotonic())

    @property
    def uses_resources(self) -> bool:
        admitted = self.state.admitted or self.pod.status.start_time is not None
        return admitted and outcome(self.pod, self._simulated.observed) is None

    def update(self, pod: Pod) -> None:
        """The pod changed in the API."""
        if pod.status.resource_claim_statuses != self.pod.status.resource_claim_statuses:
            self.state.may_start()
        self.pod = pod

    def claims_changed(self) -> None:
        self.state.may_start()

    def sync(self) -> float | None:
        """Returns the monotonic time of the next sync; None: only after an event."""
        self._simulated.advance(self._shared.clock.monotonic())
        if self.pod.deleting:
            return self._end()
        if not self._admission():
            return None
        wake_at = self._step()
        times = [time for time in (wake_at, self._simulated.next_change) if time is not None]
        return min(times, default=None)

    def drop(self) -> None:
        """The API does not have the pod any more: nothing of it is left."""
        if self.timer is not None:
            self.timer.cancel()
        self._shared.probes.forget(self.pod.uid)
        self._shared.statuses.forget(self.pod.uid)
        self.host.forget(self.pod.uid)

    def _admission(self) -> bool:
        state, shared = self.state, self._shared
        if state.admitted or self.pod.finished:
            state.admitted = True
            return True
        if state.rejected:
            return False
        rejection = self.host.admit(self.pod)
        if rejection is None:
            state.admitted = True
            return True
        if not rejection.temporary:
            state.rejected = True
            shared.recorder.tell(self.pod, WARNING, rejection.reason, rejection.event_message)
            now = rfc3339(shared.clock.wall())
            shared.statuses.report(self.pod, rejected_status(self.pod, rejection.reason, rejection.message, now))
        return False

    def _step(self) -> float | None:
        """Look, plan, act, until there is nothing to do; returns the time of the next look."""
        shared, unchanged = self._shared, 0
        for _ in range(MOST_STEPS):
            observed = self._observe()
            results = shared.probes.results(self.pod, observed)
            facts = self.state.facts(self.pod, results, shared.statuses.latest(self.pod.uid))
            todo = plan(self.pod, observed, facts)
            if not todo.actions:
                if outcome(self.pod, observed) is not None or self.state.failure is not None:
                    self._release()
                self._report(observed)
                return todo.wake_at
            if isinstance(todo.actions[-1], RunSandbox) and (retry_at := self._allocate()) is not None:
                self._report(observed)
                return retry_at
            for action in todo.actions:
                self._act(action, facts.now)
            self._simulated.advance(shared.clock.monotonic())
            unchanged = unchanged + 1 if self._simulated.observed is observed else 0
            if unchanged > 1:  # containers take their time to stop
                self._report(observed)
                return todo.wake_at
        return shared.clock.monotonic() + shared.limits.fault_retry

    def _observe(self) -> ObservedPod:
        observed, containers = self._simulated.observed, self.state.containers
        running = {container.name: container for container in observed.running}
        ips = self.host.address(self.pod) if observed.sandbox is not None else ()
        self._shared.probes.follow(self.pod, running, ips)
        specs = {container.name: container for container in self.pod.spec.every_container}
        for exited in containers.newly_exited(observed):
            spec = specs.get(exited.name)
            containers.messages[exited.id] = self._behaviour(spec).message if spec is not None else ""
        containers.hold_back(self.pod, observed)
        return observed

    def _allocate(self) -> float | None:
        """Returns the time of the next attempt if claims or devices are missing."""
        shared = self._shared
        try:
            self.host.allocate(self.pod, shared.find_claim)
        except DevicesNotReady as error:
            shared.recorder.tell(self.pod, WARNING, error.reason, str(error))
            return self.state.devices_missing(self.pod, error)
        except ClaimsNotReady as error:
            shared.recorder.tell(self.pod, WARNING, error.reason, error.event_message)
            return self.state.claims_missing(self.pod, error)
        self.state.allocated()
        return None

    def _act(self, action: Action, now: float) -> None:
        grace = self.state.kill_grace(self.pod)
        match action:
            case RunSandbox(attempt):
                ips = self.host.address(self.pod)
                self._simulated.run_sandbox(attempt, ips, host_network=self.pod.spec.host_network)
                self.state.sandbox.succeeded()
            case StartContainer(container, attempt):
                self._start(container, attempt, now)
            case KillContainer(container, running, message, own_grace):
                self._kill(container, running, message, grace if own_grace is None else own_grace)
            case EndContainers(containers):
                self._kill_all(containers, grace)
            case StopSandbox(id_):
                if not any(container.sandbox == id_ for container in self._simulated.observed.running):
                    self._simulated.stop_sandbox(id_)
            case RemoveSandbox(id_) | RemoveContainer(id_):
                self._simulated.remove(id_)

    def _start(self, container: Container, attempt: int, now: float) -> None:
        shared, containers = self._shared, self.state.containers
        script = self._behaviour(container, strict=True)
        if script.start_seconds and container.name not in (self._delayed or ()):
            self._delayed = {*(self._delayed or ()), container.name}
            containers.not_before[container.name] = now + script.start_seconds
            shared.events.record(self.pod, container, NORMAL, "Pulling", f'Pulling image "{container.image}"')
            return
        containers.starts(container)
        if script.start_error:
            shared.events.record(self.pod, container, WARNING, "Failed", f"Error: {script.start_error}")
            retry_at = now + shared.limits.start_retry
            self.state.cannot_start(container, CannotStart("CreateContainerError", script.start_error, retry_at))
            return
        text = f'Container image "{container.image}" already present on machine'
        shared.events.record(self.pod, container, NORMAL, "Pulled", text)
        self._simulated.start(container, attempt, script, now)
        shared.events.record(self.pod, container, NORMAL, "Created", f"Created container: {container.name}")
        shared.events.record(self.pod, container, NORMAL, "Started", f"Started container {container.name}")

    def _behaviour(self, container: Container, *, strict: bool = False) -> Behaviour:
        """Returns the behaviour of a container. An invalid annotation is an error of its start, nothing later."""
        try:
            return behaviour(self.pod, container)
        except BadAnnotation as error:
            return Behaviour(start_error=str(error)) if strict else Behaviour()

    def _kill(self, container: Container, running: ObservedContainer, message: str, grace: float) -> None:
        if not self._simulated.is_stopping(running.id):
            message = message or f"Stopping container {container.name}"
            self._shared.events.record(self.pod, container, NORMAL, "Killing", message)
        self._simulated.stop(running.id, self._behaviour(container), grace, self._shared.clock.monotonic())

    def _kill_all(self, containers: tuple[ObservedContainer, ...], grace: float) -> None:
        specs = {container.name: container for container in self.pod.spec.every_container}
        for running in containers:
            self._kill(specs.get(running.name, Container(name=running.name)), running, "", grace)
        self._simulated.advance(self._shared.clock.monotonic())

    def _end(self) -> float | None:
        """The end of a pod: containers, sandbox, claims and devices, the last status, deletion from the API."""
        shared, observed = self._shared, self._simulated.observed
        if self._ended:
            return None
        shared.probes.forget(self.pod.uid)
        if observed.running:
            grace = self.state.grace_period(self.pod, gone=False, adopted=False)
            self._kill_all(observed.running, grace)  # again if the grace period is shorter now
            observed = self._simulated.observed
            if observed.running:
                return self._simulated.next_change
        self._ended = True
        for sandbox in observed.sandboxes:
            self._simulated.stop_sandbox(sandbox.id)
        self._release()
        for exited in self.state.containers.newly_exited(self._simulated.observed):
            self.state.containers.messages[exited.id] = ""
        if observed.containers:
            self._report(self._simulated.observed)
        shared.start(shared.remove(self))
        return None

    def _release(self) -> None:
        if not self._released:
            self._released = True
            self.host.release(self.pod.uid)

    def _report(self, observed: ObservedPod) -> None:
        shared, pod = self._shared, self.pod
        if pod.finished and not observed.containers:
            return  # the last status was reported, or belongs to the one who ended the pod
        known = shared.statuses.latest(pod.uid)
        reported = msgspec.structs.replace(pod, status=msgspec.convert(known, PodStatus)) if known else pod
        results = shared.probes.results(pod, observed)
        inputs = StatusInputs(
            now=rfc3339(shared.clock.wall()),
            runtime=RUNTIME,
            host_ips=self.host.addresses,
            qos=qos_class(pod),
            ready=results.ready,
            started=results.started,
            waiting=self.state.containers.waiting,
            messages=self.state.containers.messages,
            failure=self.state.failure,
        )
        status = pod_status(reported, observed, inputs)
        if status["phase"] == "Running" and known.get("phase", "Pending") == "Pending":
            shared.started()
        shared.statuses.report(pod, status)
