"""The files of one container's log: the current one and rotated ones, read in the order of writing.

The runtime writes to PATH. Rotating renames that to PATH.TIME, perhaps packed as PATH.TIME.gz, and opens a new one.
Everything here blocks: call it in a worker thread.
"""

import contextlib
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
"""Bytes that are read at once when lines are searched from the end of a file."""


class LogFiles:
    """The position of one reader in a log."""

    def __init__(self, path: Path, tail: int | None) -> None:
        """Open the log at its beginning, or `tail` lines before its end. Raises OSError."""
        self._path = path
        with contextlib.ExitStack() as undo:
            # Opened before the others are listed: a rotation in between loses nothing.
            self._present: BinaryIO = undo.enter_context(path.open("rb"))
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
            with opened(path) as file:
                start, missing = tail_start(file, missing)
            chosen.insert(0, (path, start))
        return self._parts(chosen)

    def _whole(self, paths: list[Path]) -> Iterator[bytes]:
        return self._parts([(path, 0) for path in paths])

    def _parts(self, parts: list[tuple[Path, int]]) -> Iterator[bytes]:
        present = os.fstat(self._present.fileno()).st_ino
        for path, start in parts:
            try:
                file = opened(path)
            except FileNotFoundError:  # removed meanwhile
                continue
            with file:
                if not isinstance(file, io.BytesIO) and os.fstat(file.fileno()).st_ino == present:
                    continue
                file.seek(start)
                while data := file.read(CHUNK):
                    yield data

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
        newest: BinaryIO = later[-1].open("rb")
        self._present.close()
        self._present, self._older = newest, self._whole(later[:-1])
        return True

    def _later(self) -> list[Path]:
        """Files written after the current one. If that was removed or compressed meanwhile, only the newest."""
        inode = os.fstat(self._present.fileno()).st_ino
        older, newest = rotated(self._path), _inode(self._path)
        if newest in (0, inode):
            return []
        inodes = [_inode(path) for path in older]
        return [*(older[inodes.index(inode) + 1 :] if inode in inodes else []), self._path]

    def close(self) -> None:
        self._present.close()


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return 0


def rotated(path: Path) -> list[Path]:
    """Rotated files, the oldest first: the names end in the time."""
    files = [file for file in path.parent.glob(f"{path.name}.*") if file.suffix != ".tmp"]
    return sorted(files, key=lambda file: file.name.removesuffix(".gz"))


def opened(path: Path) -> BinaryIO:
    """Opens a file; a compressed one is decompressed in memory, it is at most as large as one log file."""
    return io.BytesIO(gzip.decompress(path.read_bytes())) if path.suffix == ".gz" else path.open("rb")


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
        if at and not first:
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
