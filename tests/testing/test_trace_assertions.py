"""Assertions on traces: what they accept, and with which words they fail."""

import pytest

from podwire.testing import Trace


def record(id_, callee, method, time, outcome="", **detail):
    return {"id": id_, "from": "x", "to": callee, "method": method, "time": time, "outcome": outcome, "detail": detail}


def call(id_, callee, method, began, ended, outcome="OK", **detail):
    return [record(id_, callee, method, began, **detail), record(id_, "x", method, ended, outcome)]


TRACE = Trace.from_records(
    [
        *call(
            "1", "CNIPlugin", "ADD bridge", 1.0, 2.0, stdin={"type": "bridge", "name": "pods", "ipam": {"type": "a"}}
        ),
        *call("2", "ContainerRuntime", "StartContainer", 3.0, 4.0),
        *call("3", "DRADriver", "NodePrepareResources", 3.5, 4.5),
        *call("4", "CNIPlugin", "CHECK bridge", 5.0, 5.1, outcome="FAILED"),
        record("5", "CNIPlugin", "DEL bridge", 6.0),
    ]
)


def test_a_call_is_found_by_a_part_of_its_input():
    call = TRACE.assert_called("CNIPlugin", "ADD", stdin={"type": "bridge", "ipam": {"type": "a"}})
    assert (call.method, call.began, call.ended) == ("ADD bridge", 1.0, 2.0)
    assert TRACE.assert_called("CNIPlugin", "ADD bridge") is call
    assert TRACE.assert_called("CNIPlugin", "CHECK", outcome="FAILED").outcome == "FAILED"
    TRACE.assert_not_called("CNIPlugin", "GC")
    TRACE.assert_attached_before_start()


FAILURES = {
    "another input": (lambda: TRACE.assert_called("CNIPlugin", "ADD", stdin={"type": "ptp"}), "did not get ADD"),
    "another outcome": (lambda: TRACE.assert_called("CNIPlugin", "CHECK"), r"CHECK bridge \(FAILED\)"),
    "never ended": (lambda: TRACE.assert_called("CNIPlugin", "DEL"), r"DEL bridge \(not ended\)"),
    "called after all": (lambda: TRACE.assert_not_called("CNIPlugin", "ADD"), "CNIPlugin got ADD"),
    "too late": (
        lambda: TRACE.assert_attached_before_start("DRADriver", "NodePrepareResources"),
        "began before x -> DRADriver: NodePrepareResources .OK. ended: x -> ContainerRuntime: StartContainer",
    ),
    "not there": (lambda: TRACE.assert_order(("A", "b"), ("CNIPlugin", "ADD")), "the trace has no A b"),
}


@pytest.mark.parametrize(("check", "words"), FAILURES.values(), ids=FAILURES)
def test_a_failed_assertion_says_what_was_seen(check, words):
    with pytest.raises(AssertionError, match=words):
        check()
