"""Programs and processes."""

import gc
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from podwire.linux import errors, syscalls
from podwire.linux.proc.processes import boot_id, open_process, reap, run, send_signal, spawn, start_time, wait

PATH = {"PATH": "/usr/bin:/bin"}


def shell(script: str, **named):
    return run(["sh", "-c", script], **{"env": PATH, "deadline": 20, **named})


def test_program_gets_stdin_and_returns_output():
    done = shell("cat; echo oops >&2; exit 3", stdin=b"hello")
    assert done == (3, b"hello", b"oops\n")


def test_killed_program_has_its_signal():
    assert shell("kill -TERM $$").code == -signal.SIGTERM


def test_environment_of_the_program_is_the_given_one(monkeypatch):
    monkeypatch.setenv("SECRET", "x")
    done = run(["/usr/bin/env"], env={"A": "1"}, deadline=20)
    assert done.stdout == b"A=1\n"


@pytest.mark.parametrize("kernel", ["new", "old"])
def test_it_gets_three_files_and_no_other(kernel, monkeypatch):
    if kernel == "old":  # before 5.11
        monkeypatch.setattr(syscalls, "CLOSE_RANGE", 1_000_000)
    leak = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(leak, True)
    try:
        done = shell("ls /proc/self/fd")
    finally:
        os.close(leak)
    assert done.stdout.split() == [b"0", b"1", b"2", b"3"], "the last is the directory that ls reads"


def test_it_gets_no_blocked_and_no_ignored_signals():
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        done = shell("grep -E '^Sig(Blk|Ign)' /proc/self/status")
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    inner = 1 << 31 | 1 << 32  # 32 and 33, which the C library keeps to itself
    assert [int(line.split()[1], 16) & ~inner for line in done.stdout.splitlines()] == [0, 0]


def test_it_leads_a_process_group():
    done = shell("cut -d' ' -f1,5 /proc/$$/stat")
    pid, group = done.stdout.split()
    assert pid == group != str(os.getpgrp()).encode()


def test_large_input_and_output_pass_at_once():
    data = os.urandom(3 << 20)
    done = shell("cat", stdin=data)
    assert done.stdout == data


def test_unread_stdin_is_not_an_error():
    assert shell("exit 0", stdin=b"x" * (1 << 20)).code == 0


def test_its_deadline_ends_it_and_all_its_children(tmp_path):
    mark = tmp_path / "pids"
    before = time.monotonic()
    with pytest.raises(errors.DeadlinePassed, match="run sh"):
        shell(f"sleep 60 & echo $! $$ > {mark}; wait", deadline=0.3)
    assert time.monotonic() - before < 10
    for pid in map(int, mark.read_text().split()):
        until = time.monotonic() + 10
        while Path(f"/proc/{pid}").exists() and b"Z" not in state(pid):
            assert time.monotonic() < until, "it lives on"


def state(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return b"Z"


def test_output_beyond_its_limit_ends_it():
    with pytest.raises(errors.TooMuchOutput, match="more than 1000 bytes"):
        shell("yes", limit=1000)


def test_output_beyond_its_limit_is_freed_at_once():
    """The error keeps a traceback, and that the frames: what was read must not wait for them."""
    gc.disable()
    try:
        before = rss()
        kept = []
        for _ in range(20):
            with pytest.raises(errors.TooMuchOutput) as raised:
                shell("yes", limit=8 << 20)
            kept.append(raised.value)
        assert rss() - before < 80 << 20
    finally:
        gc.enable()


def rss() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_background_processes_are_killed_with_the_group():
    done = run(["sh", "-c", "sleep 60 & echo $!"], env=PATH, deadline=20, kill_group=True)
    assert done.code == 0
    until = time.monotonic() + 10
    while state(int(done.stdout)) != b"Z":
        assert time.monotonic() < until, "it lives on"


def test_background_processes_are_not_waited_for(tmp_path):
    before = time.monotonic()
    done = shell("sleep 30 & echo $!")
    assert time.monotonic() - before < 10
    os.kill(int(done.stdout), signal.SIGKILL)


def test_program_that_cannot_be_started_is_an_error(tmp_path):
    plain = tmp_path / "plain"
    plain.touch()
    with pytest.raises(errors.NoSuchPath, match=f"run {tmp_path}/nowhere"):
        run([f"{tmp_path}/nowhere"], env={}, deadline=5)
    with pytest.raises(errors.NoSuchPath, match="not on PATH"):
        run(["nowhere"], env=PATH, deadline=5)
    with pytest.raises(errors.NotPermitted):
        run([str(plain)], env={}, deadline=5)


def test_running_many_at_once_mixes_nothing_up():
    with ThreadPoolExecutor(8) as pool:
        done = pool.map(lambda number: shell(f"cat; echo {number}", stdin=b"in ").stdout, range(40))
    assert list(done) == [b"in %d\n" % number for number in range(40)]


def test_running_leaves_no_descriptor_and_no_child(descriptors, children):
    files, others = descriptors(), set(children())
    for script in ("exit 0", "yes", "sleep 60"):
        with suppress(errors.LinuxError):
            shell(script, deadline=0.1, limit=10)
    assert descriptors() <= files
    assert set(children()) <= others


def test_a_spawned_process_lives_by_itself_in_a_session_of_its_own():
    null = os.open("/dev/null", os.O_RDWR)
    child = spawn(["sleep", "60"], env=PATH, files=(null, null, null), session=True)
    os.close(null)
    try:
        assert os.getsid(child.pid) == child.pid
        assert child.started == start_time(child.pid)
        assert not wait(child.pidfd, 0)
        assert send_signal(child.pidfd, signal.SIGTERM)
        assert wait(child.pidfd, 10)
        assert reap(child) == -signal.SIGTERM
        assert not send_signal(child.pidfd, signal.SIGTERM), "it is gone"
    finally:
        os.close(child.pidfd)


def test_standard_files_can_be_handed_on_in_any_order(tmp_path):
    out = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
    script = f"""
import os
from podwire.linux.proc.processes import reap, spawn
os.dup2({out}, 2)
child = spawn(["sh", "-c", "echo out; echo err >&2"], env={PATH!r}, files=(0, 2, 1))
raise SystemExit(reap(child))
"""
    done = subprocess.run([sys.executable, "-c", script], pass_fds=[out], capture_output=True, check=True)
    os.close(out)
    assert (done.stdout, (tmp_path / "out").read_text()) == (b"err\n", "out\n")


def test_a_process_is_opened_by_its_number_and_its_start(kernel):
    child = subprocess.Popen(["sleep", "60"])
    try:
        started = start_time(child.pid)
        pidfd = open_process(child.pid, started)
        os.close(pidfd)
        with pytest.raises(errors.NoSuchProcess, match="another process has its number now"):
            open_process(child.pid, started - 1)
    finally:
        child.kill()
        child.wait()
    with pytest.raises(errors.NoSuchProcess):
        open_process(child.pid, started)
    with pytest.raises(errors.NoSuchProcess):
        start_time(child.pid)


def test_a_name_with_brackets_and_spaces_does_not_confuse(tmp_path):
    strange = tmp_path / "a) S 1 2 3 (b"
    strange.symlink_to("/bin/sleep")
    child = subprocess.Popen([strange, "60"])
    try:
        assert start_time(child.pid) >= start_time(os.getpid()) > 0
    finally:
        child.kill()
        child.wait()


def test_a_boot_has_an_id():
    assert len(boot_id()) == 36
