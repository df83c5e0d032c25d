"""File locks (flock): one holder, or several that share, among all processes of the machine.

The kernel releases a lock when its holder dies, however it dies; a forked child that inherits the descriptor holds it,
too. Lock files stay: after a lock is taken it is checked that the locked file is still the one at the path, because a
lock on a file that somebody removed excludes nobody. The holder writes its pid and name into the file, for people.
"""

import fcntl
import os
import time
from contextlib import ExitStack, suppress
from struct import Struct
from types import TracebackType
from typing import Self

from podwire.linux import errors
from podwire.linux.values import Path

_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.02
_MAX_NAME = 256
_FLOCK = Struct("@hhqqi0q")  # struct flock: type, whence, start, length, pid


class LockHeld(TimeoutError):
    """Another process holds the lock; says which one, and for how long it was waited."""

    def __init__(self, path: str, holder: str, waited: float) -> None:
        super().__init__(f"{path} is locked by {holder}" + (f"; waited for {waited:g} s" if waited else ""))
        self.path, self.holder, self.waited = path, holder, waited


class FileLock:
    """A lock that is held, until it is closed or the process ends."""

    def __init__(self, path: str, descriptor: int) -> None:
        self.path, self._descriptor = path, descriptor

    def fileno(self) -> int:
        return self._descriptor

    def write_holder(self, name: str = "") -> None:
        """Name this process as the holder; again after a fork, when the child goes on with the lock."""
        with suppress(OSError):  # for people only: on a full disk the lock alone must do
            text = f"{os.getpid()} {name}".rstrip() + "\n"
            if os.pread(self._descriptor, _MAX_NAME, 0) != text.encode():
                os.ftruncate(self._descriptor, 0)
                os.pwrite(self._descriptor, text.encode(), 0)

    def close(self) -> None:
        """Release the lock; again is harmless."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def lock_file(
    path: Path, *, wait: float | None = 0.0, shared: bool = False, name: str = "", mode: int = 0o600
) -> FileLock:
    """Lock a file, which is created if it is missing; its directory must exist. LockHeld, NoSuchPath, LinuxError.

    `wait` is how many seconds to wait for other holders: 0 not at all, None until they are done. Only an exclusive
    holder is named in the file.
    """
    held = _acquire(os.fspath(path), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, mode, wait, shared=shared)
    if not shared:
        held.write_holder(name)
    return held


def lock_byte(path: Path, byte: int, *, wait: float = 0.0, mode: int = 0o600) -> FileLock:
    """Lock one byte of a file, which is created if it is missing: one lock file for any number of keys. LockHeld.

    For stores with one lock per record, where a lock file per record would have to be removed again. The kernel's open
    file description locks (F_OFD_SETLK) exclude threads as well as processes. No holder is named.
    """
    target = os.fspath(path)
    request = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
    deadline, pause = time.monotonic() + wait, _FIRST_PAUSE
    try:
        descriptor = os.open(target, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
    except OSError as error:
        raise errors.from_oserror(error, f"lock {target}", {2: errors.NoSuchPath}) from error
    with ExitStack() as undo:
        undo.callback(os.close, descriptor)
        while True:
            try:
                fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, request)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise LockHeld(target, "another call", wait) from None
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        undo.pop_all()
    return FileLock(target, descriptor)


def lock_directory(path: Path, *, wait: float | None = 0.0, shared: bool = False) -> FileLock:
    """Lock a directory itself; no holder is named. LockHeld, NoSuchPath, LinuxError."""
    return _acquire(os.fspath(path), os.O_RDONLY | os.O_DIRECTORY, 0, wait, shared=shared)


def holder_pid(path: Path) -> int:
    """The process that locked a file last; 0 when that is not known. It need not hold the lock any more."""
    try:
        with open(path, "rb") as file:
            pid = file.read(_MAX_NAME).split(b" ")[0].strip()
    except OSError:
        return 0
    return int(pid) if pid.isdigit() else 0


def describe_holder(path: Path) -> str:
    """`process 42 (kubelet)`, or `another process` when the file does not say."""
    try:
        with open(path, "rb") as file:
            pid, _, name = file.read(_MAX_NAME).decode("utf-8", "replace").strip().partition(" ")
    except OSError:
        return "another process"
    if not pid.isdigit():
        return "another process"
    return f"process {pid} ({name})" if name else f"process {pid}"


def _acquire(path: str, flags: int, mode: int, wait: float | None, *, shared: bool) -> FileLock:
    operation = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    deadline, pause = time.monotonic() + (wait or 0.0), _FIRST_PAUSE
    while True:
        try:
            descriptor = os.open(path, flags | os.O_CLOEXEC, mode)
        except OSError as error:
            raise errors.from_oserror(error, f"lock {path}", {2: errors.NoSuchPath}) from error
        try:
            fcntl.flock(descriptor, operation if wait is None else operation | fcntl.LOCK_NB)
            if _is_at(descriptor, path):
                return FileLock(path, descriptor)
            os.close(descriptor)  # the file was removed or replaced meanwhile: take the new one
            continue
        except BlockingIOError:
            os.close(descriptor)
        except OSError as error:
            os.close(descriptor)
            raise errors.from_oserror(error, f"lock {path}") from error
        if time.monotonic() >= deadline:
            raise LockHeld(path, describe_holder(path), wait or 0.0)
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def _is_at(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
