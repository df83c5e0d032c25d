"""Records on disk: files of JSON lines, bounded in size, age and number; the oldest file is dropped.

A line is written at once. A line that a crash or a full disk left incomplete is skipped and reported by every reader,
and terminated by the next writer.
"""

import contextlib
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from podwire.trace.record import Record, decode

SUFFIX = ".jsonl"
SEGMENTS = 8
LIMIT = 32 << 20
"""Bytes of all segments together."""
AGE = 7 * 24 * 3600.0
"""Seconds after which records are dropped."""
LATEST = 253_402_300_799.0
"""The last second of the year 9999; records with a later time are invalid."""


class Writer:
    """Appends to the newest segment; only one writer at a time."""

    def __init__(self, directory: Path, limit: int = LIMIT, age: float = AGE) -> None:
        self._directory = directory
        self._segment = limit // SEGMENTS
        self._age = age
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        newest = segment_files(directory)[-1:]
        self._number = _number(newest[0]) if newest else 1
        self._torn = False
        self._file = self._opened()
        self._drop()

    def write(self, lines: list[bytes]) -> None:
        """Writes lines; they survive the end of this process. Raises OSError: then some may be missing."""
        for chunk in _chunks(lines, self._segment):
            size = os.fstat(self._file).st_size
            if size and (size + len(chunk) > self._segment or time.time() > self._began + self._age / SEGMENTS):
                self._next()
            data = memoryview(b"\n" + chunk if self._torn else chunk)
            self._torn = True
            while data:
                data = data[os.write(self._file, data) :]
            self._torn = False

    def close(self) -> None:
        os.close(self._file)

    def _opened(self) -> int:
        path = self._directory / f"{self._number:08}{SUFFIX}"
        self._began = _began(path)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        size = os.fstat(file).st_size
        self._torn = size > 0 and os.pread(file, 1, size - 1) != b"\n"
        return file

    def _next(self) -> None:
        before, self._number = self._file, self._number + 1
        self._file = self._opened()
        os.close(before)
        self._drop()

    def _drop(self) -> None:
        """Removes old segments, but never the newest, which is being written."""
        *older, _ = segment_files(self._directory)
        oldest = time.time() - self._age
        for place, path in enumerate(older):
            with contextlib.suppress(OSError):
                if place < len(older) + 1 - SEGMENTS or path.stat().st_mtime < oldest:
                    path.unlink()


class Position(NamedTuple):
    """A line of a segment."""

    segment: str
    offset: int
    length: int


@dataclass(slots=True)
class _Skipped:
    lines: int = 0
    first: int = 0


class Reader:
    """Reads what was written since the last call, also while a writer appends. Invalid lines are skipped."""

    def __init__(self, directory: Path, most: int = 2 * LIMIT) -> None:
        """`most` bounds the bytes of one file; a larger one was not written by us."""
        self._directory = directory
        self._most = most
        self._read: dict[str, int] = {}
        self._counted: dict[str, int] = {}
        self._skipped: dict[str, _Skipped] = {}
        self._unreadable: dict[str, str] = {}

    def more(self) -> Iterator[Record]:
        for _, record in self.positioned():
            yield record

    def positioned(self) -> Iterator[tuple[Position, Record]]:
        """Yields each record with the position of its line."""
        for path in segment_files(self._directory):
            begin = self._read.get(path.name, 0)
            try:
                with _opened(path) as file:
                    file.seek(begin)
                    data = file.read(self._most + 1)
            except FileNotFoundError:
                continue  # the writer dropped it just now
            except OSError as error:
                self._unreadable[path.name] = error.strerror or str(error)
                continue
            if len(data) > self._most:
                self._unreadable[path.name] = f"larger than {self._most} bytes"
                continue
            whole, newline, _ = data.rpartition(b"\n")
            self._read[path.name] = begin + len(whole) + len(newline)
            yield from self._records(path.name, whole, begin)

    def troubles(self) -> list[str]:
        """Returns what could not be read so far, by file."""
        troubles = [f"{self._directory / name}: {why}" for name, why in sorted(self._unreadable.items())]
        for name, skipped in sorted(self._skipped.items()):
            lines = f"{skipped.lines} invalid lines were" if skipped.lines > 1 else "an invalid line was"
            troubles.append(f"{self._directory / name}: {lines} skipped, first line {skipped.first}")
        return troubles

    def _records(self, name: str, data: bytes, offset: int) -> Iterator[tuple[Position, Record]]:
        lines = data.split(b"\n") if data else []
        for number, line in enumerate(lines, self._counted.get(name, 0) + 1):
            record = parsed(line)
            if record is not None:
                yield Position(name, offset, len(line)), record
            elif line:
                skipped = self._skipped.setdefault(name, _Skipped(first=number))
                skipped.lines += 1
            offset += len(line) + 1
        self._counted[name] = self._counted.get(name, 0) + len(lines)


def segment_files(directory: Path) -> list[Path]:
    """Returns the segments, the oldest first; none without a directory. Raises OSError if it cannot be read."""
    try:
        found = [directory / name for name in os.listdir(directory)]  # noqa: PTH208 - a glob hides what it may not read
    except FileNotFoundError:
        return []
    return sorted(path for path in found if path.suffix == SUFFIX and path.stem.isdecimal() and path.stem.isascii())


def _opened(path: Path) -> BinaryIO:
    """Opens a regular file. Raises OSError for others: a pipe would block, and a device has no end."""
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115 - Path.open takes no opener; the caller closes it
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError("not a regular file")
    return file


def parsed(line: bytes) -> Record | None:
    """Returns None for a line that no recorder would have sent."""
    try:
        record = decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return record if isinstance(record.detail, dict) and 0 <= record.time <= LATEST else None


def _began(path: Path) -> float:
    """Returns the time of the first record of a segment; now, for a new one."""
    with contextlib.suppress(OSError), _opened(path) as file:
        first = parsed(file.readline(1 << 20))
        if first is not None:
            return first.time
    return time.time()


def _number(path: Path) -> int:
    return int(path.stem)


def _chunks(lines: list[bytes], most: int) -> Iterator[bytes]:
    """Joins lines so that no write is larger than a segment."""
    joined: list[bytes] = []
    size = 0
    for line in lines:
        if joined and size + len(line) + 1 > most:
            yield b"".join(joined)
            joined, size = [], 0
        joined += (line, b"\n")
        size += len(line) + 1
    if joined:
        yield b"".join(joined)
