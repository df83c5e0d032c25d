"""Starts a cluster: locks its prefix, prepares, and supervises, here or in a daemon."""

import contextlib
import gc
import importlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from podwire import logs
from podwire.cluster.up import component_processes, state, status_file
from podwire.cluster.up.child import Component, write_to
from podwire.cluster.up.components import components
from podwire.cluster.up.layout import Layout
from podwire.cluster.up.preparation import Prepared, UpOptions, check_same, missing, prepare
from podwire.cluster.up.slot_claims import SlotClaims
from podwire.cluster.up.status_file import SUPERVISOR, StatusWriter, lock_prefix
from podwire.cluster.up.stop import kill, stop
from podwire.cluster.up.supervisor import Event, Supervisor
from podwire.durable.locks import FileLock
from podwire.linux import syscalls
from podwire.transports import tls

_log = logging.getLogger("podwire.up")

LOG_BYTES = 16 << 20
"""A log that is longer than this at start is rotated."""
TAIL = 15

PRELOADED = (
    "_strptime",
    "cryptography.hazmat.backends.openssl.backend",
    "encodings.idna",
    "google.protobuf.descriptor_pb2",
    "grpc._utilities",
    "podwire.cniplugins.bandwidth.settings",
    "podwire.cniplugins.bridge.check",
    "podwire.cniplugins.bridge.links",
    "podwire.cniplugins.host_device.settings",
    "podwire.cniplugins.macvlan.settings",
    "podwire.cniplugins.ptp.settings",
    "podwire.cniplugins.tuning.settings",
    "podwire.ipam.host_local",
    "podwire.linux.net.borrow",
    "podwire.store.sqlite",
    "podwire.trace.collector",
    "podwire.trace.recorder",
    "podwire.transports.datagrams",
)
"""Modules that components import when they need them. Imported before the fork, they are read once and are memory that
all share."""

Report = Callable[[Event], None]


class HasLayout(Protocol):
    """A cluster, or a node of one, that can be supervised."""

    @property
    def layout(self) -> Layout: ...


H = TypeVar("H", bound=HasLayout)
Supervise = Callable[[H, FileLock, Report, Callable[[], list[int]]], bool]


@contextlib.contextmanager
def held(layout: Layout, wanted: UpOptions, claims: SlotClaims) -> Iterator[tuple[Prepared, FileLock]]:
    """Gives the prepared cluster and the lock of its prefix while the context is open. Raises PrefixLocked."""
    made = missing(layout)
    with contextlib.ExitStack() as undo:
        lock = undo.enter_context(lock_prefix(layout))
        undo.callback(_clean_up_refusal, layout, made)
        if state.exists(layout.record):
            kill(list(component_processes.components(layout)))  # left by a supervisor that was just killed
        prepared = prepare(layout, wanted, claims, made)
        for path in layout.logs.glob("*.log"):
            if path.stat().st_size > LOG_BYTES:
                path.replace(path.with_suffix(".log.1"))
        yield prepared, lock


def stop_for_more_nodes(layout: Layout, wanted: UpOptions) -> bool:
    """Stops a running cluster that has fewer nodes than wanted, so that it can start with more; returns whether it did.

    Pods keep running. Raises Refused.
    """
    known, status = state.load(layout.record), status_file.read(layout)
    if known is None or status is None or not status_file.is_alive(status):
        return False
    check_same(known, wanted)
    if not status.up or (wanted.nodes or 0) <= len(known.nodes):
        return False
    stop(layout)
    return True


def _clean_up_refusal(layout: Layout, made: tuple[str, ...]) -> None:
    """Removes directories again when `up` was refused before anything was decided."""
    if state.exists(layout.record):
        return
    (layout.component_tags / SUPERVISOR).unlink(missing_ok=True)
    for path in (layout.component_tags, *map(Path, made)):
        with contextlib.suppress(OSError):
            path.rmdir()


def names(prepared: Prepared) -> list[str]:
    """Returns the names of all components."""
    return [component.name for component in components(prepared)]


def supervise(prepared: Prepared, lock: FileLock, report: Report, pipe: Callable[[], list[int]] = list) -> bool:
    """Runs the components until a signal; returns whether they came up. They inherit neither lock nor pipe."""
    return supervise_all(prepared.layout, components(prepared), lock, report, pipe)


def supervise_all(
    layout: Layout,
    all_components: Sequence[Component],
    lock: FileLock,
    report: Report,
    pipe: Callable[[], list[int]] = list,
) -> bool:
    """Runs these components until a signal; returns whether they came up. They inherit neither lock nor pipe."""
    status = StatusWriter(layout)
    for module in PRELOADED:
        importlib.import_module(module)
    with tls.preloaded():
        gc.freeze()  # children share the memory of what is loaded, as long as no collection touches it
        return Supervisor(layout, all_components, report, status.write, lambda: [lock.fileno(), *pipe()]).run()


def detach(prepared: H, lock: FileLock, supervise: "Supervise[H]") -> Iterator[Event]:
    """Supervises in a daemon; yields its events until the cluster is up or has failed.

    The daemon is forked twice, so that it is nobody's child and leads no session that could get a terminal.
    """
    reads, writes = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        os.close(reads)
        os.setsid()
        if os.fork():
            os._exit(0)
        _run_daemon(prepared, lock, writes, supervise)
    os.close(writes)
    os.waitpid(child, 0)
    is_over = False
    with os.fdopen(reads, "rb") as pipe:
        for line in pipe:
            event = msgspec.json.decode(line, type=Event)
            is_over = is_over or (not event.component and event.what in ("up", "failed"))
            yield event
    if not is_over:  # it was killed, or failed unexpectedly
        yield Event(component="", what="failed", seconds=0.0, detail=SUPERVISOR)


def _run_daemon(prepared: H, lock: FileLock, writes: int, supervise: "Supervise[H]") -> None:
    code = 70
    try:
        os.chdir("/")
        os.umask(0o022)
        _close_inherited()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        write_to(prepared.layout.log("supervisor"))
        logs.set_up(stream=sys.stderr)
        syscalls.set_name("podwire-up")
        lock.write_holder("podwire up")
        reporter = _Reporter(writes)
        code = 0 if supervise(prepared, lock, reporter, reporter.pipe) else 1
    except Exception:  # noqa: BLE001 - the last resort of the daemon
        _log.exception("supervisor failed unexpectedly")
    finally:
        with contextlib.suppress(OSError):
            sys.stderr.flush()
        os._exit(code)


def _close_inherited() -> None:
    """Closes what the starting shell had open: a lock or a pipe of its would stay in use as long as the cluster runs.

    A descriptor that came with the program lacks FD_CLOEXEC, which all that this process opened have.
    """
    for descriptor in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if descriptor > sys.stderr.fileno():
            with contextlib.suppress(OSError):  # that of the listing itself
                if os.get_inheritable(descriptor):
                    os.close(descriptor)


class _Reporter:
    """Logs events, and sends them to the starting process until the cluster is up or has failed."""

    def __init__(self, writes: int) -> None:
        self._writes = writes

    def pipe(self) -> list[int]:
        return [self._writes] if self._writes >= 0 else []

    def __call__(self, event: Event) -> None:
        _log.info(
            "component changed state",
            extra={"component": event.component or "all", "event": event.what, "detail": event.detail},
        )
        if self._writes < 0:
            return
        with contextlib.suppress(BrokenPipeError):
            os.write(self._writes, msgspec.json.encode(event) + b"\n")
        if not event.component and event.what == "up":
            os.close(self._writes)
            self._writes = -1


def tail(layout: Layout, component: str, lines: int = TAIL) -> list[str]:
    """Returns the last lines of a component's log."""
    try:
        text = layout.log(component).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return []
    return text.splitlines()[-lines:]
