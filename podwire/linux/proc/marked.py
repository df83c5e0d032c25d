"""Processes found by their environment: children inherit it, whatever process group or session they move to.

A variable that a program got when it was started is a mark of all that it starts, unless one of them gives its own
children another environment. It survives the process that set it, so that a successor finds what was left behind.
"""

import errno
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from time import monotonic

from podwire.linux import errors
from podwire.linux.proc import processes

Matches = Callable[[Mapping[str, str]], bool]

_LONGEST = 4 << 20
"""Bytes of an environment; the kernel takes no more from execve."""


def marked_environment(pid: int, variable: str) -> dict[str, str] | None:
    """The environment with which a process was started; None when it has ended or does not have the variable."""
    try:
        file = os.open(f"/proc/{pid}/environ", os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.read(file, _LONGEST)
        finally:
            os.close(file)
    except OSError:
        return None
    if variable.encode() not in data:  # almost no process has it: decoding them all would be wasted
        return None
    pairs = (item.partition("=") for item in data.decode("utf-8", "surrogateescape").split("\0"))
    environment = {name: value for name, separator, value in pairs if separator}
    return environment if variable in environment else None


def find_marked(variable: str, matches: Matches) -> Iterator[int]:
    """The pids of all other processes that have a variable and whose environment matches."""
    for pid in [int(name) for name in os.listdir("/proc") if name.isdecimal()]:
        if pid != os.getpid() and _is_match(pid, variable, matches):
            yield pid


def _is_match(pid: int, variable: str, matches: Matches) -> bool:
    environment = marked_environment(pid, variable)
    return environment is not None and matches(environment)


def kill_marked(variable: str, matches: Matches, patience: float = 10.0) -> list[int]:
    """Kills all other processes that have a variable and match, and waits for their end. Returns their pids.

    With one that leads a process group the group is killed: children with another environment are often still in it.
    Repeated until none is found, because one may have forked meanwhile. Raises Busy after `patience` seconds.
    """
    until, killed = monotonic() + patience, []
    while pids := list(find_marked(variable, matches)):
        for pid in pids:
            with suppress(ProcessLookupError):
                pidfd = os.pidfd_open(pid)
                try:
                    if _is_match(pid, variable, matches):  # still the same process: the descriptor came first
                        if os.getpgid(pid) == pid:
                            os.killpg(pid, signal.SIGKILL)
                        processes.send_signal(pidfd, signal.SIGKILL)
                        killed.append(pid)
                        processes.wait(pidfd, until - monotonic())
                finally:
                    os.close(pidfd)
        if monotonic() > until:
            raise errors.Busy(errno.EBUSY, "kill marked processes", f"{', '.join(map(str, pids))} did not end")
    return sorted(set(killed))
