"""Directories by descriptor: opened without ever leaving a root, and made durable with all that lies in them."""

import ctypes
import os

from podwire.linux.fs import paths

_libc = ctypes.CDLL(None, use_errno=True)


def open_beneath(root: int, path: bytes, flags: int, *, links: bool = False) -> int:
    """Open what lies at `path` below the directory `root`, which the empty path is.

    A path that leads out is an OSError, and so is, unless `links`, one through a symbolic link.
    """
    return paths.open_beneath(root, os.fsdecode(path) or ".", flags, symlinks=links)


def sync_filesystem(descriptor: int) -> None:
    """Return when all that was written to this file system is on disk: syncfs, which Python does not offer."""
    if _libc.syncfs(descriptor) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
