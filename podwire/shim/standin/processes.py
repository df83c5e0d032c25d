"""Processes: their death, their parents, their signals."""

import ctypes
import os
import signal
import socket
import time
from collections.abc import Iterable
from contextlib import suppress

END, NAP = 5.0, 0.0003
PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), name)


def code_of(status: int) -> int:
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def kill(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
    except (OSError, OverflowError):
        return False
    return True


def kill_listed(path: str, *, groups: bool) -> int:
    """Kills whom a file lists, and their process groups."""
    try:
        with open(path, "rb") as file:
            pids = [int(each) for each in file.read().split()]
    except OSError:
        return 0
    for pid in pids if groups else ():
        with suppress(ProcessLookupError):
            group = os.getpgid(pid)
            if group not in (0, 1, os.getpgrp()):
                os.killpg(group, signal.SIGKILL)
    return sum(kill(pid, signal.SIGKILL) for pid in pids if pid not in (0, os.getpid()))


def waited() -> tuple[int, int]:
    """A dead child and its status, 0 when none is dead, -1 when there is none."""
    try:
        return os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return -1, 0


def end_family() -> None:
    until = time.monotonic() + END
    while time.monotonic() < until and waited()[0] >= 0:
        kill_listed("/proc/thread-self/children", groups=True)
        time.sleep(NAP)


def stand_over(arriving: Iterable[int]) -> tuple[socket.socket, list[int]]:
    """Makes us the parent of whoever gets orphaned below; signals are told by a socket, and kept in a list."""
    seen: list[int] = []
    reading, writing = socket.socketpair()
    reading.setblocking(False)
    writing.setblocking(False)
    call("prctl", PR_SET_CHILD_SUBREAPER, 1)
    signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals() - set(arriving))
    for each in arriving:
        signal.signal(each, lambda number, _: seen.append(number))
    signal.set_wakeup_fd(writing.detach(), warn_on_full_buffer=False)
    return reading, seen
