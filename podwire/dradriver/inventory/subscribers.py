"""Subscribers of the inventory's changes; notified from any thread."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable


class Subscribers:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}
        self._watch: tuple[Callable[[], None], asyncio.AbstractEventLoop] | None = None

    def notify(self) -> None:
        """Something changed."""
        with self._lock:
            for event, loop in self._waiting.items():
                _call(event.set, loop)

    def stale(self) -> None:
        """Something may have changed: requests a look at the host."""
        with self._lock:
            if self._watch is not None:
                _call(*self._watch)

    def on_stale(self, request_look: Callable[[], None]) -> None:
        """Sets what `stale` calls, in this loop."""
        with self._lock:
            self._watch = request_look, asyncio.get_running_loop()

    async def changes(self) -> AsyncIterator[None]:
        """Yields at once, and after each change; several changes while the subscriber is busy count once."""
        event = asyncio.Event()
        event.set()
        with self._lock:
            self._waiting[event] = asyncio.get_running_loop()
        try:
            while True:
                await event.wait()
                event.clear()
                yield
        finally:
            with self._lock:
                self._waiting.pop(event, None)


def _call(action: Callable[[], None], loop: asyncio.AbstractEventLoop) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(action)
