"""How nodes that will do are rated."""

import pytest

from podwire.scheduler import Chosen, choose, scores

MEGABYTE = 1024 * 1024
SOFT = {"taints": [{"key": "k", "value": "v", "effect": "PreferNoSchedule"}]}
BIG = {"images": [{"names": ["busybox:1.36", "busybox@sha256:1"], "sizeBytes": 800 * MEGABYTE}]}


def prefers(*pairs):
    wishes = [
        {"weight": weight, "preference": {"matchExpressions": [{"key": key, "operator": "Exists"}]}}
        for key, weight in pairs
    ]
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": wishes}}}


@pytest.mark.parametrize(
    ("rate", "nodes", "pod", "ratings"),
    [
        pytest.param(scores.taint_toleration, {"a": {}, "b": SOFT}, {}, [100, 0], id="a soft taint"),
        pytest.param(scores.taint_toleration, {"a": {}, "b": {}}, {}, None, id="no soft taint"),
        pytest.param(
            scores.taint_toleration,
            {"a": {}, "b": SOFT},
            {"tolerations": [{"key": "k", "operator": "Exists"}]},
            None,
            id="a tolerated soft taint",
        ),
        pytest.param(
            scores.preferred_node_affinity,
            {"a": {"labels": {"x": ""}}, "b": {"labels": {"x": "", "y": ""}}, "c": {}},
            prefers(("x", 10), ("y", 30)),
            [25, 100, 0],
            id="weights of labels add up, the best is 100",
        ),
        pytest.param(scores.preferred_node_affinity, {"a": {}}, {}, None, id="no preference"),
        pytest.param(
            scores.least_allocated,
            {"a": {"allocatable": {"cpu": "4", "memory": "8Gi"}}, "b": {"allocatable": {"cpu": "2", "memory": "4Gi"}}},
            {"requests": {"cpu": "1", "memory": "2Gi"}},
            [75, 50],
            id="the share that is left",
        ),
        pytest.param(
            scores.least_allocated,
            {"a": {"allocatable": {"cpu": "1", "memory": "400Mi"}}},
            {},
            [70],
            id="a pod that asks for nothing uses something",
        ),
        pytest.param(
            scores.balanced_allocation,
            {"a": {"allocatable": {"cpu": "2", "memory": "2Gi"}}, "b": {"allocatable": {"cpu": "2", "memory": "10Gi"}}},
            {"requests": {"cpu": "1", "memory": "1Gi"}},
            [100, 80],
            id="cpu and memory in step",
        ),
        pytest.param(scores.balanced_allocation, {"a": {}}, {}, None, id="nothing to balance"),
        pytest.param(scores.image_locality, {"a": {}, "b": {}}, {}, None, id="nobody has the image"),
        pytest.param(
            scores.image_locality,
            {"a": BIG, "b": {}},
            {},
            [100 * (400 - 23) // (1000 - 23), 0],
            id="half of the nodes have the image, so half of its size counts",
        ),
        pytest.param(
            scores.image_locality,
            {"a": {"images": [{"names": ["busybox:1.36"], "sizeBytes": 20 * MEGABYTE}]}},
            {},
            [0],
            id="a small image makes no difference",
        ),
    ],
)
def test_a_score_rates_nodes_from_0_to_100(make_pod, make_snapshot, rate, nodes, pod, ratings):
    snapshot = make_snapshot(nodes)
    found = scores.rate_each(rate(make_pod(**pod), snapshot), snapshot.nodes)
    assert found == ratings


def test_a_name_without_tag_means_the_latest(make_pod, make_snapshot):
    there = {"images": [{"names": ["host:5000/box:latest"], "sizeBytes": 900 * MEGABYTE}]}
    snapshot = make_snapshot({"a": there})
    pod = make_pod(containers=[{"name": "c", "image": "host:5000/box"}])
    assert scores.rate_each(scores.image_locality(pod, snapshot), snapshot.nodes) == [100 * (900 - 23) // (1000 - 23)]


@pytest.mark.parametrize(
    ("nodes", "pod", "chosen"),
    [
        pytest.param({"a": SOFT, "b": {}}, {}, "b", id="not onto a soft taint"),
        pytest.param({"a": {}, "b": {"labels": {"x": ""}}}, prefers(("x", 1)), "b", id="onto the preferred node"),
        pytest.param({"a": {}, "b": {"allocatable": {"cpu": "64"}}}, {}, "b", id="onto the larger node"),
        pytest.param({"a": {}, "b": BIG}, {}, "b", id="onto the one with the image"),
        pytest.param(
            {"a": {"labels": {"x": ""}, **SOFT}, "b": {}},
            prefers(("x", 100)),
            "b",
            id="a soft taint weighs more than a preference",
        ),
    ],
)
def test_the_best_rated_node_is_chosen(make_pod, make_snapshot, nodes, pod, chosen):
    assert choose(make_pod(**pod), make_snapshot(nodes)) == Chosen(chosen)


def test_the_weights_are_those_that_users_know():
    assert {score.name: score.weight for score in scores.SCORES} == {
        "TaintToleration": 3,
        "NodeAffinity": 2,
        "NodeResourcesFit": 1,
        "PodTopologySpread": 2,
        "InterPodAffinity": 2,
        "DynamicResources": 2,
        "NodeResourcesBalancedAllocation": 1,
        "ImageLocality": 1,
    }
