"""A drawing says what happened: no notes about what did not, failures that are failures, and pauses."""

from itertools import pairwise

import msgspec
import pytest

from podwire.trace.check import annotated
from podwire.trace.critical_path import critical_path
from podwire.trace.diff import diff
from podwire.trace.flow import load
from podwire.trace.index import TraceIndex
from podwire.trace.participants import of_store, role
from podwire.trace.pod_trace import PodTraces
from podwire.trace.record import encode
from podwire.trace.segments import Writer
from podwire.trace.tables import verdict
from podwire.trace.text import text
from podwire.trace.waterfall import waterfall
from tests.trace.conftest import BOUND, UID


@pytest.fixture
def bound(records):
    """A pod with `nodeName`: nobody schedules it."""
    kept = [record for record in records if "Scheduler" not in (record.caller, record.callee)]
    kept = [record for record in kept if record.id != "etcd-1.7"]
    return [
        msgspec.structs.replace(record, detail=record.detail | BOUND)
        if record.detail.get("phase") == "Pending"
        else record
        for record in kept
    ]


def test_a_pod_with_a_node_name_has_no_notes_about_the_scheduler(bound, tell):
    notes = [remark.text for remark in annotated(tell(bound), load("pod")).remarks]
    assert [note for note in notes if "Scheduler" in note] == []
    assert [note[0] for note in notes] == ["1", "4", "5", "6", "7"]


@pytest.mark.parametrize(
    ("url", "name"),
    [("", "SQLite"), ("sqlite://", "SQLite"), ("etcd://127.0.0.1:2379", "etcd"), ("memory://", "Memory")],
)
def test_the_store_is_called_what_it_is_and_is_the_etcd_of_flows(url, name):
    assert of_store(url) == name
    assert role(name) == "etcd"


def test_kubectl_looks_before_it_creates_which_is_not_a_failure(trace):
    [reply] = [arrow for arrow in trace.arrows if arrow.label.startswith("404")]
    assert not reply.failed


def failing(records, times=3, pause=2.0):
    """The same start, after so many failed ADDs."""
    calls = []
    for number in range(times):
        for place, outcome in ((15, ""), (16, "exit 1")):
            calls.append(
                msgspec.structs.replace(
                    records[place], id=f"Runtime-2.{number}", seq=2 * number + (place - 14), outcome=outcome,
                    time=records[place].time + number * pause, detail={"error": "no address left"} if outcome else {},
                )
            )  # fmt: skip
    late = [msgspec.structs.replace(record, time=record.time + times * pause) for record in records[15:]]
    return [*records[:15], *calls, *late]


def test_a_comparison_blames_failed_calls_and_back_off_before_slow_ones(records, tell):
    first, second, *_ = verdict(diff(tell(records), tell(failing(records))))
    assert first == "failed in B 3 times: ContainerRuntime → CNIPlugin ADD bridge: exit 1: no address left"
    assert second.startswith("B waited 6.0 s after failed calls")


def test_retries_and_pauses_are_drawn_in_the_terminal_as_on_the_page(records, tell):
    drawn = text(tell(failing(records)), 160)
    assert drawn.count("without a call, after a failed one (back-off)") == 3
    assert "ADD bridge (attempt 4)" in drawn


def test_the_critical_path_is_consecutive_and_ends_when_the_pod_runs(trace):
    path = critical_path(trace)
    assert path[0].begin == trace.begin
    assert path[-1].end == trace.running
    assert all(before.end == after.begin for before, after in pairwise(path))
    assert sum(segment.seconds for segment in path) == pytest.approx(trace.took)
    assert "ADD bridge" in [segment.arrow.method for segment in path]


def test_a_waterfall_marks_failed_and_critical_calls(records, tell):
    drawn = waterfall(tell(failing(records)))
    assert drawn.count('class="call failed') == 3
    assert 'class="call critical' in drawn


def test_an_index_builds_the_same_trace_as_all_records(tmp_path, records, tell):
    writer, index = Writer(tmp_path), TraceIndex(tmp_path)
    lines = [encode(record) for record in failing(records)]
    for line in lines:
        writer.write([line])
        index.update()
    built = index.trace(UID)
    assert built is not None
    assert built[0].arrows == tell(failing(records)).arrows
    start = index.starts[UID]
    assert (start.namespace, start.name, start.failures) == ("default", "web", 3)
    assert start.took == pytest.approx(built[0].took)


def test_an_index_knows_lost_records_and_forgets_dropped_segments(tmp_path, records):
    writer, index = Writer(tmp_path, limit=8000), TraceIndex(tmp_path)
    writer.write([encode(record) for record in records if record.id != "Kubelet-1.2"])
    index.update()
    traces = PodTraces()
    traces.learn(record for record in records if record.id != "Kubelet-1.2")
    whole, built = traces.find("default", "web"), index.trace(UID)
    assert built is not None
    assert whole is not None
    assert [(gap.sender, gap.lost) for gap in built[0].gaps] == [("Kubelet", 2)]
    assert built[0].gaps == whole.gaps
    other = [
        msgspec.structs.replace(record, id=f"x{record.id}", pod="0" * 32, detail={"namespace": "other", "name": "pod"})
        for record in records
    ]
    for _ in range(20):
        writer.write([encode(record) for record in other])
    index.update()
    assert UID not in index.starts
    assert index.trace(UID) is None
