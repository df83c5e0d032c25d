"""Preempted pods, their node, and the message when preemption does not help."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podwire.objects import nodes
from podwire.scheduler import Chosen, Snapshot, Unschedulable, choose, pod_info
from podwire.scheduler.filters import FILTERS
from podwire.scheduler.framework import ClusterEvent
from podwire.scheduler.preemption import budgets
from podwire.scheduler.preemption.candidates import Candidate, dry_run, importance
from tests.scheduler.conftest import node_object, pod_object

HOSTNAME = "kubernetes.io/hostname"
HIGH = 1000


def pod(name, cpu="1", priority=0, started="", conditions=(), **given):
    object_ = pod_object(name, requests={"cpu": cpu}, priority=priority, **given)
    object_["status"] = {"conditions": list(conditions), **({"startTime": started} if started else {})}
    return pod_info.read(object_)


def snapshot_of(*placed, cpu="2", labels=None, names=()):
    """Nodes with this much cpu, and pods on them."""
    snapshot = Snapshot()
    for name in names or sorted({node for node, _info in placed}):
        snapshot.put_node(nodes.read(node_object(name, allocatable={"cpu": cpu}, labels=(labels or {}).get(name))))
    for node, info in placed:
        snapshot.put_pod(info, node)
    return snapshot


def budget(snapshot, selector, allowed=0, disrupted=()):
    status = {"disruptionsAllowed": allowed, "disruptedPods": dict.fromkeys(disrupted, "2030-01-01T00:00:00Z")}
    meta = {"name": f"b{len(snapshot.budgets)}", "namespace": "default"}
    object_ = {"metadata": meta, "spec": {"selector": selector}, "status": status}
    snapshot.budgets["default", meta["name"]] = budgets.read(object_)


def preempted(info, snapshot):
    """The node that is made free and the names of the victims."""
    result = choose(info, snapshot)
    assert isinstance(result, Unschedulable)
    assert result.preemption is not None, result.message
    return result.preemption.node, [victim.pod.name for victim in result.preemption.victims]


def message(info, snapshot):
    result = choose(info, snapshot)
    assert isinstance(result, Unschedulable)
    assert result.preemption is None
    return result.message


def test_a_pod_that_fits_preempts_nobody():
    snapshot = snapshot_of(("a", pod("low", "1")), ("b", pod("other", "2")))
    assert choose(pod("web", "1", HIGH), snapshot) == Chosen("a")


def test_the_least_important_pods_are_preempted_and_no_more_than_needed():
    placed = [pod("old", "1", 10), pod("low", "500m", 1), pod("lowest", "500m", 0)]
    snapshot = snapshot_of(*(("a", item) for item in placed))
    assert preempted(pod("web", "500m", HIGH), snapshot) == ("a", ["lowest"])
    assert preempted(pod("web", "1", HIGH), snapshot) == ("a", ["low", "lowest"])
    assert preempted(pod("web", "1500m", HIGH), snapshot) == ("a", ["old", "lowest"])


def test_among_pods_of_one_priority_the_youngest_goes_first():
    placed = [
        pod("middle", started="2026-01-02T00:00:00Z"),
        pod("first", started="2026-01-01T00:00:00Z"),
        pod("not-started"),
    ]
    snapshot = snapshot_of(*(("a", item) for item in placed), cpu="3")
    assert [item.pod.name for item in sorted(placed, key=importance)] == ["first", "middle", "not-started"]
    assert preempted(pod("web", "1", HIGH), snapshot) == ("a", ["not-started"])
    assert preempted(pod("web", "2", HIGH), snapshot) == ("a", ["middle", "not-started"])


def test_the_reasons_say_what_is_wrong_without_preemption_and_with_it():
    snapshot = snapshot_of(("a", pod("equal", "2", HIGH)), ("b", pod("low", "1")), ("b", pod("higher", "1", HIGH + 1)),
                           names=("a", "b", "c"))  # fmt: skip
    snapshot.put_node(nodes.read(node_object("c", unschedulable=True)))
    assert message(pod("web", "2", HIGH), snapshot) == (
        "0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu. preemption: "
        "0/3 nodes are available: 1 Insufficient cpu, 1 No preemption victims found for incoming pod, "
        "1 Preemption is not helpful for scheduling."
    )


def test_the_message_of_a_pod_that_preempts_has_the_reasons_only():
    result = choose(pod("web", "2", HIGH), snapshot_of(("a", pod("low"))))
    assert isinstance(result, Unschedulable)
    assert result.message == "0/1 nodes are available: 1 Insufficient cpu."
    assert result.retry_on & ClusterEvent.POD_GONE


def test_more_than_a_node_has_is_not_helped_by_preemption():
    snapshot = snapshot_of(("a", pod("low")))
    assert message(pod("web", "3", HIGH), snapshot).endswith("1 Preemption is not helpful for scheduling.")


def test_a_pod_that_never_preempts_says_so():
    info = pod("web", "2", HIGH, preemptionPolicy="Never")
    assert message(info, snapshot_of(("a", pod("low")))).endswith(
        ". preemption: not eligible due to preemptionPolicy=Never."
    )


@pytest.mark.parametrize(
    ("placed", "expected"),
    [
        pytest.param([("a", pod("x", "2", 5)), ("b", pod("y", "2", 4))], "b", id="lowest highest priority"),
        pytest.param(
            [("a", pod("x", "1", 5)), ("a", pod("x2", "1", 4)), ("b", pod("y", "1", 5)), ("b", pod("y2", "1", 3))],
            "b",
            id="lowest sum of priorities",
        ),
        pytest.param(
            [("a", pod("x", "1", -5)), ("a", pod("x2", "1", -5)), ("b", pod("y", "2", -5))],
            "b",
            id="a negative priority does not make more victims cheaper",
        ),
        pytest.param(
            [
                ("a", pod("x", "2", 5, started="2026-01-01T00:00:00Z")),
                ("b", pod("y", "2", 5, started="2026-01-02T00:00:00Z")),
            ],
            "b",
            id="latest start",
        ),
        pytest.param(
            [("a", pod("x", "2", 5, started="2026-01-01T00:00:00Z")), ("b", pod("y", "2", 5))],
            "b",
            id="a pod that has not started is the latest",
        ),
        pytest.param([("b", pod("x", "2", 5)), ("a", pod("y", "2", 5))], "a", id="first by name among equals"),
    ],
)
def test_the_node_that_hurts_least_is_chosen(placed, expected):
    assert preempted(pod("web", "2", HIGH), snapshot_of(*placed))[0] == expected


RED, BLUE = {"team": "red"}, {"team": "blue"}


def test_a_node_without_violated_budgets_is_preferred_even_with_more_important_victims():
    snapshot = snapshot_of(("a", pod("x", "2", 1, labels=RED)), ("b", pod("y", "2", 9, labels=BLUE)))
    assert preempted(pod("web", "2", HIGH), snapshot)[0] == "a"
    budget(snapshot, {"matchLabels": RED})
    assert preempted(pod("web", "2", HIGH), snapshot) == ("b", ["y"])
    budget(snapshot, {"matchLabels": BLUE})
    assert preempted(pod("web", "2", HIGH), snapshot) == ("a", ["x"])  # violated last, but violated


def test_on_a_node_pods_that_violate_a_budget_are_reprieved_first():
    snapshot = snapshot_of(("a", pod("low", "1", 1, labels=RED)), ("a", pod("higher", "1", 9, labels=BLUE)))
    assert preempted(pod("web", "1", HIGH), snapshot) == ("a", ["low"])
    budget(snapshot, {"matchLabels": RED})
    assert preempted(pod("web", "1", HIGH), snapshot) == ("a", ["higher"])


@pytest.mark.parametrize(
    ("selector", "allowed", "disrupted", "violations"),
    [
        pytest.param({"matchLabels": RED}, 0, (), 2, id="none is allowed"),
        pytest.param({"matchLabels": RED}, 1, (), 1, id="one is allowed"),
        pytest.param({"matchLabels": RED}, 2, (), 0, id="both are allowed"),
        pytest.param({"matchLabels": RED}, 0, ("p0",), 1, id="one was counted by the server already"),
        pytest.param({"matchLabels": BLUE}, 0, (), 0, id="other pods"),
        pytest.param({}, 0, (), 0, id="an empty selector covers none"),
        pytest.param(None, 0, (), 0, id="no selector covers none"),
    ],
)
def test_violations_of_a_budget_are_counted(selector, allowed, disrupted, violations):
    snapshot = snapshot_of(*(("a", pod(f"p{index}", "1", labels=RED)) for index in range(2)))
    budget(snapshot, selector, allowed, disrupted)
    result = choose(pod("web", "2", HIGH), snapshot)
    assert isinstance(result, Unschedulable)
    assert result.preemption is not None
    assert result.preemption.violations == violations


def apart(**labels):
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": labels}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def port(number):
    ports = [{"containerPort": number, "hostPort": number, "protocol": "TCP"}]
    return {"containers": [{"name": "c", "image": "i", "ports": ports}]}


@pytest.mark.parametrize(
    ("info", "victim", "others"),
    [
        pytest.param(
            pod("web", priority=HIGH, **port(80)), pod("low", **port(80)), pod("x", **port(81)), id="host port"
        ),
        pytest.param(
            pod("web", "100m", HIGH, affinity=apart(**RED)),
            pod("low", "100m", labels=RED),
            pod("x", "100m", labels=BLUE),
            id="anti-affinity of the pod",
        ),
        pytest.param(
            pod("web", "100m", HIGH, labels=RED),
            pod("low", "100m", affinity=apart(**RED)),
            pod("x", "100m"),
            id="anti-affinity of a pod there",
        ),
    ],
)
def test_all_filters_take_part_in_the_dry_run(info, victim, others):
    snapshot = snapshot_of(("a", victim), ("a", others), cpu="4")
    assert preempted(info, snapshot) == ("a", ["low"])


def test_topology_spread_is_counted_without_the_victims():
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
              "labelSelector": {"matchLabels": RED}}  # fmt: skip
    labels = {"a": {"zone": "z1"}, "b": {"zone": "z2"}}
    placed = [("a", pod("p0", "500m", 1, labels=RED)), ("a", pod("p1", "500m", 2, labels=RED)),
              ("b", pod("full", "4", HIGH, labels=RED))]  # fmt: skip
    snapshot = snapshot_of(*placed, cpu="4", labels=labels)
    info = pod("web", "500m", HIGH, labels=RED, topologySpreadConstraints=[spread])
    assert preempted(info, snapshot) == ("a", ["p0"])


def test_affinity_to_other_pods_is_not_resolved_by_preemption():
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": BLUE}}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    assert message(pod("web", "1", HIGH, affinity=affinity), snapshot_of(("a", pod("low")))).endswith(
        "1 Preemption is not helpful for scheduling."
    )


TERMINATING = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
EVICTED = {**TERMINATING, "reason": "EvictionByEvictionAPI"}


@pytest.mark.parametrize(
    ("leaving", "waits"),
    [
        pytest.param(pod("low", "1", deleting=True, conditions=[TERMINATING]), True, id="a victim that terminates"),
        pytest.param(pod("low", "1", conditions=[TERMINATING]), False, id="a victim that is not deleted yet"),
        pytest.param(pod("low", "1", deleting=True, conditions=[EVICTED]), False, id="evicted by somebody else"),
        pytest.param(pod("low", "1", HIGH, deleting=True, conditions=[TERMINATING]), False, id="of the same priority"),
    ],
)
def test_a_pod_with_a_nominated_node_waits_for_its_victims(leaving, waits):
    snapshot = snapshot_of(("a", leaving), ("a", pod("rest", "1")), ("b", pod("other", "2", 5)))
    info = pod("web", "2", HIGH)
    snapshot.nominations.put(info, "a")
    result = choose(info, snapshot)
    assert isinstance(result, Unschedulable)
    assert (
        result.message.endswith(". preemption: not eligible due to a terminating pod on the nominated node.") == waits
    )
    assert (result.preemption is None) == waits
    assert not result.clears_nomination


def test_a_victim_that_was_just_chosen_is_waited_for_too():
    snapshot = snapshot_of(("a", pod("low", "2")), ("b", pod("other", "2")))
    info = pod("web", "2", HIGH)
    snapshot.nominations.put(info, "a")
    snapshot.victims.add("uid-default-low")
    assert "a terminating pod on the nominated node" in message(info, snapshot)


def test_a_nominated_node_that_became_impossible_is_not_waited_for():
    snapshot = snapshot_of(("a", pod("low", "2", deleting=True, conditions=[TERMINATING])), ("b", pod("other", "2")))
    info = pod("web", "2", HIGH)
    snapshot.nominations.put(info, "a")
    snapshot.put_node(nodes.read(node_object("a", allocatable={"cpu": "2"}, unschedulable=True)))
    assert preempted(info, snapshot) == ("b", ["other"])


def test_a_nomination_is_cleared_when_preemption_does_not_help_any_more():
    snapshot = snapshot_of(("a", pod("equal", "2", HIGH)))
    info = pod("web", "2", HIGH)
    snapshot.nominations.put(info, "a")
    result = choose(info, snapshot)
    assert isinstance(result, Unschedulable)
    assert result.clears_nomination


def test_the_nominated_node_is_used_as_soon_as_the_pod_fits_there():
    snapshot = snapshot_of(names=("a", "b"))
    snapshot.put_pod(pod("some", "1"), "b")
    assert choose(pod("web", "1", HIGH), snapshot) == Chosen("a")
    info = pod("web", "1", HIGH)
    snapshot.nominations.put(info, "b")
    assert choose(info, snapshot) == Chosen("b")


@pytest.mark.parametrize(
    ("priority", "fits"),
    [
        pytest.param(HIGH - 1, False, id="lower"),
        pytest.param(HIGH, False, id="equal"),
        pytest.param(HIGH + 1, True, id="higher"),
    ],
)
def test_space_of_a_nominated_pod_is_kept_from_pods_that_are_not_more_important(priority, fits):
    snapshot = snapshot_of(names=("a",))
    snapshot.nominations.put(pod("nominated", "2", HIGH), "a")
    assert isinstance(choose(pod("web", "1", priority), snapshot), Chosen) == fits


def test_affinity_to_a_nominated_pod_is_not_relied_on():
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": RED}}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    snapshot = snapshot_of(names=("a",))
    snapshot.nominations.put(pod("nominated", "1", HIGH, labels=RED), "a")
    assert "didn't match pod affinity rules" in message(pod("web", "1", affinity=affinity), snapshot)


def test_a_dry_run_leaves_the_snapshot_as_it_was():
    placed = [pod("low", "1", labels=RED, affinity=apart(**BLUE)), pod("x", "1", owner="set")]
    snapshot = snapshot_of(*(("a", item) for item in placed))
    [node] = snapshot.nodes
    before = (dict(node.pods), dict(node.requested), dict(node.owners), dict(node.with_affinity), dict(node.usage))
    assert isinstance(dry_run(pod("web", "2", HIGH), snapshot, node, FILTERS), Candidate)
    assert (dict(node.pods), dict(node.requested), dict(node.owners), dict(node.with_affinity),
            dict(node.usage)) == before  # fmt: skip


sizes = st.integers(0, 4)


@settings(deadline=None)
@given(
    placed=st.lists(st.tuples(st.integers(0, 2), sizes, st.integers(0, 3)), max_size=10),
    cpu=st.integers(1, 4),
    priority=st.integers(0, 4),
)
def test_victims_are_necessary_and_sufficient(placed, cpu, priority):
    """By brute force: the pod fits without its victims, never without fewer of them, and where nothing is preempted no
    set of pods of lower priority would help."""
    pods = [(f"n{at}", pod(f"p{index}", str(size), rank)) for index, (at, size, rank) in enumerate(placed)]
    snapshot = snapshot_of(*pods, cpu="4", names=("n0", "n1", "n2"))
    info = pod("web", str(cpu), priority)

    def fits_without(node, gone):
        rest = sum(each.requests["cpu"] for at, each in pods if at == node and each.pod.uid not in gone)
        return rest + info.requests["cpu"] <= 4000

    result = choose(info, snapshot)
    if isinstance(result, Chosen):
        return
    if result.preemption is None:
        lower = {each.pod.uid for _node, each in pods if each.pod.spec.priority < priority}
        assert not any(fits_without(node, lower) for node in ("n0", "n1", "n2"))
        return
    uids = {victim.pod.uid for victim in result.preemption.victims}
    assert all(victim.pod.spec.priority < priority for victim in result.preemption.victims)
    assert fits_without(result.preemption.node, uids)
    for fewer in itertools.combinations(uids, len(uids) - 1):
        assert not fits_without(result.preemption.node, set(fewer))
