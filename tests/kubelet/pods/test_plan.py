"""The next actions of a pod: every mix of policies, ends, init containers, sidecars, lost sandboxes and held starts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.kubelet.pods.actions import (
    EndContainers,
    KillContainer,
    RemoveContainer,
    RemoveSandbox,
    RunSandbox,
    StartContainer,
    StopSandbox,
)
from podwire.kubelet.pods.observed import NOTHING, ObservedContainer, Sandbox, newest_first
from podwire.kubelet.pods.plan import Facts, outcome, plan, restarts
from podwire.kubelet.probes.threshold import Unhealthy
from podwire.objects import pods
from podwire.protocols.cri import cri_pb2 as pb

POLICIES = ("Always", "OnFailure", "Never")


def pod(*apps, init=(), policy="Always", ephemeral=(), status=None, **spec):
    """Names of containers; an init container whose name begins with s is a sidecar."""
    inits = [{"name": item, **({"restartPolicy": "Always"} if item.startswith("s") else {})} for item in init]
    return pods.read(
        {
            "metadata": {"name": "p", "namespace": "default", "uid": "u"},
            "spec": {
                "containers": [{"name": app} for app in apps or ("a",)],
                "initContainers": inits,
                "ephemeralContainers": [{"name": item} for item in ephemeral],
                "restartPolicy": policy,
                **spec,
            },
            "status": status or {},
        }
    )


def run(name, attempt=0, sandbox="s0", **more):
    return ObservedContainer(
        id=f"{name}{attempt}", name=name, sandbox=sandbox, state=pb.CONTAINER_RUNNING, attempt=attempt, **more
    )


def end(name, code=0, attempt=0, sandbox="s0"):
    return ObservedContainer(
        id=f"{name}{attempt}",
        name=name,
        sandbox=sandbox,
        state=pb.CONTAINER_EXITED,
        attempt=attempt,
        exit_code=code,
    )


def made(name, attempt=0, sandbox="s0"):
    return ObservedContainer(
        id=f"{name}{attempt}", name=name, sandbox=sandbox, state=pb.CONTAINER_CREATED, attempt=attempt
    )


def box(number=0, ready=True):
    return Sandbox(id=f"s{number}", ready=ready, attempt=number)


def seen(*containers, boxes=None):
    """In one sandbox that is ready, if nothing else is said."""
    return newest_first(boxes or [box()], containers)


def summary(actions):
    """Actions in short words."""
    words = []
    for action in actions:
        match action:
            case RunSandbox(attempt):
                words.append(f"sandbox {attempt}")
            case StopSandbox(id_):
                words.append(f"stop {id_}")
            case RemoveSandbox(id_):
                words.append(f"drop {id_}")
            case StartContainer(container, attempt):
                words.append(f"start {container.name}{attempt}")
            case KillContainer(_, container):
                words.append(f"kill {container.id}")
            case EndContainers(running):
                words.append(f"end {' '.join(sorted(container.id for container in running))}")
            case RemoveContainer(id_):
                words.append(f"remove {id_}")
    return words


def planned(pod_, observed, **facts):
    """All containers that run have started, if nothing else is said."""
    facts.setdefault("started", frozenset(item.id for item in observed.running))
    return plan(pod_, observed, Facts(**facts))


def next_of(pod_, observed, **facts):
    return summary(planned(pod_, observed, **facts).actions)


def test_the_first_action_is_a_sandbox():
    assert next_of(pod(), NOTHING) == ["sandbox 0"]


def test_all_apps_start_together():
    assert next_of(pod("a", "b"), seen()) == ["start a0", "start b0"]


def test_nothing_is_done_while_all_run():
    assert planned(pod("a", "b"), seen(run("a"), run("b"))).actions == ()


@pytest.mark.parametrize(
    ("policy", "code", "expected", "phase"),
    [
        pytest.param("Always", 0, ["start a1"], None, id="Always, done"),
        pytest.param("Always", 1, ["start a1"], None, id="Always, failed"),
        pytest.param("OnFailure", 0, ["stop s0"], "Succeeded", id="OnFailure, done"),
        pytest.param("OnFailure", 1, ["start a1"], None, id="OnFailure, failed"),
        pytest.param("Never", 0, ["stop s0"], "Succeeded", id="Never, done"),
        pytest.param("Never", 1, ["stop s0"], "Failed", id="Never, failed"),
    ],
)
def test_an_app_that_ended(policy, code, expected, phase):
    given_, observed = pod(policy=policy), seen(end("a", code))
    assert next_of(given_, observed) == expected
    assert outcome(given_, observed) == phase


@pytest.mark.parametrize(
    ("policy", "codes", "expected", "phase"),
    [
        pytest.param("OnFailure", (0, None), [], None, id="one is done, the other runs"),
        pytest.param("OnFailure", (0, 2), ["start b1"], None, id="one is done, the other failed"),
        pytest.param("Never", (1, None), [], None, id="one failed, the other runs"),
        pytest.param("Never", (1, 0), ["stop s0"], "Failed", id="one failed, the other is done"),
        pytest.param("Never", (0, 0), ["stop s0"], "Succeeded", id="both are done"),
        pytest.param("Always", (0, 1), ["start a1", "start b1"], None, id="both ended, and start again"),
    ],
)
def test_two_apps(policy, codes, expected, phase):
    containers = [run(name) if code is None else end(name, code) for name, code in zip("ab", codes, strict=True)]
    given_, observed = pod("a", "b", policy=policy), seen(*containers)
    assert next_of(given_, observed) == expected
    assert outcome(given_, observed) == phase


RULE = {"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}
OTHERS = {"action": "Restart", "exitCodes": {"operator": "NotIn", "values": [42]}}


@pytest.mark.parametrize(
    ("policy", "own", "code", "again", "phase"),
    [
        pytest.param("Always", {"restartPolicy": "Never"}, 1, False, "Failed", id="never, in a pod of always"),
        pytest.param(
            "Always", {"restartPolicy": "OnFailure"}, 0, False, "Succeeded", id="on failure, and it succeeded"
        ),
        pytest.param("Never", {"restartPolicy": "OnFailure"}, 1, True, None, id="on failure, in a pod of never"),
        pytest.param("Never", {"restartPolicy": "Always"}, 0, True, None, id="always, in a pod of never"),
        pytest.param("Never", {"restartPolicy": "Never", "restartPolicyRules": [RULE]}, 42, True, None, id="by a rule"),
        pytest.param(
            "Never", {"restartPolicy": "Never", "restartPolicyRules": [RULE]}, 1, False, "Failed", id="no rule"
        ),
        pytest.param("Never", {"restartPolicy": "Never", "restartPolicyRules": [OTHERS]}, 1, True, None, id="not in"),
    ],
)
def test_a_container_may_have_a_restart_policy_of_its_own(policy, own, code, again, phase):
    pod_ = pod(policy=policy, containers=[{"name": "a", **own}])
    observed = seen(end("a", code))
    assert restarts(pod_, pod_.spec.containers[0], observed.containers[0]) is again
    assert outcome(pod_, observed) == phase


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        pytest.param([], ["start i0"], id="the first init container alone"),
        pytest.param([run("i")], [], id="the second waits while the first runs"),
        pytest.param([end("i")], ["start j0"], id="the second after the first"),
        pytest.param([end("i"), run("j")], [], id="apps wait for the last"),
        pytest.param([end("i"), end("j")], ["start a0", "start b0"], id="then the apps"),
        pytest.param([end("i"), end("j"), run("a")], ["start b0"], id="an app is missing"),
        pytest.param([run("a"), run("b")], [], id="init containers were removed long ago"),
    ],
)
def test_init_containers_run_one_after_the_other(policy, containers, expected):
    assert next_of(pod("a", "b", init=("i", "j"), policy=policy), seen(*containers)) == expected


@pytest.mark.parametrize(
    ("policy", "expected", "phase"),
    [
        pytest.param("Always", ["start i1"], None, id="Always"),
        pytest.param("OnFailure", ["start i1"], None, id="OnFailure"),
        pytest.param("Never", ["stop s0"], "Failed", id="Never"),
    ],
)
def test_an_init_container_that_failed(policy, expected, phase):
    given_, observed = pod(init=("i", "j"), policy=policy), seen(end("i", 1))
    assert next_of(given_, observed) == expected
    assert outcome(given_, observed) == phase


@pytest.mark.parametrize(
    ("containers", "started", "expected"),
    [
        pytest.param([], "", ["start s0"], id="a sidecar stands in line"),
        pytest.param([run("s")], "", [], id="until its startup probe succeeds others wait"),
        pytest.param([run("s")], "s0", ["start i0"], id="then the next init container"),
        pytest.param([run("s"), end("i")], "s0", ["start a0"], id="then the app"),
        pytest.param([end("s"), run("i")], "", ["start s1"], id="it starts again, and what ran goes on"),
        pytest.param([end("s"), end("i"), run("a")], "a0", ["start s1"], id="also beside apps"),
        pytest.param([end("s", 0), end("i"), end("a", 1)], "", ["start s1", "start a1"], id="both start again"),
    ],
)
def test_sidecars_start_in_order_and_stay(containers, started, expected):
    facts = {"started": frozenset(started.split())}
    assert next_of(pod("a", init=("s", "i")), seen(*containers), **facts) == expected


@pytest.mark.parametrize(
    ("policy", "containers", "expected", "phase"),
    [
        pytest.param("Never", [run("s"), end("a")], ["end s0", "stop s0"], "Succeeded", id="done"),
        pytest.param("Never", [run("s"), end("a", 1)], ["end s0", "stop s0"], "Failed", id="failed"),
        pytest.param("OnFailure", [run("s"), end("a")], ["end s0", "stop s0"], "Succeeded", id="OnFailure, done"),
        pytest.param("Never", [end("s", 1), end("a")], ["stop s0"], "Succeeded", id="a sidecar's end does not count"),
        pytest.param("Never", [end("s", 1), run("a")], ["start s1"], None, id="Never does not mean sidecars"),
    ],
)
def test_sidecars_end_with_the_last_app(policy, containers, expected, phase):
    given_, observed = pod("a", init=("s",), policy=policy), seen(*containers)
    assert next_of(given_, observed) == expected
    assert outcome(given_, observed) == phase


@pytest.mark.parametrize(
    ("pod_", "containers", "boxes", "expected"),
    [
        pytest.param(pod(), [], [box(0, False)], ["stop s0", "sandbox 1"], id="before anything ran"),
        pytest.param(pod(), [end("a", 137)], [box(0, False)], ["stop s0", "sandbox 1"], id="with all in it"),
        pytest.param(
            pod(policy="Never"), [end("a", 137)], [box(0, False)], [], id="a pod that starts nothing again needs none"
        ),
        pytest.param(pod(), [end("a", 137)], [box(0, False), box(1)], ["start a1"], id="apps count on in the new one"),
        pytest.param(
            pod(init=("i",)),
            [end("i"), end("a", 137)],
            [box(0, False), box(1)],
            ["start i1"],
            id="init containers run again",
        ),
        pytest.param(
            pod(init=("i",)),
            [end("i"), end("a", 137), end("i", attempt=1, sandbox="s1")],
            [box(0, False), box(1)],
            ["start a1"],
            id="and apps after them",
        ),
        pytest.param(
            pod("a", "b", policy="OnFailure"),
            [end("a"), end("b", 137)],
            [box(0, False), box(1)],
            ["start b1"],
            id="what was done stays done",
        ),
        pytest.param(
            pod(),
            [],
            [box(0, False), box(1, False), box(2, False)],
            ["stop s2", "drop s1", "drop s0", "sandbox 3"],
            id="those that failed do not pile up",
        ),
    ],
)
def test_a_lost_sandbox(pod_, containers, boxes, expected):
    assert next_of(pod_, seen(*containers, boxes=boxes)) == expected


def test_a_container_that_never_started_is_created_again():
    assert next_of(pod(), seen(end("a", 1), made("a", 1))) == ["remove a1", "start a1"]


def test_a_container_that_could_not_be_started_waits_as_others_do():
    waits = planned(pod(), seen(made("a")), now=5.0, held={"a": 9.0})
    assert (summary(waits.actions), waits.wake_at) == ([], 9.0)
    assert next_of(pod(), seen(made("a")), now=9.0, held={"a": 9.0}) == ["remove a0", "start a0"]


@pytest.mark.parametrize(
    ("now", "expected", "wake_at"),
    [
        pytest.param(5.0, ["start b0"], 10.0, id="too early for one"),
        pytest.param(10.0, ["start a1", "start b0"], None, id="time for both"),
    ],
)
def test_a_held_start_does_not_hold_other_containers(now, expected, wake_at):
    found = planned(pod("a", "b"), seen(end("a", 1)), now=now, held={"a": 10.0})
    assert (summary(found.actions), found.wake_at) == (expected, wake_at)


def test_without_volumes_nothing_starts():
    found = planned(pod("a", "b"), seen(run("b")), now=5.0, volumes_held=7.0)
    assert (summary(found.actions), found.wake_at) == ([], 7.0)
    assert next_of(pod("a", "b"), seen(run("b")), now=7.0, volumes_held=7.0) == ["start a0"]


def test_the_earliest_of_several_times_wakes():
    found = planned(pod("a", "b"), seen(end("a"), end("b")), now=1.0, held={"a": 20.0, "b": 10.0}, deadline=15.0)
    assert found.wake_at == 10.0
    assert planned(pod(), seen(run("a")), now=1.0, deadline=15.0).wake_at == 15.0


@pytest.mark.parametrize(
    ("now", "deadline", "expected", "wake_at"),
    [
        pytest.param(1.0, None, [], 3.0, id="not yet"),
        pytest.param(1.0, 2.0, [], 2.0, id="not yet, and the deadline is earlier"),
        pytest.param(3.0, None, ["sandbox 0"], None, id="now"),
    ],
)
def test_a_sandbox_that_failed_is_tried_after_a_pause(now, deadline, expected, wake_at):
    found = planned(pod(), NOTHING, now=now, sandbox_held=3.0, deadline=deadline)
    assert (summary(found.actions), found.wake_at) == (expected, wake_at)


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        pytest.param("Always", "it is ill, will be restarted", id="Always"),
        pytest.param("OnFailure", "it is ill, will be restarted", id="OnFailure"),
        pytest.param("Never", "it is ill", id="Never"),
    ],
)
def test_an_unhealthy_container_is_killed_with_the_reason(policy, why):
    (kill,) = planned(
        pod(policy=policy), seen(run("a")), unhealthy={"a0": Unhealthy(message="it is ill", grace_seconds=3)}
    ).actions
    assert isinstance(kill, KillContainer)
    assert (kill.running.id, kill.message, kill.grace) == ("a0", why, 3)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_changed_image_replaces_the_container_under_any_policy(policy):
    observed = seen(run("a", hash="old"), run("b", hash="same"))
    found = planned(pod("a", "b", policy=policy), observed, hashes={"a": "new", "b": "same"})
    assert summary(found.actions) == ["kill a0", "start a1"]
    assert found.actions[0].message == "Container a definition changed, will be restarted"


@pytest.mark.parametrize(
    "container", [run("a"), run("a", hash="h"), end("a", 1)], ids=["no hash known", "no hash wanted", "it ended"]
)
def test_a_container_without_a_hash_is_not_replaced(container):
    hashes = {"a": "new"} if container.hash == "" else {}
    assert next_of(pod(policy="Never"), seen(container), hashes=hashes) in ([], ["stop s0"])


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(NOTHING, [], id="nothing was made"),
        pytest.param(seen(run("a"), run("b")), ["end a0 b0", "stop s0"], id="all runs"),
        pytest.param(seen(end("a"), boxes=[box(0, False)]), [], id="all ended by itself"),
    ],
)
def test_after_its_deadline_a_pod_ends(observed, expected):
    found = planned(pod("a", "b"), observed, now=10.0, deadline=10.0)
    assert (summary(found.actions), found.wake_at) == (expected, None)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_the_api_calls_finished_ends(phase):
    given_ = pod(status={"phase": phase})
    assert next_of(given_, seen(run("a"))) == ["end a0", "stop s0"]
    assert next_of(given_, NOTHING) == []
    assert outcome(given_, seen(run("a"))) == phase


@pytest.mark.parametrize(
    ("containers", "boxes", "expected"),
    [
        pytest.param([run("a", 1), end("a")], [box()], [], id="the one before stays for its log"),
        pytest.param([run("a", 3), end("a", attempt=2), end("a", attempt=1), end("a")], [box()],
                     ["remove a1", "remove a0"], id="older ones go"),
        pytest.param([run("a")], [box(), box(1)], ["start a1", "stop s0"], id="of two sandboxes the newest counts"),
        pytest.param([run("a", 1, "s1"), end("a")], [box(0, False), box(1)], [], id="inhabited by the one before"),
        pytest.param([run("a", 2, "s1"), end("a", 1, 1, "s1"), end("a")], [box(0, False), box(1)],
                     ["remove a0", "drop s0"], id="an old sandbox goes with its last container"),
    ],
)  # fmt: skip
def test_an_old_instance_is_removed(containers, boxes, expected):
    assert next_of(pod(), seen(*containers, boxes=boxes)) == expected


@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        pytest.param([run("a")], ["start e0"], id="beside running apps"),
        pytest.param([run("a"), run("e")], [], id="it runs"),
        pytest.param([run("a"), end("e", 1)], [], id="it ended, and never starts again"),
    ],
)
def test_ephemeral_containers_run_once(containers, expected):
    assert next_of(pod(ephemeral=("e",)), seen(*containers)) == expected


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param({"name": "a", "restartCount": 3, "containerID": "x://1"}, ["start a4"], id="it ran"),
        pytest.param({"name": "a", "restartCount": 0}, ["start a0"], id="it never did"),
        pytest.param({"name": "b", "restartCount": 7, "containerID": "x://1"}, ["start a0"], id="another one did"),
    ],
)
def test_a_runtime_that_forgot_everything_does_not_reset_the_count(status, expected):
    assert next_of(pod(status={"containerStatuses": [status]}), seen()) == expected


ENDED = st.tuples(st.integers(0, 2), st.sampled_from([pb.CONTAINER_RUNNING, pb.CONTAINER_EXITED, pb.CONTAINER_CREATED]))


@given(
    policy=st.sampled_from(POLICIES),
    states=st.dictionaries(st.sampled_from(["i", "s", "a", "b"]), ENDED),
    ready=st.booleans(),
)
def test_a_plan_leads_somewhere(policy, states, ready):
    """Carried out, again and again, a plan comes to rest: everything runs, or the pod has ended."""
    given_ = pod("a", "b", init=("i", "s"), policy=policy)
    boxes = {"s0": box(0, ready)}
    containers = {
        f"{name}0": ObservedContainer(id=f"{name}0", name=name, sandbox="s0", state=state, exit_code=code)
        for name, (code, state) in states.items()
    }
    for _ in range(40):
        observed = newest_first(boxes.values(), containers.values())
        actions = planned(given_, observed).actions
        if not actions:
            waiting = [item.id for item in observed.running if item.name == "i"]
            if not waiting:
                break
            containers[waiting[0]] = end("i", 0, observed.latest("i").attempt, observed.latest("i").sandbox)
        for action in actions:
            _carry_out(action, boxes, containers)
    else:
        raise AssertionError(f"no rest: {summary(actions)}")
    names = {item.name for item in observed.running}
    assert names == set() if outcome(given_, observed) else names and names <= {"s", "a", "b"}
    for app in given_.spec.containers:
        latest = observed.latest(app.name)
        assert outcome(given_, observed) or latest.running or not restarts(given_, app, latest)


def _carry_out(action, boxes, containers):
    match action:
        case RunSandbox(attempt):
            boxes[f"s{attempt}"] = box(attempt)
        case StopSandbox(id_):
            boxes[id_] = box(int(id_[1:]), False)
            for item in [
                container for container in containers.values() if container.sandbox == id_ and container.running
            ]:
                containers[item.id] = end(item.name, 137, item.attempt, id_)
        case RemoveSandbox(id_):
            del boxes[id_]
        case StartContainer(container, attempt):
            newest = max(boxes.values(), key=lambda each: each.attempt)
            started = run(container.name, attempt, newest.id)
            containers[started.id] = started
        case KillContainer(_, killed):
            containers[killed.id] = end(killed.name, 137, killed.attempt, killed.sandbox)
        case EndContainers(running):
            for item in running:
                containers[item.id] = end(item.name, 137, item.attempt, item.sandbox)
        case RemoveContainer(id_):
            del containers[id_]
