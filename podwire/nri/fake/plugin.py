"""A scripted plugin on one connection after another."""

import asyncio
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

from podwire.nri.fake.connection import Connection, Leaves
from podwire.nri.fake.script import RuleQueue, Script

Tell = Callable[[Mapping[str, Any]], None]
"""Receives every event, as the values of one line of JSON."""


class FakePlugin:
    """State that outlives a connection: used-up rules, the containers that were seen."""

    def __init__(self, script: Script, tell: Tell, *, answer_timeout: float = 10.0) -> None:
        """`answer_timeout` are the seconds in which the runtime shall answer what the plugin asks."""
        self.script, self.answer_timeout = script, answer_timeout
        self.rules = RuleQueue(script)
        self.containers: dict[str, str] = {}
        """Ids by name, so that a script can name whom it updates."""
        self._tell = tell
        self._began = time.monotonic()

    def tell(self, **facts: Any) -> None:
        self._tell({"at": round(time.monotonic() - self._began, 6), **facts})

    async def run(self, path: str) -> None:
        """Connect, and again when the script says so. Raises Leaves, OSError."""
        while True:
            await self.talk(*await asyncio.open_unix_connection(path))
            if self.script.reconnect is None:
                return
            await asyncio.sleep(self.script.reconnect)

    async def run_on(self, connected: socket.socket) -> None:
        """Talk over a socket that is connected already. Raises Leaves."""
        connected.setblocking(False)
        await self.talk(*await asyncio.open_connection(sock=connected))

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection until its end. Raises Leaves."""
        try:
            why = await Connection(self, reader, writer).run()
        finally:
            writer.transport.abort()
        self.tell(event="closed", why=why)


__all__ = ["FakePlugin", "Leaves", "Tell"]
