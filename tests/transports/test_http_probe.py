"""A server is healthy if it says so in time."""

import asyncio
import contextlib

import pytest

from podwire.transports.http_probe import is_healthy


@pytest.mark.parametrize(
    ("answer", "healthy"),
    [
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\n", True, id="it is"),
        pytest.param(b"HTTP/1.1 503 Service Unavailable\r\n\r\n", False, id="it is not"),
        pytest.param(b"", False, id="it ends the connection"),
        pytest.param(None, False, id="it is silent"),
    ],
)
async def test_a_server_is_asked(answer, healthy):
    ended = asyncio.Event()

    async def serve(reader, writer):
        await reader.readline()
        if answer is None:
            await reader.read()  # until the client goes
        else:
            writer.write(answer)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        ended.set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert await is_healthy(port, "127.0.0.1", seconds=5.0 if answer is not None else 0.2) is healthy
        await ended.wait()


async def test_nobody_is_not_healthy():
    assert not await is_healthy(1, "127.0.0.1")
