"""Decisions with a cache are those over all nodes, and cost no more with more nodes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podwire.objects import nodes
from podwire.scheduler import Chosen, Snapshot, choose
from podwire.scheduler.decision_cache import DecisionCache, nodes_to_find
from podwire.scheduler.profiles import Profile
from tests.scheduler.conftest import node_object

EVERY_NODE = Profile(percentage_of_nodes=100)
SOFT = [{"key": "k", "value": "v", "effect": "PreferNoSchedule"}]
SELECTOR = {"matchLabels": {"app": "a"}}


def apart(key):
    term = {"topologyKey": key, "labelSelector": SELECTOR}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def near(key):
    term = {"weight": 10, "podAffinityTerm": {"topologyKey": key, "labelSelector": SELECTOR}}
    return {"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}}


def spread(when):
    constraint = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": when, "labelSelector": SELECTOR}
    return {"topologySpreadConstraints": [constraint]}


PODS = [
    {},
    {"requests": {"cpu": "500m", "memory": "1Gi"}},
    {"requests": {"cpu": "250m"}, "owner": "set"},
    {"labels": {"app": "a"}, "owner": "other"},
    {"labels": {"app": "a"}, **apart("kubernetes.io/hostname")},
    {"labels": {"app": "a"}, **apart("zone")},
    {"labels": {"app": "a"}, **spread("DoNotSchedule")},
    {"labels": {"app": "a"}, **spread("ScheduleAnyway")},
    {"labels": {"app": "a"}, **near("zone")},
    {"tolerations": [{"key": "k", "operator": "Exists"}]},
    {"nodeSelector": {"zone": "z1"}},
]
NODES = [
    {"labels": {"zone": "z1"}},
    {"labels": {"zone": "z2"}, "taints": SOFT},
    {"labels": {"zone": "z2"}, "allocatable": {"cpu": "8"}},
    {"allocatable": {"pods": "3"}},
    {"labels": {"zone": "z3"}, "unschedulable": True},
    {"labels": {"zone": "z1"}, "images": [{"names": ["busybox:1.36"], "sizeBytes": 800 * 1024 * 1024}]},
]
steps = st.lists(
    st.one_of(
        st.tuples(st.just("pod"), st.integers(0, len(PODS) - 1)),
        st.tuples(st.just("end"), st.integers(0, 40)),
        st.tuples(st.just("node"), st.integers(0, 7), st.integers(0, len(NODES) - 1)),
        st.tuples(st.just("no node"), st.integers(0, 7)),
    ),
    min_size=10,
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(steps)
def test_a_cache_does_not_change_decisions(make_pod, steps):
    snapshot, cache, placed = Snapshot(), DecisionCache(), []
    for number, described in enumerate(NODES):
        snapshot.put_node(nodes.read(node_object(f"n{number}", **described)))
    for number, (what, *which) in enumerate(steps):
        if what == "pod":
            pod = make_pod(f"p{number}", **PODS[which[0]])
            choice = choose(pod, snapshot, EVERY_NODE, cache)
            assert choice == choose(pod, snapshot, EVERY_NODE)
            if isinstance(choice, Chosen):
                snapshot.put_pod(pod, choice.node)
                placed.append(pod.pod.uid)
        elif what == "end" and placed:
            snapshot.drop_pod(placed.pop(which[0] % len(placed)))
        elif what == "node":
            snapshot.put_node(nodes.read(node_object(f"n{which[0]}", **NODES[which[1]])))
        elif what == "no node":
            snapshot.drop_node(f"n{which[0]}")


@pytest.mark.parametrize(
    ("there", "percentage", "enough"),
    [
        (1, 0, 1),
        (100, 0, 100),
        (101, 0, 100),
        (1000, 0, 420),
        (5000, 0, 500),
        (10_000, 0, 500),
        (5000, 1, 100),
        (5000, 30, 1500),
        (5000, 100, 5000),
    ],
)
def test_the_larger_the_cluster_the_smaller_the_part_that_is_searched(there, percentage, enough):
    assert nodes_to_find(there, percentage) == enough


@pytest.mark.parametrize("pod", [{}, {"labels": {"app": "a"}, **near("zone")}], ids=["similar", "searched"])
def test_most_nodes_are_not_looked_at_again(make_pod, monkeypatch, pod):
    """Counts the nodes that filters see: times would say nothing on a busy machine."""
    snapshot, cache, seen = Snapshot(), DecisionCache(), []
    for number in range(1000):
        snapshot.put_node(nodes.read(node_object(f"n{number:04}", labels={"zone": f"z{number % 5}"})))
    fit = next(filter_ for filter_ in Profile().filters if filter_.name == "NodeResourcesFit")

    def counted(info, of):
        checked = fit.prepare(info, of)
        return lambda node: seen.append(node.name) or checked(node)

    counting = Profile(
        filters=tuple(
            filter_ if filter_ is not fit else type(fit)(fit.name, counted, fit.retry_on, local=True)
            for filter_ in Profile().filters
        )
    )
    for number in range(10):
        before = len(seen)
        info = make_pod(f"p{number}", **pod)
        choice = choose(info, snapshot, counting, cache)
        snapshot.put_pod(info, choice.node)
        assert len(seen) - before <= (1000 if number < 4 else 420)
    if not pod:
        assert len(seen) - before == 1


def test_a_search_that_finds_nothing_looks_at_every_node_once(make_pod):
    snapshot, cache = Snapshot(), DecisionCache()
    for number in range(300):
        snapshot.put_node(nodes.read(node_object(f"n{number:04}", labels={"zone": f"z{number % 5}"})))
    for number in range(3):
        info = make_pod(f"p{number}", labels={"app": "a"}, **near("zone"))
        snapshot.put_pod(info, choose(info, snapshot, cache=cache).node)
    message = choose(make_pod("large", requests={"cpu": "64"}, **near("zone")), snapshot, cache=cache).message
    assert message.startswith("0/300 nodes are available: 300 Insufficient cpu.")
