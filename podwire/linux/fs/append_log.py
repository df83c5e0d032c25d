"""Values in files that change: the first line is what was there at first, each further one what became of it.

All outlive the process that adds them. Once the first is on the disk, too, a loss of power may take the newest, never
all. To add one costs a fraction of putting a new file in place.
"""

import os
from collections.abc import Callable
from typing import TypeVar

from podwire.linux import errors
from podwire.linux.fs.files import replace_file, sync_directory, write_all, write_durably
from podwire.linux.values import Path

LONGEST = 1 << 16
"""Bytes of a file that is put in place anew with its newest line."""
T = TypeVar("T")


def put(path: Path, line: bytes, *, durably: bool = True) -> None:
    """Make this the newest; one that cannot be written leaves those before it as they are. `durably` is a first one
    on the disk when this returns."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    except FileNotFoundError:
        return (write_durably if durably else replace_file)(path, line)
    except OSError as error:
        raise errors.from_oserror(error, f"write {os.fspath(path)}") from error
    try:
        if os.fstat(file).st_size > LONGEST:
            return write_durably(path, line)  # it takes the place of all before it
        write_all(file, b"\n" + line)
    except OSError as error:
        raise errors.from_oserror(error, f"write {os.fspath(path)}") from error
    finally:
        os.close(file)


def settle(path: Path) -> None:
    """What there is survives a loss of power once this returns."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(file)
        finally:
            os.close(file)
        sync_directory(os.path.dirname(os.fspath(path)) or ".")
    except OSError as error:
        raise errors.from_oserror(error, f"write {os.fspath(path)}") from error


def newest(data: bytes, decode: Callable[[bytes], T], broken: type[Exception]) -> T:
    """What the last line says that is whole; `broken` when none is."""
    first, *others = data.split(b"\n")
    for each in reversed(others):
        try:
            return decode(each)
        except broken:
            continue  # whoever wrote it was killed, or the disk was full
    return decode(first)
