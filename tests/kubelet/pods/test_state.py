"""What a kubelet remembers of a pod: who crashed and waits how long, who cannot start, deadlines, grace periods."""

from types import SimpleNamespace

import pytest

from podwire.kubelet.claims import ClaimsNotReady
from podwire.kubelet.pods.dependencies import CLAIM_SECONDS, CRASH_SECONDS, SANDBOX_SECONDS, KubeletPaths
from podwire.kubelet.pods.observed import ObservedContainer, Sandbox, together
from podwire.kubelet.pods.plan import plan
from podwire.kubelet.pods.start import CannotStart
from podwire.kubelet.pods.state import FORCED_SECONDS, VOLUME_SECONDS, PodState
from podwire.objects import pods
from podwire.objects.times import rfc3339
from podwire.protocols.cri import cri_pb2 as pb
from podwire.tasks.backoff import Backoff


class Time:
    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now

    def wall(self):
        return 1_800_000_000.0 + self.now


class Content:
    """Probes that have nothing to complain about, unless told so."""

    def __init__(self):
        self.verdicts = {}

    def verdict(self, seen):
        return self.verdicts.get(seen.id)

    def started(self, container, seen):
        return True

    ready = started


class World:
    def __init__(self, tmp_path, **spec):
        self.clock, self.probes, self.events, self.status = Time(), Content(), [], {}
        self.claimed = {}
        self.kit = SimpleNamespace(
            clock=self.clock,
            probes=self.probes,
            crashes=Backoff(*CRASH_SECONDS),
            sandboxes=Backoff(*SANDBOX_SECONDS),
            recorder=SimpleNamespace(tell=lambda pod, type_, reason, message, **_: self.events.append(reason)),
            reports=SimpleNamespace(latest=lambda uid: self.status),
            places=KubeletPaths(root=tmp_path, logs=tmp_path),
            node=lambda: SimpleNamespace(ips=("192.0.2.1",)),
            runtime_name="podwire",
            devices=SimpleNamespace(statuses=lambda uid: {}),
            claims=SimpleNamespace(statuses=lambda pod: self.claimed),
            preparing=Backoff(*CLAIM_SECONDS),
        )
        self.pod = self.read(**spec)
        self.memory = PodState(self.kit, self.pod)
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
        return together([Sandbox(id="s", ready=True)], self.containers)

    @property
    def a(self):
        return self.pod.spec.containers[0]

    def has(self, state, attempt=0, code=1):
        """The runtime has another one."""
        number = pb.ContainerState.Value(f"CONTAINER_{state}")
        made = ObservedContainer(
            id=f"a{attempt}", name="a", sandbox="s", state=number, attempt=attempt, exit_code=code, hash=""
        )
        self.containers = [*(each for each in self.containers if each.id != made.id), made][-2:]

    async def look(self):
        """What to do now, after a look."""
        await self.memory.remember(self.pod, self.observed)
        return plan(self.pod, self.observed, self.memory.facts(self.pod, self.observed))

    def waiting(self):
        return self.memory.view(self.pod, self.observed).waiting.get("a", ("", ""))


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
        world.memory.starts(world.a)
        world.has("RUNNING", attempt + 1)
        assert not (await world.look()).actions
    assert pauses == [0, 10, 20, 40, 80, 160, 300, 300]


async def test_while_it_waits_that_is_told_once(world):
    for attempt in range(2):
        world.has("EXITED", attempt)
        await world.look()
        if attempt == 0:
            world.memory.starts(world.a)
    for _ in range(3):
        await world.look()
    about = "container=a pod=p_default(u)"
    assert world.waiting() == ("CrashLoopBackOff", f"back-off 10s restarting failed {about}")
    assert world.events == ["BackOff"]
    world.clock.now += 10
    world.memory.starts(world.a)
    assert world.waiting() == ("", "")


@pytest.mark.parametrize(
    ("seconds", "told"), [(10, "10s"), (80, "1m20s"), (300, "5m0s")], ids=["seconds", "both", "minutes"]
)
async def test_a_pause_is_said_as_others_say_it(world, seconds, told):
    world.kit.crashes = Backoff(seconds, 300.0)
    world.kit.crashes.tried("u/a", world.clock.now)
    world.has("EXITED")
    await world.look()
    assert world.waiting()[1].startswith(f"back-off {told} ")


async def test_who_ran_for_long_starts_again_at_once(world):
    world.kit.crashes.tried("u/a", world.clock.now)
    world.clock.now += 2 * CRASH_SECONDS[1] + 1
    world.has("EXITED")
    assert (await world.look()).actions


async def test_what_never_starts_again_does_not_wait(tmp_path):
    world = World(tmp_path, restartPolicy="Never")
    world.kit.crashes.tried("u/a", world.clock.now)
    world.has("EXITED")
    await world.look()
    assert world.waiting() == ("", "")


async def test_somebody_may_ask_for_the_next_try_now(world):
    world.kit.crashes.tried("u/a", world.clock.now)
    world.has("EXITED")
    assert not (await world.look()).actions
    world.memory.retry()
    assert (await world.look()).actions


@pytest.mark.parametrize(
    ("retry_in", "pause"),
    [pytest.param(5.0, 5.0, id="it has said when"), pytest.param(None, VOLUME_SECONDS[1], id="it waits for a change")],
)
async def test_what_cannot_start_is_tried_again_in_time(world, retry_in, pause):
    retry_at = None if retry_in is None else world.clock.now + retry_in
    world.memory.cannot_start(world.a, CannotStart("ErrImagePull", "no such image", retry_at))
    todo = await world.look()
    assert (todo.actions, todo.wake_at) == ((), world.clock.now + pause)
    assert world.waiting() == ("ErrImagePull", "no such image")


async def test_what_cannot_start_is_tried_at_once_when_something_changed(world):
    world.memory.cannot_start(world.a, CannotStart("CreateContainerConfigError", 'configmap "c" not found'))
    world.memory.may_start()
    assert (await world.look()).actions


async def test_no_change_shortens_the_pause_of_a_crash(world):
    world.kit.crashes.tried("u/a", world.clock.now)
    world.has("EXITED")
    await world.look()
    world.memory.may_start()
    assert not (await world.look()).actions


@pytest.mark.parametrize("state", ["EXITED", "CREATED"])
async def test_what_was_made_but_cannot_be_started_waits_as_if_it_had_crashed(world, state):
    pauses = []
    for attempt in range(4):
        world.has(state, attempt)
        world.memory.cannot_start(world.a, CannotStart("RunContainerError", "no such file", made=True))
        assert world.waiting()[0] == "RunContainerError"
        todo = await world.look()
        pauses.append(0 if todo.actions else todo.wake_at - world.clock.now)
        world.clock.now += pauses[-1]
        world.memory.starts(world.a)
    assert pauses == [0, 10, 20, 40]


async def test_what_was_made_but_cannot_be_started_has_ended_if_nothing_starts_again(tmp_path):
    world = World(tmp_path, restartPolicy="Never")
    world.has("EXITED", code=128)
    world.memory.cannot_start(world.a, CannotStart("RunContainerError", "no such file", made=True))
    await world.look()
    assert world.waiting() == ("", "")


async def test_volumes_that_fail_are_tried_ever_later_and_then_forgotten(world):
    pauses = []
    for _ in range(7):
        world.memory.volumes_failed()
        todo = await world.look()
        assert todo.actions == ()
        pauses.append(todo.wake_at - world.clock.now)
    assert pauses == [2, 4, 8, 16, 32, 60, 60]
    world.memory.volumes_worked()
    assert (await world.look()).wake_at is None
    world.memory.volumes_failed()
    assert (await world.look()).wake_at == world.clock.now + 2


async def test_sandboxes_that_fail_are_tried_ever_later_unless_something_changed(world):
    pauses = []
    for _ in range(7):
        world.memory.sandbox_failed()
        pauses.append(world.memory.facts(world.pod, world.observed).sandbox_held - world.clock.now)
    assert pauses == [1, 2, 4, 8, 16, 30, 30]
    world.memory.sandbox_may_work()
    assert world.memory.facts(world.pod, world.observed).sandbox_held == 0.0
    world.memory.sandbox_made()
    world.memory.sandbox_failed()
    assert world.memory.facts(world.pod, world.observed).sandbox_held == world.clock.now + 1


async def test_a_deadline_counts_from_the_start_of_the_pod(tmp_path):
    world = World(tmp_path, activeDeadlineSeconds=60)
    assert world.memory.facts(world.pod, world.observed).deadline is None, "it has not started"
    world.status = {"startTime": rfc3339(world.clock.wall() - 20)}
    assert world.memory.facts(world.pod, world.observed).deadline == pytest.approx(world.clock.now + 40, abs=1)
    assert world.memory.failure is None
    world.clock.now += 41
    world.memory.facts(world.pod, world.observed)
    assert world.memory.failure == (
        "DeadlineExceeded",
        "Pod was active on the node longer than the specified deadline",
    )
    assert world.memory.facts(world.pod, world.observed).deadline == 0.0


@pytest.mark.parametrize(
    ("metadata", "how", "seconds"),
    [
        pytest.param({}, {}, 30, id="what the pod says"),
        pytest.param({"deletionGracePeriodSeconds": 5}, {}, 5, id="what the delete says"),
        pytest.param({"deletionGracePeriodSeconds": 5}, {"gone": True}, FORCED_SECONDS, id="nobody asked"),
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
    assert world.memory.grace(given, **{"gone": False, "adopted": False, **how}) == seconds


async def test_last_words_are_read_once_and_forgotten_with_their_container(world, tmp_path):
    file = tmp_path / "pods/u/containers/a/0"
    file.parent.mkdir(parents=True)
    file.write_text("farewell")
    world.has("EXITED")
    await world.look()
    file.write_text("too late")
    await world.look()
    assert world.memory.view(world.pod, world.observed).messages == {"a0": "farewell"}
    world.containers = []
    await world.look()
    assert world.memory.view(world.pod, world.observed).messages == {}


def test_what_probes_say_is_known(world):
    world.has("RUNNING")
    world.probes.verdicts["a0"] = SimpleNamespace(message="it hangs", grace_seconds=3)
    facts = world.memory.facts(world.pod, world.observed)
    assert (facts.unhealthy["a0"].message, facts.unhealthy["a0"].grace) == ("it hangs", 3)
    assert facts.started == {"a0"}
    assert world.memory.view(world.pod, world.observed).ready == {"a0"}


def test_containers_that_the_pod_does_not_have_are_no_trouble(world):
    world.containers = [ObservedContainer(id="x", name="x", sandbox="s", state=pb.CONTAINER_RUNNING)]
    assert world.memory.facts(world.pod, world.observed).started == frozenset()


def test_hashes_are_worked_out_for_each_generation(world):
    before = world.memory.facts(world.pod, world.observed).hashes
    assert world.memory.facts(world.pod, world.observed).hashes is before
    changed = world.read(metadata={"generation": 2}, containers=[{"name": "a", "image": "other"}])
    assert world.memory.facts(changed, world.observed).hashes != before


def test_who_waits_for_claims_waits_longer_each_time_and_no_longer_than_it_must(world):
    error = ClaimsNotReady("the driver is not registered")
    assert [world.memory.claims_missing(world.pod, error) - world.clock.now for _ in range(7)] == [
        1,
        2,
        4,
        8,
        16,
        30,
        30,
    ]
    assert world.memory.facts(world.pod, world.observed).sandbox_held == world.clock.now + 30
    assert world.waiting() == ("FailedPrepareDynamicResources", "the driver is not registered")
    world.memory.may_start()
    assert world.memory.facts(world.pod, world.observed).sandbox_held == 0.0
    world.memory.has_all()
    assert world.waiting() == ("", "")
    assert world.memory.claims_missing(world.pod, error) == world.clock.now + 1
    world.memory.retry()
    assert world.memory.facts(world.pod, world.observed).sandbox_held == 0.0


def test_how_devices_of_claims_were_is_known_when_they_are_gone(world):
    world.claimed = {"a": [{"name": "claim:nic", "resources": []}]}
    assert world.memory.view(world.pod, world.observed).devices == world.claimed
    world.claimed = {}
    assert world.memory.view(world.pod, world.observed).devices == {"a": [{"name": "claim:nic", "resources": []}]}
