"""Hears what changes in network namespaces, and passes it on a moment later, together.

Changes come in several steps, and a pod's ADD is a dozen of them: what is told is left in the socket for that moment.
"""

import asyncio
import logging
from collections.abc import Callable

from podwire.linux.errors import LinuxError
from podwire.linux.net.monitor import Changed, Monitor

_log = logging.getLogger("podwire.runtime.cni")

SETTLED = 0.2
"""Seconds from the first word of a change until all that was told is heard."""


class NetnsWatch:
    """Any number of monitors, by keys of the caller's. Belongs to one event loop."""

    def __init__(self, hear: Callable[[str, list[Changed]], None]) -> None:
        self._hear = hear
        self._monitors: dict[str, Monitor] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def add(self, key: str, monitor: Monitor) -> None:
        """From now on it is the watcher's, and closed by it."""
        self.remove(key)
        self._monitors[key] = monitor
        asyncio.get_running_loop().add_reader(monitor.fileno(), self._readable, key)

    def remove(self, key: str) -> None:
        """Before a namespace is to go: an open monitor would keep it. Nothing happens for what is not watched."""
        monitor, timer = self._monitors.pop(key, None), self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        if monitor is not None:
            asyncio.get_running_loop().remove_reader(monitor.fileno())
            monitor.close()

    def close(self) -> None:
        for each in list(self._monitors):
            self.remove(each)

    def _readable(self, key: str) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._monitors[key].fileno())
        self._timers[key] = loop.call_later(SETTLED, self._read, key)

    def _read(self, key: str) -> None:
        del self._timers[key]
        monitor = self._monitors[key]
        try:
            changes = monitor.read()
        except LinuxError as error:
            _log.warning("changes of a network are not noticed at once", extra={"of": key, "reason": str(error)})
            self.remove(key)
            return
        asyncio.get_running_loop().add_reader(monitor.fileno(), self._readable, key)
        if changes:
            self._hear(key, changes)
