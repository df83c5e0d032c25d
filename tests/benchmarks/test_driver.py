"""The lines about claimed interfaces: a short run of a whole cluster, and what is held against what."""

import pytest

from benchmarks import driver
from benchmarks.driver import MADE, MOVED, NONE
from benchmarks.figures import table
from benchmarks.machine import CannotMeasure

pytestmark = pytest.mark.timeout(400)


def test_pods_with_and_without_a_claim_alternate_and_are_measured():
    figures = list(driver.measure(0.1))

    times = [figure.value for figure in figures if figure.what.endswith("p50")]
    assert len(times) == 9
    assert min(times) > 0


def test_how_much_later_a_pod_with_a_claim_runs_has_a_budget():
    figures = driver.started({NONE: [0.1], MADE: [0.125], MOVED: [0.14]}, 20.0)

    lines = [" ".join(line.split()) for line in table(list(figures)).splitlines()]

    assert "so much later 25.0 ms 30.0 ms 0.83x ≤ 1x met" in lines
    assert "so much later 40.0 ms 30.0 ms 1.33x ≤ 1x NOT MET" in lines
    assert "the same without the bare move 20.0 ms 30.0 ms 0.67x ≤ 1x met" in lines


def test_an_empty_trace_is_not_a_measurement():
    with pytest.raises(CannotMeasure, match="NodePrepareResources"):
        list(driver.within({}, 10.0))
