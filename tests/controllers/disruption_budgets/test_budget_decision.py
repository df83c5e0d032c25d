"""Decisions about disruption budgets: tables."""

import pytest

from podwire.controllers.disruption_budgets import budget_decision
from podwire.controllers.kinds import PODS
from podwire.controllers.metadata import from_object

NOW = 1_800_000_000.0


def pod(name, *, ready=True, deleting=False):
    metadata = {"name": name, "namespace": "shop", "uid": name}
    if deleting:
        metadata["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    return from_object(PODS, {"metadata": metadata, "spec": {}, "status": {"conditions": conditions}}, whole=True)


@pytest.mark.parametrize(
    ("spec", "scale", "pods", "expected"),
    [
        ({"minAvailable": 2}, 0, 3, (3, 2)),
        ({"minAvailable": 0}, 0, 3, (3, 0)),
        ({"minAvailable": "50%"}, 5, 4, (5, 3)),
        ({"maxUnavailable": 1}, 5, 4, (5, 4)),
        ({"maxUnavailable": "30%"}, 5, 5, (5, 3)),
        ({"maxUnavailable": "100%"}, 5, 5, (5, 0)),
        ({"maxUnavailable": 9}, 5, 5, (5, 0)),
        ({}, 0, 2, (2, 0)),
    ],
)
def test_a_budget_demands_healthy_pods(spec, scale, pods, expected):
    assert budget_decision.demand(spec, scale, pods) == expected


def test_evicted_pods_do_not_count_as_healthy_until_their_deletion_has_failed():
    recorded = {"a": "2027-01-15T07:59:00Z", "b": "2027-01-15T07:50:00Z", "gone": "2027-01-15T07:59:00Z"}
    pods = [pod("a"), pod("b"), pod("c"), pod("d", ready=False), pod("e", deleting=True)]
    found = budget_decision.disrupted({"status": {"disruptedPods": recorded}}, pods, NOW)
    assert found.pods == {"a": "2027-01-15T07:59:00Z"}
    assert [row.name for row in found.overdue] == ["b"]
    assert found.recheck == 60
    assert budget_decision.healthy(pods, found.pods) == 2


def test_the_condition_keeps_its_time_while_its_status_stays():
    budget = {"metadata": {"generation": 3}}
    first = budget_decision.status_of(budget, expected=3, desired=2, current=3, evicted={}, now=NOW)
    assert (first["disruptionsAllowed"], first["observedGeneration"]) == (1, 3)
    assert first["conditions"][0]["reason"] == "SufficientPods"
    later = budget_decision.status_of(
        {**budget, "status": first}, expected=3, desired=1, current=3, evicted={}, now=NOW + 9
    )
    assert later["conditions"] == first["conditions"]
    none = budget_decision.status_of({**budget, "status": first}, expected=3, desired=3, current=3, evicted={}, now=NOW)
    assert (none["disruptionsAllowed"], none["conditions"][0]["reason"]) == (0, "InsufficientPods")
    assert (
        budget_decision.status_of(budget, expected=0, desired=0, current=3, evicted={}, now=NOW)["disruptionsAllowed"]
        == 0
    )


def test_a_budget_that_cannot_be_calculated_allows_nothing():
    status = budget_decision.failed_status({"metadata": {}, "status": {"disruptionsAllowed": 5}}, "no scale", NOW)
    assert status["disruptionsAllowed"] == 0
    assert [(row["reason"], row["message"]) for row in status["conditions"]] == [("SyncFailed", "no scale")]
