"""Finds processes by what the kernel knows: the tag file that each component keeps open, and their namespaces.

No record is consulted, because a record may be lost.
"""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from podwire.cluster.up.layout import Layout
from podwire.linux.proc.mount_namespaces import of_process

_PROC = Path("/proc")


def _pids() -> list[int]:
    return [int(path.name) for path in _PROC.iterdir() if path.name.isdigit()]


def components(layout: Layout) -> dict[int, str]:
    """Returns the processes that keep a tag file open, with the name of the component; also after the file was removed.

    In another mount namespace the same path is on another device, and belongs to another cluster.
    """
    below, device = f"{layout.component_tags}/", _device(layout.component_tags)
    by_pid: dict[int, str] = {}
    for pid in _pids():
        with contextlib.suppress(OSError):
            for path in (_PROC / str(pid) / "fd").iterdir():
                target = _target(path)
                if target.startswith(below) and path.stat().st_dev == device:
                    by_pid[pid] = target.removeprefix(below).removesuffix(" (deleted)")
    by_pid.pop(os.getpid(), None)
    return by_pid


def _device(path: Path) -> int:
    """Returns the device that a path is on, or would be."""
    return next(parent for parent in (path, *path.parents) if parent.exists()).stat().st_dev


def _target(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""


def residents(inodes: Iterable[tuple[str, int]]) -> list[int]:
    """Returns the processes in any of these namespaces, given by kind and inode."""
    namespaces = set(inodes)
    own = os.getpid()
    return [
        pid
        for pid in _pids()
        if pid != own and any((kind, of_process(pid, kind)) in namespaces for kind, _ in namespaces)
    ]
