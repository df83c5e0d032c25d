"""Mounts of the calling thread's mount namespace."""

import os
from collections.abc import Sequence
from contextlib import ExitStack

from podwire.linux import errors, syscalls
from podwire.linux.fs.values import Mount
from podwire.linux.values import Path

_READ_ONLY, _REMOUNT, _BIND, _RECURSIVE = 1, 32, 4096, 16384
_FLAGS = {
    "ro": _READ_ONLY,
    "nosuid": 2,
    "nodev": 4,
    "noexec": 8,
    "sync": 16,
    "dirsync": 128,
    "noatime": 1024,
    "nodiratime": 2048,
    "relatime": 1 << 21,
    "strictatime": 1 << 24,
    "rw": 0,
}
_PROPAGATION = {"unbindable": 1 << 17, "private": 1 << 18, "slave": 1 << 19, "shared": 1 << 20}
_DETACH, _NOFOLLOW = 2, 8
_AT_RECURSIVE, _AT_EMPTY_PATH, _ATTRIBUTE_READ_ONLY, _ATTRIBUTE_MAPPED = 0x8000, 0x1000, 1, 0x100000
_CLONE, _MOVE_EMPTY_PATH = 1, 4


class KernelMounts:
    def mount(self, source: str, target: Path, kind: str, options: Sequence[str] = ()) -> None:
        """Mount a file system; options as in fstab. NoSuchPath, Unsupported, NotPermitted."""
        flags = 0
        for option in options:
            flags |= _FLAGS.get(option, 0)
        rest = ",".join(option for option in options if option not in _FLAGS)
        names = os.fspath(target)
        try:
            syscalls.mount(source, names, kind, flags, rest or None)
        except errors.Missing as error:
            if error.errno == 19:  # ENODEV: no such kind of file system
                raise errors.Unsupported(error.errno, error.operation, f"no {kind} in this kernel") from error
            raise

    def bind(self, source: Path, target: Path, *, recursive: bool = False, read_only: bool = False) -> None:
        """Bind-mounts a file or directory; undoes it if it cannot be made read-only."""
        flags = _BIND | (_RECURSIVE if recursive else 0)
        syscalls.mount(os.fspath(source), os.fspath(target), None, flags, None)
        if read_only:
            with ExitStack() as undo:
                undo.callback(self.unmount, target, lazily=True)
                self.make_read_only(target, recursive=recursive)
                undo.pop_all()

    def bind_mapped(self, source: Path, target: Path, user_namespace: int) -> None:
        """Bind-mounts a directory with the owners that its files have in an open user namespace. Raises LinuxError."""
        where = os.fspath(target).encode("utf-8", "surrogateescape")
        what = os.fspath(source).encode("utf-8", "surrogateescape")
        operation = f"mount {os.fspath(source)} with mapped owners"
        tree = syscalls.syscall(syscalls.OPEN_TREE, operation, syscalls.AT_FDCWD, what, _CLONE | os.O_CLOEXEC)
        try:
            change = b"".join(word.to_bytes(8, "little") for word in (_ATTRIBUTE_MAPPED, 0, 0, user_namespace))
            syscalls.syscall(syscalls.MOUNT_SETATTR, operation, tree, b"", _AT_EMPTY_PATH, change, len(change))
            syscalls.syscall(syscalls.MOVE_MOUNT, operation, tree, b"", syscalls.AT_FDCWD, where, _MOVE_EMPTY_PATH)
        finally:
            os.close(tree)

    def make_read_only(self, target: Path, *, recursive: bool = False) -> None:
        """Makes a mount read-only, and with `recursive` all below it; other mounts of the same source are unchanged."""
        where = os.fspath(target)
        change = b"".join(word.to_bytes(8, "little") for word in (_ATTRIBUTE_READ_ONLY, 0, 0, 0))
        flags = _AT_RECURSIVE if recursive else 0
        arguments = (syscalls.AT_FDCWD, where.encode("utf-8", "surrogateescape"), flags, change, len(change))
        names: errors.Names = {22: errors.NoSuchMount, 2: errors.NoSuchMount}
        try:
            syscalls.syscall(syscalls.MOUNT_SETATTR, f"make {where} read-only", *arguments, names=names)
        except errors.Unsupported:  # before Linux 5.12
            below = where.rstrip("/") + "/"
            for mount in mounted():
                if mount.target == where or (recursive and mount.target.startswith(below)):
                    kept = 0
                    for option in mount.options:
                        kept |= _FLAGS.get(option, 0)
                    syscalls.mount(None, mount.target, None, _BIND | _REMOUNT | _READ_ONLY | kept, None)

    def set_propagation(self, target: Path, how: str) -> None:
        """Sets the propagation: private, slave, shared or unbindable; with a leading `r` recursively."""
        recursive = how not in _PROPAGATION
        flags = _PROPAGATION[how[1:] if recursive else how] | (_RECURSIVE if recursive else 0)
        try:
            syscalls.mount(None, os.fspath(target), None, flags, None)
        except errors.Refused as error:
            raise errors.NoSuchMount(error.errno, f"make {os.fspath(target)} {how}") from error

    def unmount(self, target: Path, *, lazily: bool = False) -> None:
        """Unmounts the topmost mount. Raises NoSuchMount; Busy, unless `lazily` (MNT_DETACH)."""
        syscalls.umount(os.fspath(target), _NOFOLLOW | (_DETACH if lazily else 0))

    def list(self) -> list[Mount]:
        return mounted()

    def is_mounted(self, target: Path) -> bool:
        where = os.path.realpath(target)
        return any(mount.target == where for mount in mounted())


def mounted() -> list[Mount]:
    """Returns the mounts that the calling thread sees."""
    with open("/proc/thread-self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        return parse_mountinfo(file.read())


def parse_mountinfo(text: str) -> list[Mount]:
    return [_parsed(line) for line in text.splitlines()]


def _parsed(line: str) -> Mount:
    words = line.split(" ")
    end = words.index("-", 6)
    kind, source, options = words[end + 1 : end + 4]
    return Mount(
        id=int(words[0]),
        parent=int(words[1]),
        device=words[2],
        root=_plain(words[3]),
        target=_plain(words[4]),
        options=tuple(words[5].split(",")),
        propagation=tuple(words[6:end]),
        kind=kind,
        source=_plain(source),
        super_options=tuple(_plain(options).split(",")),
    )


def _plain(word: str) -> str:
    r"""Decodes the kernel's escapes: `\040` for a space and so on."""
    if "\\" not in word:
        return word
    first, *rest = word.split("\\")
    return first + "".join(chr(int(part[:3], 8)) + part[3:] if part[:3].isdigit() else "\\" + part for part in rest)
