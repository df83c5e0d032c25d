"""Thresholds are parsed as upstream's flag, and passed when less is available."""

import pytest

from podwire.kubelet.eviction.thresholds import (
    DEFAULT,
    Observation,
    Threshold,
    met,
    observations,
    parse_thresholds,
    pressed_conditions,
    reserved,
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


def test_a_file_system_without_fixed_inodes_does_not_run_out_of_them():
    observed = observations(100, LEFT._replace(inodes=0, inodes_size=0))
    assert met(parse_thresholds("nodefs.inodesFree<5%,imagefs.available<5%"), observed) == []


def test_thresholds_reduce_what_is_allocatable():
    assert reserved(DEFAULT, "nodefs.available", 1000) == 100
    assert reserved(DEFAULT, "memory.available", 1 << 40) == 100 * 1024**2
    assert reserved((), "memory.available", 1 << 40) == 0
