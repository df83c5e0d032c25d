"""Where the time of a start went."""

import msgspec
import pytest

from podwire.trace.phases import PHASES, parts, phases


def test_phases_follow_each_other_and_sum_up_to_the_whole(trace):
    result = phases(trace)
    assert [item.name for item in result] == list(PHASES)
    assert sum(item.seconds for item in result) == pytest.approx(trace.took)
    assert {item.name: round(item.seconds * 1000) for item in result} == {
        "request": 3, "scheduling": 5, "delivery": 1, "preparing": 1, "sandbox": 3, "creating": 2, "starting": 4,
        "reporting": 4,
    }  # fmt: skip


@pytest.mark.parametrize("method", ["RunPodSandbox", "CreateContainer", "StartContainer"])
def test_a_milestone_that_was_lost_leaves_its_time_to_the_next_phase(method, records, tell):
    kept = [record for record in records if record.method != method]
    trace = tell(kept)
    assert len(phases(trace)) == len(PHASES) - (2 if method == "RunPodSandbox" else 1)
    assert sum(phase.seconds for phase in phases(trace)) == pytest.approx(trace.took)


def test_a_pod_that_does_not_run_has_no_phases_but_parts(records, tell):
    trace = tell(records[:18])
    assert phases(trace) == []
    assert "CNI" in [part.name for part in parts(trace)]


def test_phases_count_calls_and_the_time_with_at_least_one_in_flight(records, tell):
    begun = next(record for record in records if record.method == "ADD bridge" and record.begins)
    ended = next(record for record in records if record.method == "ADD bridge" and record.ends)
    more = [
        msgspec.structs.replace(begun, id="Runtime-1.8", seq=98, method="ADD portmap", time=begun.time + 0.0005),
        msgspec.structs.replace(ended, id="Runtime-1.8", seq=99, method="ADD portmap", time=ended.time + 0.0005),
    ]
    found = {part.name: part for part in parts(tell([*records, *more]))}
    assert (found["CNI"].calls, round(found["CNI"].seconds * 1e4)) == (2, 15)
    assert found["store"].calls == 3
    assert found["OCI runtime"].calls == 1
