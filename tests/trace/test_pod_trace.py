"""Records into stories."""

import msgspec
import pytest

from podwire.trace.participants import in_order, of_agent
from podwire.trace.pod_trace import PodTraces, Turn, moments

UID = "3bba3e288f2d47ce8c5bf9d5d263d9fc"


def test_a_trace_begins_with_the_watches_of_the_pod(trace):
    first = [(arrow.caller, arrow.method, arrow.took) for arrow in trace.arrows[:2]]
    assert first == [
        ("Scheduler", "GET /api/v1/pods?watch=true", None),
        ("Kubelet", "GET /api/v1/pods?fieldSelector=spec.nodeName=n1&watch=true", None),
    ]
    assert (trace.arrows[2].caller, trace.arrows[2].callee, trace.arrows[2].label) == (
        "User",
        "KubeCtl",
        "kubectl apply",
    )


def test_watches_without_events_of_the_pod_are_not_in_its_trace(records, tell):
    other = msgspec.structs.replace(records[1], id="APIServer-1.99", seq=99, caller="kube-proxy")
    assert tell([*records, other]).arrows == tell(records).arrows


def test_a_trace_has_the_time_from_request_to_running(trace):
    assert trace.took == pytest.approx(0.023, abs=1e-5)
    assert (trace.namespace, trace.name, trace.pod) == ("default", "web", UID)


def test_a_pod_that_does_not_run_yet_has_no_duration_and_its_calls_are_open(records, tell):
    trace = tell(records[:15])  # RunPodSandbox has begun
    assert trace.took is None
    assert [(arrow.method, arrow.took) for arrow in trace.arrows][-1] == ("RunPodSandbox", None)


def test_both_arrows_of_a_call_show_its_duration(trace):
    took = {(arrow.turn, arrow.took) for arrow in trace.arrows if arrow.method == "RunPodSandbox"}
    assert {turn for turn, _ in took} == {Turn.CALL, Turn.REPLY}
    assert all(each == pytest.approx(0.003, abs=1e-5) for _, each in took)


def test_records_in_any_order_give_the_same_trace(records, tell):
    assert tell(reversed(records)) == tell(records)


@pytest.mark.parametrize("missing", [1, 3])
def test_lost_records_are_a_gap_with_their_sender(missing, records, tell):
    kept = [record for record in records if not (record.sender == "Kubelet-1" and 2 <= record.seq < 2 + missing)]
    [gap] = tell(kept).gaps
    assert (gap.sender, gap.lost) == ("Kubelet", missing)
    assert gap in moments(tell(kept))


def test_losses_before_the_pod_are_not_its_gap(records, tell):
    early = [msgspec.structs.replace(records[0], seq=seq, time=1.0, id="Old-1.1") for seq in (1, 9)]
    assert tell([*early, *records]).gaps == ()


def test_the_newest_pod_of_a_name_is_found_with_failed_requests_before_it(records):
    later = [
        msgspec.structs.replace(
            record,
            id=f"Again-{record.id}",
            time=record.time + 100,
            pod="f" * 32 if record.pod else None,
            detail=record.detail | ({"kubectl_session": "other"} if "kubectl_session" in record.detail else {}),
        )
        for record in records
    ]
    traces = PodTraces()
    traces.learn([*records, *later])
    assert [item.pod for item in traces.all()] == [UID, "f" * 32]
    newest = traces.find("default", "web")
    assert newest is not None
    assert newest.pod == "f" * 32
    looked = [arrow for arrow in newest.arrows if arrow.method.startswith("GET /api/v1/namespaces")]
    assert [item.turn for item in looked] == [Turn.CALL, Turn.REPLY]
    assert len(traces.all()[0].arrows) == len(newest.arrows)


def test_the_records_of_a_trace_are_those_it_was_built_from(records):
    traces = PodTraces()
    traces.learn(records)
    trace = traces.find("default", "web")
    assert trace is not None
    assert [record.id for record in traces.records(trace)] == [record.id for record in records]


def test_an_unknown_name_finds_no_trace(records):
    traces = PodTraces()
    traces.learn(records)
    assert traces.find("default", "db") is None


@pytest.mark.parametrize(
    ("agent", "participant"),
    [
        ("kubectl/v1.32.4 (linux/amd64) kubernetes/59526cd", "KubeCtl"),
        ("kubelet/v1.36.0 (linux/amd64)", "Kubelet"),
        ("podwire-kubelet", "Kubelet"),
        ("podwire-scheduler", "Scheduler"),
        ("kube-scheduler/v1.36.0", "Scheduler"),
        ("podwire-controllers", "Controllers"),
        ("my-operator/1.0 Go-http-client", "my-operator"),
        ("", "Client"),
        ("/1.0", "Client"),
    ],
)
def test_callers_are_named_by_their_agent(agent, participant):
    assert of_agent(agent) == participant


def test_participants_are_in_order_and_unknown_ones_last():
    assert in_order({"zebra", "CNIPlugin", "User", "ant"}) == ["User", "CNIPlugin", "ant", "zebra"]
