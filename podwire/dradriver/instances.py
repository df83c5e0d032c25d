"""Hand-over between instances of the driver: of several, one works at a time, and one answers the runtime.

During a rolling update the new instance and the old one run side by side. Two locks keep them apart:

| lock | held by | the other instance |
|---|---|---|
| InstanceLock (serialize.lock) | the one that works, during each call | waits, up to `InstanceLimits` |
| AnswerLock (voice.lock) | the one that adjusts containers | returns no adjustment |

| step | old instance                                      | new instance                                              |
|------|---------------------------------------------------|-----------------------------------------------------------|
| 1    | works                                             | waits for the InstanceLock; after `start` seconds its     |
|      |                                                   | sockets answer kubelets with the name of the holder       |
| 2    | has no call in flight, so the lock is free        | takes it, reads and reconciles the state, serves          |
| 3    | is not called by kubelets any more                | is called: kubelets use the socket that registered last   |
| 4    | shutdown: attaches pods whose claims are prepared | may attach them, too: attaching is idempotent             |
| 5    | releases the AnswerLock                           | takes it with the next CreateContainer                    |

A lock is never taken from a live process: it may be in the middle of a step and would go on with it. The kernel
releases the locks of a process that dies.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from podwire.durable.locks import FileLock, LockHeld, lock_file

_log = logging.getLogger("podwire.dradriver")

_STOPPED = ("T", "t")


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceLimits:
    """Seconds to wait for another instance."""

    prepare: float = 20.0
    """In a kubelet's call: half of the time that kubelets wait for a driver."""
    hook: float = 1.0
    """In a runtime's call: a plugin that takes two seconds is disconnected."""
    report: float = 2.0
    """Until the log and /readyz report the wait: most are over by then."""
    start: float = 5.0
    """Until a starting instance answers kubelets with the holder's name."""


class Busy(OSError):
    """Another instance held the lock for longer than the caller waits; names the holder."""


class InstanceLock:
    """A file lock that is held while this instance works; its own calls share it and run concurrently."""

    def __init__(self, path: Path, pod_uid: str = "", limits: InstanceLimits | None = None) -> None:
        self.limits = limits or InstanceLimits()
        self._path, self._name = path, f"{pod_uid or '-'} {_pid_namespace()}"
        self._users = 0
        self._lock: FileLock | None = None
        self._acquiring: asyncio.Future[None] | None = None
        self.waiting = ""
        """The holder that this instance waits for, once that takes long."""

    @contextlib.asynccontextmanager
    async def held(self, patience: float | None = None) -> AsyncIterator[None]:
        """Waits for the lock, at most so many seconds. Raises Busy, OSError."""
        self._users += 1
        try:
            if self._lock is None:
                await self._acquire(patience)
            yield
        finally:
            self._users -= 1
            self._release_if_unused()

    async def _acquire(self, patience: float | None) -> None:
        if self._acquiring is None:
            self._path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            try:
                self._lock = lock_file(self._path, name=self._name)
            except LockHeld:
                self._acquiring = self._wait()
            else:
                return
        acquiring = self._acquiring  # that of all callers: asyncio.wait does not cancel it
        await asyncio.wait([acquiring], timeout=patience)
        if not acquiring.done():
            raise Busy(f"waited for {patience:g} s: {self.holder()}")
        acquiring.result()

    def _wait(self) -> asyncio.Future[None]:
        """Waits in a daemon thread, while the other instance holds the lock, also when all callers gave up."""
        loop = asyncio.get_running_loop()
        acquired = loop.create_future()
        report = loop.call_later(self.limits.report, self._report_wait)

        def done(lock: FileLock | None, error: OSError | None) -> None:
            report.cancel()
            self._acquiring = None
            if self.waiting:
                _log.info("acquired instance lock after waiting", extra={"path": str(self._path)})
            self.waiting = ""
            if lock is not None:
                self._lock = lock
                acquired.set_result(None)
            else:
                acquired.set_exception(error or OSError("cannot lock"))
                acquired.exception()  # callers that still wait get it
            self._release_if_unused()

        def wait() -> None:
            lock, error = None, None
            try:
                lock = lock_file(self._path, wait=None, name=self._name)
            except OSError as refused:
                error = refused
            try:
                loop.call_soon_threadsafe(done, lock, error)
            except RuntimeError:  # the loop is closed
                if lock is not None:
                    lock.close()

        threading.Thread(target=wait, name="instance lock", daemon=True).start()
        return acquired

    def _report_wait(self) -> None:
        self.waiting = self.holder()
        _log.warning("waiting for another instance", extra={"holder": self.waiting})

    def holder(self) -> str:
        """The holder of the lock, for people."""
        try:
            text = self._path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            text = ""
        return f"{_describe(text)} holds {self._path}"

    def _release_if_unused(self) -> None:
        if self._users == 0 and self._lock is not None:
            self._lock.close()
            self._lock = None


def _pid_namespace() -> int:
    """Processes of other containers have numbers of their own."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0


def _describe(holder: str) -> str:
    """From `PID POD NAMESPACE`; any other text was written by another version."""
    parts = holder.split()
    if len(parts) != 3 or not parts[0].isdigit():
        return "another instance of the driver"
    pid, pod, namespace = parts
    name = f"another instance of the driver, process {pid}" + (f" of pod {pod}" if pod != "-" else "")
    if namespace == str(_pid_namespace()) and _process_state(pid) in _STOPPED:
        return f"{name}, which is stopped and goes on with SIGCONT,"
    return name


def _process_state(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


class AnswerLock:
    """Held by the one instance that adjusts containers: a runtime takes a field of a container from one plugin only."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock: FileLock | None = None

    def is_held(self) -> bool:
        """Whether this instance answers; takes the lock if it is free. Raises OSError."""
        if self._lock is None:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                self._lock = lock_file(self._path)
            except LockHeld:
                return False
        return True

    def release(self) -> None:
        """Lets another instance answer."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None
