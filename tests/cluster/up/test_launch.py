"""A cluster that is supervised by a process that outlives the command: what its end tells."""

import os
import signal
import sys
from collections.abc import Callable
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


def test_a_detached_cluster_keeps_nothing_open_that_the_shell_had_open(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stderr", sys.__stderr__)
    layout = Layout(tmp_path)
    layout.log("supervisor").parent.mkdir(parents=True)
    reads, writes = os.pipe()
    os.set_inheritable(writes, True)

    def supervise(_prepared: object, _lock: object, _report: object, pipe: Callable[[], list[int]]) -> bool:
        os.close(pipe()[0])  # the starting process goes on, as if the cluster were up
        signal.pause()
        return True

    with lock_file(tmp_path / "lock") as lock:
        list(launch.detach(SimpleNamespace(layout=layout), lock, supervise))
        daemon = int((tmp_path / "lock").read_text().split()[0])
    os.close(writes)
    try:
        assert os.read(reads, 1) == b"", "the pipe has no writer"
        os.kill(daemon, 0)
    finally:
        os.close(reads)
        os.kill(daemon, signal.SIGKILL)


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
