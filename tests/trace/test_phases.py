"""Where the time of a start went."""

import msgspec
import pytest

from podwire.trace.phases import PHASES, parts, phases


def test_phases_follow_each_other_and_sum_up_to_the_whole(trace):
    told = phases(trace)
    assert [each.name for each in told] == list(PHASES)
    assert sum(each.seconds for each in told) == pytest.approx(trace.took)
    assert {each.name: round(each.seconds * 1000) for each in told} == {
        "request": 3, "scheduling": 5, "delivery": 1, "preparing": 1, "sandbox": 3, "creating": 2, "starting": 4,
        "reporting": 4,
    }  # fmt: skip


@pytest.mark.parametrize("method", ["RunPodSandbox", "CreateContainer", "StartContainer"])
def test_a_milestone_that_was_lost_leaves_its_time_to_the_next_phase(method, records, tell):
    kept = [each for each in records if each.method != method]
    trace = tell(kept)
    assert len(phases(trace)) == len(PHASES) - (2 if method == "RunPodSandbox" else 1)
    assert sum(each.seconds for each in phases(trace)) == pytest.approx(trace.took)


def test_a_pod_that_does_not_run_has_no_phases_but_parts(records, tell):
    trace = tell(records[:18])
    assert phases(trace) == []
    assert "CNI" in [each.name for each in parts(trace)]


def test_phases_count_calls_and_the_time_with_at_least_one_in_flight(records, tell):
    begun = next(each for each in records if each.method == "ADD bridge" and each.begins)
    ended = next(each for each in records if each.method == "ADD bridge" and each.ends)
    more = [
        msgspec.structs.replace(begun, id="Runtime-1.8", seq=98, method="ADD portmap", time=begun.time + 0.0005),
        msgspec.structs.replace(ended, id="Runtime-1.8", seq=99, method="ADD portmap", time=ended.time + 0.0005),
    ]
    found = {each.name: each for each in parts(tell([*records, *more]))}
    assert (found["CNI"].calls, round(found["CNI"].seconds * 1e4)) == (2, 15)
    assert found["store"].calls == 3
    assert found["OCI runtime"].calls == 1
