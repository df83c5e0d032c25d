"""A gRPC client on a unix socket: calls the methods of a table, raises what the peer answers as RpcError.

Knows nothing of any service; a method brings its own types.
"""

import contextlib
import os
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, TypeVar
from urllib.parse import quote

import grpc
from google.protobuf.message import DecodeError, Message

from podwire.interfaces import Tap
from podwire.protocols.grpc_methods import MAX_MESSAGE, ServerStream, Unary
from podwire.protocols.grpc_status import Internal, RpcError, from_code
from podwire.transports.tapped import Tapped

Asked = TypeVar("Asked", bound=Message)
Answered = TypeVar("Answered", bound=Message)

_OPTIONS: tuple[tuple[str, Any], ...] = (
    # gRPC would send the socket's path in percent-encoding, which servers written in Go refuse.
    ("grpc.default_authority", "localhost"),
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.max_send_message_length", MAX_MESSAGE),
    # A peer on the same machine is back as soon as it listens; nothing is spared by waiting for a minute.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # In spite of its name, how long one that listens may take to greet: it is only busy.
    ("grpc.min_reconnect_backoff_ms", 20_000),
    # Channels to one path share a connection by default, and with it the memory of a peer that went away.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)


@contextlib.asynccontextmanager
async def connect(
    path: str | os.PathLike[str], *, tap: Tap | None = None, caller: str = "podwire", callee: str = "server"
) -> AsyncIterator["GrpcClient"]:
    """A client for the server on this socket, closed at the end. Connects with the first call, and again when lost."""
    target = f"unix:{quote(os.fspath(path))}"
    async with grpc.aio.insecure_channel(target, options=_OPTIONS) as channel:
        yield GrpcClient(channel, Tapped(tap, caller=caller, callee=callee))


class GrpcClient:
    """Calls methods. A `timeout` is in seconds and travels to the peer; None waits for ever."""

    def __init__(self, channel: grpc.aio.Channel, tapped: Tapped) -> None:
        self._channel = channel
        self._tapped = tapped
        self._unary: dict[str, grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]] = {}
        self._streams: dict[str, grpc.aio.UnaryStreamMultiCallable[bytes, bytes]] = {}

    async def call(
        self,
        method: Unary[Asked, Answered],
        request: Asked,
        *,
        timeout: float | None,  # noqa: ASYNC109 - travels to the peer
    ) -> Answered:
        """The response. Raises RpcError: Unavailable when nobody listens, DeadlineExceeded after `timeout`."""
        call = self._unary.get(method.path)
        if call is None:
            call = self._unary[method.path] = self._channel.unary_unary(method.path)
        with self._tapped.call(method.name, request) as passing:
            try:
                data = await call(request.SerializeToString(), timeout=timeout)
            except grpc.aio.AioRpcError as error:
                raise _meaning(error) from error
            response = _parsed(method, data)
            passing.answered(response)
            return response

    async def stream(
        self,
        method: ServerStream[Asked, Answered],
        request: Asked,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - travels to the peer
    ) -> AsyncGenerator[Answered, None]:
        """The responses as they come; all of them only when it ends without an RpcError. Close it to give up."""
        begin = self._streams.get(method.path)
        if begin is None:
            begin = self._streams[method.path] = self._channel.unary_stream(method.path)
        with self._tapped.call(method.name, request) as passing:
            passing.streamed(0)
            call = begin(request.SerializeToString(), timeout=timeout)
            try:
                async for data in call:
                    passing.streamed(1)
                    yield _parsed(method, data)
            except grpc.aio.AioRpcError as error:
                raise _meaning(error) from error
            finally:
                call.cancel()

    async def connections(self) -> AsyncGenerator[bool, None]:
        """Whether somebody is there: at once, and whenever that changes. Whoever is not is looked for all the time."""
        state, there = self._channel.get_state(try_to_connect=True), None
        while True:
            if there is not (there := state is grpc.ChannelConnectivity.READY):
                yield there
            await self._channel.wait_for_state_change(state)
            state = self._channel.get_state(try_to_connect=True)


def _meaning(error: grpc.aio.AioRpcError) -> RpcError:
    return from_code(error.code().value[0], error.details() or "")


def _parsed(method: Unary[Asked, Answered] | ServerStream[Asked, Answered], data: bytes) -> Answered:
    try:
        return method.response.FromString(data)
    except DecodeError as error:
        raise Internal(f"{method.name}: what the peer answered is not a {method.response.__name__}") from error
