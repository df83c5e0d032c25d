"""Overlay mounts of any number of layers.

`mount(2)` takes one page of options, some forty layers. Newer kernels (6.8) take layers one by one; on older ones the
layers are named relative to their common directory, from a thread that goes there.
"""

import errno
import os
from collections.abc import Sequence
from functools import cache

from podwire.linux import errors, syscalls
from podwire.linux.proc.namespaces import in_thread
from podwire.linux.values import Path

_CLOEXEC, _EMPTY_PATH = 1, 4
_SET_FLAG, _SET_STRING, _CREATE = 0, 1, 6
_LONGEST = 255  # bytes of one string of fsconfig
_PAGE = os.sysconf("SC_PAGE_SIZE") - 1


def mount_overlay(
    target: Path,
    lower: Sequence[Path],
    *,
    upper: Path | None = None,
    work: Path | None = None,
    options: Sequence[str] = (),
) -> None:
    """Mount layers, the topmost first, over each other at a directory; without an upper one it is read-only.

    NoSuchPath for a layer that is not there; Refused with the kernel's reason.
    """
    layers = [os.fspath(layer) for layer in lower]
    writable = (
        {"upperdir": os.fspath(upper), "workdir": os.fspath(work)} if upper is not None and work is not None else {}
    )
    if supports_single_layers():
        _by_fsconfig(os.fspath(target), layers, writable, options)
    else:
        mount_relative(os.fspath(target), layers, writable, options)


@cache
def supports_single_layers() -> bool:
    """Whether this kernel accepts one layer per `fsconfig` call."""
    try:
        context = syscalls.syscall(syscalls.FSOPEN, "open the overlay file system", b"overlay", _CLOEXEC)
        try:
            _set(context, "lowerdir+", "/")
        finally:
            os.close(context)
    except errors.LinuxError:
        return False
    return True


def _by_fsconfig(target: str, layers: Sequence[str], writable: dict[str, str], options: Sequence[str]) -> None:
    operation = f"mount an overlay of {len(layers)} layers at {target}"
    context = syscalls.syscall(syscalls.FSOPEN, operation, b"overlay", _CLOEXEC)
    held: list[int] = []
    try:
        _set(context, "source", "overlay")
        for layer in layers:
            _set(context, "lowerdir+", _short(layer, held))
        for key, value in writable.items():
            _set(context, key, _escaped(_short(value, held)))
        for option in options:
            key, equals, value = option.partition("=")
            _set(context, key, value if equals else None)
        syscalls.syscall(syscalls.FSCONFIG, operation, context, _CREATE, None, None, 0)
        mount = syscalls.syscall(syscalls.FSMOUNT, operation, context, _CLOEXEC, 0)
        held.append(mount)
        where = target.encode("utf-8", "surrogateescape")
        names: errors.Names = {errno.ENOENT: errors.NoSuchPath}
        arguments = (mount, b"", syscalls.AT_FDCWD, where, _EMPTY_PATH)
        syscalls.syscall(syscalls.MOVE_MOUNT, operation, *arguments, names=names)
    except errors.LinuxError as error:
        kind = errors.NoSuchPath if error.errno == errno.ENOENT else type(error)
        raise kind(error.errno, operation, _said(context) or error.detail) from error
    finally:
        for opened in (context, *held):
            os.close(opened)


def _set(context: int, key: str, value: str | None) -> None:
    command = _SET_FLAG if value is None else _SET_STRING
    given = None if value is None else value.encode("utf-8", "surrogateescape")
    syscalls.syscall(syscalls.FSCONFIG, f"set {key}", context, command, key.encode(), given, 0)


def _short(path: str, held: list[int]) -> str:
    """Returns a path that fits into fsconfig; a long one is opened and named by its descriptor."""
    if len(path.encode("utf-8", "surrogateescape")) <= _LONGEST:
        return path
    try:
        held.append(os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
    except OSError as error:
        raise errors.from_oserror(error, f"open the layer {path}") from error
    return f"/proc/self/fd/{held[-1]}"


def _escaped(path: str) -> str:
    return path.replace("\\", "\\\\")


def _said(context: int) -> str:
    """Returns the kernel's messages about a failure; each begins with its level and a space."""
    messages = []
    try:
        while True:
            messages.append(os.read(context, 4096).decode("utf-8", "replace")[2:].strip())
    except OSError:
        return "; ".join(messages)


def mount_relative(target: str, layers: Sequence[str], writable: dict[str, str], options: Sequence[str]) -> None:
    """Mounts by `mount(2)`, for kernels that do not accept layers one by one."""
    absolute = [os.path.abspath(layer) for layer in layers]
    shared = os.path.commonpath(absolute)
    names = [os.path.relpath(layer, shared) for layer in absolute]
    text = ",".join(
        [
            "lowerdir=" + ":".join(_written(name).replace(":", "\\:") for name in names),
            *(f"{key}={_written(os.path.abspath(value))}" for key, value in writable.items()),
            *options,
        ]
    )
    operation = f"mount an overlay of {len(layers)} layers at {target}"
    if len(text.encode("utf-8", "surrogateescape")) > _PAGE:
        raise errors.Refused(errno.E2BIG, operation, "this kernel takes one page of options and they need more")
    where = os.path.abspath(target)

    def mount() -> None:
        syscalls.unshare(syscalls.FS)
        os.chdir(shared)
        syscalls.mount("overlay", where, "overlay", 0, text)

    in_thread(mount)


def _written(path: str) -> str:
    return _escaped(path).replace(",", "\\,")
