"""Watches the directories of network configurations and plugins, and reports changes debounced.

inotify events are only a reason to look; a comparison of the directories decides whether anything changed. So a plugin
that writes files into its own directory causes no report, and a directory that is created later, or again, is noticed.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from podwire.linux.errors import LinuxError
from podwire.linux.fs import inotify
from podwire.tasks.debounce import Debounce

_log = logging.getLogger("podwire.runtime.cni")

_MASK = (
    inotify.CREATE | inotify.CLOSE_WRITE | inotify.ATTRIB | inotify.DELETE
    | inotify.MOVED_TO | inotify.MOVED_FROM | inotify.DELETE_SELF | inotify.MOVE_SELF
)  # fmt: skip

Snapshot = frozenset[tuple[str, int, int, int]]
"""Path, inode, change time and mode of each file."""


class ConfigWatch:
    """Watches directories while it is open. Belongs to one event loop."""

    def __init__(
        self,
        configs: Path,
        endings: Sequence[str],
        programs: Sequence[Path],
        on_change: Callable[[], None],
        debounce: float,
    ) -> None:
        self._configs, self._endings, self._programs = configs, tuple(endings), tuple(programs)
        self._on_change = on_change
        self._debounce = Debounce(debounce, self._compare, quiet=True)
        self._inotify: inotify.Inotify | None = None
        self._snapshot: Snapshot = frozenset()

    def open(self) -> None:
        """Starts to watch. Where inotify instances are exhausted, changes are not noticed, and that is logged."""
        self._snapshot = self._take_snapshot()
        try:
            self._inotify = inotify.Inotify()
            self._add_watches()
        except LinuxError as error:
            _log.warning("cannot watch CNI configurations and plugins", extra={"error": str(error)})
            self.close()
            return
        asyncio.get_running_loop().add_reader(self._inotify.fileno(), self._on_event)

    def close(self) -> None:
        self._debounce.cancel()
        if self._inotify is not None:
            asyncio.get_running_loop().remove_reader(self._inotify.fileno())
            self._inotify.close()
            self._inotify = None

    def _add_watches(self) -> None:
        """Watches each directory, or its nearest parent that exists; idempotent."""
        for directory in (self._configs, *self._programs):
            if self._inotify is not None:
                self._inotify.add_nearest(directory, _MASK)

    def _on_event(self) -> None:
        if self._inotify is not None:
            self._inotify.read()
        self._debounce.trigger()

    def _compare(self) -> None:
        try:
            self._add_watches()
        except LinuxError as error:  # a directory went meanwhile; the next event comes from its parent
            _log.debug("cannot watch CNI directory", extra={"error": str(error)})
        snapshot = self._take_snapshot()
        if snapshot != self._snapshot:
            self._snapshot = snapshot
            self._on_change()

    def _take_snapshot(self) -> Snapshot:
        configs = _entries(self._configs, lambda name, _mode: name.endswith(self._endings))
        programs = [_entries(directory, lambda _name, mode: bool(mode & 0o111)) for directory in self._programs]
        return frozenset().union(configs, *programs)


def _entries(directory: Path, is_relevant: Callable[[str, int], bool]) -> Iterable[tuple[str, int, int, int]]:
    try:
        names = os.listdir(directory)  # noqa: PTH208 - names are all that is needed
    except OSError:
        return
    for name in names:
        try:
            state = (directory / name).stat()
        except OSError:
            continue
        if is_relevant(name, state.st_mode):
            yield str(directory / name), state.st_ino, state.st_ctime_ns, state.st_mode
