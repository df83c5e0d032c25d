"""The files of one container's log: the present one, and those that were rotated away, read in the order of writing.

The runtime writes to PATH. Rotating renames that to PATH.TIME, perhaps packed as PATH.TIME.gz, and opens a new one.
Everything here blocks: call it in a worker thread.
"""

import gzip
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from podwire.kubelet.server.log_lines import ends_line

CHUNK = 256 * 1024
"""Bytes that are read at once."""
BLOCK = 64 * 1024
"""Bytes that are looked at at once when the end of a file is sought for lines."""


class LogFiles:
    """One reader's place in a log."""

    def __init__(self, path: Path, tail: int | None) -> None:
        """Open the log at its beginning, or so many lines before its end. Raises OSError."""
        self._path = path
        self._present: BinaryIO = path.open("rb")  # before the others are listed: a rotation in between loses nothing
        try:
            self._older = self._begin(tail)
        except BaseException:
            self._present.close()
            raise

    def _begin(self, tail: int | None) -> Iterator[bytes]:
        """Where reading starts: older files that are read as a whole, then the present one."""
        if tail is None:
            return self._whole(rotated(self._path))
        start, missing = tail_start(self._present, tail)
        self._present.seek(start)
        chosen: list[tuple[Path, int]] = []
        for each in reversed(rotated(self._path)):
            if not missing:
                break
            with opened(each) as file:
                start, missing = tail_start(file, missing)
            chosen.insert(0, (each, start))
        return self._parts(chosen)

    def _whole(self, paths: list[Path]) -> Iterator[bytes]:
        return self._parts([(each, 0) for each in paths])

    def _parts(self, parts: list[tuple[Path, int]]) -> Iterator[bytes]:
        present = os.fstat(self._present.fileno()).st_ino
        for path, start in parts:
            try:
                file = opened(path)
            except FileNotFoundError:  # rotated away for good meanwhile
                continue
            with file:
                if not isinstance(file, io.BytesIO) and os.fstat(file.fileno()).st_ino == present:
                    continue
                file.seek(start)
                while data := file.read(CHUNK):
                    yield data

    @property
    def descriptor(self) -> int:
        """The present file's."""
        return self._present.fileno()

    def read(self) -> bytes:
        """What comes next; empty when there is nothing more by now."""
        return next(self._older, b"") or self._present.read(CHUNK)

    def is_replaced(self) -> bool:
        """Whether the log was rotated since the present file was opened, and goes on in another."""
        return bool(self._later())

    def advance(self) -> bool:
        """Go on with what came after the present file; False when it is still the newest."""
        later = self._later()
        if not later:
            return False
        newest: BinaryIO = later[-1].open("rb")
        self._present.close()
        self._present, self._older = newest, self._whole(later[:-1])
        return True

    def _later(self) -> list[Path]:
        """What was written after the present file. When that was removed or packed meanwhile, only the newest."""
        inode = os.fstat(self._present.fileno()).st_ino
        older, newest = rotated(self._path), _inode(self._path)
        if newest in (0, inode):
            return []
        inodes = [_inode(each) for each in older]
        return [*(older[inodes.index(inode) + 1 :] if inode in inodes else []), self._path]

    def close(self) -> None:
        self._present.close()


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return 0


def rotated(path: Path) -> list[Path]:
    """What was rotated away, the oldest first: the names end in the time."""
    found = [each for each in path.parent.glob(f"{path.name}.*") if each.suffix != ".tmp"]
    return sorted(found, key=lambda each: each.name.removesuffix(".gz"))


def opened(path: Path) -> BinaryIO:
    """A file as it was written; a packed one is unpacked in memory, it is as large as one log file may grow."""
    return io.BytesIO(gzip.decompress(path.read_bytes())) if path.suffix == ".gz" else path.open("rb")


def tail_start(file: BinaryIO, count: int) -> tuple[int, int]:
    """Where the last `count` lines of a file begin, and how many of them are not in it. Only its end is read."""
    at = size = file.seek(0, os.SEEK_END)
    if not count:
        return size, 0
    found, carried = 0, b""
    while at:
        step = min(BLOCK, at)
        at -= step
        file.seek(at)
        data = file.read(step) + carried
        first = data.find(b"\n") + 1 if at else 0  # what begins before this block is looked at with the next one
        if at and not first:
            carried = data
            continue
        carried, end = data[:first], at + len(data)
        for record in reversed(data[first:].splitlines(keepends=True)):
            if ends_line(record) or (end == size and not found):  # a line that is not finished is one, too
                found += 1
            if found > count:
                return end, 0
            end -= len(record)
    return 0, count - found
