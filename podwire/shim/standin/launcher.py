"""The launcher: enters cgroups, covers what crun must not see, becomes the command."""

import ctypes
import errno
import os
import select
import signal
from typing import NoReturn

from podwire.shim.standin.command import CANNOT_RUN, FAILED, NOT_FOUND, Given, die, why
from podwire.shim.standin.processes import call, code_of, end_family, stand_over, waited

UNIFIED = "/sys/fs/cgroup/unified"
PR_SET_PDEATHSIG, CLONE_NEWNS = 1, 0x20000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_PRIVATE = 1, 2, 4, 8, 1 << 18


def cover_unified() -> None:
    if not os.path.exists(UNIFIED):
        return
    call("unshare", CLONE_NEWNS)
    place = UNIFIED.encode()
    try:
        call("mount", None, place, None, ctypes.c_ulong(MS_PRIVATE), None)
    except OSError as error:
        if error.errno == errno.EINVAL:
            return
    flags = ctypes.c_ulong(MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY)
    call("mount", b"tmpfs", place, b"tmpfs", flags, b"mode=0755")


def enter(given: Given) -> None:
    """Cgroups first: one of them may be under what gets covered."""
    for each in (f"{each}/cgroup.procs" for each in given.cgroups):
        try:
            fd = os.open(each, os.O_WRONLY)
            os.write(fd, b"0")
            os.close(fd)
        except OSError as error:
            die(FAILED, f"{each}: {why(error)}")
    try:
        if "--cover-unified" in given.flags:
            cover_unified()
    except OSError as error:
        die(FAILED, f"{UNIFIED} could not be covered: {error.filename or ''}{why(error)}")


def launch(given: Given) -> NoReturn:
    for each in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(each, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for name in ("LISTEN_FDS", "LISTEN_PID", "NOTIFY_SOCKET"):
        os.environ.pop(name, None)
    enter(given)
    try:
        os.chdir(given.values.get("--bundle", "."))
    except OSError as error:
        die(FAILED, f"{given.values['--bundle']}: {why(error)}")
    try:
        os.execvp(given.command[0], given.command)  # noqa: S606 - no shell is the point
    except OSError as error:
        die(NOT_FOUND if error.errno == errno.ENOENT else CANNOT_RUN, f"{given.command[0]}: {why(error)}")


def fork_launcher(given: Given, stdio: tuple[int, int, int]) -> int:
    parent, child = os.getpid(), os.fork()
    if child:
        return child
    try:
        signal.set_wakeup_fd(-1)
        os.setsid()
        call("prctl", PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() == parent:
            for number, fd in enumerate(stdio):
                os.dup2(fd, number)
            launch(given)
    finally:
        os._exit(FAILED)


def supervise(given: Given, caller: int) -> int:
    try:
        gone = os.pidfd_open(caller)
    except OSError:
        gone = -1
    if gone < 0 or os.getppid() != caller:
        die(FAILED, f"the caller, process {caller}, is gone")
    arrived, seen = stand_over((signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT))
    child = fork_launcher(given, (0, 1, 2))
    os.closerange(0, 3)
    poll = select.poll()
    poll.register(arrived, select.POLLIN)
    poll.register(gone, select.POLLIN)
    code = None
    while code is None and gone not in dict(poll.poll()) and set(seen) <= {signal.SIGCHLD}:
        arrived.recv(4096)
        while (each := waited())[0] > 0:
            code = code_of(each[1]) if each[0] == child else code
    end_family()
    return 128 + signal.SIGKILL if code is None else code
