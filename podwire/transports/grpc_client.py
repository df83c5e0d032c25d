"""A gRPC client on a unix socket: calls methods of a table; error statuses are raised as RpcError.

It knows no service; a method brings its own message types.
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
    # gRPC would send the socket's path in percent-encoding, which servers written in Go reject.
    ("grpc.default_authority", "localhost"),
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.max_send_message_length", MAX_MESSAGE),
    # A peer on the same machine is back as soon as it listens: the default back-off of up to a minute saves nothing.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # In spite of its name this is the time-out for the HTTP/2 handshake of a busy peer.
    ("grpc.min_reconnect_backoff_ms", 20_000),
    # Channels to one path share a connection by default, and with it the back-off state of a dead peer.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)


@contextlib.asynccontextmanager
async def connect(
    path: str | os.PathLike[str], *, tap: Tap | None = None, caller: str = "podwire", callee: str = "server"
) -> AsyncIterator["GrpcClient"]:
    """Yields a client for the server on this socket. Connects with the first call and reconnects when the peer is
    lost."""
    target = f"unix:{quote(os.fspath(path))}"
    async with grpc.aio.insecure_channel(target, options=_OPTIONS) as channel:
        yield GrpcClient(channel, Tapped(tap, caller=caller, callee=callee))


class GrpcClient:
    """Calls methods. A `timeout` in seconds is sent to the peer as the deadline; None waits for ever."""

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
        """Returns the response. Raises RpcError: Unavailable without a listener, DeadlineExceeded after `timeout`."""
        call = self._unary.get(method.path)
        if call is None:
            call = self._unary[method.path] = self._channel.unary_unary(method.path)
        with self._tapped.call(method.name, request) as tapped:
            try:
                data = await call(request.SerializeToString(), timeout=timeout)
            except grpc.aio.AioRpcError as error:
                raise _rpc_error(error) from error
            response = _parsed(method, data)
            tapped.answered(response)
            return response

    async def stream(
        self,
        method: ServerStream[Asked, Answered],
        request: Asked,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - travels to the peer
    ) -> AsyncGenerator[Answered, None]:
        """Yields the responses; they are complete only if it ends without an RpcError. Close it to cancel the call."""
        begin = self._streams.get(method.path)
        if begin is None:
            begin = self._streams[method.path] = self._channel.unary_stream(method.path)
        with self._tapped.call(method.name, request) as tapped:
            tapped.streamed(0)
            call = begin(request.SerializeToString(), timeout=timeout)
            try:
                async for data in call:
                    tapped.streamed(1)
                    yield _parsed(method, data)
            except grpc.aio.AioRpcError as error:
                raise _rpc_error(error) from error
            finally:
                call.cancel()

    async def connections(self) -> AsyncGenerator[bool, None]:
        """Yields whether the peer is connected: at once, and on every change. Reconnects without pause."""
        state, connected = self._channel.get_state(try_to_connect=True), None
        while True:
            if connected is not (connected := state is grpc.ChannelConnectivity.READY):
                yield connected
            await self._channel.wait_for_state_change(state)
            state = self._channel.get_state(try_to_connect=True)


def _rpc_error(error: grpc.aio.AioRpcError) -> RpcError:
    return from_code(error.code().value[0], error.details() or "")


def _parsed(method: Unary[Asked, Answered] | ServerStream[Asked, Answered], data: bytes) -> Answered:
    try:
        return method.response.FromString(data)
    except DecodeError as error:
        raise Internal(f"{method.name}: the response is not a valid {method.response.__name__}") from error
