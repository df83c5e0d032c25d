"""Sends events to browsers: a bounded queue for each, and at most so many of them.

Nobody waits for a browser. One that does not read what was sent fills its queue, and is disconnected; it connects again
by itself and begins with a new snapshot.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec

MOST_CLIENTS = 64
QUEUE = 64
"""Messages that wait for one browser. Messages are batches, at most four in a second."""
PING_SECONDS = 15.0
"""After so much silence a comment is sent, so that a connection whose browser is gone is noticed."""


class TooMany(Exception):
    """As many browsers as allowed are connected."""


@dataclass(slots=True, eq=False)
class _Client:
    queue: "asyncio.Queue[bytes]" = field(default_factory=lambda: asyncio.Queue(QUEUE))
    task: "asyncio.Task[Any] | None" = None
    """The task that writes to the browser."""


class EventHub:
    def __init__(self, most: int = MOST_CLIENTS) -> None:
        self._most = most
        self._clients: set[_Client] = set()
        self.watched, self.unwatched = asyncio.Event(), asyncio.Event()
        """Set while at least one browser is connected, and while none is."""
        self.unwatched.set()

    @property
    def clients(self) -> int:
        return len(self._clients)

    def publish(self, name: str, value: Any) -> None:
        """Never waits: a client whose queue is full is disconnected."""
        if not self._clients:
            return
        message = encoded(name, value)
        for client in list(self._clients):
            try:
                client.queue.put_nowait(message)
            except asyncio.QueueFull:
                self._remove(client)
                if client.task is not None:
                    client.task.cancel()

    def connect(self, snapshot: Callable[[], bytes]) -> AsyncGenerator[bytes, None]:
        """Returns the stream of one browser, which begins with a snapshot. Raises TooMany."""
        if len(self._clients) >= self._most:
            raise TooMany
        client = _Client()
        self._clients.add(client)
        self.watched.set()
        self.unwatched.clear()
        return self._stream(client, snapshot)

    async def _stream(self, client: _Client, snapshot: Callable[[], bytes]) -> AsyncGenerator[bytes, None]:
        client.task = asyncio.current_task()
        try:
            yield b"retry: 1000\n\n" + snapshot()
            while True:
                message = b": nothing new\n\n"
                with suppress(TimeoutError):
                    async with asyncio.timeout(PING_SECONDS):
                        message = await client.queue.get()
                yield message
        finally:
            self._remove(client)

    def _remove(self, client: _Client) -> None:
        self._clients.discard(client)
        if not self._clients:
            self.watched.clear()
            self.unwatched.set()


def encoded(name: str, value: Any) -> bytes:
    """Returns one server-sent event; JSON has no line breaks."""
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(value) + b"\n\n"
