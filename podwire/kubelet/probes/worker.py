"""The probes of one running container: each runs once a period, one request at a time."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from podwire.interfaces import Clock
from podwire.kubelet.pods.observed import ObservedContainer
from podwire.kubelet.probes import threshold
from podwire.kubelet.probes.check import Result, Subject
from podwire.kubelet.probes.ports import ProbeUnknown
from podwire.kubelet.probes.threshold import Kind, Unhealthy
from podwire.logs import about
from podwire.objects.containers import Container, Probe
from podwire.objects.pods import Pod
from podwire.protocols.k8sapi.client_side.events import WARNING

_log = logging.getLogger("podwire.kubelet.probes")

UNHEALTHY, PROBE_WARNING = "Unhealthy", "ProbeWarning"

RunProbe = Callable[[Probe, Subject], Awaitable[Result]]
"""Runs a probe once. Raises ProbeUnknown."""

RecordEvent = Callable[[Pod, Container, str, str, str], None]
"""Records an event about a container: type, reason, message."""


@dataclass(frozen=True, slots=True)
class ProbedContainer:
    """The probe of a container that was run."""

    pod: Pod
    container: str
    type: str
    """Liveness, Readiness or Startup."""


def not_counted(_probe: ProbedContainer, _result: str, _seconds: float) -> None:
    """Nobody counts probes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeDependencies:
    """Shared by all containers."""

    run: RunProbe
    clock: Clock
    changed: Callable[[str], None]
    record: RecordEvent
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random
    probed: Callable[[ProbedContainer, str, float], None] = not_counted
    """Called after each probe with its result and how many seconds it took."""


class ContainerProbes:
    """A container and the states of its probes."""

    def __init__(
        self,
        pod: Pod,
        container: Container,
        seen: ObservedContainer,
        ips: tuple[str, ...],
        dependencies: ProbeDependencies,
    ) -> None:
        self.pod = pod
        self.ips = ips
        self._container = container
        self._seen = seen
        self._deps = dependencies
        self._probes = {kind: probe for kind in Kind if (probe := kind.of(container)) is not None}
        self._states = {kind: threshold.BEGINNING[kind] for kind in self._probes}
        self._tasks: dict[Kind, asyncio.Task[None]] = {}
        self._started = asyncio.Event()
        self._adopt()
        if self.started:
            self._started.set()
        # The container may be older than this kubelet, so its age is read once from the wall clock, which may jump.
        age = max(0.0, dependencies.clock.wall() - seen.started_at / 1e9) if seen.started_at else 0.0
        self._since = dependencies.clock.monotonic() - age

    @property
    def started(self) -> bool:
        startup = self._states.get(Kind.STARTUP)
        return startup is None or startup.passed is True

    @property
    def ready(self) -> bool:
        readiness = self._states.get(Kind.READINESS)
        return self.started and (readiness is None or readiness.passed is True)

    @property
    def unhealthy(self) -> Unhealthy | None:
        if self.pod.deleting:  # it is being killed already
            return None
        results = (
            threshold.unhealthy(kind, probe, self._states[kind], self._container.name)
            for kind, probe in self._probes.items()
        )
        return next((result for result in results if result is not None), None)

    def begin(self, group: asyncio.TaskGroup, kubelet_since: float) -> None:
        """Start probing. Probes of containers that are older than the kubelet are spread over a period."""
        if self._tasks:
            return
        spread = self._since < kubelet_since
        for kind, probe in self._probes.items():
            if not self._states[kind].final and not self._is_pointless(kind):
                name = f"{kind.value} probe of {self._container.name} in {self.pod.ref}"
                self._tasks[kind] = group.create_task(self._run(kind, probe, spread=spread), name=name)

    def update(self, pod: Pod, ips: tuple[str, ...]) -> None:
        self.pod, self.ips = pod, ips
        for kind in (Kind.STARTUP, Kind.LIVENESS):
            if self._is_pointless(kind) and kind in self._tasks:
                self._tasks[kind].cancel()

    def stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()

    def _is_pointless(self, kind: Kind) -> bool:
        """A container of a pod that is being deleted is not killed for its health; its readiness still matters."""
        return self.pod.deleting and kind is not Kind.READINESS

    def _adopt(self) -> None:
        """Take over what the API has of this very container: a restart of the kubelet makes no container unready."""
        status = self.pod.status
        for reported in (*status.container_statuses, *status.init_container_statuses):
            if str(reported.get("containerID", "")).endswith(f"://{self._seen.id}"):
                for kind, field in ((Kind.STARTUP, "started"), (Kind.READINESS, "ready")):
                    if kind in self._states and reported.get(field) is True:
                        self._states[kind] = threshold.adopted(kind)

    async def _run(self, kind: Kind, probe: Probe, *, spread: bool) -> None:
        """Probe once a period until the result is final; one request at a time, however long the answer takes."""
        clock, period = self._deps.clock, float(max(1, probe.period_seconds))
        if kind is not Kind.STARTUP:
            await self._started.wait()
        wait = self._since + probe.initial_delay_seconds - clock.monotonic()
        await self._pause(max(wait, self._deps.chance() * period if spread else 0.0))
        due = clock.monotonic()
        while True:
            with about(pod=self.pod.ref, container=self._container.name):
                await self._probe(kind, probe)
            if self._states[kind].final:
                return
            due = threshold.next_due(due, period, clock.monotonic())
            await self._pause(due - clock.monotonic())

    async def _pause(self, seconds: float) -> None:
        if seconds > 0:
            await self._deps.sleep(seconds)

    async def _probe(self, kind: Kind, probe: Probe) -> None:
        subject = Subject(self._container, self._seen.id, self.ips)
        began, outcome = self._deps.clock.monotonic(), "unknown"
        try:
            result = await self._deps.run(probe, subject)
            outcome = "successful" if result.passed else "failed"
        except ProbeUnknown as error:
            self._warn(UNHEALTHY, f"{kind.value} probe errored and resulted in unknown state: {error}")
        except Exception:  # noqa: BLE001 - an error in one probe must not end those of all other containers
            _log.exception("cannot run probe: unexpected error", extra={"probe": kind.value})
        else:
            self._count(kind, probe, result)
        probed = ProbedContainer(self.pod, self._container.name, kind.value)
        self._deps.probed(probed, outcome, self._deps.clock.monotonic() - began)

    def _count(self, kind: Kind, probe: Probe, result: Result) -> None:
        if not result.passed:
            self._warn(UNHEALTHY, f"{kind.value} probe failed: {result.text}")
        elif result.text:
            self._warn(PROBE_WARNING, f"{kind.value} probe warning: {result.text}")
        before = self._states[kind]
        now = self._states[kind] = threshold.after(kind, probe, before, result.passed)
        if self.started:
            self._started.set()
        if now.passed != before.passed:
            _log.info("probe result changed", extra={"probe": kind.value, "passed": now.passed})
            self._deps.changed(self.pod.uid)

    def _warn(self, reason: str, message: str) -> None:
        self._deps.record(self.pod, self._container, WARNING, reason, message)
