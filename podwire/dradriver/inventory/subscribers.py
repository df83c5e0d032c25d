"""Who wants to know of changes. Told from any thread."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable


class Subscribers:
    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._waiting: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}
        self._looker: tuple[Callable[[], None], asyncio.AbstractEventLoop] | None = None

    def tell(self) -> None:
        """Something is new."""
        with self._turn:
            for event, loop in self._waiting.items():
                _call(event.set, loop)

    def stale(self) -> None:
        """Something may be new: whoever looks at the host should do so."""
        with self._turn:
            if self._looker is not None:
                _call(*self._looker)

    def look_at(self, due: Callable[[], None]) -> None:
        """What is called, in this loop, when a look is due."""
        with self._turn:
            self._looker = due, asyncio.get_running_loop()

    async def changes(self) -> AsyncIterator[None]:
        """At once, and after each change; what changes while nobody waits counts once."""
        event = asyncio.Event()
        event.set()
        with self._turn:
            self._waiting[event] = asyncio.get_running_loop()
        try:
            while True:
                await event.wait()
                event.clear()
                yield
        finally:
            with self._turn:
                self._waiting.pop(event, None)


def _call(what: Callable[[], None], loop: asyncio.AbstractEventLoop) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(what)
