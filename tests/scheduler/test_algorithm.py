"""The chosen node, and the message when there is none."""

import random

from hypothesis import given
from hypothesis import strategies as st

from podwire.scheduler import Chosen, Unschedulable, choose
from podwire.scheduler.framework import ClusterEvent
from podwire.scheduler.resource_requests import amounts

TAINTED = {"taints": [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]}


def test_reasons_are_counted_and_sorted(make_pod, make_snapshot):
    snapshot = make_snapshot({"a": TAINTED, "b": {"allocatable": {"cpu": "1"}}, "c": TAINTED})
    found = choose(make_pod(requests={"cpu": "2"}), snapshot)
    assert found == Unschedulable(
        "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint {dedicated: gpu}. "
        "preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.",
        ClusterEvent.NODE | ClusterEvent.POD_GONE,
    )


def test_a_node_that_lacks_several_resources_reports_all_of_them(make_pod, make_snapshot):
    snapshot = make_snapshot({"a": {"allocatable": {"cpu": "1", "memory": "1Mi", "pods": "0"}}})
    found = choose(make_pod(requests={"cpu": "2", "memory": "1Gi"}), snapshot)
    assert isinstance(found, Unschedulable)
    assert found.message.startswith(
        "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, 1 Too many pods. "
    )


def test_without_nodes_the_reason_is_that_there_are_none(make_pod, make_snapshot):
    found = choose(make_pod(), make_snapshot({}))
    assert found == Unschedulable("no nodes available to schedule pods", ClusterEvent.NODE)


def test_a_pod_that_never_preempts_gets_upstreams_message(make_pod, make_snapshot):
    found = choose(make_pod(preemptionPolicy="Never"), make_snapshot({"a": TAINTED}))
    assert isinstance(found, Unschedulable)
    assert found.message.endswith(". preemption: not eligible due to preemptionPolicy=Never.")


def test_pods_on_a_node_that_is_not_there_make_no_node(make_pod, make_snapshot):
    snapshot = make_snapshot({}, [("ghost", "old", {})])
    assert isinstance(choose(make_pod(), snapshot), Unschedulable)


def test_of_equal_nodes_the_emptier_one_is_taken_then_the_first_by_name(make_pod, make_snapshot):
    nodes = {"b": {"allocatable": {}}, "a": {}}
    assert choose(make_pod(), make_snapshot(nodes)) == Chosen("a")
    snapshot = make_snapshot({name: {"allocatable": {"cpu": "0", "memory": "0"}} for name in "ab"}, [("a", "x", {})])
    assert choose(make_pod(), snapshot) == Chosen("b")


asked = st.fixed_dictionaries(
    {"cpu": st.integers(0, 3000).map("{}m".format), "memory": st.integers(0, 3000).map("{}Mi".format)}
)


@given(
    sizes=st.lists(st.tuples(st.integers(1, 8), st.integers(1, 8), st.integers(0, 6)), min_size=1, max_size=4),
    pods=st.lists(asked, max_size=20),
)
def test_no_node_ever_holds_more_than_it_has(make_pod, make_snapshot, sizes, pods):
    has = {f"n{index}": {"cpu": str(cpu), "memory": f"{memory}Gi", "pods": str(count)}
           for index, (cpu, memory, count) in enumerate(sizes)}  # fmt: skip
    snapshot = make_snapshot({name: {"allocatable": each} for name, each in has.items()})
    for index, requests in enumerate(pods):
        info = make_pod(f"p{index}", requests=requests)
        match choose(info, snapshot):
            case Chosen(node):
                snapshot.put_pod(info, node)
            case Unschedulable(message):
                assert message.startswith(f"0/{len(has)} nodes are available: ")
    for node in snapshot.nodes:
        limits = amounts(has[node.name])
        assert len(node.pods) <= limits["pods"]
        assert all(sum(pod.requests.get(name, 0) for pod in node.pods.values()) <= limits[name] for name in limits)


@given(
    sizes=st.lists(st.integers(1, 6), min_size=2, max_size=5),
    placed=st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["red", "blue"]), asked), max_size=8),
    seed=st.integers(),
)
def test_the_order_in_which_things_became_known_makes_no_difference(make_pod, make_snapshot, sizes, placed, seed):
    nodes = [(f"n{index}", {"allocatable": {"cpu": str(cpu)}}) for index, cpu in enumerate(sizes)]
    pods = [
        (f"n{at % len(sizes)}", f"p{index}", {"labels": {"team": team}, "requests": requests, "owner": team})
        for index, (at, team, requests) in enumerate(placed)
    ]
    info = make_pod(
        labels={"team": "red"},
        owner="red",
        affinity={
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 10,
                        "podAffinityTerm": {
                            "topologyKey": "kubernetes.io/hostname",
                            "labelSelector": {"matchLabels": {"team": "blue"}},
                        },
                    }
                ]
            }
        },
    )
    first = choose(info, make_snapshot(dict(nodes), pods))
    shuffle = random.Random(seed).shuffle
    shuffle(nodes)
    shuffle(pods)
    assert choose(info, make_snapshot(dict(nodes), pods)) == first
