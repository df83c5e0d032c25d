"""Disk space that is kept for deletions, inside the store's own files, so that no other program can take it.

A full disk is emptied by deleting, and deleting from a log of changes takes space first: the deletion itself, its row
in the write-ahead log (WAL), and the work of compaction. So both files own blocks beyond what they use (fallocate):
the WAL, which is used again from its beginning after each checkpoint, and the database, which grows at checkpoints.

| state     | entered when                     | ordinary writes          | urgent writes, maintenance      |
|-----------|----------------------------------|--------------------------|---------------------------------|
| kept      | `top_up` succeeds                | tried                    | tried                           |
| exhausted | `top_up` fails: the disk is full | refused until it tops up | tried, with the reserved blocks |

A write is urgent when it deletes, or prepares a deletion. Every ordinary write that comes while the reserve is
exhausted tries to top it up, so nothing has to watch the disk.

Whatever is given back, another program may take before it is reserved again. So on a disk that is nearly full:

- the WAL is not truncated;
- before a checkpoint, which gives up the blocks beyond the end of the database, the writer makes free pages of them;
- the database keeps the free pages that compaction makes of superseded rows, and compaction comes before the next
  deletion.

SQLite removes the WAL when it closes the database. `keep` gives it a second name before, and `restore` returns it: the
blocks stay ours while the store is closed. What it contains was checkpointed; its header is erased all the same.
"""

import errno
import os
from contextlib import suppress
from pathlib import Path

from podwire.linux import errors, syscalls

FILE = "reserve"
SIZE = 4 << 20
"""Bytes in each of the two files: twice as much as the WAL grows before it is checkpointed."""

LEAST = 64 << 10
SMALLEST = 4096
SHARE = 8
"""On a small file system, each file reserves at most this part of the free space."""

_BLOCK = 512
_MARGIN = 32 << 10
_WAL_HEADER = 32


def restore(database: Path) -> None:
    """Returns the kept WAL to its place, empty; before SQLite opens the database. A WAL that is there wins."""
    kept, wal = database.parent / FILE, _wal(database)
    with suppress(FileNotFoundError):
        if wal.exists():
            kept.unlink()
            return
        file = os.open(kept, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            if os.pread(file, _WAL_HEADER, 0).strip(b"\0"):
                os.pwrite(file, bytes(_WAL_HEADER), 0)
                os.fsync(file)
        finally:
            os.close(file)
        kept.rename(wal)


class Reserve:
    """The blocks of one open database; used by one thread at a time."""

    def __init__(self, database: Path, size: int = SIZE) -> None:
        """Opens the two files. `close` only after the database is closed: that would release SQLite's locks."""
        self._database = database
        self._files = [
            os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600) for path in (database, _wal(database))
        ]
        self._most = size
        # After a crash on a full disk there is nothing to measure by: the WAL still owns what was reserved.
        self.size = max(LEAST, min(size, os.fstat(self._files[1]).st_blocks * _BLOCK))
        self.exhausted = False
        self.top_up()

    def is_tight(self) -> bool:
        """Whether another program could soon take what the database returns to the file system."""
        return self.exhausted or _free(self._database.parent) < 2 * self.size

    def top_up(self, free_bytes: int = 0) -> bool:
        """Reserves what is missing; returns whether all is reserved, or the file system cannot reserve anything.

        Comes after every checkpoint: SQLite truncates the database then, and so gives up the blocks beyond its end.
        `free_bytes` within the database are as good as blocks beyond its end.
        """
        self.size = max(self.size, min(self._most, _free(self._database.parent) // SHARE))
        database, wal = self._files
        enough = self._reserve(wal, 0, self.size) and self._reserve(
            database, os.fstat(database).st_size, self.size - free_bytes
        )
        self.exhausted = not enough
        return enough

    def beyond(self, size: int) -> int:
        """Returns the bytes of the blocks that the database owns beyond its size in pages, a few of which may be used
        by the file system itself."""
        return os.fstat(self._files[0]).st_blocks * _BLOCK - size - _MARGIN

    def _reserve(self, file: int, offset: int, requested: int) -> bool:
        """Reserves blocks of a file, if not all then as many as there are; returns whether it got all."""
        size = requested
        while size >= SMALLEST:
            try:
                syscalls.preallocate(file, offset, size)
                break
            except errors.LinuxError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    return True  # not supported here: a full disk is found out by writing
            size //= 2
        return size == requested

    def keep(self) -> None:
        """Gives the WAL a second name; before SQLite removes it."""
        with suppress(OSError):
            os.link(_wal(self._database), self._database.parent / FILE)

    def close(self) -> None:
        for file in self._files:
            os.close(file)
        self._files = []


def _wal(database: Path) -> Path:
    return database.with_name(f"{database.name}-wal")


def _free(directory: Path) -> int:
    free = os.statvfs(directory)
    return free.f_bavail * free.f_frsize
