"""Two ttrpc connections multiplexed on one socket: calls that this side makes, and calls that it serves.

Frames are handled in the event loop's callback: there is no queue and no task between the socket and a waiting call. A
handler runs as a task of its own.

Backpressure: a peer that sends and does not read cannot fill this side's memory. Reading from it pauses until it
reads, unless this side waits for a response itself (two peers that both send much and wait for each other would
deadlock). A peer that leaves `MuxLimits.unsent` bytes unread is disconnected.
"""

import asyncio
import logging
import os
import socket
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from google.protobuf.message import DecodeError, Message

from podwire.protocols.grpc_methods import Unary, UnaryHandler
from podwire.protocols.grpc_status import (
    Cancelled,
    DeadlineExceeded,
    InvalidArgument,
    ResourceExhausted,
    RpcError,
    Unimplemented,
    from_exception,
)
from podwire.protocols.ttrpc import mux
from podwire.protocols.ttrpc.call import Call, enter
from podwire.protocols.ttrpc.sides import Answered, Answering, Asked, Asking, Ignored, Refused, answer, refuse
from podwire.protocols.ttrpc.wire import Frame, Frames

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class MuxLimits:
    """Limits of one connection."""

    handling: int = 64
    """Concurrent requests of one peer; more are rejected with RESOURCE_EXHAUSTED."""
    unsent: int = 64 << 20
    """Bytes that may wait for a peer to read them."""
    flush_seconds: float = 1.0
    """How long a peer has to read what was written before the connection closes."""


Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)


class MuxConnectionError(Exception):
    """A call without a response. An error response is an RpcError."""


class ConnectionClosed(MuxConnectionError):
    """The connection is closed; the message says why."""


class AnswerTimeout(MuxConnectionError):
    """The peer did not answer in time; it may still process the request."""


class Services:
    """The handlers of one side, by service and method."""

    def __init__(self, table: Iterable[Unary[Any, Any]], handlers: Mapping[str, UnaryHandler]) -> None:
        self._table = {(method.service, method.name): method for method in table}
        self._handlers = handlers
        self._names = {service for service, _ in self._table}

    def find(self, asked: Asked) -> tuple[Unary[Any, Any], UnaryHandler]:
        """Returns method and handler. Raises Unimplemented with the texts of the Go implementation."""
        if asked.service not in self._names:
            raise Unimplemented(f"service {asked.service}")
        method, handler = self._table.get((asked.service, asked.method)), self._handlers.get(asked.method)
        if method is None or handler is None:
            raise Unimplemented(f"method {asked.method}")
        return method, handler


class MuxConnection(asyncio.Protocol):
    """Client and server side of one connection."""

    def __init__(self, services: Services, *, asks_on: int, answers_on: int, limits: MuxLimits | None = None) -> None:
        self._services = services
        self._limits = limits or MuxLimits()
        self._asks_on, self._answers_on = asks_on, answers_on
        self._asking, self._answering = Asking(), Answering()
        self._pieces = mux.Pieces()
        self._frames = {asks_on: Frames(), answers_on: Frames()}
        self._waiting: dict[int, asyncio.Future[Answered]] = {}
        self._handling: set[asyncio.Task[None]] = set()
        self._transport: asyncio.Transport | None = None
        self._peer = (0, -1)
        self._send_buffer_full = False
        self._why = ""
        self._loop = asyncio.get_running_loop()  # cached: get_running_loop() costs a system call
        self.closed: asyncio.Future[str] = self._loop.create_future()
        """Done when the connection is closed; its result is the reason."""

    # Callbacks of the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._peer = _credentials(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        try:
            for conversation, piece in self._pieces.feed(data):
                if (frames := self._frames.get(conversation)) is None:
                    continue
                receive = self._answered if conversation == self._asks_on else self._asked
                for frame in frames.feed(piece):
                    receive(frame)
        except mux.BadMux as error:
            self.abort(str(error))

    def pause_writing(self) -> None:
        self._send_buffer_full = True
        self._apply_backpressure()

    def resume_writing(self) -> None:
        self._send_buffer_full = False
        self._apply_backpressure()

    def connection_lost(self, error: Exception | None) -> None:
        why = self._why or (f"the connection failed: {error}" if error else self._how_it_ended())
        for task in self._handling:
            task.cancel()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ConnectionClosed(why))
        self._waiting.clear()
        if not self.closed.done():
            self.closed.set_result(why)

    def _how_it_ended(self) -> str:
        whole = self._pieces.idle and all(frames.idle for frames in self._frames.values())
        return "the peer closed the connection" if whole else "the peer closed the connection in the middle of a frame"

    def _apply_backpressure(self) -> None:
        """Pauses reading while the peer does not read and this side does not wait for a response."""
        if self._transport is None or self._transport.is_closing():
            return
        if self._send_buffer_full and not self._waiting:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    # Calls of the owner.

    @property
    def peer_pid(self) -> int:
        """The pid of the peer (SO_PEERCRED); 0 when unknown."""
        return self._peer[0]

    @property
    def peer_uid(self) -> int:
        """The uid of the peer (SO_PEERCRED); -1 when unknown."""
        return self._peer[1]

    async def call(
        self,
        method: Unary[Request, Response],
        request: Request,
        *,
        within: float,
        metadata: Iterable[tuple[str, str]] = (),
    ) -> Response:
        """Calls the peer. Raises RpcError for an error response, ConnectionClosed, AnswerTimeout."""
        if self._transport is None or self.closed.done() or self._transport.is_closing():
            raise ConnectionClosed(self._why or "the connection is closed")
        payload = request.SerializeToString()
        stream, frame = self._asking.request(method.service, method.name, payload, timeout=within, metadata=metadata)
        future: asyncio.Future[Answered] = self._loop.create_future()
        self._waiting[stream] = future
        self._write(mux.pieces(self._asks_on, frame))
        if self._send_buffer_full:
            self._apply_backpressure()
        timer = self._loop.call_later(within, _give_up, future, f"no answer to {method.name} within {within:g} s")
        try:
            answered = await future
        finally:
            timer.cancel()
            self._waiting.pop(stream, None)
            self._asking.forget(stream)
            if self._send_buffer_full:
                self._apply_backpressure()
        if answered.error is not None:
            raise answered.error
        try:
            return method.response.FromString(answered.payload)
        except DecodeError:
            raise InvalidArgument(
                f"{method.name}: the response is not a valid {method.response.DESCRIPTOR.name}"
            ) from None

    async def wait_closed(self) -> str:
        """Return why the connection ended, once it has. Several tasks may wait; one that is cancelled leaves alone."""
        await asyncio.wait([self.closed])
        return self.closed.result()

    async def close(self, why: str = "closed here") -> None:
        """Flushes, closes, and waits until the handlers have ended."""
        self._why = self._why or why
        if self._transport is not None and not self.closed.done():
            self._transport.close()
            await asyncio.wait([self.closed], timeout=self._limits.flush_seconds)
            if not self.closed.done():
                self._transport.abort()
                await self.wait_closed()
        await asyncio.gather(*self._handling, return_exceptions=True)

    def abort(self, why: str) -> None:
        """Closes at once; unsent bytes are lost."""
        self._why = self._why or why
        if self._transport is not None:
            self._transport.abort()

    # Frames.

    def _answered(self, frame: Frame) -> None:
        match self._asking.receive(frame):
            case Answered() as answered:
                future = self._waiting.get(answered.stream)
                if future is not None and not future.done():
                    future.set_result(answered)
            case Ignored(why):
                _log.info("ignored unexpected response frame", extra={"error": why})

    def _asked(self, frame: Frame) -> None:
        match self._answering.receive(frame):
            case Asked() as asked if len(self._handling) >= self._limits.handling:
                error = ResourceExhausted(f"{self._limits.handling} requests are in flight already")
                self._send(refuse(asked.stream, error))
            case Asked() as asked:
                task = self._loop.create_task(self._handle(asked), name=f"answer {asked.method}")
                self._handling.add(task)
                task.add_done_callback(self._handling.discard)
            case Refused(stream, error):
                self._send(refuse(stream, error))
            case Ignored(why):
                _log.info("ignored unexpected request frame", extra={"error": why})

    async def _handle(self, asked: Asked) -> None:
        enter(Call(asked.timeout, asked.metadata))
        try:
            async with asyncio.timeout(asked.timeout):
                try:
                    method, handler = self._services.find(asked)
                    response = await handler(_decode(method, asked.payload))
                    reply = answer(asked.stream, response.SerializeToString())
                except Exception as error:  # noqa: BLE001 - every exception of a handler becomes a response
                    if not isinstance(error, RpcError):
                        _log.exception("ttrpc handler failed unexpectedly", extra={"method": asked.method})
                    reply = refuse(asked.stream, from_exception(error, asked.method))
        except TimeoutError:  # only of the deadline: those of a handler were answered above
            reply = refuse(asked.stream, DeadlineExceeded(f"{asked.method}: not done within {asked.timeout:g} s"))
        except asyncio.CancelledError:
            self._send(refuse(asked.stream, Cancelled(f"{asked.method}: cancelled")))
            raise
        self._send(reply)

    def _send(self, frame: bytes) -> None:
        self._write(mux.pieces(self._answers_on, frame))

    def _write(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._transport.write(data)
        if self._send_buffer_full and (unsent := self._transport.get_write_buffer_size()) > self._limits.unsent:
            self.abort(f"the peer does not read: {unsent} bytes are unsent")


def _give_up(future: asyncio.Future[Answered], why: str) -> None:
    if not future.done():
        future.set_exception(AnswerTimeout(why))


def _credentials(connected: socket.socket | None) -> tuple[int, int]:
    """Returns pid and uid of the peer; read at once, because they are gone with the connection."""
    if connected is None:
        return 0, -1
    pid, uid, _ = struct.unpack("3i", connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid, uid


def _decode(method: Unary[Any, Any], payload: bytes) -> Message:
    try:
        return cast("Message", method.request.FromString(payload))
    except DecodeError:
        raise InvalidArgument(f"{method.name}: the payload is not a valid {method.request.DESCRIPTOR.name}") from None


async def over_socket(connected: socket.socket, connection: MuxConnection) -> None:
    """Runs a connection over a connected stream socket and takes ownership of it."""
    connected.setblocking(False)
    await asyncio.get_running_loop().create_connection(lambda: connection, sock=connected)


async def connect(path: str | os.PathLike[str], connection: MuxConnection) -> None:
    """Connects to the listener at a path. Raises OSError."""
    await asyncio.get_running_loop().create_unix_connection(lambda: connection, os.fspath(path))
