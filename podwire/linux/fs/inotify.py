"""Events of files and directories (inotify).

Each user has 128 inotify descriptors in all, so a process should share one. Nothing here blocks: `read` returns the
events so far, and an event loop watches `fileno()`.
"""

import ctypes
import os
import struct
from typing import NamedTuple

from podwire.linux import errors

MODIFY, ATTRIB, CLOSE_WRITE, MOVED_FROM, MOVED_TO = 0x2, 0x4, 0x8, 0x40, 0x80
CREATE, DELETE, DELETE_SELF, MOVE_SELF = 0x100, 0x200, 0x400, 0x800
OVERFLOW, GONE = 0x4000, 0x8000
"""Events that are always reported: the queue has overflowed (watch -1), and a watch was removed."""
ONLY_DIRECTORY, IS_DIRECTORY = 0x01000000, 0x40000000

_libc = ctypes.CDLL(None, use_errno=True)
_EVENT = struct.Struct("=iIII")
_BUFFER = 64 * 1024


class Event(NamedTuple):
    watch: int
    mask: int
    name: str
    """Name of an entry of a watched directory; empty for the watched file itself."""


class Inotify:
    """One inotify descriptor."""

    def __init__(self) -> None:
        self._descriptor = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise errors.from_errno(
                ctypes.get_errno(), "watch files", names={24: errors.OutOfResources, 23: errors.OutOfResources}
            )

    def fileno(self) -> int:
        return int(self._descriptor)

    def add(self, path: str | os.PathLike[str], mask: int) -> int:
        """Watch a path; the same file again is the same watch, with the new mask."""
        watch = _libc.inotify_add_watch(self._descriptor, os.fsencode(path), ctypes.c_uint32(mask))
        if watch < 0:
            names: errors.Names = {2: errors.NoSuchPath, 20: errors.NoSuchPath, 28: errors.OutOfResources}
            raise errors.from_errno(ctypes.get_errno(), f"watch {os.fspath(path)}", names=names)
        return int(watch)

    def add_nearest(self, directory: str | os.PathLike[str], mask: int) -> int:
        """Watches a directory, or its nearest parent that exists, so that its creation is reported."""
        path = os.path.abspath(directory)
        try:
            return self.add(path, mask | ONLY_DIRECTORY)
        except errors.NoSuchPath:
            if path == "/":
                raise
            watch = self.add_nearest(os.path.dirname(path), mask)
        if os.path.isdir(path):  # it came before its parent was watched
            return self.add_nearest(path, mask)
        return watch

    def remove(self, watch: int) -> None:
        """Stop watching; one that is over already is fine."""
        _libc.inotify_rm_watch(self._descriptor, watch)

    def read(self) -> list[Event]:
        """Returns the events since the last call."""
        try:
            data = os.read(self._descriptor, _BUFFER)
        except BlockingIOError:
            return []
        events, at = [], 0
        while at < len(data):
            watch, mask, _, length = _EVENT.unpack_from(data, at)
            at += _EVENT.size
            events.append(Event(watch, mask, os.fsdecode(data[at : at + length].rstrip(b"\0"))))
            at += length
        return events

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
