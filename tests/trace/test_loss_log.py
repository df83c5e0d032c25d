"""Every loss is counted; losses are logged at intervals."""

import logging

from podwire.trace.loss_log import REPORT_INTERVAL, LossLog


def test_losses_are_logged_at_once_then_at_intervals_and_at_the_end(caplog):
    now = [100.0]
    lost = LossLog(logging.getLogger("podwire.test"), "letters are lost", "letters", lambda: now[0])
    for _ in range(3):
        lost.add(2, "no space")
    now[0] += REPORT_INTERVAL
    lost.add(1, "no space")
    lost.add(4, "no stamps")
    lost.report()
    lost.report()
    lines = [(line.letters, line.total, line.error) for line in caplog.records]
    assert lines == [(2, 2, "no space"), (5, 7, "no space"), (4, 11, "no stamps")]
