"""A small HTTP proxy: forwards requests with an absolute URL, and opens tunnels."""

import asyncio
import base64
import contextlib
import ssl
from typing import Self
from urllib.parse import urlsplit


class ConnectProxy:
    """`async with ConnectProxy() as proxy`: `proxy.url`, and the requests that it has seen."""

    def __init__(self, password: str = "", context: ssl.SSLContext | None = None) -> None:
        self._password = password
        self._context = context
        self._tasks: set[asyncio.Task[None]] = set()
        self.seen: list[str] = []
        self.heads = b""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)
        port = self._server.sockets[0].getsockname()[1]
        scheme = "https" if self._context else "http"
        self.url = f"{scheme}://{self._password}@127.0.0.1:{port}" if self._password else f"{scheme}://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._answer(reader, writer)
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.heads += head
        method, target, _ = head.split(b"\r\n", 1)[0].decode().split()
        expected = b"Basic " + base64.b64encode(self._password.encode())
        if self._password and expected not in head:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            return
        self.seen.append(f"{method} {target}")
        parts = urlsplit(f"//{target}" if method == "CONNECT" else target)
        far_reader, far_writer = await asyncio.open_connection(parts.hostname, parts.port)
        try:
            if method == "CONNECT":
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                path = f"{parts.path}?{parts.query}" if parts.query else parts.path
                far_writer.write(head.replace(target.encode(), path.encode(), 1))
            await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
        finally:
            far_writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()
