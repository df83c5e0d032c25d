"""A cluster that is supervised by a process that outlives the command: what its end tells."""

import os
import signal
import sys
from types import SimpleNamespace

import pytest

from podwire.cluster.up import launch
from podwire.cluster.up.layout import Layout
from podwire.cluster.up.supervisor import Event
from podwire.durable.locks import lock_file


def dies(*_: object) -> bool:
    raise RuntimeError("boom")


def is_killed(*_: object) -> bool:
    os.kill(os.getpid(), signal.SIGKILL)
    return True


@pytest.mark.parametrize(("end", "logged"), [(dies, "boom"), (is_killed, "")], ids=["it dies", "it is killed"])
def test_a_supervisor_that_ends_without_a_word_is_a_failure_with_its_log(tmp_path, monkeypatch, end, logged):
    monkeypatch.setattr(
        sys, "stderr", sys.__stderr__
    )  # which goes where the process writes, not into the test's report
    layout = Layout(tmp_path)
    layout.log("supervisor").parent.mkdir(parents=True)
    with lock_file(tmp_path / "lock") as lock:
        [event] = launch.detach(SimpleNamespace(layout=layout), lock, end)
    assert event == Event(component="", what="failed", seconds=0.0, detail="supervisor")
    assert logged in "\n".join(launch.tail(layout, "supervisor", 100))
