"""How many replicas a metric calls for: upstream's cases as one table.

A pod is a letter and its usage in thousandths: R ready, U never ready, H started just now, P pending, F failed, D being
deleted, M ready and without a metric. Each requests 1000.
"""

import pytest

from podwire.controllers.autoscaling import replica_calculator as calculator
from podwire.controllers.autoscaling.replica_calculator import (
    Condition,
    Container,
    Metadata,
    Moment,
    NoReplicas,
    Pod,
    PodMetric,
    PodSpec,
    PodStatus,
    Resources,
    Tolerances,
)
from podwire.objects.times import rfc3339

NOW = 1_800_000_000.0
MOMENT = Moment(now=NOW)
LONG_AGO = rfc3339(NOW - 600)


def pod(name: str, letter: str = "R", **spec) -> Pod:
    started = rfc3339(NOW - 30) if letter == "H" else LONG_AGO
    changed = rfc3339(NOW - 20) if letter == "H" else LONG_AGO
    ready = Condition("Ready", "False" if letter in "UPF" else "True", changed)
    spec = spec or {"containers": (Container("main", resources=Resources({"cpu": "1", "memory": "1"})),)}
    return Pod(
        Metadata(name, LONG_AGO if letter == "D" else None),
        PodSpec(**spec),
        PodStatus({"P": "Pending", "F": "Failed"}.get(letter, "Running"), started, (ready,)),
    )


def cluster(text: str) -> tuple[list[Pod], dict[str, PodMetric]]:
    words = text.split()
    pods = [pod(f"p{index}", word[0]) for index, word in enumerate(words)]
    metrics = {f"p{index}": PodMetric(int(word[1:]), NOW, 60.0) for index, word in enumerate(words) if len(word) > 1}
    return pods, metrics


@pytest.mark.parametrize(
    ("pods", "current", "target", "replicas", "percent"),
    [
        pytest.param("R300 R500 R700", 3, 30, 5, 50, id="scale up"),
        pytest.param("U300 R500 R700", 3, 30, 4, 60, id="up less with one that is not ready"),
        pytest.param("H300 R500 R700", 3, 30, 4, 60, id="up less with one that was just started"),
        pytest.param("R400 U500 U700", 3, 30, 3, 40, id="not up with two that are not ready"),
        pytest.param("R500 R700 F F", 2, 30, 4, 60, id="failed pods are left out"),
        pytest.param("R500 R700 D900 D900", 2, 30, 4, 60, id="pods that are being deleted are left out"),
        pytest.param("R100 R300 R500 R250 R250", 5, 50, 3, 28, id="scale down"),
        pytest.param("U100 R300 R500 R250 R250", 5, 50, 3, 32, id="those not ready are left out of a scale down"),
        pytest.param("R100 R300 P P P", 5, 50, 1, 20, id="pending ones are left out of a scale down"),
        pytest.param("R900 R1000 R1100", 3, 100, 3, 100, id="within the tolerance"),
        pytest.param("R1000 R100 M", 3, 50, 3, 55, id="one without a metric changes nothing"),
        pytest.param("R400 R950 M M", 4, 100, 4, 67, id="a missing one would turn the direction"),
        pytest.param("R100 R450 M", 3, 50, 3, 27, id="down: a missing one uses all of its request"),
        pytest.param("U100 R450 M", 3, 50, 3, 45, id="missing and not ready"),
        pytest.param("R1000 R1900 R M", 4, 50, 6, 145, id="up: missing ones use nothing"),
        pytest.param("R100 R100 R100 M", 4, 300, 2, 10, id="a missing one counts as its target above 100 %"),
    ],
)
def test_a_percentage_of_the_requests(pods, current, target, replicas, percent):
    listed, metrics = cluster(pods)
    found = calculator.utilization_replicas(current, target, "cpu", "", listed, metrics, Tolerances(), MOMENT)
    assert (found.replicas, found.utilization) == (replicas, percent)


@pytest.mark.parametrize(
    ("pods", "current", "target", "replicas", "usage"),
    [
        pytest.param("R20000 R10000 R30000", 3, 15000, 4, 20000, id="scale up"),
        pytest.param("U50000 R10000 R30000", 3, 15000, 6, 30000, id="readiness counts for CPU only"),
        pytest.param("H50000 R15000 R30000", 3, 15000, 7, 31666, id="so does a new start"),
        pytest.param("R12000 R12000 R12000 R12000 R12000", 5, 20000, 3, 12000, id="scale down"),
        pytest.param("R20000 R21000 R21000", 3, 20000, 3, 20666, id="within the tolerance"),
        pytest.param("R20000 R19000 M", 3, 20000, 3, 19500, id="a missing one uses its target"),
    ],
)
def test_an_average_of_a_custom_metric(pods, current, target, replicas, usage):
    listed, metrics = cluster(pods)
    found = calculator.average_replicas(current, target, "", listed, metrics, Tolerances(), MOMENT)
    assert (found.replicas, found.usage) == (replicas, usage)


@pytest.mark.parametrize(
    ("current", "usage", "target", "pods", "replicas"),
    [
        pytest.param(3, 20000, 15000, "R R R", 4, id="up"),
        pytest.param(3, 50000, 10000, "R U U", 5, id="only ready pods are multiplied"),
        pytest.param(5, 12000, 20000, "R R R R R", 3, id="down"),
        pytest.param(3, 20666, 20000, "R R R", 3, id="within the tolerance"),
        pytest.param(0, 2500, 1000, "", 3, id="from zero"),
        pytest.param(3, 2**63 - 1, 1, "R R R", 2**31 - 1, id="more than there can be"),
    ],
)
def test_the_value_of_an_object(current, usage, target, pods, replicas):
    assert calculator.value_replicas(current, usage, target, cluster(pods)[0], Tolerances()).replicas == replicas


@pytest.mark.parametrize(
    ("present", "usage", "target", "replicas", "average"),
    [
        pytest.param(3, 8600, 2150, 4, 2867, id="up"),
        pytest.param(5, 8600, 2150, 4, 1720, id="down"),
        pytest.param(4, 8600, 2150, 4, 2150, id="exact"),
        pytest.param(4, 8600, 2100, 4, 2150, id="within the tolerance"),
        pytest.param(0, 8600, 2150, 4, 8600, id="none is present"),
        pytest.param(1, 2**63 - 1, 1, 2**31 - 1, 2**63 - 1, id="more than there can be"),
    ],
)
def test_a_value_for_each_pod(present, usage, target, replicas, average):
    found = calculator.per_pod_replicas(present, usage, target, Tolerances())
    assert (found.replicas, found.usage) == (replicas, average)


@pytest.mark.parametrize(
    ("tolerances", "usage", "replicas"),
    [
        (Tolerances(0.1, 0.1), 1090, 3),
        (Tolerances(0.1, 0.05), 1090, 4),
        (Tolerances(0.1, 0.0), 1001, 4),
        (Tolerances(0.4, 0.1), 650, 3),
        (Tolerances(0.3, 0.1), 650, 2),
    ],
)
def test_each_direction_has_its_tolerance(tolerances, usage, replicas):
    listed, metrics = cluster(f"R{usage} R{usage} R{usage}")
    found = calculator.average_replicas(3, 1000, "", listed, metrics, tolerances, MOMENT)
    assert found.replicas == replicas


@pytest.mark.parametrize(
    ("pods", "why"),
    [
        ("", "no pods returned by selector while calculating replica count"),
        ("U100 P", "did not receive metrics for targeted pods (pods might be unready)"),
        ("M M", "did not receive metrics for targeted pods (pods might be unready)"),
    ],
)
def test_without_metrics_there_is_no_number(pods, why):
    listed, metrics = cluster(pods)
    with pytest.raises(NoReplicas) as caught:
        calculator.utilization_replicas(3, 50, "cpu", "", listed, metrics, Tolerances(), MOMENT)
    assert str(caught.value) == why


def test_metrics_of_other_pods_match_none():
    listed, _ = cluster("R1")
    with pytest.raises(NoReplicas, match="no metrics returned matched known pods"):
        calculator.utilization_replicas(1, 50, "memory", "", listed, {"stranger": PodMetric(1)}, Tolerances(), MOMENT)


def container(name: str, cpu: str = "", **more) -> Container:
    return Container(name, resources=Resources({"cpu": cpu} if cpu else {}), **more)


@pytest.mark.parametrize(
    ("spec", "name", "request_"),
    [
        pytest.param({"containers": (container("a", "100m"), container("b", "50m"))}, "", 150, id="all containers"),
        pytest.param({"containers": (container("a", "100m"), container("b", "50m"))}, "b", 50, id="one"),
        pytest.param({"containers": (container("a", "100m"), container("b"))}, "a", 100, id="one, others have none"),
        pytest.param(
            {"containers": (container("a", "100m"),),
             "init_containers": (container("s", "7m", restart_policy="Always"), container("i", "9"))},
            "", 107, id="sidecars count, other init containers do not",
        ),
        pytest.param(
            {"containers": (container("a"),), "resources": Resources({"cpu": "2"})}, "", 2000, id="of the whole pod"
        ),
    ],
)  # fmt: skip
def test_requests(spec, name, request_):
    assert calculator.requests_of([pod("p", **spec)], name, "cpu") == {"p": request_}


@pytest.mark.parametrize(
    ("spec", "name", "why"),
    [
        ({"containers": (container("a", "1"), container("b"))}, "", "missing request for cpu in container b of Pod p"),
        ({"containers": (container("a", "1"),)}, "x", "container x not found in Pod p"),
        (
            {"containers": (container("a", "1"),), "resources": Resources({"memory": "2"})},
            "",
            "missing pod-level request for cpu in Pod p",
        ),
    ],
)
def test_requests_that_are_missing(spec, name, why):
    with pytest.raises(NoReplicas) as caught:
        calculator.requests_of([pod("p", **spec)], name, "cpu")
    assert str(caught.value) == why


@pytest.mark.parametrize(
    ("started", "status", "changed", "measured", "unready"),
    [
        pytest.param(30, "True", 90, 0, False, id="new, ready for a whole window"),
        pytest.param(30, "True", 20, 0, True, id="new, ready since less than a window"),
        pytest.param(30, "False", 90, 0, True, id="new and not ready"),
        pytest.param(600, "False", 590, 0, True, id="old and never ready"),
        pytest.param(600, "False", 100, 0, False, id="old and not ready any more"),
        pytest.param(600, "True", 1, 0, False, id="old and ready"),
    ],
)
def test_when_the_cpu_of_a_pod_counts(started, status, changed, measured, unready):
    row = pod("p")
    row.status.start_time = rfc3339(NOW - started)
    row.status.conditions = (Condition("Ready", status, rfc3339(NOW - changed)),)
    groups = calculator.group_pods([row], {"p": PodMetric(1, NOW - measured, 60.0)}, "cpu", MOMENT)
    assert (groups.unready == {"p"}) is unready


def test_a_pod_without_a_condition_is_not_ready():
    row = pod("p")
    row.status.conditions = ()
    assert calculator.group_pods([row], {"p": PodMetric(1)}, "cpu", MOMENT).unready == {"p"}
