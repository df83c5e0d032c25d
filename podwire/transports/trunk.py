"""One socket with two conversations of ttrpc: calls that this side makes, and calls that it answers.

Frames are handled where they arrive, in the loop's own callback: no queue, no task between the socket and a waiting
call. A handler runs as a task of its own. Nothing is read while the peer does not read what it is sent, so a peer that
only talks cannot fill this side's memory.
"""

import asyncio
import logging
import os
import socket
import struct
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, cast

from google.protobuf.message import DecodeError, Message

from podwire.protocols.grpc_methods import Unary, UnaryHandler
from podwire.protocols.grpc_status import (
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

_log = logging.getLogger("podwire.transports.trunk")

MAX_HANDLING = 64
"""Requests of one peer that are answered at the same time; more are refused."""

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)


class TrunkError(Exception):
    """A call that got no answer. What a peer answers with is an RpcError."""


class TrunkClosed(TrunkError):
    """The conversation is over; the message says why."""


class NoAnswer(TrunkError):
    """The peer did not answer in time; it may still do what it was asked."""


class Services:
    """The handlers of one side, by service and method."""

    def __init__(self, table: Iterable[Unary[Any, Any]], handlers: Mapping[str, UnaryHandler]) -> None:
        self._table = {(each.service, each.name): each for each in table}
        self._handlers = handlers
        self._names = {service for service, _ in self._table}

    def find(self, asked: Asked) -> tuple[Unary[Any, Any], UnaryHandler]:
        """Raises Unimplemented in the words that peers know."""
        if asked.service not in self._names:
            raise Unimplemented(f"service {asked.service}")
        method, handler = self._table.get((asked.service, asked.method)), self._handlers.get(asked.method)
        if method is None or handler is None:
            raise Unimplemented(f"method {asked.method}")
        return method, handler


class Trunk(asyncio.Protocol):
    """Both conversations of one connection."""

    def __init__(self, services: Services, *, asks_on: int, answers_on: int) -> None:
        self._services = services
        self._asks_on, self._answers_on = asks_on, answers_on
        self._asking, self._answering = Asking(), Answering()
        self._pieces = mux.Pieces()
        self._frames = {asks_on: Frames(), answers_on: Frames()}
        self._waiting: dict[int, asyncio.Future[Answered]] = {}
        self._handling: set[asyncio.Task[None]] = set()
        self._transport: asyncio.Transport | None = None
        self._why = ""
        self.closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Done when the conversation is over; its result is why."""

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

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
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        why = self._why or (f"the connection broke: {error}" if error else "the peer closed the connection")
        for task in self._handling:
            task.cancel()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(TrunkClosed(why))
        self._waiting.clear()
        if not self.closed.done():
            self.closed.set_result(why)

    # What its owner calls.

    @property
    def peer_pid(self) -> int:
        """The process at the other end, as the kernel tells; 0 when it cannot."""
        return self._peer()[0]

    @property
    def peer_uid(self) -> int:
        """The user at the other end; -1 when the kernel cannot tell."""
        return self._peer()[1]

    def _peer(self) -> tuple[int, int]:
        raw = self._transport.get_extra_info("socket") if self._transport else None
        if raw is None:
            return 0, -1
        pid, uid, _ = struct.unpack("3i", raw.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return pid, uid

    async def call(
        self,
        method: Unary[Request, Response],
        request: Request,
        *,
        within: float,
        metadata: Iterable[tuple[str, str]] = (),
    ) -> Response:
        """Ask the peer. Raises RpcError for what it answers, TrunkClosed, NoAnswer."""
        answered = await self._exchange(method, request.SerializeToString(), within, metadata)
        if answered.error is not None:
            raise answered.error
        try:
            return method.response.FromString(answered.payload)
        except DecodeError:
            raise InvalidArgument(f"{method.name}: the answer is no {method.response.DESCRIPTOR.name}") from None

    async def _exchange(
        self, method: Unary[Any, Any], payload: bytes, within: float, metadata: Iterable[tuple[str, str]]
    ) -> Answered:
        if self._transport is None or self.closed.done() or self._transport.is_closing():
            raise TrunkClosed(self._why or "the connection is closed")
        stream, frame = self._asking.request(method.service, method.name, payload, timeout=within, metadata=metadata)
        future: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        self._waiting[stream] = future
        self._transport.write(mux.pieces(self._asks_on, frame))
        try:
            async with asyncio.timeout(within):
                return await future
        except TimeoutError:
            raise NoAnswer(f"no answer to {method.name} within {within:g} s") from None
        finally:
            self._waiting.pop(stream, None)
            self._asking.forget(stream)

    async def close(self, why: str = "closed here") -> None:
        """Send what was written, close, and wait until handlers have ended."""
        self._why = self._why or why
        if self._transport is not None and not self.closed.done():
            self._transport.close()
            await asyncio.wait([self.closed], timeout=1.0)
            if not self.closed.done():
                self._transport.abort()
                await asyncio.shield(self.closed)
        await asyncio.gather(*self._handling, return_exceptions=True)

    def abort(self, why: str) -> None:
        """Close at once; nothing that was not sent yet is."""
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
                _log.info("a frame is ignored", extra={"why": why})

    def _asked(self, frame: Frame) -> None:
        match self._answering.receive(frame):
            case Asked() as asked:
                self._begin(asked)
            case Refused(stream, error):
                self._send(refuse(stream, error))
            case Ignored(why):
                _log.info("a frame is ignored", extra={"why": why})

    def _begin(self, asked: Asked) -> None:
        if len(self._handling) >= MAX_HANDLING:
            self._send(refuse(asked.stream, ResourceExhausted(f"{MAX_HANDLING} requests are being answered already")))
            return
        task = asyncio.get_running_loop().create_task(self._handle(asked), name=f"answer {asked.method}")
        self._handling.add(task)
        task.add_done_callback(self._handling.discard)

    async def _handle(self, asked: Asked) -> None:
        enter(Call(asked.timeout, asked.metadata))
        try:
            method, handler = self._services.find(asked)
            async with asyncio.timeout(asked.timeout):
                response = await handler(_decode(method, asked.payload))
            reply = answer(asked.stream, response.SerializeToString())
        except TimeoutError:
            reply = refuse(asked.stream, DeadlineExceeded(f"{asked.method}: not done within {asked.timeout:g} s"))
        except Exception as error:  # noqa: BLE001 - whatever a handler raises is answered with
            if not isinstance(error, RpcError):
                _log.exception("a handler failed", extra={"method": asked.method})
            reply = refuse(asked.stream, from_exception(error, asked.method))
        self._send(reply)

    def _send(self, frame: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(mux.pieces(self._answers_on, frame))


def _decode(method: Unary[Any, Any], payload: bytes) -> Message:
    try:
        return cast("Message", method.request.FromString(payload))
    except DecodeError:
        raise InvalidArgument(f"{method.name}: the payload is no {method.request.DESCRIPTOR.name}") from None


async def over_socket(connected: socket.socket, trunk: Trunk) -> None:
    """Let a trunk speak over a connected stream socket, which is its own from now on."""
    connected.setblocking(False)
    await asyncio.get_running_loop().create_connection(lambda: trunk, sock=connected)


async def connect(path: str | os.PathLike[str], trunk: Trunk) -> None:
    """Let a trunk speak to whoever listens at a path. Raises OSError."""
    await asyncio.get_running_loop().create_unix_connection(lambda: trunk, os.fspath(path))
