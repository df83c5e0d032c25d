"""PID namespaces with an init that belongs to nobody."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from podwire.linux import errors
from podwire.linux.proc import pid_namespaces
from tests.eventually import eventually

PROGRAM = """
import os, sys
from podwire.linux.fs.mounts import KernelMounts
from podwire.linux.proc import mount_namespaces, pid_namespaces

directory = sys.argv[1]
mounts = KernelMounts()
mount_namespaces.unshare_mounts()
mounts.set_propagation("/", "rprivate")
mounts.mount("test", directory, "tmpfs")
reads, writes = os.pipe()
go, goes = os.pipe()
child = os.fork()
if child == 0:
    mount_namespaces.unshare_mounts()
    os.write(writes, str(pid_namespaces.start_init()).encode())
    os.read(go, 1)
    os._exit(0)
init = int(os.read(reads, 16))
mount_namespaces.pin(child, f"{directory}/pid", "pid")
os.write(goes, b"x")
os.waitpid(child, 0)
print(init, flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def namespace(tmp_path):
    """The init of a namespace, and where it is pinned, as seen from here."""
    words = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        init = int(process.stdout.readline())
        yield init, f"/proc/{process.pid}/root{tmp_path}/pid"
        if pid_namespaces.members(f"/proc/{process.pid}/root{tmp_path}/pid"):
            os.kill(init, signal.SIGKILL)
        process.communicate("")


def run_inside(path, work):
    """The exit code of a child in the namespace."""
    child = pid_namespaces.fork_into(path)
    if child == 0:
        code = 99
        try:
            code = work() or 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_child_is_in_the_namespace_and_its_parent_is_not(namespace):
    init, path = namespace
    assert pid_namespaces.members(path) == [init]
    assert run_inside(path, os.getpid) == 2
    assert run_inside(path, os.getppid) == 0, "its parent is not in its namespace"
    before = os.getpid()
    child = os.fork()
    if child == 0:
        os._exit(0 if os.getppid() == before else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "other children are where they were"


def test_orphans_are_reaped_by_nobody_but_the_kernel(namespace):
    init, path = namespace

    def orphan():
        if os.fork() == 0:
            os.execvp("sleep", ["sleep", "0.2"])
        return 0

    assert run_inside(path, orphan) == 0
    assert len(pid_namespaces.members(path)) == 2
    eventually(lambda: pid_namespaces.members(path) == [init])


def test_the_init_ignores_signals_from_inside_and_holds_no_files(namespace):
    init, path = namespace
    run_inside(path, lambda: os.kill(1, signal.SIGKILL))
    run_inside(path, lambda: os.kill(1, signal.SIGTERM))
    assert pid_namespaces.members(path) == [init]
    assert {str(path.readlink()) for path in Path(f"/proc/{init}/fd").iterdir()} == {"/dev/null"}


def test_when_the_init_ends_everything_ends_and_nothing_can_start(namespace):
    _, path = namespace

    def orphan():
        if os.fork() == 0:
            signal.pause()
        return 0

    run_inside(path, orphan)
    pid_namespaces.end(path)
    assert pid_namespaces.members(path) == []
    with pytest.raises(errors.NoSuchProcess, match="its init has ended"):
        pid_namespaces.fork_into(path)
    assert subprocess.run(["true"], check=False).returncode == 0, "children are as before"


def test_proc_shows_the_namespace_only(namespace):
    init, _ = namespace
    assert [path.name for path in Path(f"/proc/{init}/root/proc").iterdir() if path.name.isdigit()] == ["1"]
