"""Stops the processes of a cluster, however they were started and whatever became of who started them."""

import contextlib
import os
import signal
import time

from podwire.cluster.up import component_processes, status_file
from podwire.cluster.up.layout import Layout
from podwire.linux.errors import NoSuchProcess
from podwire.linux.proc import processes

PATIENCE = 40.0
"""Seconds for the supervisor, which gives each of its components ten."""
KILLED_WITHIN = 10.0


class StillThere(Exception):
    """A process that does not end, not even when it is killed."""


def stop(layout: Layout) -> None:
    """The supervisor first, which stops the others in order; who is left is killed."""
    told = status_file.read(layout)
    if told is not None:
        with contextlib.suppress(NoSuchProcess):
            pidfd = processes.open_process(told.pid, told.start_ticks)
            try:
                processes.send_signal(pidfd, signal.SIGTERM)
                processes.wait(pidfd, PATIENCE)
            finally:
                os.close(pidfd)
    kill(list(component_processes.components(layout)))


def kill(pids: list[int]) -> None:
    """End them now, and wait until they have. Raises StillThere."""
    opened = []
    for pid in pids:
        with contextlib.suppress(OSError):
            opened.append((pid, os.pidfd_open(pid)))
    until = time.monotonic() + KILLED_WITHIN
    try:
        for _, pidfd in opened:
            processes.send_signal(pidfd, signal.SIGKILL)
        left = [pid for pid, pidfd in opened if not processes.wait(pidfd, until - time.monotonic())]
    finally:
        for _, pidfd in opened:
            os.close(pidfd)
    if left:
        raise StillThere(f"killed {KILLED_WITHIN:g} s ago and still there: {', '.join(map(str, left))}")
