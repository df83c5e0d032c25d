"""`podwire-shim pause`: the first process of a pid namespace that containers share."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.eventually import eventually

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes namespaces")


def start(shim, environment, *words):
    command = [*shim, "pause", "0123abcd", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=20, check=False)


@pytest.fixture
def pause(shim, environment):
    """The number of a pause process."""
    done = start(shim, environment, "-", "-", "-")
    assert (done.returncode, done.stderr) == (0, "")
    pid = int(done.stdout)
    yield pid
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not alive(pid))


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_it_is_the_first_process_of_its_namespace_without_anything(pause):
    status = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{pause}/status").read_text().splitlines() if ":\t" in line
    )
    assert status["NSpid"].split()[-1] == "1"
    assert status["Name"] == "pause"
    assert set(status["Uid"].split() + status["Gid"].split()) == {"65534"}
    assert status["Groups"].strip() == ""
    assert {status[f"Cap{kind}"] for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {"0" * 16}
    assert status["NoNewPrivs"] == "1"
    assert list(Path(f"/proc/{pause}/root").iterdir()) == []
    assert list(Path(f"/proc/{pause}/fd").iterdir()) == []
    assert Path(f"/proc/{pause}/cmdline").read_text().rstrip("\0") == "pause 0123abcd"


def test_signals_do_not_end_it_and_children_are_reaped(pause):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(pause, number)
    inside = ["nsenter", "-p", "-t", str(pause), "--", "sh", "-c", "(sleep 0.05 &) ; (sleep 0.05 &)"]
    subprocess.run(inside, check=True)
    eventually(lambda: not Path(f"/proc/{pause}/task/{pause}/children").read_text().split())
    assert alive(pause)


def test_its_end_ends_all_processes_of_the_namespace(shim, environment):
    pid = int(start(shim, environment, "-", "-", "-").stdout)
    inside = subprocess.Popen(["nsenter", "-p", "-t", str(pid), "--", "sleep", "1000"])
    eventually(lambda: "sleep" in Path(f"/proc/{inside.pid}/cmdline").read_text())
    os.kill(pid, signal.SIGKILL)
    assert inside.wait(20) != 0


@pytest.mark.parametrize("position", range(3))
def test_a_namespace_that_does_not_exist_is_named(shim, environment, position):
    words = ["-", "-", "-"]
    words[position] = "/nowhere/ns"
    done = start(shim, environment, *words)
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr == "podwire-shim: pause: the namespace /nowhere/ns: No such file or directory\n"


def test_a_cgroup_that_does_not_exist_is_named(shim, environment):
    done = start(shim, environment, "-", "-", "-", "/nowhere/group")
    assert (done.returncode, done.stdout) == (125, "")
    assert "the cgroup /nowhere/group" in done.stderr
