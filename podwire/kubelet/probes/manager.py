"""The probe manager: runs the probes of all containers of this node and knows their results."""

import asyncio
import functools
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field

from podwire.interfaces import Clock
from podwire.kubelet.pods.observed import ObservedContainer, ObservedPod
from podwire.kubelet.probes.check import check
from podwire.kubelet.probes.ports import Prober
from podwire.kubelet.probes.threshold import Unhealthy
from podwire.kubelet.probes.worker import (
    ContainerProbes,
    ProbedContainer,
    ProbeDependencies,
    RecordEvent,
    RunProbe,
    not_counted,
)
from podwire.objects.containers import Container
from podwire.objects.pods import Pod


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResults:
    """Results of the running containers of one pod, by container id."""

    ready: frozenset[str] = frozenset()
    started: frozenset[str] = frozenset()
    unhealthy: Mapping[str, Unhealthy] = field(default_factory=dict)
    """Containers that must be killed."""


class Probes:
    """Follows containers by id: one that was restarted is another one.

    `changed` is called with the uid of a pod whose result has changed, `record` records events.
    """

    def __init__(
        self,
        prober: Prober | RunProbe,
        clock: Clock,
        changed: Callable[[str], None],
        record: RecordEvent,
        *,
        probed: Callable[[ProbedContainer, str, float], None] = not_counted,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._deps = ProbeDependencies(
            run=prober if callable(prober) else functools.partial(check, prober=prober),
            clock=clock,
            changed=changed,
            record=record,
            sleep=sleep,
            chance=chance,
            probed=probed,
        )
        self._since = clock.monotonic()
        self._watched: dict[str, ContainerProbes] = {}
        self._of_pod: dict[str, set[str]] = {}
        self._group: asyncio.TaskGroup | None = None

    def follow(self, pod: Pod, running: Mapping[str, ObservedContainer], ips: tuple[str, ...]) -> None:
        """Probe these containers, by name, from now on, and no others of the pod."""
        probed = {seen.id: (container, seen) for container, seen in _probed(pod, running)}
        known = self._of_pod.get(pod.uid, set())
        for gone in known - probed.keys():
            self._watched.pop(gone).stop()
        for id_, (container, seen) in probed.items():
            if id_ in known:
                self._watched[id_].update(pod, ips)
            else:
                self._watched[id_] = ContainerProbes(pod, container, seen, ips, self._deps)
                if self._group is not None:
                    self._watched[id_].begin(self._group, self._since)
        if probed:
            self._of_pod[pod.uid] = set(probed)
        else:
            self._of_pod.pop(pod.uid, None)

    def forget(self, uid: str) -> None:
        """Nothing of this pod runs any more."""
        for id_ in self._of_pod.pop(uid, ()):
            self._watched.pop(id_).stop()

    def ready(self, container: Container, seen: ObservedContainer) -> bool:
        """Whether it runs, is started and its readiness probe, if it has one, has succeeded."""
        if not seen.running:
            return False
        watched = self._watched.get(seen.id)
        if watched is None:
            return container.readiness_probe is None and container.startup_probe is None
        return watched.ready

    def started(self, container: Container, seen: ObservedContainer) -> bool:
        """Whether it runs and its startup probe, if it has one, has succeeded."""
        if not seen.running:
            return False
        watched = self._watched.get(seen.id)
        return container.startup_probe is None if watched is None else watched.started

    def unhealthy(self, seen: ObservedContainer) -> Unhealthy | None:
        """Why this container must be killed; None if it need not be."""
        watched = self._watched.get(seen.id)
        return None if watched is None else watched.unhealthy

    def results(self, pod: Pod, observed: ObservedPod) -> ProbeResults:
        """Results of the pod's running containers; containers that are not in its spec have none."""
        specs = {container.name: container for container in pod.spec.every_container}
        running = [(specs[container.name], container) for container in observed.running if container.name in specs]
        unhealthy = {container.id: self.unhealthy(container) for _, container in running}
        return ProbeResults(
            ready=frozenset(container.id for spec, container in running if self.ready(spec, container)),
            started=frozenset(container.id for spec, container in running if self.started(spec, container)),
            unhealthy={id_: result for id_, result in unhealthy.items() if result is not None},
        )

    async def run(self) -> None:
        """Probe until cancelled, beginning with the containers that are followed already."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                for watched in self._watched.values():
                    watched.begin(group, self._since)
                await asyncio.get_running_loop().create_future()
            finally:
                self._group = None


def _probed(pod: Pod, running: Mapping[str, ObservedContainer]) -> Iterator[tuple[Container, ObservedContainer]]:
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        if container.readiness_probe or container.liveness_probe or container.startup_probe:
            seen = running.get(container.name)
            if seen is not None and seen.running:
                yield container, seen
