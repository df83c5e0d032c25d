"""A container is started, lives, ends; and what the shim tells of it."""

import json
import os
import signal
import stat
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from tests.eventually import eventually


@pytest.mark.parametrize("code", [0, 7, 255])
def test_the_exit_code_is_kept(boxes, oci, code):
    boxes.oci = oci
    box = boxes.box("sh", "-c", f"exit {code}").start()
    exit_status = box.exited()
    assert (exit_status["state"], exit_status["code"], exit_status["signal"]) == ("exited", code, 0)
    assert abs(time.time_ns() - exit_status["time_ns"]) < 30e9


def test_the_signal_that_killed_it_is_kept(boxes, oci):
    boxes.oci = oci
    box = boxes.box("sleep", "100").start()
    os.kill(box.pid, signal.SIGKILL)
    exit_status = box.exited()
    assert (exit_status["code"], exit_status["signal"]) == (137, 9)


def test_a_start_is_reported_on_stdout_in_a_file_and_on_the_socket(boxes, oci, support):
    boxes.oci = oci
    box = boxes.box("sleep", "100").start()
    assert box.result.stdout == f"{box.pid}\n"
    assert box.started == {
        "state": "running",
        "pid": box.pid,
        "start_ticks": support.start_ticks(box.pid),
        "time_ns": box.started["time_ns"],
        "lost": 0,
        "shim": support.parent(box.pid),
    }
    assert json.loads(box.ask("status")) == box.started
    assert sorted(path.name for path in box.state.iterdir()) == ["pid", "shim.sock", "started"]


def test_files_and_socket_are_for_the_owner_alone(boxes):
    box = boxes.box("sleep", "100").start()
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in box.state.iterdir() if path.name != "pid"}
    assert modes == {"shim.sock": 0o600, "started": 0o600}


def test_the_shim_ends_and_leaves_only_its_files(boxes):
    box = boxes.box("true").start()
    box.exited()
    box.gone()
    assert sorted(path.name for path in box.state.iterdir()) == ["exit", "pid", "started"]


def test_every_waiter_gets_the_exit(boxes):
    box = boxes.box("sh", "-c", "sleep 0.3; exit 4").start()
    waiting = [box.open("wait") for _ in range(20)]
    answers = {item.line() for item in waiting}
    assert len(answers) == 1
    assert json.loads(answers.pop())["code"] == 4


def test_twenty_at_once(boxes):
    made = [boxes.box("sh", "-c", f"echo {number}; exit {number}") for number in range(20)]
    with ThreadPoolExecutor(20) as pool:
        list(pool.map(lambda each: each.start(), made))
    assert [item.exited()["code"] for item in made] == list(range(20))
    assert [item.log.read_bytes().split()[-1] for item in made] == [b"%d" % number for number in range(20)]


def test_the_container_inherits_only_three_descriptors(boxes, oci, support):
    """No descriptors, no ignored or blocked signals, no sockets that are meant for the caller."""
    boxes.oci = oci
    box = boxes.box("sleep", "100")
    box.env |= {"LISTEN_FDS": "1", "NOTIFY_SOCKET": "/run/caller.sock"}
    extra = os.open("/dev/null", os.O_RDONLY)
    old = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        box.start(pass_fds=[extra], restore_signals=False)
    finally:
        signal.signal(signal.SIGUSR1, old)
        os.close(extra)
    command = Path(f"/proc/{box.pid}/cmdline")
    eventually(lambda: command.read_bytes() == b"sleep\x00100\x00")
    assert sorted(path.name for path in Path(f"/proc/{box.pid}/fd").iterdir()) == ["0", "1", "2"]
    lines = Path(f"/proc/{box.pid}/status").read_text().splitlines()
    fields = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    libc = 0b11 << 31  # signals 32 and 33 are the C library's own: nobody can set them through it, nor set them back
    assert (int(fields["SigBlk"], 16), int(fields["SigIgn"], 16) & ~libc) == (0, 0)


def test_the_shim_keeps_no_descriptor_that_it_does_not_need(boxes):
    box = boxes.box("sleep", "100").start()
    for _ in range(50):
        box.ask("status")
        box.ask("nonsense")
        box.opened("attach").socket.close()
    box.ask("status")
    names = [str(path.readlink()) for path in Path(f"/proc/{box.shim_pid}/fd").iterdir()]
    kinds = sorted(name.partition(":")[0] for name in names)
    spare = kinds.count("socket") - 1  # one client may not be gone yet
    assert spare <= 1
    assert [kind for kind in kinds if kind != "socket"] == sorted(["/dev/null"] * 3 + ["pipe"] * 2 + [str(box.log)])


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGPIPE"])
def test_the_shim_is_not_moved_by_a_signal(boxes, name):
    box = boxes.box("sh", "-c", "sleep 0.4; exit 3").start()
    os.kill(box.shim_pid, getattr(signal, name))
    assert box.exited()["code"] == 3


def test_orphans_in_the_hosts_pid_namespace_are_reaped(boxes, support):
    """Without a namespace of its own for processes, the container's orphans become the shim's children."""
    names = [namespace for namespace in support.OWN_NAMESPACES if namespace != "pid"]
    box = boxes.box("sh", "-c", "for i in 1 2 3; do (sleep 100 &); done; sleep 100", namespaces=names).start()
    eventually(lambda: len(support.children(box.shim_pid)) == 4)
    for pid in set(support.children(box.shim_pid)) - {box.pid}:
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: support.children(box.shim_pid) == [box.pid])


def test_the_shim_stays_for_the_orphans_and_ends_them_on_request(boxes, support, cgroups):
    names = [namespace for namespace in support.OWN_NAMESPACES if namespace != "pid"]
    script = "(sleep 100 >/dev/null 2>&1 &); exit 5"
    box = boxes.box("sh", "-c", script, namespaces=names, cgroups=cgroups).start()
    assert box.exited()["code"] == 5
    assert json.loads(box.ask("status"))["code"] == 5
    assert json.loads(box.ask("wait"))["code"] == 5
    assert len(support.children(box.shim_pid)) == 1
    assert box.ask("killall") in {f"ok {number + 1}" for number in range(len(cgroups))}
    box.gone()
    assert [support.members(cgroup) for cgroup in cgroups] == [[]] * len(cgroups)


def test_the_container_is_in_the_cgroups_and_the_shim_is_not(boxes, cgroups, support):
    box = boxes.box("sleep", "100", cgroups=cgroups).start()
    assert [support.members(cgroup) for cgroup in cgroups] == [[box.pid]] * len(cgroups)
    assert box.ask("killall").startswith("ok ")
    assert box.exited()["signal"] == 9


def test_a_grandchild_that_keeps_the_pipes_open_delays_the_exit_only_so_long(boxes, support):
    names = [namespace for namespace in support.OWN_NAMESPACES if namespace != "pid"]
    box = boxes.box("sh", "-c", "(while echo more; do sleep 0.05; done &) ; exit 6", namespaces=names).start()
    begun = time.monotonic()
    assert box.exited()["code"] == 6
    assert time.monotonic() - begun < 5
    box.gone()  # the grandchild died of its closed pipe


def test_the_exit_is_kept_until_it_can_be_written(boxes, support, tmp_path):
    """The state directory is on a file system that is full when the container ends."""
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", small], check=True)
    try:
        box = boxes.box("sleep", "100")
        state = small / "s"
        state.mkdir()
        box.argv = [argument.replace(str(box.state), str(state)) for argument in box.argv]
        box.state = state
        box.start()
        with (small / "filler").open("wb") as file, suppress(OSError):
            file.write(bytes(1 << 20))
        waiting = box.open("wait")
        os.kill(box.pid, signal.SIGKILL)
        assert json.loads(waiting.line())["signal"] == 9
        assert not (state / "exit").exists()
        (small / "filler").unlink()
        eventually((state / "exit").exists)
        box.gone()
        assert box.exited()["signal"] == 9
    finally:
        subprocess.run(["umount", small], check=True)


def test_a_shim_whose_state_directory_was_removed_exits(boxes, support):
    box = boxes.box("sleep", "100").start()
    shim, pid = box.shim_pid, box.pid
    for path in box.state.iterdir():
        path.unlink()
    box.state.rmdir()
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not support.alive(shim))
