"""The status file of a supervisor (its processes, since when, how many restarts), and the lock of a prefix."""

import contextlib
import logging
import os
import time
from collections.abc import Sequence

import msgspec

from podwire.cluster.up.layout import Layout
from podwire.cluster.up.supervisor import Process
from podwire.durable.files import replace_file
from podwire.durable.locks import FileLock, LockHeld, holder_pid, lock_file
from podwire.linux.errors import LinuxError, NoSuchProcess
from podwire.linux.fs.trust import make_directory
from podwire.linux.proc import processes

_log = logging.getLogger("podwire.up")

SUPERVISOR = "supervisor"


class PrefixLocked(Exception):
    """Another supervisor has the prefix; knows its process."""

    def __init__(self, prefix: object, pid: int) -> None:
        super().__init__(f"another `podwire up` (process {pid or 'unknown'}) uses the prefix {prefix}")
        self.pid = pid


class ComponentEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One component."""

    name: str
    pid: int
    start_ticks: int
    since: float
    ready: bool
    restarts: int


class SupervisorStatus(msgspec.Struct, frozen=True, kw_only=True):
    """All components, and whether all were ready once."""

    pid: int
    start_ticks: int
    since: float
    up: bool
    components: tuple[ComponentEntry, ...] = ()


def lock_prefix(layout: Layout) -> FileLock:
    """Locks a prefix; a process that inherits the descriptor holds the lock, too. Raises PrefixLocked."""
    make_directory(layout.component_tags, no_links_below=layout.no_links_below)
    path = layout.component_tags / SUPERVISOR
    try:
        return lock_file(path, name="podwire up")
    except LockHeld as error:
        raise PrefixLocked(layout.prefix, holder_pid(path)) from error


class StatusWriter:
    """Writes the status file of one supervisor."""

    def __init__(self, layout: Layout) -> None:
        self._path = layout.status
        self._since = time.time()
        self._last: SupervisorStatus | None = None

    def write(self, all_processes: Sequence[Process], up: bool) -> bool:
        """Returns whether the file is current; it is not while the disk is full."""
        pid = os.getpid()
        status = SupervisorStatus(
            pid=pid,
            start_ticks=processes.start_time(pid),
            since=self._since,
            up=up,
            components=tuple(_entry(process) for process in all_processes),
        )
        if status == self._last:
            return True
        try:
            replace_file(self._path, msgspec.json.encode(status))
        except OSError as error:
            _log.warning("cannot write status file", extra={"path": str(self._path), "error": str(error)})
            return False
        self._last = status
        return True


def _entry(process: Process) -> ComponentEntry:
    return ComponentEntry(
        name=process.component.name,
        pid=process.pid if process.alive else 0,
        start_ticks=process.start_ticks,
        since=process.since,
        ready=process.ready,
        restarts=process.restarts.count,
    )


def read(layout: Layout) -> SupervisorStatus | None:
    try:
        return msgspec.json.decode(layout.status.read_bytes(), type=SupervisorStatus)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


def is_alive(entry: ComponentEntry | SupervisorStatus) -> bool:
    """Whether it is still the same process, and has not ended; a zombie has."""
    if not entry.pid:
        return False
    try:
        pidfd = processes.open_process(entry.pid, entry.start_ticks)
    except NoSuchProcess:
        return False
    try:
        return not processes.wait(pidfd, 0)
    finally:
        os.close(pidfd)


def memory(entry: ComponentEntry | SupervisorStatus) -> int:
    """Returns the PSS in bytes; 0 when the process is gone."""
    with contextlib.suppress(OSError, LookupError, LinuxError):
        return processes.memory_of(entry.pid)
    return 0
