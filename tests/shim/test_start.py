"""Failures while a container starts are reported, and nothing is left of it; the caller may die meanwhile."""

import os
import signal
import socket
import struct
import subprocess
import sys
import time

import pytest

from tests.eventually import eventually

SLOW = ("sh", "-c", 'sleep 0.5; exec "$@"', "slow")


def nothing_is_left(box, support) -> None:
    assert sorted(path.name for path in box.state.iterdir() if path.name != "pid") == ["failed"]
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(box.bundle) not in listed


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        pytest.param("/nowhere", "/nowhere", id="no such program"),
        pytest.param("/data", "permi", id="a directory"),
    ],
)
def test_a_failed_start_reports_the_runtimes_message(boxes, oci, support, program, reason):
    boxes.oci = oci
    box = boxes.box(program).run()
    assert (box.result.returncode, box.result.stdout) == (1, "")
    assert box.result.stderr.startswith("podwire-shim: the runtime ended with ")
    assert reason in box.result.stderr.lower()
    assert box.result.stderr == f"podwire-shim: {(box.state / 'failed').read_text()}"
    nothing_is_left(box, support)


RUNTIMES = {
    "it exits without a word": ("exit 3", "the runtime ended with 3: it did not say why"),
    "it is killed": ("kill -9 $$", "the runtime ended with 137: it did not say why"),
    "it says a lot": ("yes reason | head -c 100000 >&2; exit 1", "the runtime ended with 1: "),
    "it leaves no pid file": ("exit 0", "the runtime left no pid file"),
    "its pid file is empty": ("shift 7; : >$2; exit 0", "the runtime left no pid file"),
    "it tells somebody else's pid": ("echo 1 >../b0/s/pid; exit 0", "process 1 of the pid file is not ours"),
    "it leaves children behind": ("sleep 100 & setsid sleep 100 & exit 1", "the runtime ended with 1"),
}


@pytest.mark.parametrize(("script", "reason"), RUNTIMES.values(), ids=RUNTIMES)
def test_a_runtime_that_misbehaves_is_seen_through(boxes, support, script, reason):
    box = boxes.box("true", before=("sh", "-c", script, "fake")).run()
    assert box.result.returncode == 1
    assert box.result.stderr.startswith(f"podwire-shim: {reason}")
    assert len(box.result.stderr) < 4096
    nothing_is_left(box, support)


def test_a_runtime_that_is_not_there(boxes, support):
    box = boxes.box("true", before=("/no/such/runtime",)).run()
    reason = "the runtime ended with 127: podwire-shim: /no/such/runtime: No such file or directory"
    assert (box.result.returncode, box.result.stderr) == (1, f"podwire-shim: {reason}\n")
    nothing_is_left(box, support)


def test_a_cgroup_that_is_not_there(boxes, support):
    box = boxes.box("true", cgroups=["/sys/fs/cgroup/none"]).run()
    assert box.result.returncode == 1
    assert "/sys/fs/cgroup/none/cgroup.procs: No such file or directory" in box.result.stderr
    nothing_is_left(box, support)


def test_a_state_directory_serves_one_start(boxes):
    box = boxes.box("sleep", "100").start()
    before = box.started
    box.run()
    assert box.result.returncode == 1
    assert box.result.stderr == f"podwire-shim: {box.state} served a start before\n"
    assert box.started == before
    assert not (box.state / "failed").exists()
    assert box.ask("status")


def test_a_failed_start_may_be_tried_again_in_the_same_place(boxes):
    box = boxes.box("true")
    good, box.argv = box.argv, [argument.replace("crun", "no-crun") for argument in box.argv]
    assert box.run().result.returncode == 1
    box.argv = good
    box.start()
    assert box.exited()["code"] == 0
    assert not (box.state / "failed").exists()


def test_a_state_directory_with_a_dead_shims_socket_is_refused(boxes, support):
    box = boxes.box("sleep", "100").start()
    shim, pid = box.shim_pid, box.pid
    os.kill(shim, signal.SIGKILL)
    eventually(lambda: not support.alive(shim))
    (box.state / "started").unlink()
    try:
        box.run()
        assert box.result.stderr == f"podwire-shim: {box.state}/shim.sock: Address already in use\n"
    finally:
        support.end(pid)


@pytest.mark.parametrize("kind", ["symlink", "fifo", "directory", "nowhere"])
def test_a_log_that_is_not_a_regular_file_is_refused(boxes, support, tmp_path, kind):
    log = tmp_path / "log" / "0.log"
    if kind != "nowhere":
        log.parent.mkdir()
    match kind:
        case "symlink":
            log.symlink_to(tmp_path / "elsewhere")
        case "fifo":
            os.mkfifo(log)
        case "directory":
            log.mkdir()
    box = boxes.box("true", log=log).run()
    assert (box.result.returncode, box.result.stderr[:14]) == (1, "podwire-shim: ")
    assert str(log) in box.result.stderr
    assert not (tmp_path / "elsewhere").exists()
    nothing_is_left(box, support)


def test_a_start_continues_without_its_caller(boxes, support):
    box = boxes.box("sh", "-c", "echo here; exit 9", before=SLOW)
    foreground = subprocess.Popen(box.argv, env=box.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        eventually(box.listens)
        assert '"state":"starting"' in box.ask("status")
        foreground.kill()
        foreground.communicate()
        eventually((box.state / "started").exists)
        assert box.exited()["code"] == 9
        assert [text for _, _, text in support.logged(box.log)] == [b"here"]
    finally:
        foreground.kill()
        foreground.communicate()


def test_a_start_that_hangs_is_ended_on_request(boxes, support, cgroups):
    box = boxes.box("true", before=("sh", "-c", "sleep 100 & sleep 100", "hung"), cgroups=cgroups)
    with subprocess.Popen(box.argv, env=box.env, stderr=subprocess.PIPE, text=True) as foreground:
        eventually(box.listens)
        eventually(lambda: len(support.members(cgroups[0])) == 3)
        assert box.ask("killall").startswith("ok ")
        assert foreground.communicate()[1].startswith("podwire-shim: the runtime ended with 137")
    nothing_is_left(box, support)
    assert support.members(cgroups[0]) == []


def test_the_runtime_does_not_outlive_the_shim_that_started_it(boxes, support):
    box = boxes.box("true", before=SLOW)
    with subprocess.Popen(box.argv, env=box.env, stderr=subprocess.PIPE, text=True) as foreground:
        eventually(box.listens)
        shim = int(box.ask("status").partition('"shim":')[2].rstrip("}"))
        [runtime] = eventually(lambda: support.children(shim))
        os.kill(shim, signal.SIGKILL)
        assert foreground.communicate()[1] == "podwire-shim: the shim died before the start was decided\n"
    eventually(lambda: not support.alive(runtime))
    time.sleep(0.6)  # as long as it would have needed to start something
    assert not (box.state / "started").exists()


def test_a_container_survives_its_killed_shim(boxes, support):
    """There is no exit, the socket answers nobody, and number and start time tell whether the process is still it."""
    box = boxes.box("sleep", "100").start()
    started = box.started
    os.kill(box.shim_pid, signal.SIGKILL)
    eventually(lambda: not support.alive(started["shim"]))
    with pytest.raises(ConnectionRefusedError):
        box.ask("status")
    assert not (box.state / "exit").exists()
    assert support.alive(started["pid"])
    assert support.start_ticks(started["pid"]) == started["start_ticks"]
    os.kill(started["pid"], signal.SIGKILL)
    eventually(lambda: not support.alive(started["pid"]))


def test_output_during_a_start_does_not_block_it(boxes, support):
    """A pipe holds 64 KiB: a program that writes more while the start is undecided is read after a while."""
    flood = 'yes warning | head -c 200000 >&2; exec "$@"'
    box = boxes.box("echo", "done", before=("sh", "-c", flood, "loud")).start()
    assert box.exited()["code"] == 0
    lines = support.logged(box.log)
    assert [text for stream, _, text in lines if stream == "stdout"] == [b"done"]
    assert sum(len(text) + 1 for stream, _, text in lines if stream == "stderr") == 200000


CALLER = """
import subprocess, sys, time
subprocess.run(sys.argv[1:], check=True)
time.sleep(100)
"""


def test_a_container_outlives_its_caller(boxes, support):
    """The caller is killed, with all of its process group."""
    box = boxes.box("sh", "-c", "read x; echo $x; exit 8", flags=["--stdin"])
    argv = [sys.executable, "-c", CALLER, *box.argv]
    with subprocess.Popen(argv, env=box.env, stdout=subprocess.DEVNULL, start_new_session=True) as caller:
        eventually((box.state / "started").exists)
        os.killpg(caller.pid, signal.SIGKILL)
    with box.opened("stdin") as feeding:
        feeding.socket.sendall(b"still here\n")
        assert box.exited()["code"] == 8
    assert [text for _, _, text in support.logged(box.log)] == [b"still here"]


def test_delete_cleans_up_wherever_the_shim_was_killed_in_a_start(boxes, support):
    """Until `started` is there the container is nobody's, but the runtime knows it by its id."""
    for delay in range(0, 40, 3):
        word = str(100_000 + int.from_bytes(os.urandom(4), "big"))
        box = boxes.box("sleep", word)
        with subprocess.Popen(box.argv, env=box.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
            eventually(box.listens)
            shim = listener(box)
            time.sleep(delay / 1000)
            support.end(shim)
            eventually(lambda shim=shim: not support.alive(shim))
        deleted = subprocess.run([*box.oci, "delete", "--force", box.id], env=box.env, capture_output=True, check=False)
        assert deleted.returncode == 0, deleted.stderr
        eventually(lambda word=word: f"sleep {word}" not in processes())


def processes() -> str:
    return subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout


def listener(box) -> int:
    """The listener at the control socket, as the kernel knows it."""
    with box.open("") as asked:
        option = asked.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("iII"))
    return struct.unpack("iII", option)[0]


def test_the_files_are_written_in_this_order(boxes, tmp_path):
    """Started before it is reported; the exit on the disk before it can be seen, and durable before it is reported."""
    box = boxes.box("true")
    box.env["ASAN_OPTIONS"] += ":detect_leaks=0"  # it does not work under strace
    trace = tmp_path / "trace"
    box.argv = ["strace", "-f", "-qq", "-y", "-o", str(trace), "-e", "trace=fsync,rename,unlink,write", *box.argv]
    box.start()
    calls = [line.split(maxsplit=1)[1] for line in trace.read_text().splitlines()]
    steps = {
        "started": 'rename(".new", "started")',
        "reported": "write(1<",
        "exit": 'rename(".new", "exit")',
        "left": 'unlink("shim.sock")',
    }
    at = {name: next((n for n, call in enumerate(calls) if call.startswith(step)), -1) for name, step in steps.items()}
    synced = [number for number, call in enumerate(calls) if call.startswith("fsync(")]
    assert -1 < at["started"] < at["reported"]
    assert len(synced) == 2
    assert synced[0] < at["exit"] < synced[1] < at["left"]
    assert f"{box.state}/.new>" in calls[synced[0]]
    assert f"{box.state}>" in calls[synced[1]]
