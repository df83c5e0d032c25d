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
    place = next(record.time for record in records if record.method == method and record.ends)
    return [
        msgspec.structs.replace(record, time=record.time + (seconds if record.time >= place else 0))
        for record in records
    ]


def test_a_pod_and_itself_do_not_differ(trace):
    result = diff(trace, trace)
    assert {row.kind for row in result.rows} == {"both"}
    assert {row.slower for row in result.rows} == {0.0}
    assert "0 hops are slower, 0 are missing in B, 0 are only in B" in compared(result)


def test_the_slower_hop_is_found_with_those_around_it(records, tell, trace):
    result = diff(trace, tell(later(records, "ADD bridge", 0.05)))
    slower = {(row.callee, row.call): row.slower for row in result.rows if row.slower and row.slower > 0.001}
    assert slower == {
        ("CNIPlugin", "ADD bridge"): pytest.approx(0.05),
        ("ContainerRuntime", "RunPodSandbox"): pytest.approx(0.05),
    }
    assert {phase.name: round(phase.slower * 1000) for phase in result.phases if phase.slower > 0.001} == {
        "sandbox": 50
    }
    shown = compared(result)
    assert "B is slowest in sandbox: +50.0 ms" in shown
    assert "2 hops are slower" in shown
    assert "\x1b" not in shown
    assert "\x1b[1;31m" in compared(result, colours=True)


def test_calls_of_only_one_pod_are_marked(records, tell, trace):
    shorter = [record for record in records if record.method != "CreateContainer"]
    result = diff(trace, tell(shorter))
    assert [(row.call, row.kind) for row in result.rows if row.kind != "both"] == [("CreateContainer", "missing")]
    assert "missing in B" in compared(result)
    back = diff(tell(shorter), trace)
    assert [(row.call, row.kind) for row in back.rows if row.kind != "both"] == [("CreateContainer", "extra")]
    assert "only in B" in compared(back)


def test_calls_of_a_kind_are_paired_in_their_order(records, tell, trace):
    updates = [row for row in diff(trace, trace).rows if row.call == "update pods"]
    assert len(updates) == 2
    assert all(update.first == update.second for update in updates)


def test_the_comparison_is_available_as_json(trace):
    answer = json.loads(diff_as_json(diff(trace, trace)))
    assert set(answer) == {"a", "b", "phases", "parts", "hops"}
    first = answer["hops"][0]
    assert (first["from"], first["to"], first["call"], first["kind"]) == ("KubeCtl", "APIServer", "POST pods", "both")
    assert first["a"]["took"] == first["b"]["took"]
    assert sum(phase["a"] for phase in answer["phases"]) == pytest.approx(answer["a"]["took"])


def test_a_pod_that_does_not_run_is_compared_as_far_as_it_came(records, tell, trace):
    result = diff(trace, tell(records[:18]))
    assert "StartContainer" in [row.call for row in result.rows if row.kind == "missing"]
    assert compared(result)
