"""Append logs: a file whose newest whole line is the current value.

The first line is written as an atomic file. Each later line is appended with one write(2) that begins with a newline,
so that a line which a crash or a full disk tore does not damage the next one. Appending costs a fraction of replacing
the file. All lines survive the death of the process; once the first is fsynced, a power loss may take the newest lines,
never all of them. A file that has grown longer than `MAX_BYTES` is replaced by its newest line, durably.
"""

import os
from collections.abc import Callable
from typing import TypeVar

from podwire.durable.files import fsync_file, write_all, write_durably, write_file
from podwire.linux import errors
from podwire.linux.values import Path

MAX_BYTES = 1 << 16
"""Size above which a log is rewritten."""
T = TypeVar("T")


def put(path: Path, line: bytes, *, durably: bool = True, mode: int = 0o600) -> os.stat_result | None:
    """Append a line; a failed append leaves the earlier ones. `durably` fsyncs the first line of a new file.

    Returns the file's stat when this line is the newest; None when another writer appended at the same time.
    """
    try:
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    except FileNotFoundError:
        return write_file(path, line, mode, durable=durably)
    except OSError as error:
        raise errors.from_oserror(error, f"write {os.fspath(path)}") from error
    try:
        size = os.fstat(file).st_size
        if size > MAX_BYTES:
            return write_durably(path, line, mode)  # it replaces lines that may be on the disk
        write_all(file, b"\n" + line)
        now = os.fstat(file)
        return now if now.st_size == size + 1 + len(line) else None
    except OSError as error:
        raise errors.from_oserror(error, f"write {os.fspath(path)}") from error
    finally:
        os.close(file)


def fsync(path: Path) -> None:
    """Make all lines survive a power loss."""
    fsync_file(path)


def newest(data: bytes, decode: Callable[[bytes], T], damaged: type[Exception]) -> T:
    """Decode the newest whole line; raises `damaged`, as `decode` does, when no line is whole."""
    first, *appended = data.split(b"\n")
    for line in reversed(appended):
        try:
            return decode(line)
        except damaged:
            continue  # its writer was killed, or the disk was full
    return decode(first)
