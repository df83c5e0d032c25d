"""Both event loops serve: uvloop in the product, the stock one wherever it is missing."""

import asyncio

import pytest
import uvloop

from podwire.transports.http_relay import HEAD_SECONDS, relays
from podwire.transports.http_server import serve


def pytest_asyncio_loop_factories():
    return {"asyncio": asyncio.SelectorEventLoop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
async def served():
    """`await served(handler)` is the URL of a server; closed after the test."""
    servers = []

    async def start(handler):
        servers.append(await serve(handler))
        return f"http://127.0.0.1:{servers[-1].port}"

    yield start
    for server in servers:
        await server.close(0.5)


@pytest.fixture
async def relay(request):
    """A parameter is how long the relay waits for the head of an answer."""
    async with relays(head_seconds=getattr(request, "param", HEAD_SECONDS)) as opened:
        yield opened
