"""A place in the file system for a unix socket that only its owner can reach.

The socket is bound in a private directory beside its place, made 0600 and moved there in one step: it is never
reachable by others, not even for the moment between bind and chmod, and the process's umask (which all threads share)
stays as it is. A socket that a dead server left is replaced; one that somebody listens on is not.
"""

import asyncio
import contextlib
import errno
import fcntl
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

MAX_PATH = 107
"""Bytes that the kernel takes for a socket's path."""


class CannotListen(OSError):
    """No socket can be put at this path; the message says why."""


@dataclass(frozen=True, slots=True)
class Place:
    """A path that holds a socket of ours, known by its inode."""

    path: Path
    inode: int


async def take(
    path: str | os.PathLike[str], bind: Callable[[str], object], *, kind: socket.SocketKind = socket.SOCK_STREAM
) -> Place:
    """Put a socket at `path`; `bind` binds it and listens, at the path that it is handed. Raises CannotListen.

    The directory is made, 0700, when it is not there.
    """
    place = _with_directory(path)
    async with _alone_in(place.parent):
        _refuse_living(place, kind)
        return _put(place, bind)


async def leave(place: Place) -> None:
    """Remove the socket, unless somebody else's is there by now."""
    with contextlib.suppress(FileNotFoundError):
        async with _alone_in(place.path.parent):
            if place.path.stat().st_ino == place.inode:
                place.path.unlink()


def _with_directory(path: str | os.PathLike[str]) -> Path:
    place = Path(path).absolute()
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return place


@contextlib.asynccontextmanager
async def _alone_in(directory: Path) -> AsyncIterator[None]:
    """Two servers that start at once must not both replace the same dead socket."""
    held = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        while True:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:  # nobody tells when a lock is free, and a thread that waits cannot be cancelled
                await asyncio.sleep(0.005)
        yield
    finally:
        os.close(held)


def _put(place: Path, bind: Callable[[str], object]) -> Place:
    private = Path(tempfile.mkdtemp(prefix=".", dir=place.parent))
    fresh = private / "s"
    try:
        _refuse_long(place, fresh)
        bind(str(fresh))
        fresh.chmod(0o600)
        inode = fresh.stat().st_ino
        fresh.replace(place)
    finally:
        shutil.rmtree(private)
    return Place(place, inode)


def _refuse_long(*paths: Path) -> None:
    for each in paths:
        if (size := len(os.fsencode(each))) > MAX_PATH:
            raise CannotListen(errno.ENAMETOOLONG, f"{each}: {size} bytes, and a socket's path has {MAX_PATH} at most")


def _refuse_living(place: Path, kind: socket.SocketKind) -> None:
    """Only a socket that nobody listens on may be replaced."""
    try:
        found = place.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise CannotListen(errno.EEXIST, f"{place}: is there, and is no socket")
    with socket.socket(socket.AF_UNIX, kind) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(place))
        except (ConnectionRefusedError, FileNotFoundError):
            return
        except OSError as error:  # a full queue, another kind of socket: somebody is there
            raise CannotListen(errno.EADDRINUSE, f"{place}: in use ({error.strerror})") from error
    raise CannotListen(errno.EADDRINUSE, f"{place}: another server listens on it")
