"""Watches log files for changes: one inotify descriptor for all followers, opened for the first of them."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Iterator

from podwire.linux.fs import inotify

WRITTEN = inotify.MODIFY
LEFT = inotify.CLOSE_WRITE | inotify.ATTRIB
"""A writer closed the file, or it was removed from its directory."""


class FileEvents:
    """Unread events of one file."""

    def __init__(self) -> None:
        self._mask = 0
        self._changed = asyncio.Event()

    def add(self, mask: int) -> None:
        self._mask |= mask
        self._changed.set()

    async def next(self, within: float | None = None) -> int:
        """The mask of events since the last call, as soon as there is one; 0 after `within` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._changed.wait()
        self._changed.clear()
        mask, self._mask = self._mask, 0
        return mask


class FileWatches:
    """Shared by all followers. Must be closed."""

    def __init__(self) -> None:
        self._inotify: inotify.Inotify | None = None
        self._files: defaultdict[int, set[FileEvents]] = defaultdict(set)

    @contextlib.contextmanager
    def of(self, descriptor: int) -> Iterator[FileEvents]:
        """Events of an open file while the context is open. Raises OSError."""
        source = self._opened()
        watch = source.add(f"/proc/self/fd/{descriptor}", WRITTEN | LEFT)
        events = FileEvents()
        self._files[watch].add(events)
        try:
            yield events
        finally:
            self._files[watch].discard(events)
            if not self._files[watch]:
                del self._files[watch]
                source.remove(watch)

    def _opened(self) -> inotify.Inotify:
        if self._inotify is None:
            self._inotify = inotify.Inotify()
            asyncio.get_running_loop().add_reader(self._inotify.fileno(), self._read, self._inotify)
        return self._inotify

    def _read(self, source: inotify.Inotify) -> None:
        for event in source.read():
            if event.mask & inotify.OVERFLOW:  # events were lost: all followers look at their files
                for events in [events for group in self._files.values() for events in group]:
                    events.add(LEFT)
            for events in self._files.get(event.watch, ()):
                events.add(event.mask)

    def close(self) -> None:
        if self._inotify is not None:
            asyncio.get_running_loop().remove_reader(self._inotify.fileno())
            self._inotify.close()
            self._inotify = None
