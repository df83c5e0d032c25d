"""System calls that Python 3.11 does not have, one thin function each; failures are LinuxErrors."""

import contextlib
import ctypes
import errno
import os
from sys import byteorder

from podwire.linux import errors

_libc = ctypes.CDLL(None, use_errno=True)
_syscall = _libc.syscall
_syscall.restype = ctypes.c_long

# The same numbers on every architecture: they are younger than the common table (Linux 5.1).
OPEN_TREE, MOVE_MOUNT, FSOPEN, FSCONFIG, FSMOUNT = 428, 429, 430, 431, 432
CLOSE_RANGE, OPENAT2, MOUNT_SETATTR = 436, 437, 442
AT_FDCWD = -100

NEWNS, NEWIPC, NEWNET, FS = 0x00020000, 0x08000000, 0x40000000, 0x00000200
NEWUSER, NEWPID = 0x10000000, 0x20000000
NSFS_MAGIC = 0x6E736673
_SET_PDEATHSIG, _SET_NAME = 1, 15
_CLOEXEC, _EXCHANGE, _KEEP_SIZE = 4, 2, 1
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_NO_EXCHANGE = frozenset({errno.ENOENT, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})


def _checked(result: int, operation: str, names: errors.Names | None = None) -> int:
    if result < 0:
        raise errors.from_errno(ctypes.get_errno(), operation, names=names)
    return result


def _bytes(path: str | bytes | None) -> bytes | None:
    return path.encode("utf-8", "surrogateescape") if isinstance(path, str) else path


def setns(descriptor: int, kind: int) -> None:
    """Move the calling thread into a namespace."""
    _checked(_libc.setns(descriptor, kind), "enter a namespace", {22: errors.WrongKind, 9: errors.NoSuchNamespace})


def unshare(kinds: int) -> None:
    """Give the calling thread namespaces (or a working directory) of its own."""
    _checked(_libc.unshare(kinds), "leave a namespace")


def mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None) -> None:
    result = _libc.mount(_bytes(source), _bytes(target), _bytes(kind), ctypes.c_ulong(flags), _bytes(options))
    _checked(result, f"mount {kind or source or ''} at {target}".replace("  ", " "), {2: errors.NoSuchPath})


def umount(target: str, flags: int) -> None:
    names: errors.Names = {22: errors.NoSuchMount, 2: errors.NoSuchMount}
    _checked(_libc.umount2(_bytes(target), flags), f"unmount {target}", names)


def exchange(one: str, other: str) -> bool:
    """Exchanges two files atomically; returns False if one does not exist, or if the file system cannot."""
    if _libc.renameat2(AT_FDCWD, _bytes(one), AT_FDCWD, _bytes(other), _EXCHANGE) == 0:
        return True
    if ctypes.get_errno() in _NO_EXCHANGE:
        return False
    raise errors.from_errno(ctypes.get_errno(), f"exchange {one} and {other}")


def preallocate(descriptor: int, offset: int, length: int) -> None:
    """Reserves disk space for a part of a file, beyond its end too, without changing its size. OutOfResources."""
    result = _libc.fallocate(descriptor, _KEEP_SIZE, ctypes.c_int64(offset), ctypes.c_int64(length))
    _checked(result, "reserve disk space")


def die_with_parent(number: int) -> None:
    """Let the kernel send this process a signal as soon as the thread that forked it ends."""
    _checked(_libc.prctl(_SET_PDEATHSIG, ctypes.c_ulong(number), 0, 0, 0), "request a signal at the parent's end")


def set_name(name: str) -> None:
    """Sets the name of the calling thread in `ps`; the kernel keeps 15 bytes."""
    _checked(_libc.prctl(_SET_NAME, name.encode(), 0, 0, 0), "take a name")


def return_freed_memory() -> None:
    """Lets glibc's allocator return large buffers to the kernel as soon as they are freed.

    Otherwise the first large buffer that is freed raises the allocator's own threshold, and buffers of up to 32 MiB
    then come from a heap that shrinks only at its end, in one heap for each thread. Other allocators lack `mallopt`.
    The response to an ordinary list is smaller than the threshold: a mapping for each of its copies would take a third
    of the request's time.
    """
    with contextlib.suppress(AttributeError):
        for parameter, value in ((_MMAP_THRESHOLD, 4 << 20), (_TRIM_THRESHOLD, 8 << 20), (_ARENA_MAX, 2)):
            _libc.mallopt(parameter, value)


def close_on_exec(first: int) -> None:
    """Sets close-on-exec for all descriptors from this number up."""
    syscall(CLOSE_RANGE, "keep descriptors from programs", first, 0xFFFFFFFF, _CLOEXEC)


def filesystem_magic(descriptor: int) -> int:
    """Returns the magic number of an open file's file system."""
    buffer = ctypes.create_string_buffer(256)
    _checked(_libc.fstatfs(descriptor, buffer), "ask for a file's file system")
    return ctypes.c_long.from_buffer(buffer).value


def syscall(number: int, operation: str, *arguments: int | bytes | None, names: errors.Names | None = None) -> int:
    """Any other call by its number; integers are passed as wide as a register."""
    passed = [ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments]
    return _checked(_syscall(ctypes.c_long(number), *passed), operation, names)


def syncfs(descriptor: int) -> None:
    """Write everything of a file system to the disk; it is named by an open file."""
    _checked(_libc.syncfs(descriptor), "sync a file system")


def openat2(directory: int, path: str, flags: int, mode: int, resolve: int) -> int:
    """Open a path under rules on how it may be resolved; the descriptor is close-on-exec."""
    how = b"".join(word.to_bytes(8, byteorder) for word in (flags | os.O_CLOEXEC, mode, resolve))
    names: errors.Names = {2: errors.NoSuchPath, 20: errors.NoSuchPath, 40: errors.PathEscapes, 17: errors.Exists}
    return syscall(OPENAT2, f"open {path}", directory, _bytes(path), how, len(how), names=names)
