"""Unix sockets at paths that only their owner can reach.

A socket is bound in a private directory beside its path, made 0600 and renamed to the path: other users cannot reach
it, not even between bind and chmod, and the process's umask (which all threads share) is not touched. The socket of a
dead server is replaced; one with a listener is not.
"""

import asyncio
import contextlib
import errno
import os
import shutil
import socket
import stat
import tempfile
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from podwire.durable.locks import FileLock, LockHeld, lock_directory
from podwire.linux.errors import NoSuchPath

_FIRST_PASSED = 3
"""The first descriptor that systemd passes."""
MAX_PATH = 107
"""Bytes of the longest path that the kernel accepts."""


class CannotListen(OSError):
    """A socket cannot be created at this path; the message says why."""


@dataclass(frozen=True, slots=True)
class BoundSocket:
    """A socket that we bound at a path, identified by its inode."""

    path: Path
    inode: int


async def bind_socket(
    path: str | os.PathLike[str], bind: Callable[[str], object], *, kind: socket.SocketKind = socket.SOCK_STREAM
) -> BoundSocket:
    """Creates a socket at `path`; `bind` binds it and listens, at the path that it is passed. Raises CannotListen.

    A missing directory is created with mode 0700.
    """
    path = _with_directory(path)
    async with _directory_lock(path.parent):
        _check_no_listener(path, kind)
        return _put(path, bind)


async def remove_socket(bound: BoundSocket) -> None:
    """Removes the socket, unless another server has replaced it."""
    with contextlib.suppress(FileNotFoundError, NoSuchPath):
        async with _directory_lock(bound.path.parent):
            if bound.path.stat().st_ino == bound.inode:
                bound.path.unlink()


@contextlib.asynccontextmanager
async def listening(path: str | os.PathLike[str], backlog: int) -> AsyncIterator[socket.socket]:
    """Gives a stream socket that listens at a path, and removes it at the end. Raises CannotListen."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:

        def bind(temporary: str) -> None:
            listener.bind(temporary)
            listener.listen(backlog)

        bound = await bind_socket(path, bind)
        try:
            yield listener
        finally:
            await remove_socket(bound)


def inherited_listener() -> socket.socket | None:
    """Returns the listening socket that systemd passed (`LISTEN_FDS`, sd_listen_fds(3)); None without one.

    systemd made it, and removes it: its path is not ours. Raises CannotListen for another kind of socket, or several.
    """
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return None
    count = os.environ.get("LISTEN_FDS", "")
    listener = socket.socket(fileno=_FIRST_PASSED) if count == "1" else None
    if listener is None or listener.family != socket.AF_UNIX or listener.type != socket.SOCK_STREAM:
        raise CannotListen(errno.EINVAL, f"LISTEN_FDS={count}: must be one listening unix socket")
    listener.set_inheritable(False)
    return listener


def is_stale(path: Path) -> bool:
    """Whether a path is a socket that no process has open any more.

    A datagram socket asks: the kernel refuses it for a listener of another kind, which is not disturbed.
    """
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            return False
        directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)  # a path may be too long to connect
    except OSError:
        return False
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
            probe.connect(f"/proc/self/fd/{directory}/{path.name}")
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    finally:
        os.close(directory)
    return False


def _with_directory(path: str | os.PathLike[str]) -> Path:
    path = Path(path).absolute()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


@contextlib.asynccontextmanager
async def _directory_lock(directory: Path) -> AsyncIterator[None]:
    """Locks the directory: two servers that start at once must not both replace the same dead socket."""
    try:
        lock = lock_directory(directory)
    except LockHeld:
        lock = await _wait_for_lock(directory)
    with lock:
        yield


async def _wait_for_lock(directory: Path) -> FileLock:
    """Waits in a thread, which cannot be interrupted: after a cancellation it gives the lock back when it has it."""
    loop = asyncio.get_running_loop()
    acquired: asyncio.Future[FileLock] = loop.create_future()

    def hand_over(lock: FileLock | None, error: OSError | None) -> None:
        if acquired.cancelled():
            if lock is not None:
                lock.close()
        elif lock is not None:
            acquired.set_result(lock)
        elif error is not None:
            acquired.set_exception(error)

    def wait() -> None:
        lock, failure = None, None
        try:
            lock = lock_directory(directory, wait=None)
        except OSError as error:
            failure = error
        try:
            loop.call_soon_threadsafe(hand_over, lock, failure)
        except RuntimeError:  # the loop has ended, so nobody waits
            if lock is not None:
                lock.close()

    threading.Thread(target=wait, name="podwire-directory-lock", daemon=True).start()
    return await acquired


def _put(path: Path, bind: Callable[[str], object]) -> BoundSocket:
    private = Path(tempfile.mkdtemp(prefix=".", dir=path.parent))
    fresh = private / "s"
    try:
        _check_length(path, fresh)
        bind(str(fresh))
        fresh.chmod(0o600)
        inode = fresh.stat().st_ino
        fresh.replace(path)
    finally:
        shutil.rmtree(private)
    return BoundSocket(path, inode)


def _check_length(*paths: Path) -> None:
    for path in paths:
        if (size := len(os.fsencode(path))) > MAX_PATH:
            raise CannotListen(errno.ENAMETOOLONG, f"{path}: {size} bytes, the path of a socket has at most {MAX_PATH}")


def _check_no_listener(path: Path, kind: socket.SocketKind) -> None:
    """Raises CannotListen unless the path is free or has the socket of a dead server."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(status.st_mode):
        raise CannotListen(errno.EEXIST, f"{path}: exists and is not a socket")
    with socket.socket(socket.AF_UNIX, kind) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return
        except OSError as error:  # a full queue or another socket type: there is a listener
            raise CannotListen(errno.EADDRINUSE, f"{path}: in use ({error.strerror})") from error
    raise CannotListen(errno.EADDRINUSE, f"{path}: another server listens on it")
