"""One process per data directory: an flock that the kernel drops when its holder dies, however it dies."""

import fcntl
import os
from pathlib import Path

from podwire.store.errors import CannotOpen


def lock(directory: Path) -> int:
    """Take the directory for this process; returns the descriptor that holds it. Raises CannotOpen at once."""
    path = directory / "lock"
    try:
        held = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise CannotOpen(f"{directory}: cannot open its lock file: {error.strerror}") from error
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(held, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(held)
        raise CannotOpen(f"{directory}: in use by another process (pid {holder})") from error
    except OSError as error:
        os.close(held)
        raise CannotOpen(f"{directory}: cannot lock it: {error.strerror}") from error
    try:
        os.ftruncate(held, 0)
        os.pwrite(held, f"{os.getpid()}\n".encode(), 0)
    except OSError:
        pass  # the pid is for people; on a full disk the lock alone must do
    return held


def unlock(held: int) -> None:
    os.close(held)
