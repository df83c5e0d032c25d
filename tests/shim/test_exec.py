"""`podwire-shim exec`: the launcher alone; and with --die-with, a parent that ends what it launched."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.eventually import eventually

UNIFIED = Path("/sys/fs/cgroup/unified")


def execute(shim, environment, *words, **options):
    return subprocess.run(
        [*shim, "exec", *words], env=environment, capture_output=True, text=True, check=False, timeout=30, **options
    )


def test_the_program_takes_the_place_of_the_shim(shim, environment):
    with subprocess.Popen([*shim, "exec", "--", "sh", "-c", "echo $$"], env=environment, stdout=subprocess.PIPE) as one:
        assert int(one.communicate()[0]) == one.pid


@pytest.mark.parametrize("die_with", [False, True], ids=["in place", "as its parent"])
@pytest.mark.parametrize(
    ("words", "code"),
    [
        pytest.param(("true",), 0, id="good"),
        pytest.param(("sh", "-c", "exit 7"), 7, id="bad"),
        pytest.param(("/no/such/program",), 127, id="not there"),
        pytest.param(("/etc/passwd",), 126, id="not a program"),
    ],
)
def test_its_exit_code_is_the_programs(shim, environment, die_with, words, code):
    flags = ["--die-with", str(os.getpid())] if die_with else []
    done = execute(shim, environment, *flags, "--", *words)
    assert done.returncode == code
    assert done.stderr.startswith(f"podwire-shim: {words[0]}: " if code > 125 else "")


def test_stdio_goes_through(shim, environment):
    words = ("--die-with", str(os.getpid()), "--", "sh", "-c", "cat; echo bad >&2")
    done = execute(shim, environment, *words, input="good")
    assert (done.stdout, done.stderr) == ("good", "bad\n")


def test_the_programs_pipes_end_with_it(shim, environment):
    words = [*shim, "exec", "--die-with", str(os.getpid()), "--", "sh", "-c", "exec >&-; sleep 100"]
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE) as one:
        assert one.stdout.read() == b""
        one.terminate()


DETACHES = """
import os, sys, time
file, seconds, end, waits, code = sys.argv[1:]
if (command := os.fork()) == 0:
    time.sleep(float(seconds))
    os.kill(os.getpid(), 9) if end == "kill" else os._exit(int(end))
with open(file, "w") as written:
    written.write(str(command))
if waits:
    os.waitid(os.P_PID, command, os.WEXITED | os.WNOWAIT)  # as OCI runtimes, it does not reap
os._exit(int(code))
"""


@pytest.mark.parametrize(
    ("command", "waits", "program", "code"),
    [
        pytest.param(("0.2", "7"), "", "0", 7, id="ends later"),
        pytest.param(("0", "7"), "yes", "0", 7, id="ends first"),
        pytest.param(("0", "kill"), "", "0", 137, id="is killed"),
        pytest.param(("100", "0"), "", "3", 3, id="the program fails"),
    ],
)
def test_the_command_of_a_program_that_detaches_is_waited_for(
    shim, environment, tmp_path, command, waits, program, code
):
    file = str(tmp_path / "pid")
    flags = ("--die-with", str(os.getpid()), "--detached", file)
    words = (sys.executable, "-c", DETACHES, file, *command, waits, program)
    assert execute(shim, environment, *flags, "--", *words).returncode == code


def test_a_command_that_somebody_else_reaped_is_not_waited_for(shim, environment, tmp_path):
    (tmp_path / "pid").write_text("1")
    flags = ("--die-with", str(os.getpid()), "--detached", str(tmp_path / "pid"))
    assert execute(shim, environment, *flags, "--", "true").returncode == 125


def test_a_program_that_detaches_without_a_number_has_failed(shim, environment, tmp_path):
    flags = ("--die-with", str(os.getpid()), "--detached", str(tmp_path / "none"))
    assert execute(shim, environment, *flags, "--", "true").returncode == 125


def test_it_enters_the_cgroups(shim, environment, cgroups):
    flags = [word for cgroup in cgroups for word in ("--cgroup", cgroup)]
    done = execute(shim, environment, *flags, "--", "cat", "/proc/self/cgroup")
    assert done.stdout.count(Path(cgroups[0]).name) == len(cgroups)


def test_a_missing_cgroup_is_reported(shim, environment):
    done = execute(shim, environment, "--cgroup", "/sys/fs/cgroup/none", "--", "true")
    error = "podwire-shim: /sys/fs/cgroup/none/cgroup.procs: No such file or directory\n"
    assert (done.returncode, done.stderr) == (125, error)


@pytest.mark.skipif(not UNIFIED.is_mount(), reason="this machine has no hybrid of both cgroup versions")
def test_the_unified_tree_is_covered_for_the_program_only(shim, environment):
    before = Path("/proc/self/mountinfo").read_text()
    assert execute(shim, environment, "--cover-unified", "--", "ls", str(UNIFIED)).stdout == ""
    assert execute(shim, environment, "--", "ls", str(UNIFIED)).stdout != ""
    assert Path("/proc/self/mountinfo").read_text() == before


@pytest.mark.skipif(not UNIFIED.is_mount(), reason="this machine has no hybrid of both cgroup versions")
def test_mount_propagation_works_in_both_directions(shim, environment, tmp_path):
    """Volumes with Bidirectional or HostToContainer propagation depend on it."""
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    launched = f'"$@" exec --cover-unified -- sh -c "mount -t tmpfs t {tmp_path}/in; read x; ls {tmp_path}/out"'
    script = f"""
        set -e
        mount -t tmpfs base {tmp_path}; mkdir {tmp_path}/in {tmp_path}/out; mkfifo {tmp_path}/go
        mount --make-rshared /
        {launched} <{tmp_path}/go >{tmp_path}/seen &
        exec 3>{tmp_path}/go
        until mountpoint -q {tmp_path}/in; do sleep 0.01; done
        mount -t tmpfs t {tmp_path}/out; touch {tmp_path}/out/from-the-host
        echo >&3; wait
        grep -c {UNIFIED} /proc/self/mountinfo
        cat {tmp_path}/seen
    """
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "test", *shim],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["1", "from-the-host"], "")


def test_a_caller_that_is_not_the_parent_is_refused(shim, environment):
    done = execute(shim, environment, "--die-with", "1", "--", "true")
    assert (done.returncode, done.stderr) == (125, "podwire-shim: the caller, process 1, is gone\n")


CALLER = """
import os, subprocess, sys
at = sys.argv.index("--")
child = subprocess.Popen([*sys.argv[1:at], "--die-with", str(os.getpid()), *sys.argv[at:]])
print(child.pid, flush=True)
child.wait()
"""


def exec_in(box, *words: str, flags=()) -> list[str]:
    """The command line for another process in a container."""
    at = box.oci.index("--")
    return [*box.oci[:at], *flags, *box.oci[at:], "exec", box.id, *words]


def running(box, word: str) -> list[str]:
    """Processes in the container with this word on their command line."""
    listed = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout.splitlines()
    return [item for item in listed if f"sleep {word}" in item and "podwire" not in item]


@pytest.fixture
def busy(boxes, oci):
    """A container, and a number of seconds that nothing else on this machine sleeps."""
    boxes.oci = oci
    return boxes.box("sleep", "1000").start(), str(100_000 + int.from_bytes(os.urandom(4), "big"))


SCRIPTS = {
    "a program": "exec sleep {}",
    "a shell and its child": "sleep {}; true",
    "one that ignores signals": "trap '' TERM HUP INT; sleep {}; true",
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_an_exec_ends_with_its_killed_caller(busy, support, script):
    box, word = busy
    argv = [sys.executable, "-c", CALLER, *exec_in(box, "sh", "-c", script.format(word))]
    with subprocess.Popen(argv, env=box.env, stdout=subprocess.PIPE) as caller:
        pid = int(caller.stdout.readline())
        eventually(lambda: running(box, word))
        caller.kill()
    eventually(lambda: not running(box, word))
    eventually(lambda: not support.alive(pid))
    assert '"state":"running"' in box.ask("status")


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_sigterm_ends_the_exec_in_a_container(busy, support, script):
    """As after a time-out: the caller lives, and ends only this."""
    box, word = busy
    argv = exec_in(box, "sh", "-c", script.format(word), flags=["--die-with", str(os.getpid())])
    with subprocess.Popen(argv, env=box.env) as one:
        eventually(lambda: running(box, word))
        one.terminate()
        assert one.wait(timeout=30) == 128 + signal.SIGKILL
    eventually(lambda: not running(box, word))


def test_background_processes_of_an_exec_stay(busy):
    box, word = busy
    script = f"sleep {word} >/dev/null 2>&1 & exit 6"
    argv = exec_in(box, "sh", "-c", script, flags=["--die-with", str(os.getpid())])
    assert subprocess.run(argv, env=box.env, check=False, timeout=30).returncode == 6
    time.sleep(0.1)
    assert running(box, word)


def test_an_executed_process_is_in_the_containers_cgroups(boxes, support, cgroups):
    box = boxes.box("sleep", "1000", cgroups=cgroups).start()
    flags = [word for cgroup in cgroups for word in ("--cgroup", cgroup)]
    argv = exec_in(box, "cat", "/proc/self/cgroup", flags=flags)
    done = subprocess.run(argv, env=box.env, capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.count(Path(cgroups[0]).name) == len(cgroups)
