"""Gives the files of a persistent volume to a pod's fsGroup, as stock kubelets do.

A container of another pod can change the volume meanwhile, so every file is opened without following links, and
changed by its descriptor.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path

_WRITABLE, _READABLE, _SEARCHABLE = 0o660, 0o440, 0o110


def change(directory: Path, group: int, *, on_root_mismatch: bool, read_only: bool = False) -> None:
    """Set group and permissions of everything below, the directory itself last: with `on_root_mismatch` (the policy
    OnRootMismatch) a directory that has them says that all below has them too. Raises OSError."""
    needed = _READABLE if read_only else _WRITABLE
    if on_root_mismatch and _fits(directory.stat(), group, needed | _SEARCHABLE):
        return
    for _, directories, files, descriptor in os.fwalk(directory, topdown=False, follow_symlinks=False):
        for name in (*files, *directories):
            with suppress(FileNotFoundError):  # removed meanwhile
                _change(name, descriptor, group, needed)
    _change(str(directory), None, group, needed)


def _fits(status: os.stat_result, group: int, needed: int) -> bool:
    mode = status.st_mode
    return stat.S_ISDIR(mode) and status.st_gid == group and mode & needed == needed and bool(mode & stat.S_ISGID)


def _change(name: str, parent: int | None, group: int, needed: int) -> None:
    opened = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        status = os.fstat(opened)
        if stat.S_ISLNK(status.st_mode):
            os.chown(name, -1, group, dir_fd=parent, follow_symlinks=False)
            return
        path = f"/proc/self/fd/{opened}"
        if status.st_gid != group:
            os.chown(path, -1, group)
        directory = stat.S_ISDIR(status.st_mode)
        mode = stat.S_IMODE(status.st_mode) | needed | (_SEARCHABLE | stat.S_ISGID if directory else 0)
        Path(path).chmod(mode)
    finally:
        os.close(opened)
