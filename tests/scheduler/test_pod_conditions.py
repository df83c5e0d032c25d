"""The condition on a pod that waits."""

from podwire.objects import pods
from podwire.scheduler.pod_conditions import GATED, PendingReason, condition

FULL = PendingReason("Unschedulable", "0/1 nodes are available: 1 Insufficient cpu.")


def pod(*conditions, generation=0):
    meta = {"name": "web", "uid": "u", "generation": generation}
    return pods.read({"metadata": meta, "spec": {}, "status": {"conditions": conditions}})


def test_a_waiting_pod_gets_a_condition_with_the_reason():
    assert condition(pod(generation=3), FULL, 0.0) == {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/1 nodes are available: 1 Insufficient cpu.",
        "lastProbeTime": None,
        "lastTransitionTime": "1970-01-01T00:00:00Z",
        "observedGeneration": 3,
    }


def test_an_unchanged_condition_is_not_written_again():
    said = condition(pod(), FULL, 0.0)
    assert condition(pod(said), FULL, 5.0) is None


def test_a_new_reason_keeps_the_transition_time():
    said = condition(pod(), GATED, 0.0)
    changed = condition(pod(said), FULL, 5.0)
    assert changed is not None
    assert (changed["reason"], changed["lastTransitionTime"]) == ("Unschedulable", "1970-01-01T00:00:00Z")


def test_other_conditions_are_ignored():
    assert condition(pod({"type": "Ready", "status": "False"}), FULL, 0.0) is not None
