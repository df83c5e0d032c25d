"""A complete response in one write.

aiohttp's response class covers every case and takes a third of a small request's time; this one has a status, a few
headers and a body.
"""

from collections.abc import Iterable
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from time import time

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\nServer: podwire\r\n" for status in HTTPStatus}
_EMPTY = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})
"""Statuses without body and Content-Length."""

ONE_WRITE = 64 * 1024
"""Up to this size head and body are joined; beyond, copying costs more than a second write."""


class WholeReply(web.StreamResponse):
    """Sends itself when the connection is ready for it."""

    def __init__(self, status: int, headers: Iterable[tuple[str, str]], body: bytes, *, last: bool) -> None:
        super().__init__(status=status)
        self._fields = _fields(headers)
        self._bytes = body
        self._last = last
        self._writer: AbstractStreamWriter | None = None
        self._head = b""

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter:
        keep = not self._last and request.keep_alive and request.version >= (1, 1)
        self._keep_alive = keep
        self._head = _head(self.status, self._fields, len(self._bytes), keep=keep)
        if request.method == "HEAD" or self.status in _EMPTY:
            self._bytes = b""
        self._writer = request.writer
        return self._writer

    async def write_eof(self, data: bytes = b"") -> None:
        writer = self._writer
        transport = writer.transport if writer else None
        if writer is None or transport is None or transport.is_closing():
            raise ConnectionResetError("the client disconnected")
        head, body = self._head, self._bytes + data
        if len(body) <= ONE_WRITE:
            transport.write(head + body)
        else:
            transport.write(head)
            transport.write(body)
        writer.output_size += len(head) + len(body)
        await writer.drain()


def _fields(headers: Iterable[tuple[str, str]]) -> str:
    lines = []
    for name, value in headers:
        if "\n" in value or "\r" in value:
            raise ValueError(f"header {name} contains a line break")
        lines.append(f"{name}: {value}\r\n")
    return "".join(lines)


def _head(status: int, fields: str, length: int, *, keep: bool) -> bytes:
    line = _LINES.get(status) or f"HTTP/1.1 {status} \r\nServer: podwire\r\n"
    size = "" if status in _EMPTY else f"Content-Length: {length}\r\n"
    end = "" if keep else "Connection: close\r\n"
    return f"{line}{fields}{size}{end}Date: {_date(int(time()))}\r\n\r\n".encode()


@lru_cache(maxsize=2)
def _date(second: int) -> str:
    """Formats the time for HTTP, once per second."""
    return formatdate(second, usegmt=True)
