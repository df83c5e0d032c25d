"""What a kubelet remembers of one pod beside what the API and the runtime know; it may be lost in a restart."""

import asyncio
from pathlib import Path

from podwire.kubelet.claims import ClaimsNotReady
from podwire.kubelet.config.resources import qos_class
from podwire.kubelet.devices import DevicesNotReady
from podwire.kubelet.pods import termination_message
from podwire.kubelet.pods.container_status import View
from podwire.kubelet.pods.dependencies import Kit
from podwire.kubelet.pods.observed import ObservedContainer, ObservedPod
from podwire.kubelet.pods.plan import Facts, Trouble, restarts
from podwire.kubelet.pods.start import CannotStart, field_path, hashes
from podwire.objects.containers import Container
from podwire.objects.pods import Pod
from podwire.objects.times import parse, rfc3339
from podwire.protocols.k8sapi.client_side.events import WARNING

VOLUME_SECONDS = 2.0, 60.0
"""Between two tries to set volumes up, if nothing tells earlier that it may work now."""


DEVICE_SECONDS = 10.0
"""Until a pod that waits for devices looks again, if nobody tells earlier that there are some."""

FORCED_SECONDS = 1
"""What containers have to end by themselves when their pod was deleted without asking us."""


class PodState:
    def __init__(self, kit: Kit, pod: Pod) -> None:
        self._kit = kit
        self._uid = pod.uid
        self._qos = qos_class(pod)
        self._hashes: tuple[int, dict[str, str]] = (-1, {})
        self._waiting: dict[str, tuple[str, str]] = {}
        self._held: dict[str, float] = {}
        self._ended: dict[str, float] = {}
        """Container id to when its end was seen."""
        self._broken: dict[str, float] = {}
        """Container name to when it was made but could not be started."""
        self._messages: dict[str, str] = {}
        self._names: dict[str, str] = {}
        """Container id to name."""
        self._sandbox_held = 0.0
        self._volumes_at: float | None = None
        self._volume_pause = VOLUME_SECONDS[0]
        self.volumes_ready = False
        self.waits_for_devices = False
        self.waits_for_claims = False
        self.claims_held = 0.0
        """No new try before this time."""
        self._claims: dict[str, list[dict[str, object]]] = {}
        """By container, how what it has by claims was last: that is told of a pod that has ended, too."""
        self.admitted = False
        self.rejected = False
        self.failure: tuple[str, str] | None = None

    def retry(self) -> None:
        """Somebody wants everything tried again now."""
        self._held.clear()
        self._ended.clear()
        self._broken.clear()
        self._sandbox_held = 0.0
        self._kit.sandboxes.clear(self._uid)
        self._kit.preparing.clear(self._uid)
        for name in self._waiting:
            self._kit.crashes.clear(self._key(name))

    def sandbox_failed(self) -> None:
        now = self._kit.clock.monotonic()
        self._kit.sandboxes.tried(self._uid, now)
        self._sandbox_held = self._kit.sandboxes.until(self._uid, now)

    def sandbox_made(self) -> None:
        self._sandbox_held = 0.0
        self._kit.sandboxes.clear(self._uid)

    def sandbox_may_work(self) -> None:
        """What sandboxes depend on has changed: no need to wait any longer."""
        self._sandbox_held = 0.0

    def volumes_failed(self) -> None:
        self._volumes_at = self._kit.clock.monotonic() + self._volume_pause
        self._volume_pause = min(self._volume_pause * 2, VOLUME_SECONDS[1])

    def volumes_worked(self) -> None:
        self.volumes_ready = True
        self._volumes_at = None
        self._volume_pause = VOLUME_SECONDS[0]

    def devices_missing(self, pod: Pod, error: DevicesNotReady) -> None:
        """Nothing is made for the pod before it has them."""
        self.waits_for_devices = True
        self._hold_all(pod, error.reason, str(error), self._kit.clock.monotonic() + DEVICE_SECONDS)

    def claims_missing(self, pod: Pod, error: ClaimsNotReady) -> float:
        """The same; when to try again, if nothing tells earlier."""
        self.waits_for_claims = True
        until = self.claims_failed()
        self._hold_all(pod, error.reason, str(error), until)
        return until

    def claims_failed(self) -> float:
        """When to try again to have them prepared, or let go of: each time a little later."""
        now = self._kit.clock.monotonic()
        self._kit.preparing.tried(self._uid, now)
        self.claims_held = self._kit.preparing.until(self._uid, now)
        return self.claims_held

    def has_all(self) -> None:
        """Claims and devices."""
        self._kit.preparing.clear(self._uid)
        if self.waits_for_devices or self.waits_for_claims:
            self.waits_for_devices = self.waits_for_claims = False
            self._waiting.clear()

    def _hold_all(self, pod: Pod, reason: str, message: str, until: float) -> None:
        self._sandbox_held = until
        for each in (*pod.spec.init_containers, *pod.spec.containers):
            self._waiting[each.name] = (reason, message)

    def starts(self, container: Container) -> None:
        key = self._key(container.name)
        if container.name in self._ended_names() or container.name in self._broken:
            self._kit.crashes.tried(key, self._kit.clock.monotonic())
        self._held.pop(container.name, None)
        self._waiting.pop(container.name, None)
        self._broken.pop(container.name, None)

    def cannot_start(self, container: Container, error: CannotStart) -> None:
        self.waits_for_devices = self.waits_for_devices or isinstance(error.__cause__, DevicesNotReady)
        self.waits_for_claims = self.waits_for_claims or isinstance(error.__cause__, ClaimsNotReady)
        self._waiting[container.name] = (error.reason, str(error))
        if error.made:  # then it is as if it had crashed at once
            self._broken[container.name] = self._kit.clock.monotonic()
            return
        # Without a time it waits for a change; the longest time is only there so that nothing waits for ever.
        self._held[container.name] = error.retry_at or self._kit.clock.monotonic() + VOLUME_SECONDS[1]

    def may_start(self) -> None:
        """Something that containers wait for has changed."""
        for name, (reason, _) in self._waiting.items():
            if reason != "CrashLoopBackOff":
                self._held.pop(name, None)
        self._volumes_at = None
        if self.waits_for_devices or self.waits_for_claims:
            self._sandbox_held = self.claims_held = 0.0

    async def remember(self, pod: Pod, observed: ObservedPod) -> None:
        """Note which containers ended, what they said, and how long they have to wait."""
        now = self._kit.clock.monotonic()
        for seen in observed.containers:
            if seen.exited and seen.id not in self._messages:
                self._ended.setdefault(seen.id, now)
                self._messages[seen.id] = await asyncio.to_thread(self._last_words, pod, seen)
        there = {each.id for each in observed.containers}
        for id_ in self._messages.keys() - there:
            del self._messages[id_]
            self._ended.pop(id_, None)
        self._names = {each.id: each.name for each in observed.containers}
        for each in pod.spec.every_container:
            self._hold_back(pod, each, observed.latest(each.name))

    def facts(self, pod: Pod, observed: ObservedPod) -> Facts:
        probes, by_name = self._kit.probes, {each.name: each for each in pod.spec.every_container}
        running = [(by_name[each.name], each) for each in observed.running if each.name in by_name]
        verdicts = {seen.id: probes.verdict(seen) for _, seen in running}
        return Facts(
            now=self._kit.clock.monotonic(),
            sandbox_held=self._sandbox_held,
            volumes_held=self._volumes_at or 0.0,
            held=self._held,
            started=frozenset(seen.id for container, seen in running if probes.started(container, seen)),
            unhealthy={
                id_: Trouble(message=each.message, grace=each.grace_seconds)
                for id_, each in verdicts.items()
                if each is not None
            },
            hashes=self._wanted(pod),
            deadline=self._deadline(pod),
        )

    def view(self, pod: Pod, observed: ObservedPod) -> View:
        probes, by_name = self._kit.probes, {each.name: each for each in pod.spec.every_container}
        running = [(by_name[each.name], each) for each in observed.running if each.name in by_name]
        return View(
            now=rfc3339(self._kit.clock.wall()),
            runtime=self._kit.runtime_name,
            host_ips=self._kit.node().ips,
            qos=self._qos,
            ready=frozenset(seen.id for container, seen in running if probes.ready(container, seen)),
            started=frozenset(seen.id for container, seen in running if probes.started(container, seen)),
            waiting=self._waiting,
            messages=self._messages,
            devices=self._devices(pod),
            failure=self.failure,
        )

    def _devices(self, pod: Pod) -> dict[str, list[dict[str, object]]]:
        """By container, how the devices are that it has, of plugins and by claims."""
        self._claims = self._kit.claims.statuses(pod) or self._claims
        plugins = self._kit.devices.statuses(self._uid)
        return {
            name: [*plugins.get(name, ()), *self._claims.get(name, ())] for name in plugins.keys() | self._claims.keys()
        }

    def grace(self, pod: Pod, *, gone: bool, adopted: bool) -> int:
        """Seconds for its containers to end by themselves; of a kubelet that came late, what is left of them."""
        if gone:
            return FORCED_SECONDS
        given = pod.metadata.deletion_grace_period_seconds
        if given is None:
            return pod.spec.termination_grace_period_seconds
        if adopted and pod.metadata.deletion_timestamp is not None:
            # Timestamps are whole seconds, rounded down.
            left = parse(pod.metadata.deletion_timestamp) + 1 - self._kit.clock.wall()
            return max(0, min(given, int(left)))
        return given

    def _hold_back(self, pod: Pod, container: Container, seen: ObservedContainer | None) -> None:
        """A container that ended and starts again waits the longer, the more often it has."""
        name = container.name
        if seen is None or seen.running or name in self._held:
            return
        if seen.exited and not restarts(pod, container, seen):
            self._waiting.pop(name, None)
            return
        if not seen.exited and name not in self._broken:
            return
        key = self._key(name)
        until = self._kit.crashes.until(key, self._ended.get(seen.id) or self._broken.get(name, 0.0))
        if until <= self._kit.clock.monotonic():
            return
        self._held[name] = until
        pause = self._kit.crashes.delay(key)
        about = f"container={name} pod={pod.name}_{pod.namespace}({pod.uid})"
        self._waiting[name] = ("CrashLoopBackOff", f"back-off {_spoken(pause)} restarting failed {about}")
        message = f"Back-off restarting failed container {name} in pod {pod.name}_{pod.namespace}({pod.uid})"
        self._kit.recorder.tell(pod, WARNING, "BackOff", message, field_path=field_path(pod, container))

    def _deadline(self, pod: Pod) -> float | None:
        if pod.spec.active_deadline_seconds is None or self.failure is not None:
            return None if self.failure is None else 0.0
        start = self._kit.reports.latest(pod.uid).get("startTime")
        if start is None:
            return None
        left = parse(start) + pod.spec.active_deadline_seconds - self._kit.clock.wall()
        if left <= 0:
            self.failure = ("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
        return self._kit.clock.monotonic() + left

    def _wanted(self, pod: Pod) -> dict[str, str]:
        """What each container must have been made from; worked out once for each generation of the pod."""
        if self._hashes[0] != pod.metadata.generation:
            self._hashes = (pod.metadata.generation, hashes(pod))
        return self._hashes[1]

    def _last_words(self, pod: Pod, seen: ObservedContainer) -> str:
        container = next((each for each in pod.spec.every_container if each.name == seen.name), None)
        if container is None:
            return ""
        file = termination_message.message_file(self._kit.places.root, pod.uid, seen.name, seen.attempt)
        return termination_message.read(container, Path(file), seen.log_path, seen.exit_code)

    def _ended_names(self) -> set[str]:
        return {self._names[each] for each in self._ended if each in self._names}

    def _key(self, name: str) -> str:
        return f"{self._uid}/{name}"


def _spoken(seconds: float) -> str:
    """As Go says it: 10s, 1m20s, 5m0s."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
