"""What the supervisor writes down for others: who runs, since when, how often again. And the lock that makes it one."""

import contextlib
import fcntl
import os
import time
from collections.abc import Sequence

import msgspec

from podwire.cluster.files import write_private
from podwire.cluster.up.layout import Layout
from podwire.cluster.up.supervisor import Process
from podwire.linux.errors import LinuxError, NoSuchProcess
from podwire.linux.proc import processes

SUPERVISOR = "supervisor"


class PrefixLocked(Exception):
    """Another supervisor has the prefix; knows its process."""

    def __init__(self, prefix: object, pid: int) -> None:
        super().__init__(f"another `podwire up` (process {pid or 'unknown'}) has the prefix {prefix}")
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
    """All of them, and whether the whole was ready once."""

    pid: int
    start_ticks: int
    since: float
    up: bool
    components: tuple[ComponentEntry, ...] = ()


def hold(layout: Layout) -> int:
    """The lock of a prefix, as a descriptor; whoever inherits it holds it, too. Raises Held."""
    layout.marks.mkdir(mode=0o755, parents=True, exist_ok=True)
    lock = os.open(layout.marks / SUPERVISOR, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        with os.fdopen(lock) as file:
            said = file.read(32).strip()
        raise PrefixLocked(layout.prefix, int(said) if said.isdigit() else 0) from error
    name_holder(lock)
    return lock


def name_holder(lock: int) -> None:
    """Write this process into the lock."""
    os.ftruncate(lock, 0)
    os.pwrite(lock, str(os.getpid()).encode(), 0)


class StatusWriter:
    """Writes the notes of one supervisor."""

    def __init__(self, layout: Layout) -> None:
        self._path = layout.status
        self._since = time.time()
        self._last: SupervisorStatus | None = None

    def write(self, all_: Sequence[Process], up: bool) -> None:
        pid = os.getpid()
        notes = SupervisorStatus(
            pid=pid,
            start_ticks=processes.start_time(pid),
            since=self._since,
            up=up,
            components=tuple(_note(process) for process in all_),
        )
        if notes != self._last:
            write_private(self._path, msgspec.json.encode(notes), lasting=False)
            self._last = notes


def _note(process: Process) -> ComponentEntry:
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


def is_alive(note: ComponentEntry | SupervisorStatus) -> bool:
    """Whether it is still that very process, and has not ended; one may wait for its parent to notice."""
    if not note.pid:
        return False
    try:
        pidfd = processes.open_process(note.pid, note.start_ticks)
    except NoSuchProcess:
        return False
    try:
        return not processes.wait(pidfd, 0)
    finally:
        os.close(pidfd)


def memory(note: ComponentEntry | SupervisorStatus) -> int:
    """Its share of the memory in bytes; 0 when it is gone."""
    with contextlib.suppress(OSError, LookupError, LinuxError):
        return processes.memory_of(note.pid)
    return 0
