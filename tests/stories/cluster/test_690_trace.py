"""The trace of a whole cluster: drawn, compared, exported; it survives its collector, and waits for no other."""

import contextlib
import json
import re

import pytest

from tests.stories.cluster.telemetry import Telemetry

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def telemetry(cluster, tmp_path):
    made = Telemetry(cluster, tmp_path / "telemetry")
    with contextlib.closing(made):
        yield made


def trace_output(cluster, *words: str) -> str:
    done = cluster.podwire("trace", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def ended(cluster, pod: str) -> bool:
    """Whether the last that happened to a pod was reported: the API server forgot it, the runtime removed it."""
    records = json.loads(trace_output(cluster, pod, "--format", "json"))
    over = {record["method"].split(" ")[0] for record in records if record["outcome"] == "OK"}
    return {"delete", "RemovePodSandbox"} <= over


def test_starts_and_ends_are_drawn_compared_and_exported(cluster, a_pod, telemetry):
    cluster.up("--otlp", telemetry.url)
    cluster.apply(a_pod("web"))
    cluster.running(1)
    cluster.apply(a_pod("late"))
    both = cluster.running(2)
    cluster.eventually(
        lambda: "Running after" in trace_output(cluster, "late", "--color", "never"), "its start was reported"
    )

    assert trace_output(cluster, "--last").startswith("pod default/late: Running after ")
    table, _, drawn = trace_output(cluster, "--slow", "--top", "2").partition("\n\n")
    assert len(table.splitlines()) == 3
    assert drawn.startswith(f"pod {table.splitlines()[1].split()[0]}: Running after ")
    compared = json.loads(trace_output(cluster, "--diff", "web", "late", "--format", "json"))
    kinds = {(hop["to"], hop["call"]) for hop in compared["hops"] if hop["kind"] == "both"}
    assert {("SQLite", "create pods"), ("ContainerRuntime", "RunPodSandbox"), ("CNIPlugin", "ADD bridge")} <= kinds
    assert sum(phase["a"] for phase in compared["phases"]) == pytest.approx(compared["a"]["took"])
    assert "until Running" in trace_output(cluster, "--diff", "web", "late")
    page = trace_output(cluster, "late", "--format", "html")
    assert page.count("<script") == 2
    assert "RunPodSandbox" in page
    assert "no deviations" in trace_output(cluster, "late", "--check", "pod")

    trace = both["late"]["metadata"]["uid"].replace("-", "")
    cluster.eventually(lambda: any(not span.parent_span_id for _, span in telemetry.spans(trace)), "the root is there")
    known = {span.span_id: (service, span) for service, span in telemetry.spans(trace)}
    names = {(service, span.name): span for service, span in known.values()}
    cni = names["CNIPlugin", "ADD bridge"]
    assert known[cni.parent_span_id][1].name == "RunPodSandbox"
    assert names["podwire", "pod default/late"].span_id in {span.parent_span_id for _, span in known.values()}
    sent = trace_output(cluster, "late", "--otlp", telemetry.url)
    assert re.fullmatch(rf"\d+ spans of trace {trace} sent to {telemetry.url}/v1/traces\n", sent)

    cluster.delete_all()
    cluster.eventually(lambda: ended(cluster, "web"), "its end was reported", lambda: trace_output(cluster, "web"))
    arrows = [(item["from"], item["method"]) for item in json.loads(trace_output(cluster, "web", "--format", "json"))]
    ends = ["StopContainer", "StopPodSandbox", "DEL bridge", "RemovePodSandbox", "delete /registry/pods/default/web"]
    assert [end for end in ends if end not in {method for _, method in arrows}] == []


def test_a_recorded_trace_survives_and_a_dead_collector_delays_no_component(cluster, a_pod, telemetry):
    telemetry.close()
    cluster.up("--otlp", telemetry.url)
    cluster.apply(a_pod("first"))
    cluster.running(1)
    before = cluster.eventually(lambda: _running(cluster, "first"), "its start was reported")
    killed = cluster.restarts("trace")
    cluster.signal("trace")
    cluster.eventually(lambda: cluster.restarts("trace") > killed and cluster.is_up(), "the collector is back")
    cluster.apply(a_pod("second"))
    cluster.running(2)
    cluster.eventually(lambda: _running(cluster, "second"), "it is reported after the restart")
    assert _running(cluster, "first") == before
    log = cluster.prefix / "var/log/podwire/trace.log"
    cluster.eventually(lambda: "cannot send spans to OTLP collector" in log.read_text(), "it is said", log.read_text)
    cluster.delete_all()


def _running(cluster, pod: str) -> float | None:
    done = cluster.podwire("trace", "--format", "json")
    if done.returncode:
        return None
    return next((item["took"] for item in json.loads(done.stdout) if item["name"] == pod), None)
