"""Finds processes by what the kernel knows of them: the file that each component keeps open, the namespaces they are
in. Nothing that could have been forgotten or removed is asked."""

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
    """Processes that keep a mark open, and its name; also when the file has been removed meanwhile.

    In another mount namespace the same path is on another disk, and another cluster's.
    """
    below, device = f"{layout.marks}/", _device(layout.marks)
    found: dict[int, str] = {}
    for pid in _pids():
        with contextlib.suppress(OSError):
            for path in (_PROC / str(pid) / "fd").iterdir():
                target = _target(path)
                if target.startswith(below) and path.stat().st_dev == device:
                    found[pid] = target.removeprefix(below).removesuffix(" (deleted)")
    found.pop(os.getpid(), None)
    return found


def _device(path: Path) -> int:
    """The disk that a path is on, or would be."""
    return next(parent for parent in (path, *path.parents) if parent.exists()).stat().st_dev


def _target(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""


def residents(inodes: Iterable[tuple[str, int]]) -> list[int]:
    """Processes that are in any of these namespaces, given by kind and identity."""
    wanted = set(inodes)
    own = os.getpid()
    return [pid for pid in _pids() if pid != own and any((kind, of_process(pid, kind)) in wanted for kind, _ in wanted)]
