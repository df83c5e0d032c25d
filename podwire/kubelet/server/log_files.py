"""The files of one container's log: the current one and rotated ones, read in the order of writing.

The runtime writes to PATH. Rotating renames that to PATH.TIME, later compressed as PATH.TIME.gz, and opens a new one. A
file is known by the time of its last write, which compression keeps. Compressed files are read as streams: one may be
much larger than the memory that a reader should cost. Everything here blocks: call it in a worker thread.
"""

import contextlib
import gzip
import logging
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from podwire.kubelet.log_rotation import COMPRESSED, rotated_files
from podwire.kubelet.server.log_lines import LONGEST_RECORD, ends_line
from podwire.linux.errors import LinuxError
from podwire.linux.fs.regular_files import open_regular

log = logging.getLogger(__name__)

CHUNK = 256 * 1024
"""Bytes that are read at once."""
BLOCK = 64 * 1024
"""Bytes that are read at once when lines are searched from the end of a file."""


class LogFiles:
    """The position of one reader in a log."""

    def __init__(self, path: Path, tail: int | None) -> None:
        """Open the log at its beginning, or `tail` lines before its end. Raises OSError."""
        self._path = path
        with contextlib.ExitStack() as undo:
            # Opened before the others are listed: a rotation in between loses nothing.
            self._present: BinaryIO = undo.enter_context(opened(path))
            self._older = self._begin(tail)
            undo.pop_all()

    def _begin(self, tail: int | None) -> Iterator[bytes]:
        """Seek to the start; returns the parts of older files that are read before the current one."""
        if tail is None:
            return self._whole(rotated(self._path))
        start, missing = tail_start(self._present, tail)
        self._present.seek(start)
        chosen: list[tuple[Path, int]] = []
        for path in reversed(rotated(self._path)):
            if not missing:
                break
            try:
                with opened(path) as file:
                    start, missing = tail_of_stream(file, missing) if is_compressed(path) else tail_start(file, missing)
            except DAMAGED as error:
                log.info("cannot read rotated log", extra={"path": str(path), "error": str(error)})
                continue
            chosen.insert(0, (path, start))
        return self._parts(chosen)

    def _whole(self, paths: list[Path]) -> Iterator[bytes]:
        return self._parts([(path, 0) for path in paths])

    def _parts(self, parts: list[tuple[Path, int]]) -> Iterator[bytes]:
        present = os.fstat(self._present.fileno()).st_ino
        for path, start in parts:
            try:
                with opened(path) as file:
                    if os.fstat(file.fileno()).st_ino == present:
                        continue
                    file.seek(start)
                    while data := file.read(CHUNK):
                        yield data
            except DAMAGED as error:  # or removed meanwhile
                log.info("cannot read all of rotated log", extra={"path": str(path), "error": str(error)})

    @property
    def descriptor(self) -> int:
        """The descriptor of the current file."""
        return self._present.fileno()

    def read(self) -> bytes:
        """The next chunk; empty when there is nothing more at present."""
        return next(self._older, b"") or self._present.read(CHUNK)

    def is_replaced(self) -> bool:
        """Whether the log was rotated since the current file was opened, and goes on in another."""
        return bool(self._later())

    def advance(self) -> bool:
        """Go on with the next file; returns False if the current one is still the newest."""
        later = self._later()
        if not later:
            return False
        newest = opened(later[-1])
        self._present.close()
        self._present, self._older = newest, self._whole(later[:-1])
        return True

    def _later(self) -> list[Path]:
        """Files written after the current one."""
        current = os.fstat(self._present.fileno())
        newest = _state(self._path)
        if newest is None or newest.st_ino == current.st_ino:
            return []
        states = {path: _state(path) for path in rotated(self._path)}
        return [
            *(
                path
                for path, state in states.items()
                if state and state.st_ino != current.st_ino and state.st_mtime_ns > current.st_mtime_ns
            ),
            self._path,
        ]

    def close(self) -> None:
        self._present.close()


def _state(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except OSError:
        return None


def rotated(path: Path) -> list[Path]:
    """Rotated files, the oldest first."""
    return rotated_files(path)


def is_compressed(path: Path) -> bool:
    return path.suffix == COMPRESSED


class _Compressed(gzip.GzipFile):
    """Closes the file below it, too."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(fileobj=file)
        self._file = file

    def close(self) -> None:
        super().close()
        self._file.close()


DAMAGED = (OSError, LinuxError, EOFError, zlib.error)
"""Errors of reading a compressed file that was cut or changed."""


def opened(path: Path) -> BinaryIO:
    """Opens a regular file; a compressed one is decompressed while it is read. Raises OSError."""
    file: BinaryIO = os.fdopen(open_regular(path), "rb")
    return cast("BinaryIO", _Compressed(file)) if is_compressed(path) else file


def tail_of_stream(file: BinaryIO, count: int) -> tuple[int, int]:
    """As `tail_start`, of a file that can be read only from its beginning: it is read twice, and not kept."""
    ends = sum(1 for _ in _line_ends(file))
    if ends <= count:
        return 0, count - ends
    file.seek(0)
    skipped = ends - count
    return next((end for number, end in enumerate(_line_ends(file), 1) if number == skipped), 0), 0


def _line_ends(file: BinaryIO) -> Iterator[int]:
    """Offsets of the ends of lines; an unfinished line at the end of the file counts."""
    at, rest, finished = 0, b"", True
    while data := file.read(CHUNK):
        *records, rest = (rest + data).split(b"\n")
        for record in records:
            at += len(record) + 1
            finished = ends_line(record)
            if finished:
                yield at
        if len(rest) > LONGEST_RECORD:
            at, rest, finished = at + len(rest), b"", False
    if rest or not finished:
        yield at + len(rest)


def tail_start(file: BinaryIO, count: int) -> tuple[int, int]:
    """The offset of the last `count` lines of a file, and how many of them are missing. Only its end is read."""
    at = size = file.seek(0, os.SEEK_END)
    if not count:
        return size, 0
    found, carried = 0, b""
    while at:
        step = min(BLOCK, at)
        at -= step
        file.seek(at)
        data = file.read(step) + carried
        first = (
            data.find(b"\n") + 1 if at else 0
        )  # the line that begins before this block is handled with the next block
        if at and not first and len(data) <= LONGEST_RECORD:
            carried = data
            continue
        carried, end = data[:first], at + len(data)
        for record in reversed(data[first:].splitlines(keepends=True)):
            if ends_line(record) or (end == size and not found):  # an unfinished line counts
                found += 1
            if found > count:
                return end, 0
            end -= len(record)
    return 0, count - found
