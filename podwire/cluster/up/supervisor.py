"""Forks the components, starts again what dies, stops all in order.

It makes no event loop, thread, channel or TLS context: what is forked is as clean as a program that was just loaded. It
waits for descriptors alone: processes, the pipes by which components say that they are ready, and signals.
"""

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from podwire.cluster.up import child
from podwire.cluster.up.child import Component
from podwire.cluster.up.layout import Layout
from podwire.cluster.up.restarts import Restarts
from podwire.linux.proc import processes

READY_SECONDS = 60.0
STOP_SECONDS = 10.0
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened to a component, or to the whole (`component` is empty)."""

    component: str
    what: str
    """started, ready, died, stopped; up, failed, stopping for the whole."""
    seconds: float
    """Since the component was started, or since the beginning for the whole."""
    detail: str = ""


@dataclass(slots=True)
class Process:
    """A component as it is now."""

    component: Component
    pid: int = 0
    pidfd: int = -1
    told: int = -1
    started: float = 0.0
    """On the monotonic clock, of its last start."""
    since: float = 0.0
    """On the wall clock."""
    start_ticks: int = 0
    ready: bool = False
    done: bool = False
    """One that does one thing has done it."""
    again_at: float | None = None
    restarts: Restarts = field(default_factory=Restarts)

    @property
    def alive(self) -> bool:
        return self.pidfd >= 0


class Supervisor:
    """Runs components until a signal, or until one of them is hopeless before all were ready for the first time.

    It tells `report` what happens and `note` how things stand. Components keep none of the descriptors `inherited`.
    """

    def __init__(
        self,
        layout: Layout,
        components: Sequence[Component],
        report: Callable[[Event], None],
        note: Callable[[Sequence[Process], bool], None],
        inherited: Callable[[], Iterable[int]] = tuple,
    ) -> None:
        self._layout = layout
        self._all = {component.name: Process(component) for component in components}
        self._report = report
        self._note = note
        self._inherited = inherited
        self._signal_pipe: tuple[int, ...] = ()
        self._begin = time.monotonic()
        self._poll = select.poll()
        self._watched: dict[int, Callable[[], None]] = {}
        self._was_up = False
        self._stop = False

    def run(self) -> bool:
        """Whether it came up; returns when everything has been stopped."""
        with self._signals():
            failure = ""
            while not self._stop and not failure:
                self._start_what_can()
                self._note(list(self._all.values()), self._was_up)
                self._wait()
                failure = "" if self._was_up else self._failure()
                self._settle()
            if failure:
                self._tell("", "failed", failure)
            self._stop_all()
        return not failure

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """A pipe that a signal writes to, so that the loop waits for it like for anything else."""
        reads, writes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        deaf = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # a daemon's terminal may go
        heard = [number for number in SIGNALS if number is not signal.SIGHUP or not deaf]
        before = {number: signal.signal(number, lambda *_: None) for number in heard}
        old = signal.set_wakeup_fd(writes, warn_on_full_buffer=False)
        self._signal_pipe = (reads, writes)
        self._watch(reads, lambda: self._signalled(reads))
        try:
            yield
        finally:
            self._forget(reads)
            signal.set_wakeup_fd(old)
            for number, handler in before.items():
                signal.signal(number, handler)
            self._signal_pipe = ()
            os.close(reads)
            os.close(writes)

    def _signalled(self, reads: int) -> None:
        self._stop = bool(set(os.read(reads, 64)) & set(SIGNALS)) or self._stop

    def _watch(self, descriptor: int, act: Callable[[], None]) -> None:
        self._poll.register(descriptor, select.POLLIN)
        self._watched[descriptor] = act

    def _forget(self, descriptor: int) -> None:
        self._poll.unregister(descriptor)
        del self._watched[descriptor]

    def _start_what_can(self) -> None:
        now = time.monotonic()
        for process in self._all.values():
            due = process.again_at is None or process.again_at <= now
            if (
                not process.alive
                and not process.done
                and due
                and all(self._all[name].ready for name in process.component.needs)
            ):
                self._start(process)

    def _start(self, process: Process) -> None:
        component = process.component
        told, tells = os.pipe2(os.O_CLOEXEC)
        pid = os.fork()
        if pid == 0:
            child.become(component, self._layout, tells, lambda: self._close_for_child(told))
        os.close(tells)
        process.pid, process.pidfd, process.told = pid, os.pidfd_open(pid), told
        process.started, process.since = time.monotonic(), time.time()
        process.start_ticks = processes.start_time(pid)
        process.ready, process.again_at = False, None
        self._watch(process.pidfd, lambda: self._ended(process))
        self._watch(told, lambda: self._said(process))
        self._tell(component.name, "started", f"pid {pid}", process)

    def _close_for_child(self, told: int) -> None:
        """What belongs to the supervisor: its lock and pipes, and what it watches of others."""
        for descriptor in {told, *self._inherited(), *self._signal_pipe, *self._watched}:
            os.close(descriptor)

    def _wait(self) -> None:
        """Until something happens, or is due."""
        times = [process.again_at for process in self._all.values() if process.again_at is not None]
        if not self._was_up:
            times.append(self._begin + READY_SECONDS)
        left = max(0.0, min(times) - time.monotonic()) * 1000 if times else None
        for descriptor, _ in self._poll.poll(None if left is None else left + 1):
            act = self._watched.get(descriptor)
            if act is not None:
                act()

    def _said(self, process: Process) -> None:
        if os.read(process.told, 16):
            process.ready = True
            self._tell(process.component.name, "ready", "", process)
            return
        self._forget(process.told)
        os.close(process.told)
        process.told = -1

    def _ended(self, process: Process) -> None:
        """A component's process has ended; unless it has done its work, it is started again after a while."""
        while process.told >= 0:  # what it said last comes first
            self._said(process)
        code = self._reap(process)
        lived, was_ready = time.monotonic() - process.started, process.ready
        if process.component.once and code == 0:
            process.done = process.ready = True
            return
        process.ready = False
        process.restarts = process.restarts.died(lived=lived, was_ready=was_ready)
        process.again_at = time.monotonic() + process.restarts.wait
        self._tell(process.component.name, "died", _told(code), process)

    def _reap(self, process: Process) -> int:
        self._forget(process.pidfd)
        code = processes.reap(processes.Child(process.pid, process.pidfd, process.start_ticks))
        os.close(process.pidfd)
        process.pidfd = -1
        return code

    def _failure(self) -> str:
        """Why the first start is given up; empty as long as there is hope."""
        for process in self._all.values():
            if process.restarts.hopeless:
                return process.component.name
        if time.monotonic() > self._begin + READY_SECONDS:
            return next((name for name, process in self._all.items() if not process.ready), "")
        return ""

    def _settle(self) -> None:
        if not self._was_up and all(process.ready for process in self._all.values()):
            self._was_up = True
            self._note(list(self._all.values()), self._was_up)
            self._tell("", "up", "")

    def _stop_all(self) -> None:
        """In the reverse of the order in which they need each other; who does not go in time is killed."""
        self._tell("", "stopping", "")
        for process in reversed(self._all.values()):
            process.again_at = None
            if not process.alive:
                continue
            begun = time.monotonic()
            processes.send_signal(process.pidfd, signal.SIGTERM)
            if not processes.wait(process.pidfd, STOP_SECONDS):
                processes.send_signal(process.pidfd, signal.SIGKILL)
            while process.told >= 0:
                self._said(process)
            self._reap(process)
            taken = time.monotonic() - begun
            self._report(Event(component=process.component.name, what="stopped", seconds=taken))
        self._note([], False)

    def _tell(self, component: str, what: str, detail: str, process: Process | None = None) -> None:
        since = process.started if process is not None and what != "started" else self._begin
        self._report(Event(component=component, what=what, seconds=time.monotonic() - since, detail=detail))


def _told(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    return f"killed by {signal.Signals(-code).name}"
