"""Network and IPC namespaces: created, pinned to paths, visited, removed.

A namespace lives as long as a process is in it, a socket of it is open, or a path pins it. `setns` moves one thread:
a visit returns to the own namespace at its end, and a namespace is created in a thread that ends afterwards.
"""

import contextlib
import errno
import fcntl
import os
import signal
from collections.abc import Callable
from threading import Thread
from typing import TypeVar

from podwire.linux import errors, syscalls
from podwire.linux.proc import processes
from podwire.linux.values import Path, PinnedNamespace

KINDS = {
    "net": syscalls.NEWNET,
    "ipc": syscalls.NEWIPC,
    "mnt": syscalls.NEWNS,
    "pid": syscalls.NEWPID,
    "user": syscalls.NEWUSER,
}
_GET_TYPE = 0xB703  # ioctl NS_GET_NSTYPE
_DETACH, _NOFOLLOW = 2, 8
_BIND = 4096
_READ = os.O_RDONLY | os.O_CLOEXEC

T = TypeVar("T")


def open_namespace(path: Path, kind: str = "net") -> int:
    """A descriptor of the namespace at a path. NoSuchNamespace, or WrongKind when it is of another type.

    The path comes from outside, so nothing is opened for reading before it is known to be a namespace.
    """
    where = os.fspath(path)
    try:
        handle = os.open(where, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        names: errors.Names = dict.fromkeys((errno.ENOENT, errno.ENOTDIR, errno.ESRCH), errors.NoSuchNamespace)
        raise errors.from_oserror(error, f"open the namespace {where}", names) from error
    try:
        if syscalls.filesystem_magic(handle) != syscalls.NSFS_MAGIC:
            raise errors.NoSuchNamespace(errno.ENOENT, f"open the namespace {where}", "nothing is pinned there")
        opened = os.open(f"/proc/thread-self/fd/{handle}", _READ)
    finally:
        os.close(handle)
    if fcntl.ioctl(opened, _GET_TYPE) != KINDS[kind]:
        os.close(opened)
        raise errors.WrongKind(errno.EINVAL, f"open the namespace {where}", f"it is not a {kind} namespace")
    return opened


def identity(path: Path, kind: str = "net") -> int:
    """The inode of a namespace: two paths with the same one are the same namespace."""
    opened = open_namespace(path, kind)
    try:
        return os.fstat(opened).st_ino
    finally:
        os.close(opened)


class visit:  # noqa: N801 - reads as a verb: `with visit(path):`
    """The calling thread is in another namespace until the block ends. No `await`, no new threads in the block."""

    def __init__(self, namespace: Path | int, kind: str = "net") -> None:
        self._namespace, self._kind = namespace, kind
        self._home = -1

    def __enter__(self) -> None:
        flag = KINDS[self._kind]
        there = self._namespace if isinstance(self._namespace, int) else open_namespace(self._namespace, self._kind)
        try:
            self._home = os.open(f"/proc/thread-self/ns/{self._kind}", _READ)
            try:
                syscalls.setns(there, flag)
            except errors.LinuxError:
                os.close(self._home)
                raise
        finally:
            if there != self._namespace:
                os.close(there)

    def __exit__(self, *_: object) -> None:
        try:
            syscalls.setns(self._home, KINDS[self._kind])
        except errors.LinuxError:
            os.abort()  # a thread left behind would configure the wrong network from now on; a restart can be survived
        os.close(self._home)


def in_thread(work: Callable[[], T]) -> T:
    """Runs work in a thread of its own, whose namespaces and working directory end with it."""
    done: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            done.append(work())
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            failed.append(error)

    thread = Thread(target=run, name="podwire-linux", daemon=True)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return done[0]


def kill_pid_namespace(inode: int, patience: float = 10.0) -> None:
    """Kills the first process of a pid namespace, and with it all others, if there is one. Raises Busy."""
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        try:
            pidfd = os.pidfd_open(int(name))
        except OSError:
            continue
        try:
            if _is_first(name, inode):
                processes.send_signal(pidfd, signal.SIGKILL)
                if not processes.wait(pidfd, patience):
                    raise errors.Busy(errno.EBUSY, "end a pid namespace", f"process {name} does not end")
        finally:
            os.close(pidfd)


def _is_first(pid: str, inode: int) -> bool:
    """Whether a process is the first one of a pid namespace; others may be in it, too."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as status:
            numbers = next(line for line in status if line.startswith("NSpid:")).split()
        return numbers[-1] == "1" and os.stat(f"/proc/{pid}/ns/pid").st_ino == inode
    except (OSError, StopIteration):
        return False


class KernelNamespaces:
    """The namespaces pinned in one directory, by name."""

    def __init__(self, directory: Path, kind: str = "net") -> None:
        self._directory, self._kind = os.fspath(directory), kind

    def path(self, name: str) -> str:
        if not name or name in (".", "..") or "/" in name or "\0" in name:
            raise errors.PathEscapes(errno.EXDEV, f"name a namespace {name!r}", "it must be one part of a path")
        return f"{self._directory}/{name}"

    def create(self, name: str, of_process: int = 0) -> PinnedNamespace:
        """Make and pin one, or pin that of a process. A file that a crash left without a namespace is used again.
        Raises NamespaceExists."""
        path = self.path(name)
        operation = f"make the {self._kind} namespace {path}"

        def pin() -> None:
            if not of_process:
                syscalls.unshare(KINDS[self._kind])
            process = of_process or "thread-self"
            syscalls.mount(f"/proc/{process}/ns/{self._kind}", path, None, _BIND, None)

        try:
            os.makedirs(self._directory, mode=0o755, exist_ok=True)
            file = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o444)
        except OSError as error:
            raise errors.from_oserror(error, operation) from error
        try:
            # Of two callers that make the same one, the second gets NamespaceExists: it gets no lock, or it locked a
            # file that is no longer at the path, because the first pinned its namespace over it. durable.locks is for
            # files that stay where they are; this one is a mount point.
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            pinned = syscalls.filesystem_magic(file) == syscalls.NSFS_MAGIC
            if pinned or not os.path.samestat(os.fstat(file), os.stat(path, follow_symlinks=False)):
                raise errors.NamespaceExists(errno.EEXIST, operation)
            in_thread(pin)
        except BlockingIOError as error:
            raise errors.NamespaceExists(errno.EEXIST, operation, "it is being made") from error
        except errors.NamespaceExists:
            raise
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(path)
            raise errors.from_oserror(error, operation) from error
        finally:
            os.close(file)
        return PinnedNamespace(name, path, identity(path, self._kind))

    def remove(self, name: str) -> None:
        """Unpin it; nothing happens when there is none. It dies when the last process and socket leave it."""
        path = self.path(name)
        try:
            while True:  # pins can lie on top of each other
                syscalls.umount(path, _DETACH | _NOFOLLOW)
        except errors.NoSuchMount:
            pass
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise errors.from_oserror(error, f"remove the namespace {path}") from error

    def list(self) -> list[PinnedNamespace]:
        """All that is in the directory; also files that pin nothing, with inode 0."""
        try:
            names = sorted(os.listdir(self._directory))
        except FileNotFoundError:
            return []
        return [PinnedNamespace(name, f"{self._directory}/{name}", self._inode(name)) for name in names]

    def _inode(self, name: str) -> int:
        try:
            return identity(f"{self._directory}/{name}", self._kind)
        except errors.LinuxError:
            return 0
