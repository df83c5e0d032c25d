"""Watches one running container: each of its probes asks, waits for the answer, and asks again."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from podwire.interfaces import Clock
from podwire.kubelet.pods.observed import ObservedContainer
from podwire.kubelet.probes import threshold
from podwire.kubelet.probes.check import Result, Subject, check
from podwire.kubelet.probes.ports import Prober, ProbeUnknown
from podwire.kubelet.probes.threshold import Kind, Unhealthy
from podwire.logs import about
from podwire.objects.containers import Container, Probe
from podwire.objects.pods import Pod

_log = logging.getLogger("podwire.kubelet.probes")

UNHEALTHY, PROBE_WARNING = "Unhealthy", "ProbeWarning"

Tell = Callable[[Pod, Container, str, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeDependencies:
    """What every worker is handed."""

    prober: Prober
    clock: Clock
    changed: Callable[[str], None]
    tell: Tell
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random


class Watched:
    """A container and how it stands with its probes."""

    def __init__(
        self, pod: Pod, container: Container, seen: ObservedContainer, ips: tuple[str, ...], means: ProbeDependencies
    ) -> None:
        self.pod = pod
        self.ips = ips
        self._container = container
        self._seen = seen
        self._means = means
        self._probes = {kind: probe for kind in Kind if (probe := kind.of(container)) is not None}
        self._standings = {kind: threshold.BEGINNING[kind] for kind in self._probes}
        self._tasks: dict[Kind, asyncio.Task[None]] = {}
        self._started = asyncio.Event()
        self._adopt()
        if self.started:
            self._started.set()
        # The one look at a clock that may jump: a container may be older than this kubelet.
        age = max(0.0, means.clock.wall() - seen.started_at / 1e9) if seen.started_at else 0.0
        self._since = means.clock.monotonic() - age

    @property
    def started(self) -> bool:
        startup = self._standings.get(Kind.STARTUP)
        return startup is None or startup.passed is True

    @property
    def ready(self) -> bool:
        readiness = self._standings.get(Kind.READINESS)
        return self.started and (readiness is None or readiness.passed is True)

    @property
    def verdict(self) -> Unhealthy | None:
        if self.pod.deleting:  # it is on its way out already
            return None
        found = (
            threshold.verdict(kind, probe, self._standings[kind], self._container.name)
            for kind, probe in self._probes.items()
        )
        return next((each for each in found if each is not None), None)

    def begin(self, group: asyncio.TaskGroup, kubelet_since: float) -> None:
        """Start to ask. Containers that ran before the kubelet did are not all asked at the same moment."""
        if self._tasks:
            return
        spread = self._since < kubelet_since
        for kind, probe in self._probes.items():
            if not self._standings[kind].settled and not self._pointless(kind):
                name = f"{kind.value} probe of {self._container.name} in {self.pod.ref}"
                self._tasks[kind] = group.create_task(self._work(kind, probe, spread=spread), name=name)

    def update(self, pod: Pod, ips: tuple[str, ...]) -> None:
        self.pod, self.ips = pod, ips
        for kind in (Kind.STARTUP, Kind.LIVENESS):
            if self._pointless(kind) and kind in self._tasks:
                self._tasks[kind].cancel()

    def stop(self) -> None:
        for each in self._tasks.values():
            each.cancel()

    def _pointless(self, kind: Kind) -> bool:
        """Who is being deleted is not killed for its health; whether it is ready still matters."""
        return self.pod.deleting and kind is not Kind.READINESS

    def _adopt(self) -> None:
        """Believe what the API says of this very container: a kubelet that restarts makes nothing unready."""
        status = self.pod.status
        for told in (*status.container_statuses, *status.init_container_statuses):
            if str(told.get("containerID", "")).endswith(f"://{self._seen.id}"):
                for kind, word in ((Kind.STARTUP, "started"), (Kind.READINESS, "ready")):
                    if kind in self._standings and told.get(word) is True:
                        self._standings[kind] = threshold.adopted(kind)

    async def _work(self, kind: Kind, probe: Probe, *, spread: bool) -> None:
        """Ask once a period until it is settled; one question at a time, however long the answer takes."""
        clock, period = self._means.clock, float(max(1, probe.period_seconds))
        if kind is not Kind.STARTUP:
            await self._started.wait()
        wait = self._since + probe.initial_delay_seconds - clock.monotonic()
        await self._pause(max(wait, self._means.chance() * period if spread else 0.0))
        due = clock.monotonic()
        while True:
            with about(pod=self.pod.ref, container=self._container.name):
                await self._ask(kind, probe)
            if self._standings[kind].settled:
                return
            due = threshold.next_due(due, period, clock.monotonic())
            await self._pause(due - clock.monotonic())

    async def _pause(self, seconds: float) -> None:
        if seconds > 0:
            await self._means.sleep(seconds)

    async def _ask(self, kind: Kind, probe: Probe) -> None:
        subject = Subject(self._container, self._seen.id, self.ips)
        try:
            result = await check(probe, subject, self._means.prober)
        except ProbeUnknown as error:
            self._tell(UNHEALTHY, f"{kind.value} probe errored and resulted in unknown state: {error}")
        except Exception:  # noqa: BLE001 - a fault in one probe must not end those of all other containers
            _log.exception("probe failed for a reason that it did not expect", extra={"probe": kind.value})
        else:
            self._judge(kind, probe, result)

    def _judge(self, kind: Kind, probe: Probe, result: Result) -> None:
        if not result.passed:
            self._tell(UNHEALTHY, f"{kind.value} probe failed: {result.text}")
        elif result.text:
            self._tell(PROBE_WARNING, f"{kind.value} probe warning: {result.text}")
        before = self._standings[kind]
        now = self._standings[kind] = threshold.after(kind, probe, before, result.passed)
        if self.started:
            self._started.set()
        if now.passed != before.passed:
            _log.info("probe result changed", extra={"probe": kind.value, "passed": now.passed})
            self._means.changed(self.pod.uid)

    def _tell(self, reason: str, message: str) -> None:
        self._means.tell(self.pod, self._container, reason, message)
