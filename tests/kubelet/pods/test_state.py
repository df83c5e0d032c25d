"""State of a pod: crash back-off, containers that cannot start, deadlines, grace periods, claims and devices."""

from types import SimpleNamespace

import pytest

from podwire.kubelet.claims import ClaimsNotReady
from podwire.kubelet.paths import KubeletPaths
from podwire.kubelet.pods.container_start import CannotStart
from podwire.kubelet.pods.limits import PodLimits
from podwire.kubelet.pods.observed import ObservedContainer, Sandbox, newest_first
from podwire.kubelet.pods.plan import plan
from podwire.kubelet.pods.state import PodState
from podwire.kubelet.probes import ProbeResults, Probes
from podwire.kubelet.probes.threshold import Unhealthy
from podwire.objects import pods
from podwire.objects.times import rfc3339
from podwire.protocols.cri import cri_pb2 as pb

LIMITS = PodLimits()


class Time:
    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now

    def wall(self):
        return 1_800_000_000.0 + self.now


class World:
    def __init__(self, tmp_path, limits=LIMITS, **spec):
        self.clock, self.events, self.status = Time(), [], {}
        self.unhealthy = {}
        recorder = SimpleNamespace(tell=lambda pod, type_, reason, message, **_: self.events.append(reason))
        self.pod = self.read(**spec)
        self.paths = KubeletPaths(root=tmp_path, logs=tmp_path)
        self.state = PodState(self.clock, recorder, limits)
        self.containers = []

    def read(self, metadata=None, **spec):
        return pods.read(
            {
                "metadata": {"name": "p", "namespace": "default", "uid": "u", **(metadata or {})},
                "spec": {"containers": [{"name": "a"}], **spec},
            }
        )

    @property
    def observed(self):
        return newest_first([Sandbox(id="s", ready=True)], self.containers)

    @property
    def a(self):
        return self.pod.spec.containers[0]

    def has(self, state, attempt=0, code=1):
        """The runtime has another instance of the container."""
        number = pb.ContainerState.Value(f"CONTAINER_{state}")
        made = ObservedContainer(
            id=f"a{attempt}", name="a", sandbox="s", state=number, attempt=attempt, exit_code=code, hash=""
        )
        self.containers = [*(container for container in self.containers if container.id != made.id), made][-2:]

    def facts(self, pod=None):
        running = frozenset(container.id for container in self.observed.running)
        results = ProbeResults(ready=running, started=running, unhealthy=self.unhealthy)
        return self.state.facts(pod or self.pod, results, self.status)

    async def look(self):
        """Observe, and return the plan."""
        await self.state.observe(self.pod, self.observed, self.paths)
        return plan(self.pod, self.observed, self.facts())

    def waiting(self):
        return self.state.containers.waiting.get("a", ("", ""))

    async def crash(self):
        """The container has crashed once before, and is started again now."""
        self.has("EXITED", 0)
        await self.look()
        self.state.containers.starts(self.a)


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


async def test_a_container_that_crashes_starts_at_once_then_ever_later(world):
    pauses = []
    for attempt in range(8):
        world.has("EXITED", attempt)
        todo = await world.look()
        pauses.append(0 if todo.actions else todo.wake_at - world.clock.now)
        world.clock.now += pauses[-1]
        assert (await world.look()).actions
        world.state.containers.starts(world.a)
        world.has("RUNNING", attempt + 1)
        assert not (await world.look()).actions
    assert pauses == [0, 10, 20, 40, 80, 160, 300, 300]


async def test_a_back_off_is_recorded_once(world):
    for attempt in range(2):
        world.has("EXITED", attempt)
        await world.look()
        if attempt == 0:
            world.state.containers.starts(world.a)
    for _ in range(3):
        await world.look()
    about = "container=a pod=p_default(u)"
    assert world.waiting() == ("CrashLoopBackOff", f"back-off 10s restarting failed {about}")
    assert world.events == ["BackOff"]
    world.clock.now += 10
    world.state.containers.starts(world.a)
    assert world.waiting() == ("", "")


@pytest.mark.parametrize(
    ("seconds", "reported"), [(10, "10s"), (80, "1m20s"), (300, "5m0s")], ids=["seconds", "both", "minutes"]
)
async def test_backoff_is_printed_as_go_prints_it(tmp_path, seconds, reported):
    world = World(tmp_path, PodLimits(crash_backoff=(seconds, 300.0)))
    await world.crash()
    world.has("EXITED", 1)
    await world.look()
    assert world.waiting()[1].startswith(f"back-off {reported} ")


async def test_a_container_that_ran_for_long_restarts_at_once(world):
    await world.crash()
    world.clock.now += 2 * LIMITS.crash_backoff[1] + 1
    world.has("EXITED", 1)
    assert (await world.look()).actions


async def test_a_container_that_never_restarts_has_no_back_off(tmp_path):
    world = World(tmp_path, restartPolicy="Never")
    await world.crash()
    world.has("EXITED", 1)
    await world.look()
    assert world.waiting() == ("", "")


async def test_the_retry_annotation_ends_a_back_off(world):
    await world.crash()
    world.has("EXITED", 1)
    assert not (await world.look()).actions
    world.state.retry_now()
    assert (await world.look()).actions


@pytest.mark.parametrize(
    ("retry_in", "pause"),
    [
        pytest.param(5.0, 5.0, id="it has said when"),
        pytest.param(None, LIMITS.volume_backoff[1], id="it waits for a change"),
    ],
)
async def test_a_failed_start_is_retried_in_time(world, retry_in, pause):
    retry_at = None if retry_in is None else world.clock.now + retry_in
    world.state.cannot_start(world.a, CannotStart("ErrImagePull", "no such image", retry_at))
    todo = await world.look()
    assert (todo.actions, todo.wake_at) == ((), world.clock.now + pause)
    assert world.waiting() == ("ErrImagePull", "no such image")


async def test_a_failed_start_is_retried_at_once_after_a_change(world):
    world.state.cannot_start(world.a, CannotStart("CreateContainerConfigError", 'configmap "c" not found'))
    world.state.may_start()
    assert (await world.look()).actions


async def test_no_change_shortens_the_pause_of_a_crash(world):
    await world.crash()
    world.has("EXITED", 1)
    await world.look()
    world.state.may_start()
    assert not (await world.look()).actions


@pytest.mark.parametrize("state", ["EXITED", "CREATED"])
async def test_a_created_container_that_cannot_start_backs_off_as_a_crash(world, state):
    pauses = []
    for attempt in range(4):
        world.has(state, attempt)
        world.state.cannot_start(world.a, CannotStart("RunContainerError", "no such file", created=True))
        assert world.waiting()[0] == "RunContainerError"
        todo = await world.look()
        pauses.append(0 if todo.actions else todo.wake_at - world.clock.now)
        world.clock.now += pauses[-1]
        world.state.containers.starts(world.a)
    assert pauses == [0, 10, 20, 40]


async def test_a_created_container_that_cannot_start_ends_under_policy_never(tmp_path):
    world = World(tmp_path, restartPolicy="Never")
    world.has("EXITED", code=128)
    world.state.cannot_start(world.a, CannotStart("RunContainerError", "no such file", created=True))
    await world.look()
    assert world.waiting() == ("", "")


async def test_volumes_that_fail_are_tried_ever_later_and_then_forgotten(world):
    pauses = []
    for _ in range(7):
        world.state.volumes.failed()
        todo = await world.look()
        assert todo.actions == ()
        pauses.append(todo.wake_at - world.clock.now)
    assert pauses == [2, 4, 8, 16, 32, 60, 60]
    world.state.volumes.succeeded()
    assert (await world.look()).wake_at is None
    world.state.volumes.failed()
    assert (await world.look()).wake_at == world.clock.now + 2


async def test_sandboxes_that_fail_are_tried_ever_later_unless_something_changed(world):
    pauses = []
    for _ in range(7):
        world.state.sandbox.failed()
        pauses.append(world.facts().sandbox_held - world.clock.now)
    assert pauses == [1, 2, 4, 8, 16, 30, 30]
    world.state.sandbox.retry_now()
    assert world.facts().sandbox_held == 0.0
    world.state.sandbox.succeeded()
    world.state.sandbox.failed()
    assert world.facts().sandbox_held == world.clock.now + 1


async def test_a_deadline_counts_from_the_start_of_the_pod(tmp_path):
    world = World(tmp_path, activeDeadlineSeconds=60)
    assert world.facts().deadline is None, "it has not started"
    world.status = {"startTime": rfc3339(world.clock.wall() - 20)}
    assert world.facts().deadline == pytest.approx(world.clock.now + 40, abs=1)
    assert world.state.failure is None
    world.clock.now += 41
    world.facts()
    assert world.state.failure == (
        "DeadlineExceeded",
        "Pod was active on the node longer than the specified deadline",
    )
    assert world.facts().deadline == 0.0


@pytest.mark.parametrize(
    ("metadata", "how", "seconds"),
    [
        pytest.param({}, {}, 30, id="what the pod says"),
        pytest.param({"deletionGracePeriodSeconds": 5}, {}, 5, id="what the delete says"),
        pytest.param({"deletionGracePeriodSeconds": 5}, {"gone": True}, LIMITS.forced_grace, id="nobody asked"),
        pytest.param({"deletionGracePeriodSeconds": 50, "in": 20}, {"adopted": True}, 21, id="what is left of it"),
        pytest.param({"deletionGracePeriodSeconds": 50, "in": -20}, {"adopted": True}, 0, id="nothing is left"),
        pytest.param({"deletionGracePeriodSeconds": 5, "in": 500}, {"adopted": True}, 5, id="clocks differ"),
    ],
)
def test_grace_periods(world, metadata, how, seconds):
    metadata = dict(metadata)
    if "in" in metadata:
        metadata["deletionTimestamp"] = rfc3339(world.clock.wall() + metadata.pop("in"))
    given = world.read(metadata=metadata)
    assert world.state.grace_period(given, **{"gone": False, "adopted": False, **how}) == seconds


async def test_last_words_are_read_once_and_forgotten_with_their_container(world, tmp_path):
    file = tmp_path / "pods/u/containers/a/0"
    file.parent.mkdir(parents=True)
    file.write_text("farewell")
    world.has("EXITED")
    await world.look()
    file.write_text("too late")
    await world.look()
    assert world.state.containers.messages == {"a0": "farewell"}
    world.containers = []
    await world.look()
    assert world.state.containers.messages == {}


def test_unhealthy_containers_are_in_the_facts(world):
    world.has("RUNNING")
    world.unhealthy["a0"] = Unhealthy(message="it hangs", grace_seconds=3)
    facts = world.facts()
    assert (facts.unhealthy["a0"].message, facts.unhealthy["a0"].grace_seconds) == ("it hangs", 3)
    assert facts.started == {"a0"}


def test_containers_that_are_not_in_the_spec_have_no_probe_results(world):
    probes = Probes(SimpleNamespace(), world.clock, lambda _: None, lambda *_: None)
    world.has("RUNNING")
    assert probes.results(world.pod, world.observed).started == {"a0"}
    world.containers = [ObservedContainer(id="x", name="x", sandbox="s", state=pb.CONTAINER_RUNNING)]
    assert probes.results(world.pod, world.observed) == ProbeResults()


def test_hashes_are_worked_out_for_each_generation(world):
    before = world.facts().hashes
    assert world.facts().hashes is before
    changed = world.read(metadata={"generation": 2}, containers=[{"name": "a", "image": "other"}])
    assert world.facts(changed).hashes != before


def test_waiting_for_claims_backs_off_up_to_a_maximum(world):
    error = ClaimsNotReady("the driver is not registered")
    assert [world.state.claims_missing(world.pod, error) - world.clock.now for _ in range(7)] == [
        1,
        2,
        4,
        8,
        16,
        30,
        30,
    ]
    assert world.facts().sandbox_held == world.clock.now + 30
    assert world.waiting() == ("FailedPrepareDynamicResources", "the driver is not registered")
    world.state.may_start()
    assert world.facts().sandbox_held == 0.0
    world.state.allocated()
    assert world.waiting() == ("", "")
    assert world.state.claims_missing(world.pod, error) == world.clock.now + 1
    world.state.retry_now()
    assert world.facts().sandbox_held == 0.0


def test_how_devices_of_claims_were_is_known_when_they_are_gone(world):
    claims = {"a": [{"name": "claim:nic", "resources": []}]}
    plugins = {"a": [{"name": "example.org/nic", "resources": []}]}
    allocation = world.state.allocation
    assert allocation.statuses(plugins, claims) == {"a": [*plugins["a"], *claims["a"]]}
    assert allocation.statuses({}, {}) == claims
