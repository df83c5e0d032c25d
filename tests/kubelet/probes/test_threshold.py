"""From single results to what counts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.kubelet.probes.threshold import BEGINNING, Kind, ProbeState, adopted, after, next_due, unhealthy
from podwire.objects.containers import Container, Probe

RESULTS = {"+": True, "-": False}


def played(kind: Kind, results: str, **numbers: int) -> ProbeState:
    state = BEGINNING[kind]
    for result in results:
        state = after(kind, Probe(**numbers), state, RESULTS[result])
    return state


@pytest.mark.parametrize(
    ("kind", "results", "numbers", "passed", "settled"),
    [
        pytest.param(Kind.READINESS, "", {}, False, False, id="nobody is ready before the first answer"),
        pytest.param(Kind.READINESS, "+", {}, True, False, id="one success makes ready"),
        pytest.param(Kind.READINESS, "+", {"success_threshold": 2}, False, False, id="one success is too few of two"),
        pytest.param(Kind.READINESS, "++", {"success_threshold": 2}, True, False, id="two of two"),
        pytest.param(Kind.READINESS, "+-+", {"success_threshold": 2}, False, False, id="a failure between starts anew"),
        pytest.param(Kind.READINESS, "+--", {}, True, False, id="two failures of three are forgiven"),
        pytest.param(Kind.READINESS, "+--+--", {}, True, False, id="and forgotten with a success"),
        pytest.param(Kind.READINESS, "+---", {}, False, False, id="the third makes unready"),
        pytest.param(Kind.READINESS, "+---+", {}, True, False, id="and ready again, for it never settles"),
        pytest.param(Kind.READINESS, "-----+", {}, True, False, id="however long it failed"),
        pytest.param(Kind.LIVENESS, "", {}, True, False, id="everybody lives before the first answer"),
        pytest.param(Kind.LIVENESS, "--", {}, True, False, id="two failures do not kill"),
        pytest.param(Kind.LIVENESS, "--+--", {}, True, False, id="nor four that are not in a row"),
        pytest.param(Kind.LIVENESS, "---", {}, False, True, id="three in a row do, once and for all"),
        pytest.param(Kind.LIVENESS, "-", {"failure_threshold": 1}, False, True, id="or one, where one is the limit"),
        pytest.param(Kind.LIVENESS, "+++", {}, True, False, id="a liveness probe that passes goes on"),
        pytest.param(Kind.STARTUP, "", {}, None, False, id="nothing is known of a start before the first answer"),
        pytest.param(Kind.STARTUP, "--", {}, None, False, id="nor while failures are forgiven"),
        pytest.param(Kind.STARTUP, "--+", {}, True, True, id="a start that succeeds is over"),
        pytest.param(Kind.STARTUP, "---", {}, False, True, id="so is one that fails"),
    ],
)
def test_a_state_changes_when_results_come_often_enough_in_a_row(kind, results, numbers, passed, settled):
    state = played(kind, results, **numbers)
    assert (state.passed, state.final) == (passed, settled)


@given(st.text("+-", max_size=30), st.integers(1, 5), st.integers(1, 5))
def test_readiness_is_the_last_run_that_was_long_enough(results, success, failure):
    expected, run = False, 0
    for index, each in enumerate(results):
        run = run + 1 if index and results[index - 1] == each else 1
        if run >= (success if each == "+" else failure):
            expected = RESULTS[each]
    state = played(Kind.READINESS, results, success_threshold=success, failure_threshold=failure)
    assert state.passed is expected


@pytest.mark.parametrize("kind", [Kind.LIVENESS, Kind.STARTUP])
def test_a_container_that_failed_must_be_killed_with_the_grace_that_the_probe_gives(kind):
    probe = Probe(failure_threshold=1, termination_grace_period_seconds=7)
    found = unhealthy(kind, probe, played(kind, "-", failure_threshold=1), "app")
    assert found is not None
    assert found.grace_seconds == 7
    assert found.message == f"Container app failed {kind.value.lower()} probe"


@pytest.mark.parametrize(
    ("kind", "results"),
    [
        pytest.param(Kind.READINESS, "-----", id="not being ready is not a reason"),
        pytest.param(Kind.LIVENESS, "", id="nor is a liveness probe that was never asked"),
        pytest.param(Kind.STARTUP, "", id="nor a start that goes on"),
    ],
)
def test_others_are_let_live(kind, results):
    assert unhealthy(kind, Probe(), played(kind, results), "app") is None


def test_a_container_that_passed_before_keeps_its_state_and_does_not_start_again():
    assert adopted(Kind.STARTUP).final
    ready = adopted(Kind.READINESS)
    assert (ready.passed, ready.final) == (True, False)
    assert after(Kind.READINESS, Probe(failure_threshold=1), ready, passed=False).passed is False


@pytest.mark.parametrize(
    ("due", "now", "next_"),
    [
        pytest.param(100.0, 100.2, 110.0, id="a quick answer keeps the beat"),
        pytest.param(100.0, 110.0, 110.0, id="one that takes the whole period is followed at once"),
        pytest.param(100.0, 155.0, 155.0, id="rounds that were missed are not made up for"),
    ],
)
def test_the_next_question_is_due(due, now, next_):
    assert next_due(due, 10.0, now) == next_


def test_each_kind_finds_its_own_probe():
    startup, liveness, readiness = Probe(period_seconds=1), Probe(period_seconds=2), Probe(period_seconds=3)
    container = Container(name="c", startup_probe=startup, liveness_probe=liveness, readiness_probe=readiness)
    assert [kind.of(container) for kind in Kind] == [startup, liveness, readiness]
