"""What is lost is counted always and said now and then."""

import logging
from types import SimpleNamespace

from podwire.trace import loss_log
from podwire.trace.loss_log import SAID_EVERY, Losses


def test_what_is_lost_is_said_at_once_then_now_and_then_and_at_the_end(monkeypatch, caplog):
    now = [100.0]
    monkeypatch.setattr(loss_log, "time", SimpleNamespace(monotonic=lambda: now[0]))
    lost = Losses(logging.getLogger("podwire.test"), "letters are lost", "letters")
    for _ in range(3):
        lost.add(2, "no room")
    now[0] += SAID_EVERY
    lost.add(1, "no room")
    lost.add(4, "no stamps")
    lost.say()
    lost.say()
    told = [(each.letters, each.in_all, each.reason) for each in caplog.records]
    assert told == [(2, 2, "no room"), (5, 7, "no room"), (4, 11, "no stamps")]
