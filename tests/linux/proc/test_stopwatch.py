"""A stopwatch, by a clock that the test turns."""

import threading

import pytest

from podwire.linux.proc import stopwatch
from podwire.linux.proc.stopwatch import REST, Stopwatch, step


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(stopwatch, "perf_counter", lambda: now[0])

    def pass_(seconds):
        now[0] += seconds

    return pass_


def test_each_moment_counts_for_the_innermost_step(clock):
    with Stopwatch() as watch:
        clock(1)
        with step("ipam"):
            clock(2)
            with step("netlink"):
                clock(4)
            clock(8)
        with step("netlink"):
            clock(16)
        clock(32)
    assert watch.seconds == {REST: 33, "ipam": 10, "netlink": 20}
    assert watch.times == {"ipam": 1, "netlink": 2}


def test_outer_step_continues_after_a_failed_one(clock):
    with Stopwatch() as watch:
        with pytest.raises(ZeroDivisionError), step("ipam"):
            clock(1 / 0)
        clock(2)
    assert watch.seconds == {REST: 2, "ipam": 0}


def test_nothing_is_measured_without_a_stopwatch(clock):
    with Stopwatch() as watch:
        thread = threading.Thread(target=lambda: step("elsewhere").__enter__())
        thread.start()
        thread.join()
    with step("later"):
        clock(1)
    assert watch.seconds == {REST: 0}
