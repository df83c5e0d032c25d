"""Of several instances of the driver, one works at a time, and one answers."""

import asyncio
import contextlib
import fcntl
import json
import logging
import os
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

_log = logging.getLogger("podwire.dradriver")

PREPARE_PATIENCE = 20.0
"""Seconds that a kubelet's call waits for another instance: half of what kubelets wait for a driver."""
HOOK_PATIENCE = 1.0
"""The same of a runtime's call: who lets a runtime wait for two seconds is sent away."""
SOON = 2.0
"""Seconds after which it is told that another instance is waited for: most are done by then."""
_STOPPED = ("T", "t")


class Busy(OSError):
    """Another instance has been at work for longer than anybody waits; says which."""


class InstanceLock:
    """A file that is locked while this instance works; its own calls share the lock and go side by side.

    Whoever has it says so in the file. It is never taken from a process that lives: that one may be in the middle of a
    step, and would go on with it.
    """

    def __init__(self, path: Path, pod_uid: str = "") -> None:
        self._path, self._me = path, _identity(pod_uid)
        self._users = 0
        self._held = -1
        self._coming: asyncio.Future[None] | None = None
        self.waiting = ""
        """Whom this instance waits for, once that takes long."""

    @contextlib.asynccontextmanager
    async def held(self, patience: float | None = None) -> AsyncIterator[None]:
        """Wait for it, for so many seconds at most. Raises Busy, OSError."""
        self._users += 1
        try:
            if self._held < 0:
                await self._come(patience)
            yield
        finally:
            self._users -= 1
            self._let_go_if_unused()

    async def _come(self, patience: float | None) -> None:
        if self._coming is None:
            opened = self._open()
            if _locked(opened):
                self._have(opened)
                return
            self._coming = self._wait_for(opened)
        try:
            async with asyncio.timeout(patience):
                await asyncio.shield(self._coming)
        except TimeoutError:
            raise Busy(f"waited for {patience:g} s: {self.holder()}") from None

    def _wait_for(self, opened: int) -> asyncio.Future[None]:
        """In a thread that nobody waits for: it stays as long as the other instance does, whoever gives up here."""
        loop = asyncio.get_running_loop()
        coming = loop.create_future()
        complaint = loop.call_later(SOON, self._complain)

        def came(error: OSError | None) -> None:
            complaint.cancel()
            self._coming = None
            if self.waiting:
                _log.info("it is this instance's turn", extra={"lock": str(self._path)})
            self.waiting = ""
            if error is None:
                self._have(opened)
                coming.set_result(None)
            else:
                os.close(opened)
                coming.set_exception(error)
                coming.exception()  # those who still wait are told
            self._let_go_if_unused()

        threading.Thread(target=_wait, args=(opened, loop, came), name="the other instance", daemon=True).start()
        return coming

    def _complain(self) -> None:
        self.waiting = self.holder()
        _log.warning("another instance is at work", extra={"who": self.waiting})

    def holder(self) -> str:
        """Who has the lock, for people."""
        try:
            found = self._path.read_bytes()
        except OSError:
            found = b""
        return f"{_described(found)} holds {self._path}"

    def _open(self) -> int:
        self._path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _have(self, opened: int) -> None:
        self._held = opened
        if os.pread(opened, 2 * len(self._me), 0) != self._me:
            os.ftruncate(opened, 0)
            os.pwrite(opened, self._me, 0)

    def _let_go_if_unused(self) -> None:
        if self._users == 0 and self._held >= 0:
            os.close(self._held)
            self._held = -1


def _locked(opened: int) -> bool:
    """Whether the lock was free. Raises OSError, and then the file is closed."""
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        os.close(opened)
        raise
    return True


def _wait(opened: int, loop: asyncio.AbstractEventLoop, came: Callable[[OSError | None], None]) -> None:
    error = None
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
    except OSError as refused:
        error = refused
    try:
        loop.call_soon_threadsafe(came, error)
    except RuntimeError:  # nobody is there any more
        os.close(opened)


# Who has the lock.


def _identity(pod_uid: str) -> bytes:
    return json.dumps({"pid": os.getpid(), "pids": _pids(), "pod": pod_uid}).encode()


def _pids() -> int:
    """Processes of other containers have numbers of their own."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0


def _described(found: bytes) -> str:
    try:
        told = json.loads(found)
        pid, pids, pod = int(told["pid"]), int(told["pids"]), str(told["pod"])
    except (ValueError, TypeError, KeyError):
        return "another instance of the driver"
    who = f"another instance of the driver, process {pid}" + (f" of pod {pod}" if pod else "")
    if pids == _pids() and _state(pid) in _STOPPED:
        return f"{who}, which is stopped and goes on with SIGCONT,"
    return who


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


class Voice:
    """Of several instances that a runtime asks, one answers: a container's changes are taken from one plugin only."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._held = -1

    def mine(self) -> bool:
        """Whether this instance answers; from now on, if nobody did. Raises OSError."""
        if self._held < 0:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            opened = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(opened)
                return False
            self._held = opened
        return True

    def give_up(self) -> None:
        """Another instance may answer."""
        if self._held >= 0:
            os.close(self._held)
            self._held = -1
