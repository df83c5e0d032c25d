"""Mount namespaces: pinned to a path from outside, entered for good.

A mount namespace can be pinned only where it does not see the pin itself: by a process that is not in it, on a mount
that is private. Who enters one has its root and its working directory there.
"""

import os

from podwire.linux import errors, syscalls
from podwire.linux.proc.namespaces import KINDS, identity, open_namespace
from podwire.linux.values import Path

_BIND = 4096


def pin(process: int, path: Path, kind: str = "mnt") -> int:
    """Keep the mount namespace of a process (or the PID namespace of its children) at a path, an empty file; its
    identity."""
    where = os.fspath(path)
    os.close(os.open(where, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o444))
    name = "pid_for_children" if kind == "pid" else kind
    syscalls.mount(f"/proc/{process}/ns/{name}", where, None, _BIND, None)
    return identity(where, kind)


def unshare_mounts() -> None:
    """Give the calling thread a mount namespace of its own, a copy of the present one."""
    syscalls.unshare(syscalls.NEWNS)


def enter(**namespaces: Path) -> None:
    """The calling thread goes into `net=` and `mnt=` and stays; all are opened before the first is entered.

    A thread can enter a mount namespace if it shares its root with no other: the only thread of a process can, and one
    that has a root of its own (`alone`).
    """
    opened = {kind: open_namespace(path, kind) for kind, path in namespaces.items()}
    try:
        for kind in sorted(opened, reverse=True):  # the network first: the way to it may be hidden afterwards
            syscalls.setns(opened[kind], KINDS[kind])
    finally:
        for file in opened.values():
            os.close(file)


def alone() -> None:
    """Let the calling thread have its own root and working directory, so that it can enter mount namespaces."""
    syscalls.unshare(syscalls.FS)


def of_process(process: int, kind: str) -> int:
    """The identity of a process's namespace; 0 when the process has ended or hides it."""
    try:
        return os.stat(f"/proc/{process}/ns/{kind}").st_ino
    except OSError:
        return 0


def is_pinned(path: Path, kind: str) -> bool:
    """Whether a namespace of this kind is there."""
    try:
        return bool(identity(path, kind))
    except errors.LinuxError:
        return False
