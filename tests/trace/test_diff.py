"""Two starts side by side."""

import json

import msgspec
import pytest

from podwire.cli.trace_output import diff_as_json
from podwire.trace.diff import diff, kind_of
from podwire.trace.tables import compared


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        ("POST /api/v1/namespaces/default/pods?fieldManager=kubectl", "POST pods"),
        ("PATCH /api/v1/namespaces/shop/pods/web/status", "PATCH pods/status"),
        ("GET /apis/net.podwire.dev/v1/namespaces/a/podroutes/b", "GET podroutes"),
        ("create /registry/pods/default/web", "create pods"),
        ("ADD bridge", "ADD bridge"),
        ("NRI RunPodSandbox", "NRI RunPodSandbox"),
        ("read (cache, rv 17) networkpolicies/shut", "read (…) networkpolicies/shut"),
        ("GET /healthz", "GET /healthz"),
        ("GET /api/v1/a//b", "GET /api/v1/a//b"),
    ],
)
def test_calls_are_compared_without_names(method, kind):
    assert kind_of(method) == kind


def later(records, method, seconds):
    """The same, where everything from the end of a call on is later."""
    place = next(each.time for each in records if each.method == method and each.ends)
    return [msgspec.structs.replace(each, time=each.time + (seconds if each.time >= place else 0)) for each in records]


def test_a_pod_and_itself_do_not_differ(trace):
    told = diff(trace, trace)
    assert {each.kind for each in told.rows} == {"both"}
    assert {each.slower for each in told.rows} == {0.0}
    assert "0 hops are slower, 0 are missing in B, 0 are only in B" in compared(told)


def test_the_slower_hop_is_found_with_those_around_it(records, tell, trace):
    told = diff(trace, tell(later(records, "ADD bridge", 0.05)))
    slower = {(each.callee, each.call): each.slower for each in told.rows if each.slower and each.slower > 0.001}
    assert slower == {
        ("CNIPlugin", "ADD bridge"): pytest.approx(0.05),
        ("ContainerRuntime", "RunPodSandbox"): pytest.approx(0.05),
    }
    assert {each.name: round(each.slower * 1000) for each in told.phases if each.slower > 0.001} == {"sandbox": 50}
    shown = compared(told)
    assert "B is slowest in sandbox: +50.0 ms" in shown
    assert "2 hops are slower" in shown
    assert "\x1b" not in shown
    assert "\x1b[1;31m" in compared(told, colours=True)


def test_calls_of_only_one_pod_are_marked(records, tell, trace):
    shorter = [each for each in records if each.method != "CreateContainer"]
    told = diff(trace, tell(shorter))
    assert [(each.call, each.kind) for each in told.rows if each.kind != "both"] == [("CreateContainer", "missing")]
    assert "missing in B" in compared(told)
    back = diff(tell(shorter), trace)
    assert [(each.call, each.kind) for each in back.rows if each.kind != "both"] == [("CreateContainer", "extra")]
    assert "only in B" in compared(back)


def test_calls_of_a_kind_are_paired_in_their_order(records, tell, trace):
    updates = [each for each in diff(trace, trace).rows if each.call == "update pods"]
    assert len(updates) == 2
    assert all(each.first == each.second for each in updates)


def test_the_comparison_is_available_as_json(trace):
    told = json.loads(diff_as_json(diff(trace, trace)))
    assert set(told) == {"a", "b", "phases", "parts", "hops"}
    first = told["hops"][0]
    assert (first["from"], first["to"], first["call"], first["kind"]) == ("KubeCtl", "APIServer", "POST pods", "both")
    assert first["a"]["took"] == first["b"]["took"]
    assert sum(each["a"] for each in told["phases"]) == pytest.approx(told["a"]["took"])


def test_a_pod_that_does_not_run_is_compared_as_far_as_it_came(records, tell, trace):
    told = diff(trace, tell(records[:18]))
    assert "StartContainer" in [each.call for each in told.rows if each.kind == "missing"]
    assert compared(told)
