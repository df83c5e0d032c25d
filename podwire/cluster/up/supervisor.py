"""Forks the components, restarts those that exit, and stops all of them in order.

The supervisor has no event loop, thread, gRPC channel or TLS context, so that a forked child is as clean as a program
that was just loaded. It polls descriptors only: pidfds, the pipes by which components report readiness, and signals.

    waiting --needs are ready--> started --ready byte--> ready
                                    |                      |
                                    +------- exits --------+--> waiting (after a back-off)
                                                           +--> done (a `once` component with exit code 0)
"""

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from podwire.cluster.up import child
from podwire.cluster.up.child import Component
from podwire.cluster.up.layout import Layout
from podwire.linux.proc import processes

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    ready: float = 60.0
    """Seconds until all components must be ready for the first time."""
    stop: float = 10.0
    """Seconds for a component to stop before it is killed."""
    first_backoff: float = 0.1
    longest_backoff: float = 5.0
    healthy: float = 10.0
    """Seconds after which a component that was ready counts as healthy: its next exit is a first one again."""
    save_again: float = 1.0
    """Seconds until a status that could not be saved is saved again."""
    unready_exits: int = 4
    """Consecutive exits without ever having been ready, after which the first start is given up."""


LIMITS = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened to a component, or to the whole cluster (`component` is empty)."""

    component: str
    what: str
    """started, ready, died, stopped; up, failed, stopping for the cluster."""
    seconds: float
    """Since the component was started; for the cluster, since the supervisor was started."""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Restarts:
    """The exits of one component, and the back-off that follows from them."""

    limits: Limits = LIMITS
    count: int = 0
    """All exits, for `podwire status`."""
    in_a_row: int = 0
    unready: int = 0
    """In a row, without having been ready before."""

    def exited(self, *, lived: float, was_ready: bool) -> "Restarts":
        in_a_row = 0 if was_ready and lived >= self.limits.healthy else self.in_a_row
        unready = 0 if was_ready else self.unready + 1
        return replace(self, count=self.count + 1, in_a_row=in_a_row + 1, unready=unready)

    @property
    def backoff(self) -> float:
        """Seconds until the next start."""
        return min(self.limits.first_backoff * (1 << max(self.in_a_row - 1, 0)), self.limits.longest_backoff)

    @property
    def hopeless(self) -> bool:
        return self.unready >= self.limits.unready_exits


@dataclass(slots=True)
class Process:
    """The present state of a component."""

    component: Component
    pid: int = 0
    pidfd: int = -1
    ready_pipe: int = -1
    started: float = 0.0
    """Monotonic time of the last start."""
    since: float = 0.0
    """Wall-clock time of the last start."""
    start_ticks: int = 0
    held: tuple[int, ...] | None = None
    """Descriptors that it inherits; None before its first start."""
    ready: bool = False
    done: bool = False
    """A `once` component has finished its work."""
    restart_at: float | None = None
    restarts: Restarts = field(default_factory=Restarts)

    @property
    def alive(self) -> bool:
        return self.pidfd >= 0


class Supervisor:
    """Runs components until a signal, or until one of them is hopeless before all were ready for the first time.

    `report` receives events, `save_status` the processes and whether all were ready once; it is called again while it
    returns False. Components inherit none of the descriptors of `private`.
    """

    def __init__(
        self,
        layout: Layout,
        components: Sequence[Component],
        report: Callable[[Event], None],
        save_status: Callable[[Sequence[Process], bool], bool],
        private: Callable[[], Iterable[int]] = tuple,
        limits: Limits = LIMITS,
    ) -> None:
        self._layout = layout
        self._processes = {
            component.name: Process(component, restarts=Restarts(limits=limits)) for component in components
        }
        self._report = report
        self._save_status = save_status
        self._private = private
        self._limits = limits
        self._signal_pipe: tuple[int, ...] = ()
        self._begin = time.monotonic()
        self._poll = select.poll()
        self._watched: dict[int, Callable[[], None]] = {}
        self._was_up = False
        self._is_saved = True
        self._stop = False

    def run(self) -> bool:
        """Returns whether the cluster came up, when everything has been stopped."""
        with self._signals():
            failure = ""
            while not self._stop and not failure:
                now = time.monotonic()
                for process in self._processes.values():
                    due = process.restart_at is None or process.restart_at <= now
                    needs = all(self._processes[name].ready for name in process.component.needs)
                    if not process.alive and not process.done and due and needs:
                        self._start(process)
                self._is_saved = self._save_status(list(self._processes.values()), self._was_up)
                self._wait()
                failure = "" if self._was_up else self._failure()
                self._note_up()
            if failure:
                self._emit("", "failed", failure)
            self._stop_all()
        return not failure

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Installs a pipe that signals write to, so that the loop polls it like any other descriptor."""
        with contextlib.ExitStack() as undo:
            reads, writes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
            undo.callback(os.close, reads)
            undo.callback(os.close, writes)
            ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # a daemon outlives its terminal
            for number in SIGNALS:
                if number is not signal.SIGHUP or not ignored:
                    undo.callback(signal.signal, number, signal.signal(number, lambda *_: None))
            undo.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(writes, warn_on_full_buffer=False))
            self._signal_pipe = (reads, writes)
            self._watch(reads, lambda: self._on_signal(reads))
            undo.callback(self._unwatch, reads)
            yield
        self._signal_pipe = ()

    def _on_signal(self, reads: int) -> None:
        self._stop = bool(set(os.read(reads, 64)) & set(SIGNALS)) or self._stop

    def _watch(self, descriptor: int, act: Callable[[], None]) -> None:
        self._poll.register(descriptor, select.POLLIN)
        self._watched[descriptor] = act

    def _unwatch(self, descriptor: int) -> None:
        self._poll.unregister(descriptor)
        del self._watched[descriptor]

    def _start(self, process: Process) -> None:
        component = process.component
        if component.hold is not None and process.held is None:
            try:
                process.held = tuple(component.hold())
            except OSError as error:
                self._plan_restart(process, lived=0.0, was_ready=False, detail=str(error))
                return
        reads, writes = os.pipe2(os.O_CLOEXEC)
        try:
            pid = os.fork() if component.node is None else component.node.fork()
        except OSError as error:  # the node's init was killed, or the machine has no process left
            os.close(reads)
            os.close(writes)
            self._plan_restart(process, lived=0.0, was_ready=False, detail=str(error))
            return
        if pid == 0:
            child.become(component, self._layout, writes, lambda: self._close_for_child(reads, process))
        os.close(writes)
        process.pid, process.pidfd, process.ready_pipe = pid, os.pidfd_open(pid), reads
        process.started, process.since = time.monotonic(), time.time()
        process.start_ticks = processes.start_time(pid)
        process.ready, process.restart_at = False, None
        self._watch(process.pidfd, lambda: self._on_exit(process))
        self._watch(reads, lambda: self._on_ready_pipe(process))
        self._emit(component.name, "started", f"pid {pid}", process)

    def _close_for_child(self, ready_pipe: int, process: Process) -> None:
        """Closes the descriptors of the supervisor: its lock, its pipes, and those that only other components hold."""
        held = set(chain(*(other.held or () for other in self._processes.values()))).difference(process.held or ())
        for descriptor in {ready_pipe, *self._private(), *self._signal_pipe, *self._watched, *held}:
            os.close(descriptor)

    def _wait(self) -> None:
        """Polls until something happens or is due."""
        times = [process.restart_at for process in self._processes.values() if process.restart_at is not None]
        if not self._was_up:
            times.append(self._begin + self._limits.ready)
        if not self._is_saved:
            times.append(time.monotonic() + self._limits.save_again)
        left = max(0.0, min(times) - time.monotonic()) * 1000 if times else None
        for descriptor, _ in self._poll.poll(None if left is None else left + 1):
            act = self._watched.get(descriptor)
            if act is not None:
                act()

    def _on_ready_pipe(self, process: Process) -> None:
        if os.read(process.ready_pipe, 16):
            process.ready = True
            self._emit(process.component.name, "ready", "", process)
            return
        self._unwatch(process.ready_pipe)
        os.close(process.ready_pipe)
        process.ready_pipe = -1

    def _on_exit(self, process: Process) -> None:
        """Schedules a restart, unless the component has done its work."""
        while process.ready_pipe >= 0:  # it may have reported readiness just before
            self._on_ready_pipe(process)
        code = self._reap(process)
        lived, was_ready = time.monotonic() - process.started, process.ready
        if process.component.once and code == 0:
            process.done = process.ready = True
            return
        detail = f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"
        self._plan_restart(process, lived=lived, was_ready=was_ready, detail=detail)

    def _plan_restart(self, process: Process, *, lived: float, was_ready: bool, detail: str) -> None:
        process.ready = False
        process.restarts = process.restarts.exited(lived=lived, was_ready=was_ready)
        process.restart_at = time.monotonic() + process.restarts.backoff
        self._emit(process.component.name, "died", detail, process)

    def _reap(self, process: Process) -> int:
        self._unwatch(process.pidfd)
        code = processes.reap(processes.Child(process.pid, process.pidfd, process.start_ticks))
        os.close(process.pidfd)
        process.pidfd = -1
        return code

    def _failure(self) -> str:
        """Returns the component because of which the first start is given up; empty while it may succeed."""
        for process in self._processes.values():
            if process.restarts.hopeless:
                return process.component.name
        if time.monotonic() > self._begin + self._limits.ready:
            return next((name for name, process in self._processes.items() if not process.ready), "")
        return ""

    def _note_up(self) -> None:
        if not self._was_up and all(process.ready for process in self._processes.values()):
            self._was_up = True
            self._is_saved = self._save_status(list(self._processes.values()), self._was_up)
            self._emit("", "up", "")

    def _stop_all(self) -> None:
        """Stops the components in the reverse of their order of start; a component that is too slow is killed."""
        self._emit("", "stopping", "")
        for process in reversed(self._processes.values()):
            process.restart_at = None
            if not process.alive:
                continue
            begun = time.monotonic()
            processes.send_signal(process.pidfd, signal.SIGTERM)
            if not processes.wait(process.pidfd, self._limits.stop):
                processes.send_signal(process.pidfd, signal.SIGKILL)
            while process.ready_pipe >= 0:
                self._on_ready_pipe(process)
            self._reap(process)
            taken = time.monotonic() - begun
            self._report(Event(component=process.component.name, what="stopped", seconds=taken))
        self._save_status([], False)

    def _emit(self, component: str, what: str, detail: str, process: Process | None = None) -> None:
        since = process.started if process is not None and what != "started" else self._begin
        self._report(Event(component=component, what=what, seconds=time.monotonic() - since, detail=detail))
