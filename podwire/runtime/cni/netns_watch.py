"""Watches network namespaces for changes and reports them debounced.

A change comes in several netlink events, and a pod's ADD is a dozen of them: they stay in the socket until the debounce
time has passed, and are then read together.
"""

import logging
from collections.abc import Callable
from contextlib import ExitStack

from podwire.linux.errors import LinuxError
from podwire.linux.net.monitor import Changed, Monitor
from podwire.tasks.debounce import debounced_reader

_log = logging.getLogger("podwire.runtime.cni")


class NetnsWatch:
    """Any number of netlink monitors, by keys of the caller's. Belongs to one event loop."""

    def __init__(self, on_changes: Callable[[str, list[Changed]], None], debounce: float) -> None:
        self._on_changes = on_changes
        self._debounce = debounce
        self._monitors: dict[str, tuple[Monitor, ExitStack]] = {}

    def add(self, key: str, monitor: Monitor) -> None:
        """Watches a monitor, and closes it in the end."""
        self.remove(key)
        reader = ExitStack()
        reader.callback(monitor.close)
        reader.enter_context(debounced_reader(monitor.fileno(), self._debounce, lambda: self._read(key)))
        self._monitors[key] = monitor, reader

    def remove(self, key: str) -> None:
        """Closes a monitor, if there is one: an open monitor would keep a namespace that is about to go."""
        _, reader = self._monitors.pop(key, (None, None))
        if reader is not None:
            reader.close()

    def close(self) -> None:
        for key in list(self._monitors):
            self.remove(key)

    def _read(self, key: str) -> None:
        monitor, _ = self._monitors[key]
        try:
            changes = monitor.read()
        except LinuxError as error:
            fields = {"netns": key, "error": str(error)}
            _log.warning("cannot watch network namespace any longer, CHECK runs only in turn", extra=fields)
            self.remove(key)
            return
        if changes:
            self._on_changes(key, changes)
