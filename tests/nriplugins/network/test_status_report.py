"""A resource's status: what a node adds to it, and when there is nothing to write."""

from podwire.nriplugins.network.resources import Head, Problem, Why
from podwire.nriplugins.network.sandbox import Sandbox
from podwire.nriplugins.network.status_report import Report, report_of, status_of

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"
HEAD = Head(kind="PodRoute", namespace="default", name="a", uid="u1")


def resource(status=None, **spec):
    meta = {"name": "a", "namespace": "default", "uid": "u1", "generation": 3}
    spec = spec or {"routes": [{"destinations": ["10.0.0.0/8"]}]}
    return {"kind": "PodRoute", "metadata": meta, "spec": spec, "status": status or {}}


def sandbox(name, *problems, selected_by=("u1",)):
    made = Sandbox(
        id=name, uid=name, namespace="default", name=name, netns="/n", ips=("10.1.0.5",), labels={}, annotations={}
    )
    made.problems, made.selected_by = problems, frozenset(selected_by)
    return made


def ready(status):
    return next((condition["status"], condition["reason"], condition["message"]) for condition in status["conditions"])


def test_pods_are_counted_and_those_that_failed_are_named():
    trouble = Problem(HEAD, Why.FAILED, "spec.routes[0]", "nobody is there")
    other = Problem(Head(kind="PodRoute", namespace="default", name="b", uid="u2"), Why.FAILED, "", "not ours")
    report = report_of(resource(), [sandbox("x"), sandbox("y", trouble, other), sandbox("z", selected_by=())])
    assert report == Report(2, (("y", "Failed", "spec.routes[0]: nobody is there"),))
    status = status_of(resource(), "n1", report, NOW)
    assert (status["pods"], status["failed"], status["observedGeneration"]) == (2, 1, 3)
    assert ready(status) == ("False", "Failed", "pod y on n1: spec.routes[0]: nobody is there")


def test_other_nodes_stay_and_are_summed_up():
    old = {"nodes": [{"name": "n2", "pods": 3, "failures": []}]}
    status = status_of(resource(old), "n1", Report(1), NOW)
    assert [node["name"] for node in status["nodes"]] == ["n1", "n2"]
    assert (status["pods"], ready(status)) == (4, ("True", "Applied", "pods: 4"))


def test_an_unchanged_status_is_not_written_and_keeps_its_time():
    first = status_of(resource(), "n1", Report(1), NOW)
    assert status_of(resource(first), "n1", Report(1), LATER) is None
    more = status_of(resource(first), "n1", Report(2), LATER)
    assert more["conditions"][0]["lastTransitionTime"] == NOW
    failed = status_of(resource(first), "n1", Report(1, (("x", "Failed", "why"),)), LATER)
    assert failed["conditions"][0]["lastTransitionTime"] == LATER


def test_a_node_without_pods_leaves_and_invalid_resources_are_reported():
    first = status_of(resource(), "n1", Report(1), NOW)
    assert status_of(resource(first), "n1", Report(0), NOW)["nodes"] == []
    broken = status_of(resource(routes=[]), "n1", Report(0), NOW)
    assert ready(broken) == ("False", "Invalid", "spec.routes: Required value")
