"""What happens to files and directories, told by the kernel through one descriptor.

A machine gives each user 128 of these descriptors in all, so a process should have one and share it. Nothing here
waits: `read` takes what was told so far, and an event loop watches `fileno()`.
"""

import ctypes
import os
import struct
from typing import NamedTuple

from podwire.linux import errors

MODIFY, ATTRIB, CLOSE_WRITE, MOVED_FROM, MOVED_TO = 0x2, 0x4, 0x8, 0x40, 0x80
CREATE, DELETE, DELETE_SELF, MOVE_SELF = 0x100, 0x200, 0x400, 0x800
OVERFLOW, GONE = 0x4000, 0x8000
"""These two are told unasked: that some were not told (of no watch, -1), and that a watch is over."""
ONLY_DIRECTORY, IS_DIRECTORY = 0x01000000, 0x40000000

_libc = ctypes.CDLL(None, use_errno=True)
_EVENT = struct.Struct("=iIII")
_BUFFER = 64 * 1024


class Event(NamedTuple):
    watch: int
    mask: int
    name: str
    """Of the entry of a watched directory; empty for the watched thing itself."""


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
        """Watch a directory, or the nearest one above it that is there, so that its coming is seen."""
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
        """What was told since the last time."""
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
