"""How fast replicas may change: stabilization, policies and limits."""

import pytest

from podwire.controllers.autoscaling.scaling_rules import History, limit

UP = {
    "stabilizationWindowSeconds": 0,
    "selectPolicy": "Max",
    "policies": [
        {"type": "Pods", "value": 4, "periodSeconds": 15},
        {"type": "Percent", "value": 100, "periodSeconds": 15},
    ],
}
DOWN = {"selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}
NOW = 10_000.0


def decide(current, desired, *, behavior=None, history=None, bounds=(1, 100)):
    return limit(history or History(), behavior, current, desired, bounds, NOW, 300.0)


@pytest.mark.parametrize(
    ("current", "desired", "bounds", "replicas", "reason"),
    [
        pytest.param(3, 5, (1, 100), 5, "DesiredWithinRange", id="up"),
        pytest.param(3, 50, (1, 100), 6, "ScaleUpLimit", id="at most twice as many"),
        pytest.param(1, 50, (1, 100), 4, "ScaleUpLimit", id="or four"),
        pytest.param(3, 50, (1, 5), 5, "TooManyReplicas", id="at most the maximum"),
        pytest.param(3, 0, (2, 5), 2, "TooFewReplicas", id="at least the minimum"),
        pytest.param(3, 2, (1, 5), 2, "DesiredWithinRange", id="down"),
    ],
)
def test_without_a_behavior(current, desired, bounds, replicas, reason):
    result = decide(current, desired, bounds=bounds)
    assert (result.replicas, result.limited[1]) == (replicas, reason)
    assert result.limited[0] is (reason != "DesiredWithinRange")


def test_the_highest_recommendation_of_five_minutes_holds_replicas_up():
    history = History([(NOW - 400, 9), (NOW - 200, 6)])
    result = decide(6, 2, history=history)
    assert (result.replicas, result.able[0]) == (6, "ScaleDownStabilized")
    assert history.recommendations == [(NOW - 200, 6), (NOW, 2)]


def behavior(up=(), down=(), **more):
    return {"scaleUp": {**UP, **dict(up)}, "scaleDown": {**DOWN, **dict(down)}, **more}


def pods(value, period=60):
    return {"type": "Pods", "value": value, "periodSeconds": period}


def percent(value, period=60):
    return {"type": "Percent", "value": value, "periodSeconds": period}


@pytest.mark.parametrize(
    ("rules", "current", "desired", "replicas", "reason"),
    [
        pytest.param({}, 3, 50, 7, "ScaleUpLimit", id="defaults: four more or twice as many"),
        pytest.param({}, 10, 50, 20, "ScaleUpLimit", id="twice as many"),
        pytest.param({"selectPolicy": "Min"}, 10, 50, 14, "ScaleUpLimit", id="the smaller change"),
        pytest.param({"selectPolicy": "Disabled"}, 10, 50, 10, "ScaleUpLimit", id="not at all"),
        pytest.param({"policies": [percent(10)]}, 5, 50, 6, "ScaleUpLimit", id="percents are rounded up"),
        pytest.param({"policies": [pods(200)]}, 5, 500, 100, "TooManyReplicas", id="the maximum is lower"),
        pytest.param({}, 3, 5, 5, "DesiredWithinRange", id="less than is allowed"),
    ],
)
def test_policies_of_scaling_up(rules, current, desired, replicas, reason):
    result = decide(current, desired, behavior=behavior(up=rules))
    assert (result.replicas, result.limited[1]) == (replicas, reason)


@pytest.mark.parametrize(
    ("rules", "current", "desired", "replicas", "reason"),
    [
        pytest.param({}, 50, 1, 2, "TooFewReplicas", id="defaults: everything at once"),
        pytest.param({"policies": [pods(3)]}, 50, 1, 47, "ScaleDownLimit", id="three less"),
        pytest.param({"policies": [percent(10)]}, 5, 1, 4, "ScaleDownLimit", id="percents are rounded down"),
        pytest.param({"policies": [pods(3), percent(50)]}, 10, 1, 5, "ScaleDownLimit", id="the greater change"),
        pytest.param({"policies": [pods(3), percent(50)], "selectPolicy": "Min"}, 10, 1, 7, "ScaleDownLimit", id="Min"),
        pytest.param({"selectPolicy": "Disabled"}, 10, 1, 10, "ScaleDownLimit", id="not at all"),
    ],
)
def test_policies_of_scaling_down(rules, current, desired, replicas, reason):
    result = decide(
        current, desired, behavior=behavior(down={**rules, "stabilizationWindowSeconds": 0}), bounds=(2, 100)
    )
    assert (result.replicas, result.limited[1]) == (replicas, reason)


def test_what_was_added_in_a_period_counts_against_its_policies():
    rules, history = behavior(up={"policies": [pods(4, 60)]}), History()
    history.rescaled(3, 6, rules, NOW - 30)
    assert decide(6, 50, behavior=rules, history=history).replicas == 7
    old = History(ups=[(NOW - 61, 3)])
    assert decide(6, 50, behavior=rules, history=old).replicas == 10
    history.rescaled(6, 7, rules, NOW + 100)
    assert history.ups == [(NOW + 100, 1)]  # the older one is not needed by any policy


def test_what_was_removed_counts_for_scaling_up_again():
    rules = behavior(up={"policies": [pods(2)]})
    history = History()
    history.rescaled(10, 5, rules, NOW - 10)
    assert decide(5, 50, behavior=rules, history=history).replicas == 12


def test_windows_stabilize_both_directions():
    rules = behavior(up={"stabilizationWindowSeconds": 60}, down={"stabilizationWindowSeconds": 30})
    history = History([(NOW - 50, 4), (NOW - 20, 9)])
    result = decide(3, 9, behavior=rules, history=history)
    assert (result.replicas, result.able[0]) == (4, "ScaleUpStabilized")
    history = History([(NOW - 50, 9), (NOW - 20, 5)])
    result = decide(8, 2, behavior=rules, history=history)
    assert (result.replicas, result.able[0]) == (5, "ScaleDownStabilized")


def test_scaling_down_has_a_window_of_five_minutes_unless_it_says_otherwise():
    history = History([(NOW - 200, 8)])
    assert decide(8, 2, behavior=behavior(), history=history).replicas == 8


def test_the_first_recommendation_is_the_present_number():
    history = History()
    history.begin(5, NOW - 10)
    history.begin(7, NOW)
    assert decide(5, 1, history=history).replicas == 5
