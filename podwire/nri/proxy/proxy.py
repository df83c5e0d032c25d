"""Forwards bytes between plugins and the runtime unchanged; a decoder reads along."""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator, Callable

from podwire.nri.proxy.decoder import PLUGIN, RUNTIME, Decoder
from podwire.nri.proxy.exchange import Noted, Seen
from podwire.transports import unix_sockets

_log = logging.getLogger("podwire.nri.proxy")

CHUNK = 1 << 16
_BACKLOG = 64

Tell = Callable[[Seen], None]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Proxy:
    """Pairs every plugin that connects here with a connection of its own to the runtime."""

    def __init__(self, runtime: str | os.PathLike[str], tell: Tell) -> None:
        self._runtime = os.fspath(runtime)
        self._tell = tell
        self._pairs: set[asyncio.Task[None]] = set()
        self._watchers: set[Decoder] = set()
        self._began = time.monotonic()

    @contextlib.asynccontextmanager
    async def listening(self, path: str | os.PathLike[str]) -> AsyncIterator[None]:
        """Accepts plugins at a path. Raises CannotListen."""
        async with unix_sockets.listening(path, _BACKLOG) as listener:
            server = await asyncio.start_unix_server(self._accepted, sock=listener)
            try:
                yield
            finally:
                server.close()
                await self.cut()

    async def cut(self) -> None:
        """Closes all connections."""
        for pair in self._pairs:
            pair.cancel()
        await asyncio.gather(*self._pairs, return_exceptions=True)

    def give_up(self) -> None:
        """Reports the runtime's unanswered requests, which it has given up."""
        for watcher in self._watchers:
            self._left(watcher, RUNTIME)

    def _left(self, watcher: Decoder, *askers: str) -> None:
        for item in watcher.end(self._now(), *askers):
            self._tell(item)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a server runs each connection as a task
        self._pairs.add(task)
        try:
            try:
                runtime = await asyncio.open_unix_connection(self._runtime)
            except OSError as error:
                self._note(f"the runtime does not listen at {self._runtime}: {error.strerror or error}")
            else:
                await self.between((reader, writer), runtime)
        except asyncio.CancelledError:
            # Only `cut` cancels it, and waits for it; a stream server would print it.
            return
        finally:
            self._pairs.discard(task)
            writer.transport.abort()

    async def between(self, plugin: Streams, runtime: Streams) -> None:
        """Forwards until both sides have closed."""
        watcher = Decoder()
        self._watchers.add(watcher)
        self._note("connects")
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass(PLUGIN, plugin[0], runtime[1], watcher))
                group.create_task(self._pass(RUNTIME, runtime[0], plugin[1], watcher))
        finally:
            runtime[1].transport.abort()
            plugin[1].transport.abort()
            self._watchers.discard(watcher)
            self._left(watcher)

    async def _pass(
        self, sender: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, watcher: Decoder
    ) -> None:
        """Forwards one direction, and its end."""
        why = "closes the connection"
        try:
            while data := await reader.read(CHUNK):
                writer.write(data)
                self._watch(watcher, sender, data)
                await writer.drain()
            if writer.can_write_eof() and not writer.is_closing():
                writer.write_eof()
        except OSError as error:
            why = f"is cut off: {error.strerror or error}"
            writer.transport.abort()
        self._left(watcher, RUNTIME if sender == PLUGIN else PLUGIN)
        self._tell(Noted(plugin=watcher.plugin, at=self._now(), what=f"the {sender} {why}"))

    def _watch(self, watcher: Decoder, sender: str, data: bytes) -> None:
        try:
            seen = watcher.feed(sender, data, self._now())
        except Exception:  # noqa: BLE001 - see below
            # A bug of the decoder must not disturb the connection.
            _log.exception("cannot decode forwarded bytes")
            return
        for item in seen:
            self._tell(item)

    def _note(self, what: str) -> None:
        self._tell(Noted(plugin="?", at=self._now(), what=what))

    def _now(self) -> float:
        # Finer than the loop's own clock, which may have a resolution of milliseconds.
        return time.monotonic() - self._began
