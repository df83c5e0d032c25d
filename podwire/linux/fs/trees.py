"""Removes and measures directory trees that a container built: of any depth, following no symlink, crossing no mount.

A container can nest directories deeper than a recursion goes or a path is long, and it can change the tree meanwhile.
So nothing here recurses or joins paths: every step is relative to an open directory, and names are opened without
following links. At most `HELD_LEVELS` directories are open at once.
"""

import errno
import os
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import NamedTuple

from podwire.linux import errors, syscalls
from podwire.linux.values import Path

HELD_LEVELS = 64
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_XDEV, _NO_MAGICLINKS = 0x01, 0x02
_ATTEMPTS = 8
"""How often a directory is emptied again that another process keeps filling."""


def _open_below(parent: int, name: str) -> int:
    """Open a directory that is not a symlink and not a mount point, not even of the same file system.

    NoSuchPath if it was removed or replaced meanwhile; Busy for a mount point.
    """
    try:
        return syscalls.openat2(parent, name, _DIRECTORY, 0, _NO_XDEV | _NO_MAGICLINKS)
    except errors.PathEscapes as error:
        if error.errno == errno.EXDEV:
            raise errors.Busy(errno.EBUSY, f"open {name}", "it is a mount point") from error
        raise errors.NoSuchPath(errno.ENOENT, f"open {name}", "it is a symlink") from error


class _Level:
    """An open directory on the way down, and its entries as far as they were read."""

    def __init__(self, parent: int, name: str) -> None:
        self.parent = parent
        self.name = name
        self.attempts = 0
        self.descriptor = _open_below(parent, name)
        try:
            self._entries = os.scandir(self.descriptor)
        except OSError:
            os.close(self.descriptor)
            raise
        self._any = False

    def next(self) -> str | None:
        """The next entry; None when there is none left. Entries may be removed and come in between."""
        while True:
            for entry in self._entries:
                self._any = True
                return entry.name
            if not self._any:
                return None
            self._any = False
            self._entries.close()
            self._entries = os.scandir(self.descriptor)

    def close(self) -> None:
        self._entries.close()
        os.close(self.descriptor)


def remove_path(path: Path) -> None:
    """Remove a file or tree, if it exists. The path up to its last component is trusted. Raises OSError."""
    directory, name = os.path.split(os.path.abspath(path))
    try:
        parent = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        remove_tree(parent, os.fsencode(name))
    finally:
        os.close(parent)


def remove_tree(parent: int, name: bytes) -> None:
    """Remove the file or tree `name` in the open directory `parent`; does nothing when it does not exist.

    Depth first. Directories below the last held level are moved to the top of the tree, from where they are emptied
    like any other; a tree that is no deeper needs no rename, which a full disk might refuse. A mount point in the tree
    raises OSError (EBUSY), and so does a directory that another process keeps filling (ENOTEMPTY).
    """
    if not _unlink(parent, name):
        return
    token, moved = os.urandom(8).hex(), 0
    levels: list[_Level] = []
    with ExitStack() as opened:
        opened.callback(_close_all, levels)
        with suppress(errors.NoSuchPath):
            levels.append(_Level(parent, os.fsdecode(name)))
        while levels:
            level = levels[-1]
            entry = level.next()
            if entry is None:
                if _remove_empty(level):
                    levels.pop().close()
            elif not _unlink(level.descriptor, entry):
                continue
            elif len(levels) < HELD_LEVELS:
                with suppress(errors.NoSuchPath):  # it was removed or replaced meanwhile
                    levels.append(_Level(level.descriptor, entry))
            else:
                moved += 1
                with suppress(FileNotFoundError):
                    top = levels[0].descriptor
                    os.rename(entry, f"removed-{token}-{moved}", src_dir_fd=level.descriptor, dst_dir_fd=top)


def _close_all(levels: list[_Level]) -> None:
    for level in levels:
        level.close()


def _remove_empty(level: _Level) -> bool:
    """Remove a directory that was emptied. Returns False if it has entries again."""
    try:
        os.rmdir(level.name, dir_fd=level.parent)
    except (FileNotFoundError, NotADirectoryError):  # moved away or replaced: the directory above is read again
        return True
    except OSError as error:
        level.attempts += 1
        if error.errno != errno.ENOTEMPTY or level.attempts > _ATTEMPTS:
            raise
        return False
    return True


def _unlink(directory: int, name: str | bytes) -> bool:
    """Remove a file. Returns whether it is a directory, and so still exists."""
    try:
        if stat.S_ISDIR(os.lstat(name, dir_fd=directory).st_mode):
            return True
        os.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        pass
    except IsADirectoryError:  # replaced meanwhile
        return True
    return False


class TreeUsage(NamedTuple):
    """Disk usage below a directory, without the directory itself."""

    used_bytes: int = 0
    """Allocated blocks: holes of sparse files do not count, a file with several names counts once."""
    inodes: int = 0
    complete: bool = True
    """Whether everything was counted: False for a tree with more entries than the limit, or one that somebody keeps
    renaming. The other numbers are then lower bounds."""

    def __add__(self, other: object) -> "TreeUsage":
        if not isinstance(other, TreeUsage):
            return NotImplemented
        used, inodes = self.used_bytes + other.used_bytes, self.inodes + other.inodes
        return TreeUsage(used, inodes, self.complete and other.complete)


MOST_ENTRIES = 2_000_000
MOST_NAMES = 200_000
"""Directories that wait to be visited, and files with several names: both are kept in memory."""
_PAUSE_AFTER, _PAUSE_SECONDS = 2000, 0.002


def tree_usage(path: Path, *, most_entries: int = MOST_ENTRIES) -> TreeUsage:
    """Measure a tree, for a worker thread: it pauses, so that the other threads get the interpreter.

    What comes or goes meanwhile may be missing, and so is what is mounted in it. Zero if the directory does not exist.
    """
    try:
        top = os.open(path, _DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        return TreeUsage()
    measuring = _Measuring(most_entries)
    try:
        measuring.walk(top)
    finally:
        measuring.close()
    return TreeUsage(measuring.used, measuring.inodes, measuring.complete)


class _Visited:
    """A directory on the way down: its unvisited subdirectories, and its descriptor, or its identity to check `..`."""

    def __init__(self, descriptor: int) -> None:
        state = os.fstat(descriptor)
        self.descriptor = descriptor
        self.identity = (state.st_dev, state.st_ino)
        self.names: list[str] = []


class _Measuring:
    def __init__(self, most_entries: int) -> None:
        self.most_entries = most_entries
        self.used = self.inodes = self.entries = 0
        self.complete = True
        self.waiting = 0
        self.linked: set[int] = set()
        self.levels: list[_Visited] = []

    def walk(self, top: int) -> None:
        self._push(top)
        while self.levels:
            level = self.levels[-1]
            if self.entries > self.most_entries:
                self.complete = False
                return
            if not level.names:
                self._ascend()
                continue
            self.waiting -= 1
            try:
                below = _open_below(level.descriptor, level.names.pop())
            except errors.LinuxError:  # removed or replaced meanwhile, or a mount point
                continue
            if len(self.levels) > HELD_LEVELS:
                os.close(level.descriptor)
                level.descriptor = -1
            self._push(below)

    def _push(self, descriptor: int) -> None:
        level = _Visited(descriptor)
        self.levels.append(level)
        for entry in self._entries(descriptor):
            try:
                found = entry.stat(follow_symlinks=False)
            except OSError:  # removed meanwhile
                continue
            self._count(found)
            if stat.S_ISDIR(found.st_mode):
                if self.waiting < MOST_NAMES:
                    level.names.append(entry.name)
                    self.waiting += 1
                else:
                    self.complete = False

    def _entries(self, descriptor: int) -> Iterator["os.DirEntry[str]"]:
        with os.scandir(descriptor) as entries:
            for entry in entries:
                yield entry
                self.entries += 1  # names, not inodes: one file can have any number of them
                if self.entries % _PAUSE_AFTER == 0:
                    time.sleep(_PAUSE_SECONDS)
                if self.entries > self.most_entries:
                    return

    def _count(self, state: os.stat_result) -> None:
        if state.st_nlink > 1 and not stat.S_ISDIR(state.st_mode):
            if state.st_ino in self.linked:
                return
            if len(self.linked) < MOST_NAMES:
                self.linked.add(state.st_ino)
        self.used += state.st_blocks * 512
        self.inodes += 1

    def _ascend(self) -> None:
        """Go back to the directory above; one that was closed is reached by `..`, unless this one was moved."""
        left = self.levels.pop()
        above = self.levels[-1] if self.levels else None
        if above is not None and above.descriptor < 0:
            parent = os.open("..", _DIRECTORY, dir_fd=left.descriptor)
            state = os.fstat(parent)
            if (state.st_dev, state.st_ino) == above.identity:
                above.descriptor = parent
            else:
                os.close(parent)
                self.complete = False
                while self.levels[-1].descriptor < 0:
                    self.waiting -= len(self.levels.pop().names)
        os.close(left.descriptor)

    def close(self) -> None:
        for level in self.levels:
            if level.descriptor >= 0:
                os.close(level.descriptor)
        self.levels.clear()


def directories_below(top: Path, *, most: int = 10_000, hidden: bool = True) -> Iterator[str]:
    """Yields a directory and those below it that a path can name, each before those in it; symlinks are not followed.

    For directories whose paths are needed (watches, cgroups): what is too deep for a path, or beyond `most`
    directories, is left out. Unlike `os.walk` it does not recurse.
    """
    waiting = [os.fspath(top)]
    count = 0
    while waiting and count < most:
        directory = waiting.pop()
        try:
            with os.scandir(directory) as entries:
                below = [
                    entry.path
                    for entry in entries
                    if entry.is_dir(follow_symlinks=False) and (hidden or not entry.name.startswith("."))
                ]
        except OSError:  # removed meanwhile, or too deep for a path
            continue
        count += 1
        yield directory
        waiting += below[: max(0, most - count - len(waiting))]
