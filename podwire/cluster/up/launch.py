"""Brings a cluster up: holds its prefix, prepares, and supervises, here or in a process that outlives this one."""

import contextlib
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from podwire import logs
from podwire.cluster.up import component_processes, state, status_file
from podwire.cluster.up.child import write_to
from podwire.cluster.up.components import components
from podwire.cluster.up.layout import Layout
from podwire.cluster.up.preparation import Prepared, UpOptions, check_same, missing, prepare
from podwire.cluster.up.slot_claims import SlotClaims
from podwire.cluster.up.status_file import SUPERVISOR, StatusWriter, hold, name_holder
from podwire.cluster.up.stop import kill, stop
from podwire.cluster.up.supervisor import Event, Supervisor
from podwire.linux import syscalls

_log = logging.getLogger("podwire.up")

LOG_BYTES = 16 << 20
"""A log that is longer than this when a cluster is started is put aside."""
TAIL = 15

Report = Callable[[Event], None]


@contextlib.contextmanager
def held(layout: Layout, wanted: UpOptions, claims: SlotClaims) -> Iterator[tuple[Prepared, int]]:
    """The prepared cluster and the lock of its prefix, for as long as the context is open. Raises status_file.Held."""
    made = missing(layout)
    lock = hold(layout)
    try:
        if layout.record.exists():
            kill(
                list(component_processes.components(layout))
            )  # whoever was left by a supervisor that was killed just now
        prepared = prepare(layout, wanted, claims, made)
        _put_logs_aside(layout)
        yield prepared, lock
    finally:
        os.close(lock)
        if not layout.record.exists():
            _forget(layout, made)


def make_room(layout: Layout, wanted: UpOptions) -> bool:
    """Stop a cluster that is up and has fewer nodes than are wanted, so that it is started with more; whether it was
    so. Pods go on. Raises Refused."""
    known, told = state.load(layout.record), status_file.read(layout)
    if known is None or told is None or not status_file.is_alive(told):
        return False
    check_same(known, wanted)
    if not told.up or (wanted.nodes or 0) <= len(known.nodes):
        return False
    stop(layout)
    return True


def _forget(layout: Layout, made: tuple[str, ...]) -> None:
    """What was refused before anything was decided leaves nothing."""
    (layout.marks / SUPERVISOR).unlink(missing_ok=True)
    for path in (layout.marks, *map(Path, made)):
        with contextlib.suppress(OSError):
            path.rmdir()


def names(prepared: Prepared) -> list[str]:
    """Of all components."""
    return [component.name for component in components(prepared)]


def supervise(prepared: Prepared, lock: int, report: Report, pipe: Callable[[], list[int]] = list) -> bool:
    """Run the components until a signal; whether they came up. Lock and pipe are not theirs."""
    layout = prepared.layout
    notebook = StatusWriter(layout)
    gc.collect()
    gc.freeze()  # what is loaded stays: children share its memory as long as nobody looks through it
    return Supervisor(layout, components(prepared), report, notebook.write, lambda: [lock, *pipe()]).run()


def detach(prepared: Prepared, lock: int) -> Iterator[Event]:
    """Supervise in a process of its own; what it reports until the cluster is up or has failed.

    It is forked twice, so that it is nobody's child and leads no session that could be given a terminal.
    """
    reads, writes = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        os.close(reads)
        os.setsid()
        if os.fork():
            os._exit(0)
        _be_the_daemon(prepared, lock, writes)
    os.close(writes)
    os.waitpid(child, 0)
    settled = False
    with os.fdopen(reads, "rb") as told:
        for line in told:
            event = msgspec.json.decode(line, type=Event)
            settled = settled or (not event.component and event.what in ("up", "failed"))
            yield event
    if not settled:  # it was killed, or died of something that nobody thought of
        yield Event(component="", what="failed", seconds=0.0, detail=SUPERVISOR)


def _be_the_daemon(prepared: Prepared, lock: int, writes: int) -> None:
    code = 70
    try:
        os.chdir("/")
        os.umask(0o022)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        write_to(prepared.layout.log("supervisor"))
        logs.set_up(stream=sys.stderr)
        syscalls.set_name("podwire-up")
        name_holder(lock)
        teller = _Teller(writes)
        code = 0 if supervise(prepared, lock, teller, teller.pipe) else 1
    except Exception:  # noqa: BLE001 - nobody is above us who could tell
        _log.exception("the supervisor ends")
    finally:
        with contextlib.suppress(OSError):
            sys.stderr.flush()
        os._exit(code)


class _Teller:
    """Tells who started us, until the cluster is up or has failed; always tells the log."""

    def __init__(self, writes: int) -> None:
        self._writes = writes

    def pipe(self) -> list[int]:
        return [self._writes] if self._writes >= 0 else []

    def __call__(self, event: Event) -> None:
        _log.info("%s", event.what, extra={"component": event.component or "all", "detail": event.detail})
        if self._writes < 0:
            return
        with contextlib.suppress(BrokenPipeError):
            os.write(self._writes, msgspec.json.encode(event) + b"\n")
        if not event.component and event.what == "up":
            os.close(self._writes)
            self._writes = -1


def _put_logs_aside(layout: Layout) -> None:
    for path in layout.logs.glob("*.log"):
        if path.stat().st_size > LOG_BYTES:
            path.replace(path.with_suffix(".log.1"))


def tail(layout: Layout, component: str, lines: int = TAIL) -> list[str]:
    """The last lines of a component's log."""
    try:
        text = layout.log(component).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return []
    return text.splitlines()[-lines:]
