"""Order in which a set deletes pods, and its status."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.controllers.apps.conditions import scaled_value, with_condition
from podwire.controllers.apps.replica_decisions import (
    DELETION_COST,
    candidate,
    neighbours_by_node,
    next_available,
    pods_to_delete,
    replacement_delay,
    replica_status,
)
from podwire.controllers.kinds import PODS
from podwire.controllers.metadata import Metadata, PartialObject, PodState
from podwire.objects.times import parse, rfc3339

NOW = parse("2026-01-01T12:00:00Z")


def pod(uid="a", *, phase="Running", node="n", ready=True, ready_for=60, age=600, labels=None, deleting=False):
    state = PodState(phase, node, ready, rfc3339(NOW - ready_for) if ready else "")
    metadata = Metadata(
        name=uid,
        uid=uid,
        creation_timestamp=rfc3339(NOW - age),
        labels=labels or {"app": "web"},
        deletion_timestamp="now" if deleting else None,
    )
    return PartialObject(PODS, metadata, pod=state)


def as_candidate(one, *, cost="", neighbours=0, restarts=0, sidecar=0):
    object_ = {
        "metadata": {"annotations": {DELETION_COST: cost} if cost else {}},
        "spec": {"initContainers": [{"name": "s", "restartPolicy": "Always"}, {"name": "i"}]},
        "status": {
            "containerStatuses": [{"restartCount": restarts}],
            "initContainerStatuses": [{"name": "s", "restartCount": sidecar}, {"name": "i", "restartCount": 99}],
        },
    }
    return candidate(one, object_, neighbours)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(as_candidate(pod(node="")), as_candidate(pod()), id="not assigned"),
        pytest.param(as_candidate(pod(phase="Pending", ready=False)), as_candidate(pod(ready=False)), id="pending"),
        pytest.param(as_candidate(pod(phase="Unknown")), as_candidate(pod()), id="unknown before running"),
        pytest.param(as_candidate(pod(ready=False)), as_candidate(pod()), id="not ready"),
        pytest.param(as_candidate(pod(), cost="-5"), as_candidate(pod()), id="lower cost"),
        pytest.param(as_candidate(pod()), as_candidate(pod(), cost="1"), id="default cost before a higher one"),
        pytest.param(as_candidate(pod(), neighbours=2), as_candidate(pod(), neighbours=1), id="doubled up"),
        pytest.param(as_candidate(pod(ready_for=1)), as_candidate(pod(ready_for=900)), id="ready for a shorter time"),
        pytest.param(as_candidate(pod(), restarts=3), as_candidate(pod(), restarts=1), id="more restarts"),
        pytest.param(as_candidate(pod(), sidecar=3), as_candidate(pod(), sidecar=1), id="more restarts of a sidecar"),
        pytest.param(as_candidate(pod(age=10)), as_candidate(pod(age=9000)), id="younger"),
        pytest.param(
            as_candidate(pod("a", ready_for=60)), as_candidate(pod("b", ready_for=61)), id="about as old: by uid"
        ),
    ],
)
def test_the_pod_whose_loss_costs_least_is_deleted_first(first, second):
    for order in ((first, second), (second, first)):
        assert pods_to_delete(order, 1, NOW) == [first.pod]


@pytest.mark.parametrize("cost", ["+5", "007", "1.5", "x", "99999999999", "2147483648", "-", "٣"])
def test_an_invalid_cost_counts_as_none(cost):
    assert as_candidate(pod(), cost=cost).cost == 0


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.integers(0, 900)), max_size=8), st.integers(0, 8))
def test_as_many_pods_are_deleted_as_were_asked_for_and_ready_ones_last(rows, count):
    candidates = [
        as_candidate(pod(f"p{index}", ready=ready, ready_for=age), restarts=restarts)
        for index, (ready, restarts, age) in enumerate(rows)
    ]
    chosen = pods_to_delete(candidates, min(count, len(rows)), NOW)
    assert len({item.uid for item in chosen}) == min(count, len(rows))
    left = [candidate.pod for candidate in candidates if candidate.pod not in chosen]
    for gone, kept in itertools.product(chosen, left):
        assert not (gone.pod.ready and not kept.pod.ready)


def test_pods_on_a_node_are_counted_if_active():
    counted = neighbours_by_node([pod("a"), pod("b"), pod("c", node="m"), pod("d", phase="Failed"), pod(deleting=True)])
    assert dict(counted) == {"n": 2, "m": 1}


SET = {
    "metadata": {"generation": 4},
    "spec": {"replicas": 2, "minReadySeconds": 30, "template": {"metadata": {"labels": {"app": "web", "x": "y"}}}},
}


@pytest.mark.parametrize(
    ("failed", "age", "replicas", "delay"),
    [(5, 0, 2, 0), (6, 0, 2, 1), (8, 0, 2, 2), (8, 1, 2, 1), (200, 0, 2, 30), (6, 61, 2, 0), (100, 0, 50, 0)],
)
def test_failed_pods_are_replaced_at_once_then_later(failed, age, replicas, delay):
    pods = [pod(str(index), phase="Failed", ready=False, age=age) for index in range(failed)]
    assert replacement_delay([*pods, pod(age=0)], replicas, NOW) == delay


def test_the_status_counts_pods():
    full = {"app": "web", "x": "y", "more": "z"}
    pods = [pod("a", labels=full), pod("b", ready_for=10), pod("c", ready=False)]
    assert replica_status(SET, pods, 1, None, NOW) == {
        "replicas": 3,
        "fullyLabeledReplicas": 1,
        "readyReplicas": 2,
        "availableReplicas": 1,
        "observedGeneration": 4,
        "terminatingReplicas": 1,
    }
    assert next_available(pods, 30, NOW) == 20
    assert next_available(pods, 5, NOW) is None
    assert replica_status(SET, [], None, None, NOW) == {"replicas": 0, "observedGeneration": 4}


def test_a_failure_is_a_condition_until_it_is_over():
    failed = replica_status(SET, [], None, "exceeded quota", NOW)
    [condition] = failed["conditions"]
    assert condition == {
        "type": "ReplicaFailure",
        "status": "True",
        "lastTransitionTime": rfc3339(NOW),
        "reason": "FailedCreate",
        "message": "exceeded quota",
    }
    again = replica_status({**SET, "status": failed}, [], None, "another", NOW + 5)
    assert again == failed
    assert "conditions" not in replica_status({**SET, "status": failed}, [], None, None, NOW)
    surplus = replica_status(SET, [pod(), pod(), pod()], None, "no", NOW)
    assert surplus["conditions"][0]["reason"] == "FailedDelete"


@pytest.mark.parametrize(
    ("value", "total", "up", "down"),
    [(3, 10, 3, 3), ("25%", 10, 3, 2), ("0%", 10, 0, 0), ("100%", 7, 7, 7), (None, 5, 0, 0)],
)
def test_percentages_of_a_total(value, total, up, down):
    assert (scaled_value(value, total, round_up=True), scaled_value(value, total, round_up=False)) == (up, down)


def test_a_condition_of_the_same_status_keeps_its_transition_time():
    old = {"type": "T", "status": "True", "reason": "A", "lastTransitionTime": "then"}
    other = {"type": "U", "status": "True", "reason": "A"}
    new = {"type": "T", "status": "True", "reason": "B", "lastTransitionTime": "now"}
    assert with_condition([old, other], new) == [other, {**new, "lastTransitionTime": "then"}]
    assert with_condition([old], {**new, "reason": "A"}) == [old]
    assert with_condition([old], {**new, "status": "False"}) == [{**new, "status": "False"}]
