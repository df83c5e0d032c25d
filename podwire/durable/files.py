"""Atomic file operations: readers see the old file or the new one, never a part, after any crash.

A write goes to a temporary file beside the target, which then takes the target's name:

| step                               | POWER_LOSS | PROCESS_DEATH | killed before the step: what is at the path        |
|------------------------------------|------------|---------------|----------------------------------------------------|
| create `.NAME.PID-N.tmp`, write it | yes        | yes           | the old file; a temporary file is left for `sweep` |
| fsync the temporary file           | yes        | no            | the old file                                       |
| rename it over the target          | rename     | exchange      | the old file                                       |
| fsync the directory                | yes        | no            | the new file; a power loss may bring back the old  |

PROCESS_DEATH uses renameat2(RENAME_EXCHANGE) and removes the old file afterwards, because ext4 (auto_da_alloc) flushes
a file that is renamed over another one, which costs as much as the fsync that the caller did not ask for.
"""

import errno
import os
from contextlib import suppress
from enum import Enum
from itertools import count

from podwire.linux import errors, syscalls
from podwire.linux.values import Path

TEMPORARY = ".tmp"
"""The names of temporary files begin with a dot and end with this."""
_numbers = count()
_ATTEMPTS = 100


class Durability(Enum):
    """How much a write survives once it has returned. Every write survives the death of any process."""

    POWER_LOSS = "power loss"
    """The write is on the disk: file and directory were fsynced."""
    CREATION = "creation survives power loss"
    """The first write of a file is on the disk; a power loss may take later ones and bring back an earlier state."""
    PROCESS_DEATH = "process death"
    """Nothing was fsynced: a power loss may take the write, or leave an empty or torn file."""


def private_directory(path: Path) -> None:
    """Make a directory that other users cannot enter, or take their permissions from an existing one."""
    os.makedirs(path, mode=0o700, exist_ok=True)
    if os.stat(path).st_mode & 0o077:
        os.chmod(path, 0o700)


def write_durably(path: Path, data: bytes, mode: int = 0o600) -> os.stat_result:
    """Replace a file atomically; it survives a power loss once this returns. NoSuchPath, OutOfResources, LinuxError.

    Returns the new file's stat, which another writer cannot have changed.
    """
    return write_file(path, data, mode, durable=True)


def replace_file(path: Path, data: bytes, mode: int = 0o600) -> os.stat_result:
    """Replace a file atomically without fsync, for state that is worth nothing after a power loss."""
    return write_file(path, data, mode, durable=False)


def write_file(path: Path, data: bytes, mode: int = 0o600, *, durable: bool) -> os.stat_result:
    """`write_durably` or `replace_file`."""
    target = os.fspath(path)
    directory, name = os.path.split(target)
    temporary = ""
    try:
        temporary, file = _create_temporary(directory, name, mode)
        try:
            os.fchmod(file, mode)  # whatever the umask is
            write_all(file, data)
            written = os.fstat(file)
            if durable:
                os.fsync(file)
        finally:
            os.close(file)
        if durable:
            os.rename(temporary, target)
            fsync_directory(directory or ".")
        else:
            rename_over(temporary, target)
    except OSError as error:
        if temporary:
            with suppress(OSError):
                os.unlink(temporary)
        raise errors.from_oserror(error, f"write {target}", {errno.ENOENT: errors.NoSuchPath}) from error
    return written


def _create_temporary(directory: str, name: str, mode: int) -> tuple[str, int]:
    """Creates a file that no other writer has; one in another PID namespace may have the number of this process."""
    for _ in range(_ATTEMPTS):
        path = os.path.join(directory, f".{name}.{os.getpid()}-{next(_numbers)}{TEMPORARY}")
        with suppress(FileExistsError):
            return path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)


def rename_over(temporary: str, target: str) -> None:
    """Rename a file over another one without making the file system flush it."""
    if not syscalls.exchange(temporary, target):
        os.rename(temporary, target)
        return
    try:
        os.unlink(temporary)
    except IsADirectoryError:  # the target was a directory: undo
        syscalls.exchange(temporary, target)
        raise


def remove_durably(path: Path) -> None:
    """Remove a file, if it exists; it stays removed after a power loss."""
    target = os.fspath(path)
    try:
        os.unlink(target)
        fsync_directory(os.path.dirname(target) or ".")
    except FileNotFoundError:
        pass
    except OSError as error:
        raise errors.from_oserror(error, f"remove {target}") from error


def sweep(directory: Path) -> None:
    """Remove the temporary files that killed writers left; only while nobody writes in the directory."""
    parent = os.fspath(directory)
    for name in os.listdir(parent):
        if name.startswith(".") and name.endswith(TEMPORARY):
            remove_durably(os.path.join(parent, name))


def why_unwritable(directory: str) -> str:
    """Why files cannot be created in a directory, or in the nearest existing parent; empty when they can."""
    while not os.path.lexists(directory):
        directory = os.path.dirname(directory) or "."
    if not os.path.isdir(directory):
        return f"{directory} is not a directory"
    return "" if os.access(directory, os.W_OK | os.X_OK) else f"{directory} is not writable"


def fsync_file(path: Path) -> None:
    """Make a file's content and its name survive a power loss."""
    target = os.fspath(path)
    try:
        file = os.open(target, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(file)
        finally:
            os.close(file)
        fsync_directory(os.path.dirname(target) or ".")
    except OSError as error:
        raise errors.from_oserror(error, f"write {target}") from error


def fsync_directory(path: str) -> None:
    """Make the names in a directory survive a power loss."""
    opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def write_all(file: int, data: bytes) -> None:
    """Write all of the data, however often the kernel takes only a part."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]
