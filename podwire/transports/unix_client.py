"""Connections to a unix socket in a directory whose path may be longer than the path of a socket may be.

The kernel accepts 107 bytes. The directory is opened, and the socket is named by `/proc/self/fd/N/NAME`.
"""

import asyncio
import contextlib
import os
import socket
from pathlib import Path
from typing import Self


class UnixConnection:
    """A stream connection of lines and fixed-size frames."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._loop = asyncio.get_running_loop()

    @classmethod
    async def connect(cls, directory: Path, name: str) -> Self:
        """Connects to the socket NAME in a directory. Raises OSError."""
        opened = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        with contextlib.ExitStack() as undo:
            try:
                connected = undo.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
                connected.setblocking(False)
                await asyncio.get_running_loop().sock_connect(connected, f"/proc/self/fd/{opened}/{name}")
            finally:
                os.close(opened)
            undo.pop_all()
        return cls(connected)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def send(self, data: bytes) -> None:
        await self._loop.sock_sendall(self._socket, data)

    def finish(self) -> None:
        """Ends the sending direction; the other one stays open."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    async def receive_line(self) -> str:
        """Returns one line, and reads not a byte more; empty when the peer is gone."""
        line = b""
        while not line.endswith(b"\n") and (byte := await self._loop.sock_recv(self._socket, 1)):
            line += byte
        return line.decode("utf-8", "replace").strip()

    async def receive_exactly(self, size: int) -> bytes:
        """Returns `size` bytes; empty when the peer is gone before all have come."""
        data = bytearray()
        while len(data) < size:
            try:
                more = await self._loop.sock_recv(self._socket, size - len(data))
            except ConnectionError:
                return b""
            if not more:
                return b""
            data += more
        return bytes(data)

    def close(self) -> None:
        self._socket.close()
