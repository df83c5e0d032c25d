"""The real supervisor, with small components of the test's own, in a process of its own: it forks."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.eventually import eventually

PROGRAM = """
import asyncio, os, sys, time
from pathlib import Path
from podwire.cluster.up.child import Component
from podwire.cluster.up.layout import Layout
from podwire.cluster.up.status_file import StatusWriter
from podwire.cluster.up.supervisor import Supervisor

home = Path(sys.argv[1])
layout = Layout(home)
for each in (layout.component_tags, layout.logs):
    each.mkdir(parents=True)

def component(name, **more):
    async def work(ready):
        (home / "order").open("a").write(name + "\\n")
        ready()
        try:
            await asyncio.Event().wait()
        finally:
            (home / "order").open("a").write("-" + name + "\\n")
    return Component(name=name, work=work, **more)

async def fails(ready):
    raise ValueError("it cannot be")

async def once(ready):
    (home / "order").open("a").write("once\\n")

KINDS = {
    "good": [component("first"), component("second", needs=("first",)), Component(name="once", work=once, once=True)],
    "bad": [component("first"), Component(name="bad", work=fails, needs=("first",), troubles=(ValueError,))],
}

def report(event):
    print(event.component or "all", event.what, event.detail, flush=True)

sys.exit(0 if Supervisor(layout, KINDS[sys.argv[2]], report, StatusWriter(layout).write).run() else 1)
"""
SECONDS = 30.0


class Running:
    def __init__(self, home, kind):
        self.home = home
        words = [sys.executable, "-c", PROGRAM, str(home), kind]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def until(self, *words):
        """Read on until a line has all these words; those lines."""
        for line in self.process.stdout:
            if all(word in line for word in words):
                return line
        raise AssertionError(f"it never said {words}")

    def pid(self, name):
        notes = json.loads((self.home / "run/podwire/components/status.json").read_text())
        return next(component["pid"] for component in notes["components"] if component["name"] == name)

    def order(self):
        return (self.home / "order").read_text().split()

    def stop(self):
        self.process.terminate()
        rest = self.process.stdout.read()
        return self.process.wait(SECONDS), rest


@pytest.fixture
def start(tmp_path):
    begun = []

    def starting(kind):
        begun.append(Running(tmp_path, kind))
        return begun[-1]

    yield starting
    for item in begun:
        item.process.kill()
        item.process.communicate()


def lives(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pid):
    eventually(lambda: not lives(pid), SECONDS)


def test_components_start_after_their_needs_and_stop_in_reverse_order(start):
    up = start("good")
    up.until("all up")
    code, said = up.stop()
    assert code == 0, said
    order = [item for item in up.order() if item != "once"]
    assert order == ["first", "second", "-second", "-first"]
    assert up.order().count("once") == 1


def test_a_component_that_is_killed_is_started_again(start):
    up = start("good")
    up.until("all up")
    before = up.pid("first")
    os.kill(before, signal.SIGKILL)
    assert "killed by SIGKILL" in up.until("first", "died")
    up.until("first", "ready")
    assert up.stop()[0] == 0
    assert up.order().count("first") == 2


def replace_by_directory(file: Path) -> bool:
    """Whether a directory took the place of a file that may be written just now."""
    file.unlink(missing_ok=True)
    try:
        (file / "in the way").mkdir(parents=True)
    except (FileExistsError, NotADirectoryError):
        return False
    return True


def test_a_status_that_cannot_be_saved_does_not_end_the_cluster_and_is_saved_later(start):
    up = start("good")
    up.until("all up")
    before, status = up.pid("first"), up.home / "run/podwire/components/status.json"
    eventually(lambda: replace_by_directory(status), SECONDS)
    os.kill(before, signal.SIGKILL)
    up.until("first", "ready")
    (status / "in the way").rmdir()
    status.rmdir()
    eventually(status.exists, SECONDS)
    assert up.pid("first") not in (0, before)
    assert up.stop()[0] == 0


def test_a_hopeless_start_is_given_up_and_logged(start, tmp_path):
    up = start("bad")
    up.until("all failed bad")
    assert up.process.wait(SECONDS) == 1
    log = (tmp_path / "var/log/podwire/bad.log").read_text()
    assert "it cannot be" in log
    assert "Traceback" not in log
    assert up.order() == ["first", "-first"]


def test_no_component_outlives_its_supervisor(start):
    up = start("good")
    up.until("all up")
    pids = [up.pid("first"), up.pid("second")]
    up.process.kill()
    up.process.wait()
    for pid in pids:
        gone(pid)
