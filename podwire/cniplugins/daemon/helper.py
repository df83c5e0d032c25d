"""The helper: a daemon that the first call without a daemon starts, and that ends when it is idle.

A plugin's executable (`shim/podwire-cni.c`) makes the socket under a lock, starts the helper with both as descriptors,
and connects, as do all later calls. So two are never started, and a call never fails for one that starts or ends: a
connection that the helper did not begin to serve is closed, and then the executable does the work itself.

In the directory of helpers, of mode 0700, NAME is that of a mount namespace and of one installation:

    NAME.sock   the socket
    NAME.lock   locked as long as the helper lives; a socket without this lock is dead

The helper ends

1. after `idle` seconds without a call,
2. on SIGTERM,
3. when a file of its code was changed, because the next call must run the new code,
4. when its socket was removed, because nobody can connect any more.

It removes the socket first, finishes the calls that have connected by then (`Daemon.stop`), and removes the lock's file
last. A helper that was killed leaves both files: the next one of the same name replaces them, any other removes them.
"""

import gc
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from threading import Event
from time import time_ns
from typing import NamedTuple, NoReturn

from podwire.cniplugins.daemon.server import Daemon, adopt_listener, import_plugins
from podwire.durable.locks import LockHeld, lock_file

LISTENER = 3
"""Descriptor of the listening socket; that of the lock is the next one, and is never used."""
_TICK = 1.0
_CLOCK_ERROR = 20_000_000
"""Nanoseconds by which the clock of file systems is late, at most."""
_SOCKET, _LOCK = ".sock", ".lock"


class FileVersion(NamedTuple):
    device: int
    inode: int
    size: int
    changed: int
    """In nanoseconds since 1970."""


class Files(NamedTuple):
    directory: str
    name: str

    @property
    def socket(self) -> str:
        return f"{self.directory}/{self.name}{_SOCKET}"

    @property
    def lock(self) -> str:
        return f"{self.directory}/{self.name}{_LOCK}"

    def remove(self) -> None:
        for path in (self.socket, self.lock):
            _remove(path)


def main(arguments: Sequence[str]) -> NoReturn:
    """Runs a helper as a process: its arguments are the seconds until it is idle, the directory and its name."""
    started = time_ns()
    idle, directory, name = arguments
    serve(Daemon(adopt_listener(LISTENER)), Files(directory, name), float(idle), started)
    os._exit(0)


def serve(daemon: Daemon, files: Files, idle: float, started: int) -> None:
    """`started` is a time before any module was imported, in nanoseconds since 1970."""
    stopped = Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda _number, _frame: stopped.set())
    daemon.start(preload=False)  # the caller that has started us waits
    import_plugins()
    gc.freeze()
    remove_dead(files)
    socket, code = _version(files.socket), code_version()
    if any(version is None or version.changed > started - _CLOCK_ERROR for version in code.values()):
        stopped.set()  # a file was changed while we imported it
    while not stopped.wait(_TICK) and daemon.idle() < idle:
        if _version(files.socket) != socket or code_version() != code:
            break
    if _version(files.socket) == socket:
        _remove(files.socket)
    daemon.stop()
    if _version(files.socket) is None:
        _remove(files.lock)


def code_version() -> dict[str, FileVersion | None]:
    """Returns the versions of all files from which our modules were imported."""
    paths = [module.__file__ for name, module in [*sys.modules.items()] if name.startswith("podwire.")]
    return {path: _version(path) for path in paths if path}


def remove_dead(own: Files) -> None:
    """Removes what helpers have left that were killed."""
    for entry in os.listdir(own.directory):
        other = Files(own.directory, entry.removesuffix(_LOCK))
        if entry.endswith(_LOCK) and other.name != own.name:
            with suppress(LockHeld, OSError), lock_file(other.lock):
                other.remove()


def _version(path: str) -> FileVersion | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return FileVersion(status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns)


def _remove(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)
