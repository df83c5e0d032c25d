"""A pod's status: its phase, its conditions and their times, its addresses, and what of it is sent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.kinds.patches import strategic
from podwire.kinds.schema import Schemas
from podwire.kubelet.pods.container_status import StatusInputs
from podwire.kubelet.pods.observed import NOTHING, ObservedContainer, Sandbox, newest_first
from podwire.kubelet.pods.status import pod_status, rejected_status, status_patch
from podwire.objects import pods
from podwire.protocols.cri import cri_pb2 as pb

THEN, NOW = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"
POD = Schemas().shape("v1", "Pod")


def pod(*apps, init=(), policy="Always", status=None, metadata=None, **spec):
    inits = [{"name": item, **({"restartPolicy": "Always"} if item.startswith("s") else {})} for item in init]
    return pods.read(
        {
            "metadata": {"name": "p", "namespace": "default", "uid": "u", **(metadata or {})},
            "spec": {
                "containers": [{"name": app} for app in apps or ("a",)],
                "initContainers": inits,
                "restartPolicy": policy,
                **spec,
            },
            "status": status or {},
        }
    )


def one(name, state, attempt=0, code=0, box="box"):
    state = pb.ContainerState.Value(f"CONTAINER_{state}")
    return ObservedContainer(
        id=f"{name}{attempt}", name=name, sandbox=box, state=state, attempt=attempt, exit_code=code, started_at=1
    )


def run(name, attempt=0):
    return one(name, "RUNNING", attempt)


def end(name, code=0, attempt=0):
    return one(name, "EXITED", attempt, code)


def seen(*containers, ready=True, ips=("10.0.0.2",)):
    return newest_first([Sandbox(id="box", ready=ready, ips=ips)], containers)


def shown(of, observed, *, ready="all", **more):
    """All containers that run have started and are ready, if nothing else is said."""
    running = frozenset(item.id for item in observed.running)
    more.setdefault("started", running)
    return pod_status(
        of, observed, StatusInputs(now=NOW, ready=running if ready == "all" else frozenset(ready), **more)
    )


def conditions(status):
    return {condition["type"]: condition["status"] for condition in status["conditions"]}


def condition(status, type_):
    return next(condition for condition in status["conditions"] if condition["type"] == type_)


OTHER_GATE = {"type": "x.io/other", "status": "True"}
CRASHING = {"a": ("CrashLoopBackOff", "back-off 10s")}


@pytest.mark.parametrize(
    ("of", "observed", "more", "phase"),
    [
        pytest.param(pod(), NOTHING, {}, "Pending", id="nothing is there"),
        pytest.param(pod(), seen(), {}, "Pending", id="a sandbox alone"),
        pytest.param(pod(), seen(one("a", "CREATED")), {}, "Pending", id="made, not started"),
        pytest.param(pod(), seen(run("a")), {}, "Running", id="all run"),
        pytest.param(pod("a", "b"), seen(run("a")), {}, "Pending", id="one of two runs"),
        pytest.param(pod("a", "b"), seen(run("a"), end("b", 1)), {}, "Running", id="one of two ended"),
        pytest.param(pod(), seen(end("a", 1)), {"waiting": CRASHING}, "Running", id="it crashed, and waits"),
        pytest.param(pod(), seen(end("a", 1)), {}, "Running", id="it crashed, and is about to start"),
        pytest.param(pod(init=("i",)), seen(run("i")), {}, "Pending", id="an init container runs"),
        pytest.param(pod(init=("i",)), seen(end("i", 1)), {}, "Pending", id="an init container failed, and starts"),
        pytest.param(pod(init=("i",)), seen(end("i"), run("a")), {}, "Running", id="initialized"),
        pytest.param(pod(init=("i",), policy="Never"), seen(end("i", 1)), {}, "Failed", id="an init container failed"),
        pytest.param(pod(policy="Never"), seen(end("a")), {}, "Succeeded", id="done"),
        pytest.param(pod(policy="Never"), seen(end("a", 1)), {}, "Failed", id="failed"),
        pytest.param(pod(policy="OnFailure"), seen(end("a", 1)), {}, "Running", id="failed, and starts again"),
        pytest.param(pod(), seen(run("a")), {"failure": ("DeadlineExceeded", "")}, "Failed", id="as a whole"),
        pytest.param(pod(status={"phase": "Failed"}), seen(run("a")), {}, "Failed", id="as the API says"),
        pytest.param(pod(init=("s",), policy="Never"), seen(run("s"), end("a")), {}, "Succeeded", id="sidecars left"),
    ],
)
def test_phases(of, observed, more, phase):
    assert shown(of, observed, **more)["phase"] == phase


DELETED = {"deletionTimestamp": NOW}


@pytest.mark.parametrize(
    ("containers", "phase"),
    [
        pytest.param([run("a"), run("b")], "Running", id="while they end"),
        pytest.param([end("a"), run("b")], "Running", id="while one ends"),
        pytest.param([end("a"), end("b")], "Succeeded", id="all ended well"),
        pytest.param([end("a"), end("b", 137)], "Failed", id="one was killed"),
        pytest.param([end("a")], "Failed", id="one never ran"),
    ],
)
def test_a_deleted_pod_ends_with_its_containers_under_any_policy(containers, phase):
    assert shown(pod("a", "b", metadata=DELETED), seen(*containers, ready=False))["phase"] == phase


def test_a_pod_that_runs_well():
    status = shown(pod(), seen(run("a")), host_ips=("192.0.2.1",), qos="Burstable")
    assert conditions(status) == dict.fromkeys(
        ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"), "True"
    )
    assert all(condition.keys() == {"type", "status", "lastProbeTime", "lastTransitionTime"}
               for condition in status["conditions"])  # fmt: skip
    assert (status["hostIP"], status["hostIPs"]) == ("192.0.2.1", [{"ip": "192.0.2.1"}])
    assert (status["podIP"], status["podIPs"]) == ("10.0.0.2", [{"ip": "10.0.0.2"}])
    assert (status["startTime"], status["qosClass"]) == (NOW, "Burstable")
    assert not {"reason", "message", "initContainerStatuses", "ephemeralContainerStatuses"} & status.keys()


@pytest.mark.parametrize(
    ("of", "observed", "ready", "reported"),
    [
        pytest.param(pod(), NOTHING, "", "FTFFT", id="nothing yet"),
        pytest.param(pod(), seen(), "", "TTFFT", id="a network"),
        pytest.param(pod(), seen(run("a")), "", "TTFFT", id="not ready"),
        pytest.param(pod(), seen(run("a")), ["a0"], "TTTTT", id="ready"),
        pytest.param(pod("a", "b"), seen(run("a"), run("b")), ["a0"], "TTFFT", id="one of two"),
        pytest.param(pod(init=("i",)), seen(run("i")), [], "TFFFT", id="not initialized"),
        pytest.param(pod(init=("s",)), seen(run("s"), run("a")), ["a0"], "TTFFT", id="a sidecar is not ready"),
        pytest.param(pod(init=("s",)), seen(run("s"), run("a")), ["a0", "s0"], "TTTTT", id="with its sidecar"),
        pytest.param(pod(policy="Never"), seen(end("a"), ready=False), [], "FTFFT", id="done"),
        pytest.param(pod(init=("i",), policy="Never"), seen(end("i", 1)), [], "TFFFT", id="failed before it began"),
    ],
)
def test_conditions(of, observed, ready, reported):
    order = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    found = conditions(shown(of, observed, ready=ready))
    assert "".join(found[item][0] for item in order) == reported


@pytest.mark.parametrize(
    ("of", "observed", "reason", "message"),
    [
        pytest.param(
            pod("a", "b"),
            seen(run("a"), run("b")),
            "ContainersNotReady",
            "containers with unready status: [a b]",
            id="which",
        ),
        pytest.param(pod(policy="Never"), seen(end("a")), "PodCompleted", None, id="done"),
        pytest.param(pod(policy="Never"), seen(end("a", 1)), "PodFailed", None, id="failed"),
    ],
)
def test_why_a_pod_is_not_ready(of, observed, reason, message):
    result = shown(of, observed, ready="")
    for type_ in ("Ready", "ContainersReady"):
        found = condition(result, type_)
        assert (found["reason"], found.get("message")) == (reason, message)


def test_which_init_containers_it_waits_for():
    found = condition(shown(pod(init=("i", "j")), seen(end("i"))), "Initialized")
    assert found["reason"] == "ContainersNotInitialized"
    assert found["message"] == "containers with incomplete status: [j]"


@pytest.mark.parametrize(
    ("gate", "ready", "message"),
    [
        pytest.param(
            [],
            "False",
            'corresponding condition of pod readiness gate "x.io/gate" does not exist., '
            'corresponding condition of pod readiness gate "x.io/other" does not exist.',
            id="nobody has spoken",
        ),
        pytest.param(
            [{"type": "x.io/gate", "status": "False"}, OTHER_GATE],
            "False",
            'the status of pod readiness gate "x.io/gate" is not "True", but False',
            id="closed",
        ),
        pytest.param([{"type": "x.io/gate", "status": "True"}, OTHER_GATE], "True", "", id="open"),
    ],
)
def test_readiness_gates(gate, ready, message):
    gates = [{"conditionType": "x.io/gate"}, {"conditionType": "x.io/other"}]
    of = pod(readinessGates=gates, status={"conditions": gate})
    status = shown(of, seen(run("a")))
    found = condition(status, "Ready")
    assert (found["status"], condition(status, "ContainersReady")["status"]) == (ready, "True")
    assert found.get("message", "") == message
    assert "x.io/gate" not in conditions(status)


@pytest.mark.parametrize(
    ("before", "since"),
    [
        pytest.param([], NOW, id="new"),
        pytest.param([{"type": "Ready", "status": "True", "lastTransitionTime": THEN}], THEN, id="as before"),
        pytest.param([{"type": "Ready", "status": "False", "lastTransitionTime": THEN}], NOW, id="changed"),
        pytest.param([{"type": "Ready", "status": "True", "lastTransitionTime": None}], NOW, id="since nobody knows"),
    ],
)
def test_a_condition_keeps_the_time_of_its_last_change(before, since):
    found = condition(shown(pod(status={"conditions": before}), seen(run("a"))), "Ready")
    assert found["lastTransitionTime"] == since


def test_a_pod_started_once():
    assert shown(pod(status={"startTime": THEN}), NOTHING)["startTime"] == THEN


@pytest.mark.parametrize(
    ("of", "observed", "ips"),
    [
        pytest.param(pod(), NOTHING, (), id="no sandbox"),
        pytest.param(pod(), seen(ready=False), (), id="a lost sandbox"),
        pytest.param(pod(), seen(ips=("10.0.0.2", "fd00::2")), ("10.0.0.2", "fd00::2"), id="dual stack"),
        pytest.param(pod(hostNetwork=True), seen(ips=()), ("192.0.2.1", "2001:db8::1"), id="the host's network"),
    ],
)
def test_addresses(of, observed, ips):
    status = shown(of, observed, host_ips=("192.0.2.1", "2001:db8::1"))
    assert status.get("podIP") == (ips[0] if ips else None)
    assert tuple(address["ip"] for address in status.get("podIPs", ())) == ips


def test_why_it_failed_as_a_whole():
    status = shown(pod(), seen(run("a")), failure=("DeadlineExceeded", "too long"))
    assert (status["reason"], status["message"]) == ("DeadlineExceeded", "too long")


def test_why_it_failed_stays_known_to_a_kubelet_that_was_restarted():
    of = pod(status={"phase": "Failed", "reason": "DeadlineExceeded", "message": "too long"})
    status = shown(of, seen(end("a")))
    assert (status["reason"], status["message"]) == ("DeadlineExceeded", "too long")


def test_ephemeral_containers_have_a_list_of_their_own():
    status = shown(pod(ephemeralContainers=[{"name": "e"}]), seen(run("a"), run("e")))
    assert [item["name"] for item in status["ephemeralContainerStatuses"]] == ["e"]
    assert [item["name"] for item in status["containerStatuses"]] == ["a"]


def test_a_pod_that_was_not_let_in():
    assert rejected_status(pod(), "OutOfpods", "too many", NOW) == {
        "phase": "Failed",
        "reason": "OutOfpods",
        "message": "too many",
        "startTime": NOW,
    }


def test_a_status_says_which_generation_of_the_spec_it_is_about():
    status = shown(pod(metadata={"generation": 7}), seen(run("a")))
    assert status["observedGeneration"] == 7
    assert {condition["observedGeneration"] for condition in status["conditions"]} == {7}
    assert rejected_status(pod(metadata={"generation": 2}), "OutOfpods", "too many", NOW)["observedGeneration"] == 2


def test_an_api_server_without_generations_gets_none():
    status = shown(pod(), seen(run("a")))
    assert "observedGeneration" not in status
    assert all("observedGeneration" not in condition for condition in status["conditions"])


def test_a_new_generation_is_patched_in_every_condition():
    before, after = (shown(pod(metadata={"generation": number}), seen(run("a"))) for number in (1, 2))
    patch = status_patch(before, after)
    assert patch["observedGeneration"] == 2
    assert [condition["observedGeneration"] for condition in patch["conditions"]] == [2] * len(after["conditions"])
    assert patch.keys() == {"observedGeneration", "conditions"}


def patched(before, patch):
    """As the API server does it."""
    return strategic.apply({"status": before}, {"status": patch}, POD)["status"]


def reported(status):
    """A reader's view: an empty message is the same as none."""
    return {
        name: sorted(({key: each for key, each in one.items() if each} for one in value), key=lambda one: one["type"])
        if name == "conditions"
        else value
        for name, value in status.items()
        if value not in (None, [])
    }


WORLDS = [
    NOTHING,
    seen(),
    seen(ips=("10.0.0.3", "fd00::3")),
    seen(run("a")),
    seen(run("i"), ips=("10.0.0.9",)),
    seen(end("i"), run("a"), run("b")),
    seen(end("i"), end("a", 1), run("b")),
    seen(end("i"), end("a", 1), end("b", 2), ready=False),
    seen(run("a", 1), end("a", 3)),
]
SHOWN = st.builds(
    lambda observed, policy, ready, failure, waiting, host: shown(
        pod("a", "b", init=("i",), policy=policy, readinessGates=[{"conditionType": "x.io/gate"}]),
        observed,
        ready="all" if ready else "",
        failure=failure,
        waiting=waiting,
        host_ips=host,
    ),
    st.sampled_from(WORLDS),
    st.sampled_from(["Always", "Never"]),
    st.booleans(),
    st.sampled_from([None, ("DeadlineExceeded", "too long")]),
    st.sampled_from([{}, CRASHING]),
    st.sampled_from([("192.0.2.1",), ("192.0.2.1", "2001:db8::1")]),
)
FOREIGN = {"type": "x.io/gate", "status": "True", "lastTransitionTime": THEN}
ENDS = {"Succeeded", "Failed"}


@given(before=SHOWN, after=SHOWN)
def test_a_patch_leads_from_one_status_to_the_other(before, after):
    """And leaves alone what belongs to others."""
    held = {**before, "conditions": [*before["conditions"], FOREIGN]}
    got = patched(held, status_patch(held, after))
    wanted = {**after, "conditions": [*after["conditions"], FOREIGN]}
    if after["phase"] in ENDS and "podIP" not in after:
        wanted = {"podIP": None, "podIPs": None, **wanted}
    assert reported(got) == reported(wanted)


@given(before=SHOWN, after=SHOWN)
def test_an_equal_status_gives_an_empty_patch(before, after):
    assert status_patch(patched(before, status_patch(before, after)), after) == {}


@given(status=SHOWN)
def test_true_conditions_have_no_reason(status):
    assert status_patch(status, status) == {}


def test_a_new_pod_gets_its_whole_status():
    status = shown(pod(), seen(run("a")))
    assert reported(patched({"phase": "Pending"}, status_patch({"phase": "Pending"}, status))) == reported(status)


def test_only_changed_fields_are_patched():
    before = shown(pod(), seen(run("a")), ready="")
    after = shown(pod(status=before), seen(run("a")))
    patch = status_patch(before, after)
    assert patch.keys() == {"conditions", "containerStatuses"}
    assert {condition["type"] for condition in patch["conditions"]} == {"Ready", "ContainersReady"}
