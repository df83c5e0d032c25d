"""Each rule of the model finds its violation, and nothing else."""

import pytest

from podwire.cluster.chaos.history import SHOWN, History
from podwire.cluster.chaos.model import Model


def a_pod(name, uid="u1", ip="10.0.0.1", phase="Running", **meta):
    status = {
        "phase": phase,
        "podIP": ip,
        "podIPs": [{"ip": ip}],
        "conditions": [{"type": "Ready", "status": "True" if phase == "Running" else "False"}],
    }
    return {"metadata": {"name": name, "uid": uid, **meta}, "spec": {"nodeName": "n1"}, "status": status}


def a_claim(name, device="gpu-0", users=(), **result):
    results = [{"driver": "d", "pool": "p", "device": device, **result}]
    status = {
        "allocation": {"devices": {"results": results}},
        "reservedFor": [{"resource": "pods", "uid": uid} for uid in users],
    }
    return {"metadata": {"name": name}, "status": status}


@pytest.fixture
def model():
    """One pod, acknowledged."""
    made = Model()
    made.asked("a")
    made.created("a", "u1")
    return made


def test_a_pod_as_acknowledged_is_right(model):
    assert model.observe([a_pod("a")]) == model.unfinished([a_pod("a")]) == []


def test_an_acknowledged_pod_that_is_missing_was_lost(model):
    assert model.observe([]) == ["pod a was acknowledged with uid u1, and is lost"]


def test_an_acknowledged_pod_with_another_uid_was_lost(model):
    assert model.observe([a_pod("a", uid="u2")]) == ["pod a was acknowledged with uid u1, and is now u2"]


def test_a_pod_that_was_acknowledged_while_the_list_was_made_may_be_missing_in_it(model):
    known = model.acknowledged()
    model.asked("b")
    model.created("b", "u2")
    assert model.observe([a_pod("a")], known=known) == []
    assert model.observe([a_pod("a")]) == ["pod b was acknowledged with uid u2, and is lost"]


def test_a_request_without_an_answer_may_have_been_carried_out_or_not(model):
    model.asked("b")
    assert model.observe([a_pod("a")]) == []
    assert model.observe([a_pod("a"), a_pod("b", uid="u2", ip="10.0.0.2")]) == []
    assert model.acknowledged() == ["a", "b"]
    assert model.observe([a_pod("a")]) == ["pod b was acknowledged with uid u2, and is lost"]


def test_a_deleted_pod_may_exist_for_a_while_and_never_again(model):
    model.deleting("a")
    assert model.observe([a_pod("a")]) == []
    assert model.unfinished([a_pod("a")]) == ["pod a was deleted and is still there"]
    assert model.observe([]) == model.unfinished([]) == []
    assert model.observe([a_pod("a")]) == ["pod a was deleted and gone, and is there again with uid u1"]


def test_two_pods_with_one_address(model):
    pods = [a_pod("a"), a_pod("b", uid="u2")]
    assert model.observe(pods) == ["address 10.0.0.1 is used by pod a and pod b"]


@pytest.mark.parametrize(
    "other",
    [a_pod("b", uid="u2", phase="Failed"), a_pod("b", uid="u2", deletionTimestamp="2026-01-01T00:00:00Z")],
    ids=["over", "being deleted"],
)
def test_the_address_of_a_pod_that_is_over_is_free(model, other):
    assert model.observe([a_pod("a"), other]) == []


def test_two_claims_with_one_device(model):
    claims = [a_claim("x"), a_claim("y")]
    assert model.observe([a_pod("a")], claims) == ["device d/p/gpu-0 is used by claim x and claim y"]
    assert model.observe([a_pod("a")], [a_claim("x"), a_claim("y", device="gpu-1")]) == []
    assert model.observe([a_pod("a")], [a_claim("x"), a_claim("y", adminAccess=True)]) == []


def test_a_claim_that_is_reserved_for_a_pod_that_is_gone(model):
    claims = [a_claim("x", users=["u1"])]
    assert model.unfinished([a_pod("a")], claims) == []
    assert model.unfinished([a_pod("a")], [a_claim("x", users=["u9"])]) == ["claim x belongs to u9, which is gone"]


def test_a_pod_that_does_not_run(model):
    waiting = a_pod("a", phase="Pending")
    waiting["status"]["containerStatuses"] = [{"state": {"waiting": {"reason": "ContainerCreating"}}}]
    assert model.unfinished([waiting]) == ["pod a is Pending ContainerCreating and should be Running"]


def test_pods_that_the_node_evicted_or_cannot_admit_under_pressure_may_wait(model):
    evicted = a_pod("a", phase="Failed")
    evicted["status"]["reason"] = "Evicted"
    assert model.unfinished([evicted]) == []
    pending = a_pod("a", phase="Pending")
    del pending["spec"]["nodeName"]
    assert model.unfinished([pending], under_pressure=True) == []
    assert model.unfinished([pending]) == ["pod a is Pending and should be Running"]


def test_the_history_has_the_last_events_with_their_times():
    now = iter(range(1000))
    shown = []
    history = History(shown.append, clock=lambda: float(next(now)))
    for number in range(SHOWN + 5):
        history.add(f"event {number}")
    assert len(history.lines()) == SHOWN
    assert history.lines()[0] == "    6.000  event 5"
    assert shown[-1] == history.lines()[-1]


def test_the_history_of_a_violation_has_its_objects_and_the_faults_since_they_exist():
    history = History(clock=lambda: 0.0)
    history.add("killed trace")
    for name in ("pod-1", "pod-12", "pod-2"):
        history.add(f"created {name}", name)
    history.add("killed runtime")
    history.add("deletes pod-1", "pod-1")
    shown = [line.split(maxsplit=1)[1] for line in history.lines("late\n  pod pod-12 is Pending, pod-2 too")]
    assert shown == ["created pod-12", "created pod-2", "killed runtime"]
    assert len(history.lines("nothing that is known")) == 6
