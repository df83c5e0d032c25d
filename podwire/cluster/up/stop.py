"""Stops the processes of a cluster, however they were started, also after their supervisor was killed."""

import contextlib
import os
import signal
import time

from podwire.cluster.up import component_processes, status_file
from podwire.cluster.up.layout import Layout
from podwire.linux.errors import NoSuchProcess
from podwire.linux.proc import processes

SUPERVISOR_SECONDS = 40.0
"""Seconds for the supervisor, which gives each of its components ten."""
KILL_SECONDS = 10.0


class StillThere(Exception):
    """A process that does not end, not even when it is killed."""


def stop(layout: Layout) -> None:
    """Stops the supervisor first, which stops the others in order; remaining processes are killed."""
    status = status_file.read(layout)
    if status is not None:
        with contextlib.suppress(NoSuchProcess):
            pidfd = processes.open_process(status.pid, status.start_ticks)
            try:
                processes.send_signal(pidfd, signal.SIGTERM)
                processes.wait(pidfd, SUPERVISOR_SECONDS)
            finally:
                os.close(pidfd)
    kill(list(component_processes.components(layout)))


def kill(pids: list[int]) -> None:
    """Kills processes and waits until they have ended. Raises StillThere."""
    opened = []
    for pid in pids:
        with contextlib.suppress(OSError):
            opened.append((pid, os.pidfd_open(pid)))
    until = time.monotonic() + KILL_SECONDS
    try:
        for _, pidfd in opened:
            processes.send_signal(pidfd, signal.SIGKILL)
        left = [pid for pid, pidfd in opened if not processes.wait(pidfd, until - time.monotonic())]
    finally:
        for _, pidfd in opened:
            os.close(pidfd)
    if left:
        raise StillThere(f"killed {KILL_SECONDS:g} s ago and still running: {', '.join(map(str, left))}")
