"""All probes of a node: which containers are asked, and how each stands."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping

from podwire.interfaces import Clock
from podwire.kubelet.pods.observed import ObservedContainer
from podwire.kubelet.probes.ports import Prober
from podwire.kubelet.probes.threshold import Unhealthy
from podwire.kubelet.probes.worker import ProbeDependencies, Tell, Watched
from podwire.objects.containers import Container
from podwire.objects.pods import Pod


class Probes:
    """Follows containers by their ids: one that was restarted is another one.

    `changed(pod uid)` is called whenever a result that matters has changed, `tell` for what people should know.
    """

    def __init__(
        self,
        prober: Prober,
        clock: Clock,
        changed: Callable[[str], None],
        tell: Tell,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._means = ProbeDependencies(
            prober=prober, clock=clock, changed=changed, tell=tell, sleep=sleep, chance=chance
        )
        self._since = clock.monotonic()
        self._watched: dict[str, Watched] = {}
        self._of_pod: dict[str, set[str]] = {}
        self._group: asyncio.TaskGroup | None = None

    def follow(self, pod: Pod, running: Mapping[str, ObservedContainer], ips: tuple[str, ...]) -> None:
        """Ask these containers from now on, by their names, and no others of the pod."""
        wanted = {seen.id: (container, seen) for container, seen in _probed(pod, running)}
        known = self._of_pod.get(pod.uid, set())
        for gone in known - wanted.keys():
            self._watched.pop(gone).stop()
        for id_, (container, seen) in wanted.items():
            if id_ in known:
                self._watched[id_].update(pod, ips)
            else:
                self._watched[id_] = Watched(pod, container, seen, ips, self._means)
                if self._group is not None:
                    self._watched[id_].begin(self._group, self._since)
        if wanted:
            self._of_pod[pod.uid] = set(wanted)
        else:
            self._of_pod.pop(pod.uid, None)

    def forget(self, uid: str) -> None:
        """Nothing of this pod runs any more."""
        for id_ in self._of_pod.pop(uid, ()):
            self._watched.pop(id_).stop()

    def ready(self, container: Container, seen: ObservedContainer) -> bool:
        """Running, started, and well by its readiness probe if it has one."""
        if not seen.running:
            return False
        watched = self._watched.get(seen.id)
        if watched is None:
            return container.readiness_probe is None and container.startup_probe is None
        return watched.ready

    def started(self, container: Container, seen: ObservedContainer) -> bool:
        """Running, and past its startup probe if it has one."""
        if not seen.running:
            return False
        watched = self._watched.get(seen.id)
        return container.startup_probe is None if watched is None else watched.started

    def verdict(self, seen: ObservedContainer) -> Unhealthy | None:
        """Why this container must be killed, if it must."""
        watched = self._watched.get(seen.id)
        return None if watched is None else watched.verdict

    async def run(self) -> None:
        """Ask until cancelled. Whom we follow already is asked from now on."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                for each in self._watched.values():
                    each.begin(group, self._since)
                await asyncio.get_running_loop().create_future()
            finally:
                self._group = None


def _probed(pod: Pod, running: Mapping[str, ObservedContainer]) -> Iterator[tuple[Container, ObservedContainer]]:
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        if container.readiness_probe or container.liveness_probe or container.startup_probe:
            seen = running.get(container.name)
            if seen is not None and seen.running:
                yield container, seen
