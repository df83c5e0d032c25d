"""Thresholds are parsed as upstream's flag, and passed when less is available."""

import pytest

from podwire.kubelet.eviction.thresholds import (
    DEFAULT,
    Observation,
    Threshold,
    met,
    observations,
    parse_grace_periods,
    parse_minimum_reclaim,
    parse_thresholds,
    pressed_conditions,
    reclaiming,
    reserved,
    soft,
    unresolved,
)
from podwire.linux.machine import FreeResources

LEFT = FreeResources(memory=10, disk=50, disk_size=100, inodes=50, inodes_size=100, pids=5, pids_size=100)


def test_quantities_and_percentages_are_parsed():
    text = (
        "memory.available<100Mi,nodefs.available<10%,nodefs.inodesFree<5%,imagefs.available<15%,imagefs.inodesFree<5%"
    )
    assert parse_thresholds(text) == DEFAULT
    assert parse_thresholds("") == ()
    assert parse_thresholds("pid.available<1k") == (Threshold("pid.available", 1000),)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("memory.available>1", "expected SIGNAL<QUANTITY"),
        ("memory.free<1", "unknown eviction signal 'memory.free'"),
        ("memory.available<-1", "must be positive"),
        ("memory.available<101%", "must be a percentage from 0 to below 100"),
        ("memory.available<x%", "must be a percentage"),
        ("memory.available<nan%", "must be a percentage"),
        ("memory.available<x", "quantities must match"),
        ("memory.available<1,memory.available<2", "given twice"),
    ],
)
def test_an_invalid_threshold_is_rejected_with_the_reason(text, why):
    with pytest.raises(ValueError, match=why):
        parse_thresholds(text)


def test_thresholds_are_passed_when_less_is_available():
    observed = observations(100, LEFT, LEFT._replace(disk=1))
    assert observed["imagefs.available"] == Observation(1, 100)
    passed = met(
        parse_thresholds("imagefs.available<2%,memory.available<11,nodefs.available<50%,pid.available<5"), observed
    )
    assert [threshold.signal for threshold in passed] == ["memory.available", "imagefs.available"]
    assert pressed_conditions(passed) == {"MemoryPressure", "DiskPressure"}


@pytest.mark.parametrize("signal", ["memory.available", "nodefs.available", "nodefs.inodesFree", "pid.available"])
def test_each_signal_of_the_node_is_observed(signal):
    (passed,) = met(parse_thresholds(f"{signal}<60%"), observations(100, LEFT))
    assert passed.signal == signal


def test_a_file_system_without_fixed_inodes_does_not_run_out_of_them():
    observed = observations(100, LEFT._replace(inodes=0, inodes_size=0))
    assert met(parse_thresholds("nodefs.inodesFree<5%,imagefs.available<5%"), observed) == []


def test_thresholds_reduce_what_is_allocatable():
    assert reserved(DEFAULT, "nodefs.available", 1000) == 100
    assert reserved(DEFAULT, "memory.available", 1 << 40) == 100 * 1024**2
    assert reserved((), "memory.available", 1 << 40) == 0


def test_grace_periods_of_soft_thresholds_are_parsed():
    text = "memory.available=1m30s,nodefs.available=2h,pid.available=0.5s,nodefs.inodesFree=30"
    expected = {"memory.available": 90.0, "nodefs.available": 7200.0, "pid.available": 0.5, "nodefs.inodesFree": 30.0}
    assert parse_grace_periods(text) == expected
    (threshold,) = soft(parse_thresholds("memory.available<1Gi"), {"memory.available": 90.0})
    assert threshold == Threshold("memory.available", 1024**3, grace=90.0)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("memory.available", "expected SIGNAL=DURATION"),
        ("water=1m", "unknown eviction signal 'water'"),
        ("memory.available=", "must be a positive duration"),
        ("memory.available=-1s", "must be a positive duration"),
        ("memory.available=soon", "must be a positive duration"),
        (f"memory.available={'9' * 400}s", "must be a positive duration"),
    ],
)
def test_an_invalid_grace_period_is_rejected_with_the_reason(text, why):
    with pytest.raises(ValueError, match=why):
        parse_grace_periods(text)


def test_a_soft_threshold_needs_a_grace_period():
    with pytest.raises(ValueError, match="grace period must be specified for the soft eviction threshold memory"):
        soft(parse_thresholds("memory.available<1Gi"), {})


@pytest.mark.parametrize(
    ("text", "available", "resolved"),
    [
        ("", 10, True),
        ("nodefs.available=5", 10, False),
        ("nodefs.available=5", 14, False),
        ("nodefs.available=5", 15, True),
        ("nodefs.available=20%", 29, False),
        ("nodefs.available=20%", 30, True),
        ("memory.available=20%", 10, True),
    ],
)
def test_a_threshold_that_was_passed_is_resolved_when_the_minimum_reclaim_is_available(text, available, resolved):
    thresholds = reclaiming(parse_thresholds("nodefs.available<10"), parse_minimum_reclaim(text))
    observed = {"nodefs.available": Observation(available, 100)}
    assert (unresolved(thresholds, observed) == []) is resolved
    assert met(thresholds, observed) == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nodefs.available<1", "expected SIGNAL=QUANTITY"),
        ("disk=1", "unknown eviction signal 'disk'"),
        ("nodefs.available=-1", "must be positive"),
        ("nodefs.available=100%", "must be a percentage"),
        ("nodefs.available=1,nodefs.available=2", "given twice"),
    ],
)
def test_an_invalid_minimum_reclaim_is_rejected_with_the_reason(text, why):
    with pytest.raises(ValueError, match=why):
        parse_minimum_reclaim(text)
