"""Keeps the last bytes of a TLS connection that the peer closes while its reader is paused.

uvloop's TLS reads ahead of a paused reader, and drops what it has read when the peer then closes the connection: the
end of a large output, with the exit status behind it. With these limits it stops reading from the socket as soon as a
byte waits for the reader. So it learns of the end only after the reader has got everything before it.
"""

import asyncio

import aiohttp
from aiohttp.connector import Connection


def keep_last_bytes(transport: asyncio.BaseTransport | None) -> None:
    """Applies the limits, if this is a TLS transport; others do not read ahead."""
    limits = getattr(transport, "set_read_buffer_limits", None)
    if limits is not None:
        limits(high=1, low=0)


class WholeResponse(aiohttp.ClientResponse):
    """The `response_class` of a session: applies the limits to each connection, also of WebSockets."""

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        keep_last_bytes(connection.transport)
        return await super().start(connection)
