"""Files that are whole after any crash, and paths that stay where they must."""

import errno
import os
from contextlib import suppress
from itertools import count

from podwire.linux import errors, syscalls
from podwire.linux.values import Path

_NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH, _IN_ROOT = 0x02, 0x04, 0x08, 0x10
_TRIES = 32  # the kernel gives up when something along the path is renamed meanwhile
_TEMPORARY = ".tmp"
_numbers = count()


def write_durably(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Put a file in place, whole or not at all; it survives a loss of power once this returns."""
    _put(path, data, mode, durably=True)


def replace_file(path: Path, data: bytes, mode: int = 0o600) -> None:
    """The same for what is worth nothing after a loss of power: it survives the death of any process."""
    _put(path, data, mode, durably=False)


def _put(path: Path, data: bytes, mode: int, *, durably: bool) -> None:
    where = os.fspath(path)
    directory, name = os.path.split(where)
    temporary = os.path.join(directory, f".{name}.{os.getpid()}-{next(_numbers)}{_TEMPORARY}")
    try:
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        try:
            os.fchmod(file, mode)  # whatever the umask
            write_all(file, data)
            if durably:
                os.fsync(file)
        finally:
            os.close(file)
        if durably:
            os.rename(temporary, where)
            sync_directory(directory or ".")
        else:
            take_its_place(temporary, where)
    except OSError as error:
        with suppress(OSError):
            os.unlink(temporary)
        raise errors.from_oserror(error, f"write {where}", {errno.ENOENT: errors.NoSuchPath}) from error


def take_its_place(temporary: str, where: str) -> None:
    """Without making the file system hurry: some write a file to the disk before they let it replace another."""
    if not syscalls.exchange(temporary, where):
        return os.rename(temporary, where)
    try:
        os.unlink(temporary)
    except IsADirectoryError:
        syscalls.exchange(temporary, where)
        raise


def remove_durably(path: Path) -> None:
    """Remove a file, if there is one; it stays removed after a loss of power."""
    where = os.fspath(path)
    try:
        os.unlink(where)
        sync_directory(os.path.dirname(where) or ".")
    except FileNotFoundError:
        pass
    except OSError as error:
        raise errors.from_oserror(error, f"remove {where}") from error


def sweep(directory: Path) -> None:
    """Remove what writers that were killed left behind; only while nobody writes there."""
    where = os.fspath(directory)
    for name in os.listdir(where):
        if name.startswith(".") and name.endswith(_TEMPORARY):
            remove_durably(os.path.join(where, name))


def unusable(directory: str) -> str:
    """Why nothing can be written to a directory, or to what it would be made in; empty when something can."""
    while not os.path.lexists(directory):
        directory = os.path.dirname(directory) or "."
    if not os.path.isdir(directory):
        return f"{directory} is no directory"
    return "" if os.access(directory, os.W_OK | os.X_OK) else f"{directory} cannot be written"


def sync_directory(path: str) -> None:
    opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def write_all(file: int, data: bytes) -> None:
    """However often the kernel takes only a part."""
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]


def open_beneath(directory: int, path: str, flags: int = os.O_RDONLY, mode: int = 0, *, symlinks: bool = True) -> int:
    """Open a path that must not lead out of an open directory by `..`, absolutely, or by a symlink. PathEscapes."""
    rule = _BENEATH | _NO_MAGICLINKS | (0 if symlinks else _NO_SYMLINKS)
    return _open(directory, path, flags, mode, rule)


def open_in_root(root: int, path: str, flags: int = os.O_RDONLY, mode: int = 0) -> int:
    """Open a path as if an open directory were `/`: `..` and absolute symlinks stay inside, as in a container."""
    return _open(root, path, flags, mode, _IN_ROOT | _NO_MAGICLINKS)


def _open(directory: int, path: str, flags: int, mode: int, rule: int) -> int:
    for _ in range(_TRIES):
        try:
            return syscalls.openat2(directory, path, flags, mode, rule)
        except errors.Busy as busy:
            if busy.errno != errno.EAGAIN:
                raise
    raise errors.Busy(errno.EAGAIN, f"open {path}", "it is renamed all the time")
