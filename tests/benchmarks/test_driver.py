"""The lines about claimed interfaces: a short run of a whole cluster, and what is held against what."""

import pytest

from benchmarks import driver
from benchmarks.figures import table
from benchmarks.machine import CannotMeasure

pytestmark = pytest.mark.timeout(400)


def test_pods_with_and_without_a_claim_take_turns_and_their_times_are_taken():
    figures = {each.what: each.value for each in driver.measure(0.1)}
    assert all(figures[f"{each}, p50"] > 0 for each in (driver.PREPARE, driver.ATTACH, driver.DETACH))
    assert figures["POST → Running with a claim, p50"] > 0


def test_how_much_later_a_pod_with_a_claim_runs_has_a_budget():
    lines = [" ".join(each.split()) for each in table(list(driver.started(driver.Times([0.1], [0.125])))).splitlines()]
    assert "so much later 25.0 ms 30.0 ms 0.83x ≤ 1x met" in lines


def test_a_trace_that_tells_nothing_is_no_measurement():
    with pytest.raises(CannotMeasure, match="NodePrepareResources"):
        list(driver.within([]))
