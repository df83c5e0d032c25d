"""What is lost is counted always and said now and then."""

import logging
from types import SimpleNamespace

from podwire.trace import loss_log
from podwire.trace.loss_log import REPORT_INTERVAL, LossLog


def test_losses_are_logged_at_once_then_at_intervals_and_at_the_end(monkeypatch, caplog):
    now = [100.0]
    monkeypatch.setattr(loss_log, "time", SimpleNamespace(monotonic=lambda: now[0]))
    lost = LossLog(logging.getLogger("podwire.test"), "letters are lost", "letters")
    for _ in range(3):
        lost.add(2, "no room")
    now[0] += REPORT_INTERVAL
    lost.add(1, "no room")
    lost.add(4, "no stamps")
    lost.report()
    lost.report()
    told = [(each.letters, each.total, each.error) for each in caplog.records]
    assert told == [(2, 2, "no room"), (5, 7, "no room"), (4, 11, "no stamps")]
