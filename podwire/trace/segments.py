"""Records on disk: files of JSON lines, each of a bounded size, only so many of them; the oldest is dropped.

A line is written whole and at once. What a crash leaves half-written is no line: it is skipped by every reader, and
the next writer ends it.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from podwire.trace.record import Record, decode

SUFFIX = ".jsonl"
SEGMENTS = 8
LIMIT = 32 << 20
"""Bytes of all segments together."""


class Writer:
    """Appends to the newest segment; there may be one writer at a time."""

    def __init__(self, directory: Path, limit: int = LIMIT) -> None:
        self._directory = directory
        self._segment = limit // SEGMENTS
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        newest = segment_files(directory)[-1:]
        self._number = _number(newest[0]) if newest else 1
        self._file = self._opened()

    def write(self, lines: list[bytes]) -> None:
        """Durable against the end of this process when it returns. Raises OSError: then some may be missing."""
        for chunk in _chunks(lines, self._segment):
            size = os.fstat(self._file).st_size
            if size and size + len(chunk) > self._segment:
                self._next()
            data = memoryview(chunk)
            while data:
                data = data[os.write(self._file, data) :]

    def close(self) -> None:
        os.close(self._file)

    def _opened(self) -> int:
        path = self._directory / f"{self._number:08}{SUFFIX}"
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        size = os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":
            os.write(file, b"\n")
        return file

    def _next(self) -> None:
        os.close(self._file)
        self._number += 1
        self._file = self._opened()
        for each in segment_files(self._directory)[:-SEGMENTS]:
            each.unlink(missing_ok=True)


class Reader:
    """Reads what was written since the last time, while it is being written."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read: dict[str, int] = {}

    def more(self) -> Iterator[Record]:
        for path in segment_files(self._directory):
            begin = self._read.get(path.name, 0)
            with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
                file.seek(begin)
                whole, newline, _ = file.read().rpartition(b"\n")
                self._read[path.name] = begin + len(whole) + len(newline)
                yield from _records(whole)


def segment_files(directory: Path) -> list[Path]:
    """From the oldest to the newest."""
    return sorted(each for each in directory.glob(f"*{SUFFIX}") if each.stem.isdecimal())


def _records(data: bytes) -> Iterator[Record]:
    for line in data.splitlines():
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
            yield decode(line)


def _number(path: Path) -> int:
    return int(path.stem)


def _chunks(lines: list[bytes], most: int) -> Iterator[bytes]:
    """Lines joined so that no write is larger than a segment."""
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
