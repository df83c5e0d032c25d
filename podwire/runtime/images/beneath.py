"""Two system calls that Python 3.11 does not offer: openat2, which opens a path without ever leaving a directory, and
syncfs, which makes a whole tree durable at once."""

import ctypes
import os
import struct

RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, RESOLVE_BENEATH = 0x02, 0x04, 0x08
_OPENAT2 = 437  # on every architecture
_HOW = struct.Struct("=QQQ")

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, path: bytes = b"") -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), os.fsdecode(path) if path else None)
    return result


def open_beneath(root: int, path: bytes, flags: int, *, links: bool = False) -> int:
    """Open what lies at `path` below the directory `root`.

    A path that leads out is an OSError (EXDEV), and so is, unless `links`, one through a symbolic link (ELOOP).
    """
    resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | (0 if links else RESOLVE_NO_SYMLINKS)
    how = _HOW.pack(flags | os.O_CLOEXEC, 0, resolve)
    called = _libc.syscall(ctypes.c_long(_OPENAT2), root, path or b".", how, ctypes.c_size_t(len(how)))
    return _checked(called, path)


def sync_filesystem(descriptor: int) -> None:
    """Return when all that was written to this file system is on disk."""
    _checked(_libc.syncfs(descriptor))
