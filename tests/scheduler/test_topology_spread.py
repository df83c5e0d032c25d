"""PodTopologySpread."""

import pytest

from podwire.scheduler import Chosen, Unschedulable, choose

SPREAD_VIOLATED = "node(s) didn't match pod topology spread constraints"
NO_LABEL = f"{SPREAD_VIOLATED} (missing required label)"

ZONES = {
    "a1": {"labels": {"zone": "a"}},
    "a2": {"labels": {"zone": "a"}},
    "b1": {"labels": {"zone": "b"}},
}


def constraint(key="zone", skew=1, when="DoNotSchedule", **more):
    selector = {"matchLabels": {"app": "web"}}
    given = {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": when, "labelSelector": selector, **more}
    return {"topologySpreadConstraints": [given]}


def web(*nodes, **more):
    return [(node, f"{node}-{index}", {"labels": {"app": "web"}, **more}) for index, node in enumerate(nodes)]


@pytest.mark.parametrize(
    ("nodes", "placed", "spec", "possible"),
    [
        pytest.param(ZONES, [], constraint(), "a1 a2 b1", id="the first goes anywhere"),
        pytest.param(ZONES, web("a1"), constraint(), "b1", id="the second into the other zone"),
        pytest.param(ZONES, web("a1", "b1"), constraint(), "a1 a2 b1", id="when they are even, anywhere again"),
        pytest.param(ZONES, web("a1"), constraint(skew=2), "a1 a2 b1", id="a larger skew allows more"),
        pytest.param(ZONES, web("a1", "a2"), constraint(skew=2), "b1", id="but no more than that"),
        pytest.param(ZONES, web("a1"), constraint("kubernetes.io/hostname"), "a2 b1", id="by host"),
        pytest.param(
            {**ZONES, "x": {}}, web("x", "x"), constraint(), "a1 a2 b1", id="a node without the label counts nowhere"
        ),
        pytest.param(
            ZONES,
            [("a1", "other", {"labels": {"app": "db"}})],
            constraint(),
            "a1 a2 b1",
            id="pods of another kind do not count",
        ),
        pytest.param(
            ZONES, web("a1", namespace="other"), constraint(), "a1 a2 b1", id="nor do those of another namespace"
        ),
        pytest.param(
            ZONES,
            web("a1"),
            {**constraint(), "nodeSelector": {"zone": "a"}},
            "a1 a2",
            id="zones that the pod cannot enter do not count",
        ),
        pytest.param(
            ZONES,
            web("a1"),
            {**constraint(nodeAffinityPolicy="Ignore"), "nodeSelector": {"zone": "a"}},
            "",
            id="unless it says so",
        ),
        pytest.param(ZONES, web("a1"), constraint(minDomains=3), "b1", id="with too few zones none may have two"),
        pytest.param(ZONES, web("a1", "b1"), constraint(minDomains=3), "", id="and when each has one, no zone will do"),
        pytest.param(
            {**ZONES, "c1": {"labels": {"zone": "c"}, "taints": [{"key": "k", "effect": "NoSchedule"}]}},
            web("a1", "b1"),
            constraint(),
            "",
            id="a tainted zone is empty and cannot be entered",
        ),
        pytest.param(
            {**ZONES, "c1": {"labels": {"zone": "c"}, "taints": [{"key": "k", "effect": "NoSchedule"}]}},
            web("a1", "b1"),
            constraint(nodeTaintsPolicy="Honor"),
            "a1 a2 b1",
            id="and does not count if the pod wants it so",
        ),
        pytest.param(
            ZONES,
            web("a1", labels={"app": "web", "rev": "1"}),
            constraint(matchLabelKeys=["rev"]),
            "a1 a2 b1",
            id="only pods of its own revision count",
        ),
    ],
)
def test_no_domain_gets_further_ahead_than_it_may(make_pod, make_snapshot, nodes, placed, spec, possible):
    found = []
    info = make_pod("new", labels={"app": "web", "rev": "2"}, **spec)
    for name in nodes:  # which nodes will do is seen by closing all others
        snapshot = make_snapshot(
            {each: {**given, "unschedulable": each != name} for each, given in nodes.items()}, placed
        )
        if choose(info, snapshot) == Chosen(name):
            found.append(name)
    assert found == possible.split()


def test_the_reason_distinguishes_skew_from_a_missing_label(make_pod, make_snapshot):
    nodes = {"a1": {"labels": {"zone": "a"}}, "b1": {"labels": {"zone": "b"}, "unschedulable": True}, "x": {}}
    found = choose(make_pod("new", labels={"app": "web"}, **constraint()), make_snapshot(nodes, web("a1")))
    assert isinstance(found, Unschedulable)
    expected = f"0/3 nodes are available: 1 {SPREAD_VIOLATED}, 1 {NO_LABEL}, 1 node(s) were unschedulable. "
    assert found.message.startswith(expected)


def test_a_pod_that_is_being_deleted_does_not_count(make_pod, make_snapshot):
    snapshot = make_snapshot({"a1": {}, "b1": {}}, [*web("b1"), *web("a1", "a1", deleting=True)])
    info = make_pod("new", labels={"app": "web"}, **constraint("kubernetes.io/hostname"))
    assert choose(info, snapshot) == Chosen("a1")


def test_a_soft_constraint_decides_among_feasible_nodes(make_pod, make_snapshot):
    nodes = {name: {**given, "allocatable": {"cpu": "0", "memory": "0"}} for name, given in ZONES.items()}
    snapshot = make_snapshot(nodes, [*web("b1"), ("a1", "x", {}), ("a2", "y", {}), ("a2", "z", {})])
    info = make_pod("new", labels={"app": "web"}, **constraint(when="ScheduleAnyway"))
    assert choose(info, snapshot) == Chosen("a1")


def test_pods_of_one_owner_spread_over_hosts_by_themselves(make_pod, make_snapshot):
    capacity = {"allocatable": {"cpu": "1000", "memory": "1000Gi"}}
    snapshot = make_snapshot({"a": capacity, "b": capacity, "c": capacity})
    for index in range(9):
        info = make_pod(f"p{index}", owner="set")
        found = choose(info, snapshot)
        assert isinstance(found, Chosen)
        snapshot.put_pod(info, found.node)
    assert [len(node.pods) for node in snapshot.nodes] == [3, 3, 3]
