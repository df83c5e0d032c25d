"""Warnings about pods: large manifests, and what is compared with the stock server elsewhere.

The texts are compared in tests/apiserver/stock/test_warnings.py.
"""

import pytest

from podwire.kinds.podspec.warnings import MOST_WARNINGS, pod_warnings

MANY = 50_000
"""A look at each pair of so many takes longer than the time limit of tests."""


def pod(**spec):
    return {"metadata": {"name": "web"}, "spec": {"containers": [{"name": "c", "image": "x"}], **spec}}


def ported(ports):
    return pod(containers=[{"name": "c", "image": "x", "ports": ports}])


def on_host(number, **host):
    return {"containerPort": 80, "hostPort": number, **host}


def filed(paths):
    items = [{"key": "k", "path": path} for path in paths]
    return pod(volumes=[{"name": "v", "configMap": {"name": "m", "items": items}}])


@pytest.mark.parametrize(
    ("manifest", "warnings"),
    [
        pytest.param(ported([{"containerPort": 80}] * MANY), MOST_WARNINGS, id="same port"),
        pytest.param(ported([on_host(number + 1) for number in range(MANY)]), 0, id="host ports"),
        pytest.param(ported([on_host(1, hostIP=f"10.0.{number}") for number in range(MANY)]), 0, id="host addresses"),
        pytest.param(filed(["a"] * MANY), MOST_WARNINGS, id="same file"),
        pytest.param(filed([f"a{number}" for number in range(MANY)]), 0, id="different files"),
        pytest.param(filed(["/".join("a" * depth) for depth in range(1, 1000)]), MOST_WARNINGS, id="nested files"),
    ],
)
def test_the_cost_of_warnings_does_not_grow_with_the_pairs(manifest, warnings):
    assert len(pod_warnings(manifest, None)) == warnings


@pytest.mark.parametrize(
    ("paths", "overlaps"),
    [
        pytest.param(["a", "ab", "a-b"], [], id="same beginning"),
        pytest.param(["a", "a-b", "a/b"], ['"a/b" with "a"'], id="another between"),
        pytest.param(["a/b", "a"], ['"a" with "a/b"'], id="directory later"),
        pytest.param(["", "a", "/"], [], id="empty"),
        pytest.param(["a/b", "a/c", "a"], ['"a" with "a/b"', '"a" with "a/c"'], id="two below"),
    ],
)
def test_files_overlap_when_one_contains_the_other(paths, overlaps):
    start = 'volume "v" (ConfigMap "m"): overlapping paths: '
    assert sorted(pod_warnings(filed(paths), None)) == [start + overlap for overlap in overlaps]


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        pytest.param({}, {}, "duplicate", id="no host port"),
        pytest.param({"hostPort": 1}, {}, "overlapping", id="one host port"),
        pytest.param({}, {"hostPort": 1}, "overlapping", id="the other host port"),
        pytest.param({"hostPort": 1}, {"hostPort": 1, "hostIP": "10.0.0.1"}, "dangerously ambiguous", id="one address"),
        pytest.param({"hostPort": 1, "hostIP": "10.0.0.1"}, {"hostPort": 1}, "dangerously ambiguous", id="the other"),
        pytest.param({"hostPort": 1}, {"hostPort": 2}, None, id="two host ports"),
        pytest.param({"protocol": "UDP"}, {"protocol": "TCP"}, None, id="two protocols"),
    ],
)
def test_ports_conflict_by_number_protocol_and_address(first, second, kind):
    ports = [{"containerPort": 80, **first}, {"containerPort": 80, **second}]
    expected = [f"spec.containers[0].ports[1]: {kind} port definition with spec.containers[0].ports[0]"] if kind else []
    assert pod_warnings(ported(ports), None) == expected
