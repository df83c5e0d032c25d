"""Calls of a kubelet to the socket of a plugin, one after the other, in one event loop."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from podwire.inspect.conformance.report import Unmet
from podwire.protocols.grpc_status import RpcError
from podwire.transports import grpc_client

T = TypeVar("T")
Work = Callable[[grpc_client.GrpcClient], Awaitable[T]]


def call_socket(runner: asyncio.Runner, socket: Path, work: Work[T], seconds: float) -> T:
    """Runs calls over a connection of their own, as after a restart of the kubelet. Raises Unmet without an answer."""

    async def connected() -> T:
        async with grpc_client.connect(socket) as client, asyncio.timeout(seconds):
            return await work(client)

    try:
        return runner.run(connected())
    except RpcError as error:
        raise Unmet(f"the call failed: {error}") from error
    except TimeoutError as error:
        raise Unmet(f"no answer within {seconds:g} s") from error
