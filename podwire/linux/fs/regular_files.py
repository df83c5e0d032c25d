"""Reads and writes files that a container can write: never more than a bound, and never anything but a regular file.

A container can make its file as large as it likes (sparse, for nothing), fill it with any bytes, and, where it can
write to the directory, replace it by a symlink to a file of the node, a FIFO that blocks for ever, or a device. So the
last component of a path is opened without following a link and without blocking, and its type is checked afterwards,
by the descriptor. The directories above it are trusted.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from podwire.linux import errors
from podwire.linux.values import Path

_SAFELY = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NAMES: errors.Names = {errno.ENOENT: errors.NoSuchPath, errno.ENOTDIR: errors.NoSuchPath}


def open_regular(path: Path, flags: int = os.O_RDONLY, mode: int = 0o600, *, follow: bool = False) -> int:
    """Open a regular file. NoSuchPath; WrongKind for a symlink, FIFO, socket, directory or device.

    `follow`: symlinks are followed, for directories in which an operator may use them.
    """
    where = os.fspath(path)
    operation = f"open {where}"
    truncate, flags = flags & os.O_TRUNC, flags & ~os.O_TRUNC  # not before the type is known
    try:
        descriptor = os.open(where, flags | _SAFELY | (0 if follow else os.O_NOFOLLOW), mode)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise errors.WrongKind(error.errno, operation, "it is not a regular file") from error
        raise errors.from_oserror(error, operation, _NAMES) from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise errors.WrongKind(errno.EINVAL, operation, "it is not a regular file")
        if truncate:
            os.ftruncate(descriptor, 0)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


@contextmanager
def opened_regular(path: Path, flags: int = os.O_RDONLY, mode: int = 0o600, *, follow: bool = False) -> Iterator[int]:
    """`open_regular`, closed at the end."""
    descriptor = open_regular(path, flags, mode, follow=follow)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read_head(path: Path, most: int, *, follow: bool = False) -> bytes:
    """Read at most `most` bytes from the beginning of a file. Raises as open_regular."""
    with opened_regular(path, follow=follow) as descriptor:
        return read_at(descriptor, 0, most)


def read_tail(path: Path, most: int) -> tuple[bytes, bool]:
    """Read at most `most` bytes before the end of a file; also returns whether that is all of it."""
    with opened_regular(path) as descriptor:
        start = max(0, os.fstat(descriptor).st_size - most)
        return read_at(descriptor, start, most), start == 0


def read_at(descriptor: int, offset: int, most: int) -> bytes:
    """Read at most `most` bytes from an offset, however often the kernel returns only a part."""
    parts = []
    while most > 0 and (data := os.pread(descriptor, min(most, 1 << 20), offset)):
        parts.append(data)
        offset += len(data)
        most -= len(data)
    return b"".join(parts)


def write_in_place(path: Path, data: bytes, mode: int) -> None:
    """Give a file exactly this content and mode; create it if it does not exist.

    In place, because a container may have the inode mounted. A file that has the content is not written. WrongKind.
    """
    with opened_regular(path, os.O_RDWR | os.O_CREAT, mode) as descriptor:
        if os.fstat(descriptor).st_size != len(data) or read_at(descriptor, 0, len(data)) != data:
            os.ftruncate(descriptor, 0)
            rest, offset = memoryview(data), 0
            while rest:
                written = os.pwrite(descriptor, rest, offset)
                rest, offset = rest[written:], offset + written
        os.fchmod(descriptor, mode)
