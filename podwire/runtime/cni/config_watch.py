"""Tells when configurations or plugins have changed: files that appear, change, move or go.

What the kernel tells is only the reason to look; whether anything changed is decided by looking. So a plugin that
writes beside itself wakes nobody, and a directory that is made later, or made anew, is noticed.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from podwire.linux.errors import LinuxError
from podwire.linux.fs import inotify

_log = logging.getLogger("podwire.runtime.cni")

SETTLED = 0.2
"""Seconds without any change after which it is looked: files come in several steps."""
_MASK = (
    inotify.CREATE | inotify.CLOSE_WRITE | inotify.ATTRIB | inotify.DELETE
    | inotify.MOVED_TO | inotify.MOVED_FROM | inotify.DELETE_SELF | inotify.MOVE_SELF
)  # fmt: skip

Seen = frozenset[tuple[str, int, int, int]]


class ConfigWatch:
    """Some directories, watched while it is open. Belongs to one event loop."""

    def __init__(
        self, configs: Path, endings: Sequence[str], programs: Sequence[Path], changed: Callable[[], None]
    ) -> None:
        self._configs, self._endings, self._programs = configs, tuple(endings), tuple(programs)
        self._changed = changed
        self._watcher: inotify.Inotify | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._seen: Seen = frozenset()

    def open(self) -> None:
        """Without a watcher, since a machine has few, nothing is noticed, and that is told."""
        self._seen = self._look()
        try:
            self._watcher = inotify.Inotify()
            self._arm()
        except LinuxError as error:
            _log.warning("changes of plugins and networks are not noticed at once", extra={"reason": str(error)})
            self.close()
            return
        asyncio.get_running_loop().add_reader(self._watcher.fileno(), self._told)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._watcher is not None:
            asyncio.get_running_loop().remove_reader(self._watcher.fileno())
            self._watcher.close()
            self._watcher = None

    def _arm(self) -> None:
        """Watch each directory, or what it would be made in; again is the same watch."""
        for each in (self._configs, *self._programs):
            if self._watcher is not None:
                self._watcher.add_nearest(each, _MASK)

    def _told(self) -> None:
        if self._watcher is not None:
            self._watcher.read()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(SETTLED, self._settled)

    def _settled(self) -> None:
        self._timer = None
        try:
            self._arm()
        except LinuxError as error:  # a directory went while we looked; the next event comes from what is above it
            _log.debug("a directory is not watched", extra={"reason": str(error)})
        now = self._look()
        if now != self._seen:
            self._seen = now
            self._changed()

    def _look(self) -> Seen:
        configs = _entries(self._configs, lambda name, _mode: name.endswith(self._endings))
        programs = [_entries(each, lambda _name, mode: bool(mode & 0o111)) for each in self._programs]
        return frozenset().union(configs, *programs)


def _entries(directory: Path, wanted: Callable[[str, int], bool]) -> Iterable[tuple[str, int, int, int]]:
    """What changes when a file does."""
    try:
        names = os.listdir(directory)  # noqa: PTH208 - names are all that is needed
    except OSError:
        return
    for name in names:
        try:
            told = (directory / name).stat()
        except OSError:
            continue
        if wanted(name, told.st_mode):
            yield str(directory / name), told.st_ino, told.st_ctime_ns, told.st_mode
