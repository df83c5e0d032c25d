"""Opens paths that must not lead out of a directory (openat2)."""

import errno
import os

from podwire.linux import errors, syscalls

_NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH, _IN_ROOT = 0x02, 0x04, 0x08, 0x10
_ATTEMPTS = 32
"""The kernel answers EAGAIN when a part of the path is renamed during the walk."""


def open_beneath(directory: int, path: str, flags: int = os.O_RDONLY, mode: int = 0, *, symlinks: bool = True) -> int:
    """Open a path that must not lead out of an open directory by `..`, absolutely, or by a symlink. PathEscapes."""
    resolve = _BENEATH | _NO_MAGICLINKS | (0 if symlinks else _NO_SYMLINKS)
    return _open(directory, path, flags, mode, resolve)


def open_in_root(root: int, path: str, flags: int = os.O_RDONLY, mode: int = 0) -> int:
    """Open a path as if an open directory were `/`: `..` and absolute symlinks stay inside, as in a container."""
    return _open(root, path, flags, mode, _IN_ROOT | _NO_MAGICLINKS)


def _open(directory: int, path: str, flags: int, mode: int, resolve: int) -> int:
    for _ in range(_ATTEMPTS):
        try:
            return syscalls.openat2(directory, path, flags, mode, resolve)
        except errors.Busy as busy:
            if busy.errno != errno.EAGAIN:
                raise
    raise errors.Busy(errno.EAGAIN, f"open {path}", "a part of the path is renamed again and again")
