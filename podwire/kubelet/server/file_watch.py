"""Waiting for files to change: one inotify descriptor for all who follow a log, opened for the first of them."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Iterator

from podwire.linux.fs import inotify

WRITTEN = inotify.MODIFY
LEFT = inotify.CLOSE_WRITE | inotify.ATTRIB
"""A writer has closed the file, or it was removed from its directory."""


class Watched:
    """What happened to one file and was not yet looked at."""

    def __init__(self) -> None:
        self._mask = 0
        self._happened = asyncio.Event()

    def tell(self, mask: int) -> None:
        self._mask |= mask
        self._happened.set()

    async def next(self, within: float | None = None) -> int:
        """What happened since the last time, as soon as something has; 0 when nothing does `within` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._happened.wait()
        self._happened.clear()
        mask, self._mask = self._mask, 0
        return mask


class Changes:
    """Shared by all followers of a process. Must be closed."""

    def __init__(self) -> None:
        self._inotify: inotify.Inotify | None = None
        self._watched: defaultdict[int, set[Watched]] = defaultdict(set)

    @contextlib.contextmanager
    def of(self, descriptor: int) -> Iterator[Watched]:
        """What happens to an open file while the context is open. Raises OSError."""
        source = self._opened()
        watch = source.add(f"/proc/self/fd/{descriptor}", WRITTEN | LEFT)
        watched = Watched()
        self._watched[watch].add(watched)
        try:
            yield watched
        finally:
            self._watched[watch].discard(watched)
            if not self._watched[watch]:
                del self._watched[watch]
                source.remove(watch)

    def _opened(self) -> inotify.Inotify:
        if self._inotify is None:
            self._inotify = inotify.Inotify()
            asyncio.get_running_loop().add_reader(self._inotify.fileno(), self._read, self._inotify)
        return self._inotify

    def _read(self, source: inotify.Inotify) -> None:
        for event in source.read():
            if event.mask & inotify.OVERFLOW:  # some were not told: everybody looks
                for each in [every for group in self._watched.values() for every in group]:
                    each.tell(LEFT)
            for each in self._watched.get(event.watch, ()):
                each.tell(event.mask)

    def close(self) -> None:
        if self._inotify is not None:
            asyncio.get_running_loop().remove_reader(self._inotify.fileno())
            self._inotify.close()
            self._inotify = None
