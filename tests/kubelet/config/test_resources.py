"""Requests of a pod, and its protection from eviction and OOM."""

import pytest

from podwire.kubelet.config.resources import oom_score_adj, pod_limits, pod_requests, qos_class, quantity
from podwire.objects import pods

CPU = {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}
FULL = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1024Mi"}}


def pod(*resources, init=(), **spec):
    """With a container for each; an init container is a sidecar if it says so."""
    containers = [{"name": f"c{number}", "image": "a:1", "resources": each} for number, each in enumerate(resources)]
    before = [{"name": f"i{number}", "image": "a:1", **each} for number, each in enumerate(init)]
    return pods.read({"metadata": {"name": "p"}, "spec": {"containers": containers, "initContainers": before, **spec}})


def starts(cpu, *, sidecar=False):
    return {"resources": {"requests": {"cpu": cpu}}, **({"restartPolicy": "Always"} if sidecar else {})}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param(pod({}), "BestEffort", id="nothing"),
        pytest.param(pod(FULL), "Guaranteed", id="all, and as much as it may take"),
        pytest.param(pod(FULL, FULL), "Guaranteed", id="all of them"),
        pytest.param(pod(FULL, {}), "Burstable", id="one asks for nothing"),
        pytest.param(pod({}, FULL), "Burstable", id="whichever it is"),
        pytest.param(pod(CPU), "Burstable", id="no memory"),
        pytest.param(pod({"requests": {"memory": "1"}}), "Burstable", id="a request alone"),
        pytest.param(pod({"limits": {"cpu": "1", "memory": "1"}}), "Burstable", id="limits without requests"),
        pytest.param(pod({"requests": {"cpu": "0"}, "limits": {"cpu": "0"}}), "BestEffort", id="zero is nothing"),
        pytest.param(pod({"limits": {"vendor.test/nic": "1"}}), "BestEffort", id="devices do not count"),
        pytest.param(pod(FULL, init=[starts("1")]), "Burstable", id="init containers count"),
    ],
)
def test_the_class_of_a_pod(asked, expected):
    assert qos_class(asked) == expected


def test_a_class_that_was_given_stays():
    given = pods.read({"metadata": {"name": "p"}, "spec": {"containers": []}, "status": {"qosClass": "Guaranteed"}})
    assert qos_class(given) == "Guaranteed"


@pytest.mark.parametrize(
    ("asked", "cpu"),
    [
        pytest.param(pod(CPU, CPU), "2", id="what runs together adds up"),
        pytest.param(pod(CPU, init=[starts("3"), starts("2")]), "3", id="the largest init container"),
        pytest.param(pod(CPU, CPU, init=[starts("1")]), "2", id="unless the others need more"),
        pytest.param(pod(CPU, init=[starts("2", sidecar=True)]), "3", id="a sidecar stays"),
        pytest.param(pod(CPU, init=[starts("2", sidecar=True), starts("3")]), "5", id="a sidecar and an init one"),
        pytest.param(pod(CPU, init=[starts("3"), starts("1500m", sidecar=True)]), "3", id="not one before it"),
        pytest.param(pod(CPU, overhead={"cpu": "250m"}), "1250m", id="overhead"),
    ],
)  # fmt: skip
def test_pod_requests_are_the_largest_concurrent_need(asked, cpu):
    assert pod_requests(asked)["cpu"] == quantity(cpu)


def test_overhead_can_be_left_out_and_limits_have_none():
    asked = pod(CPU, overhead={"cpu": "250m", "memory": "1Mi"})
    assert {name: str(each) for name, each in pod_requests(asked, overhead=False).items()} == {"cpu": "1"}
    assert {name: str(each) for name, each in pod_limits(asked).items()} == {"cpu": "1"}


GIB = 1 << 30


@pytest.mark.parametrize(
    ("asked", "score"),
    [
        pytest.param(pod({}), 1000, id="best effort goes first"),
        pytest.param(pod(FULL), -997, id="guaranteed goes last"),
        pytest.param(pod({}, priority=2_000_001_000), -997, id="critical for the node"),
        pytest.param(pod({"requests": {"memory": "2Gi"}}), 800, id="in between, by what was requested"),
        pytest.param(pod({"requests": {"memory": "1"}}), 999, id="but not quite as best effort"),
        pytest.param(pod({"requests": {"memory": "10Gi"}}), 3, id="nor as guaranteed"),
    ],
)
def test_oom_scores_follow_the_qos_class(asked, score):
    assert oom_score_adj(asked, asked.spec.containers[0], 10 * GIB) == score


def test_a_sidecar_is_as_safe_as_the_least_that_it_serves():
    needy = {"requests": {"memory": "4Gi"}}
    asked = pod(needy, {"requests": {"memory": "2Gi"}}, init=[starts("1", sidecar=True), starts("1")])
    scores = [oom_score_adj(asked, container, 10 * GIB) for container in asked.spec.init_containers]
    assert scores == [800, 999]
