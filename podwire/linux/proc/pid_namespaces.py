"""PID namespaces: created with their first process, pinned to a path, joined by children, ended with the first process.

A PID namespace lives as long as its first process, its init. When that ends, the kernel kills all others, and no
process can be created in it any more, although a pin keeps its name. A process never changes its own PID namespace,
only that of the children that it forks from then on.

The init adopts processes whose parents end. It ignores SIGCHLD, so that the kernel reaps them; it does nothing else,
and needs no program of ours: `sleep` keeps an ignored signal ignored.
"""

import errno
import os
import signal
import time
from contextlib import suppress
from typing import NoReturn

from podwire.linux import errors, syscalls
from podwire.linux.fs.mounts import KernelMounts, mounted
from podwire.linux.proc import processes
from podwire.linux.proc.namespaces import KINDS, identity, open_namespace
from podwire.linux.values import Path

_OWN = "/proc/self/ns/pid"
_SLEEP = ("/usr/bin/sleep", "/bin/sleep")


def start_init() -> int:
    """Create a PID namespace for the children of the calling process; returns the pid of its init. Raises OSError.

    The init mounts a `/proc` of its namespace in the caller's mount namespace, and outlives the caller.
    """
    syscalls.unshare(KINDS["pid"])
    reads, writes = os.pipe2(os.O_CLOEXEC)
    init = os.fork()
    if init == 0:
        try:
            _become_init()
        except Exception as error:  # noqa: BLE001 - reported to the parent
            os.write(writes, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(1)
    os.close(writes)
    with os.fdopen(reads, "rb") as pipe:
        problem = pipe.read().decode("utf-8", "replace")  # nothing, once it has become `sleep`
    if problem:
        os.waitpid(init, 0)
        raise errors.Refused(errno.EIO, "start the init of a PID namespace", problem)
    return init


def _become_init() -> NoReturn:
    """It keeps nothing open, has no environment, and leads a session of its own. Never returns, or raises OSError."""
    os.setsid()
    os.chdir("/")
    mount_proc()
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)  # which an init ignores
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    syscalls.close_on_exec(3)
    for program in _SLEEP:
        if os.path.exists(program):
            os.execve(program, ["sleep", "infinity"], {})  # noqa: S606 - a program of the system, without a shell
    raise FileNotFoundError(errno.ENOENT, "no program can be the node's init", _SLEEP[0])


def mount_proc() -> None:
    """Mount a `/proc` of the caller's PID namespace over the present one; what was mounted in that is shown again."""
    mounts = KernelMounts()
    below = [mount.target.removeprefix("/proc/") for mount in mounted() if mount.target.startswith("/proc/")]
    tops = [path for path in below if not any(path.startswith(f"{other}/") for other in below)]
    old = os.open("/proc", os.O_PATH | os.O_CLOEXEC)
    try:
        mounts.mount("proc", "/proc", "proc", ["nosuid", "nodev", "noexec"])
        for top in tops:
            mounts.bind(f"/proc/self/fd/{old}/{top}", f"/proc/{top}", recursive=True)
    finally:
        os.close(old)


def fork_into(path: Path) -> int:
    """Like os.fork: the child is in the PID namespace that is pinned at a path. NoSuchProcess when its init has ended.

    The calling process must have one thread.
    """
    there = open_namespace(path, "pid")
    try:
        own = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
        try:
            syscalls.setns(there, KINDS["pid"])
            child = -1
            try:
                child = os.fork()
            except OSError as error:
                if error.errno != errno.ENOMEM:
                    raise
                raise errors.NoSuchProcess(errno.ESRCH, f"fork into {os.fspath(path)}", "its init has ended") from error
            finally:
                if child != 0:  # the child belongs there
                    syscalls.setns(own, KINDS["pid"])
        finally:
            os.close(own)
    finally:
        os.close(there)
    return child


def end(path: Path, seconds: float = 10.0) -> None:
    """Kill all processes of a namespace, and wait until they have ended. Raises Busy."""
    opened = []
    for process in members(path):
        with suppress(OSError):
            opened.append(os.pidfd_open(process))
    until = time.monotonic() + seconds
    try:
        for pidfd in opened:
            processes.send_signal(pidfd, signal.SIGKILL)
        if not all(processes.wait(pidfd, until - time.monotonic()) for pidfd in opened):
            raise errors.Busy(errno.EBUSY, f"end the processes of {os.fspath(path)}")
    finally:
        for pidfd in opened:
            os.close(pidfd)


def members(path: Path) -> list[int]:
    """Returns the processes of a pinned namespace, without those of nested ones; none once it has ended."""
    inode = identity(path, "pid")
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if os.stat(f"/proc/{name}/ns/pid").st_ino == inode and not processes.has_ended(int(name)):
                    found.append(int(name))
            except OSError:
                continue  # it has just ended
    return found
