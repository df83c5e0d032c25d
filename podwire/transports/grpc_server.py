"""A gRPC server on a unix socket, built from a table of methods and their handlers.

The mode of the socket decides who may call: 0600, so that only the user of the process (for a runtime: root) can
connect. Calls carry no credentials.

Handlers take a request and return a response, or yield responses; a caller that gives up cancels its handler, unless
the method's table says that it must not. An RpcError is sent with its code; any other exception is logged, and the
caller receives INTERNAL without its text.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack
from typing import Any, cast
from urllib.parse import quote

import grpc
from google.protobuf.message import DecodeError, Message

from podwire.interfaces import Tap
from podwire.protocols.grpc_methods import (
    MAX_MESSAGE,
    Handler,
    Method,
    ServerStream,
    StreamHandler,
    Unary,
    UnaryHandler,
    matched,
)
from podwire.protocols.grpc_status import (
    Internal,
    InvalidArgument,
    Unavailable,
    Unimplemented,
    details,
    from_exception,
)
from podwire.tasks.uncancelled import Uncancelled, to_completion
from podwire.transports import unix_sockets
from podwire.transports.tapped import Call, Tapped

log = logging.getLogger(__name__)

_Context = grpc.aio.ServicerContext[bytes, bytes]
_Answer = Callable[[bytes, _Context], Awaitable[bytes | None]]
_STOPPING = "podwire is stopping"
_CODES = {status.value[0]: status for status in grpc.StatusCode}


async def serve(
    path: str | os.PathLike[str],
    table: Iterable[Method],
    handlers: Mapping[str, Handler],
    *,
    tap: Tap | None = None,
    caller: str = "client",
    callee: str = "podwire",
) -> "GrpcServer":
    """Serves the methods of the table on the socket at `path` until closed.

    A method without a handler is answered with UNIMPLEMENTED. Raises unix_sockets.CannotListen, and BadTable.
    """
    answers = _Answers(table, handlers, Tapped(tap, caller=caller, callee=callee))
    options = (("grpc.max_receive_message_length", MAX_MESSAGE), ("grpc.max_send_message_length", MAX_MESSAGE))
    server = grpc.aio.server(handlers=(answers,), options=options)
    place = await unix_sockets.bind_socket(path, lambda fresh: server.add_insecure_port(f"unix:{quote(fresh)}"))
    made = GrpcServer(server, answers, place)
    async with AsyncExitStack() as undo:
        undo.push_async_callback(made.close, 0)
        await to_completion(server.start())  # a start that is cancelled half-way leaves a server without an owner
        undo.pop_all()
    return made


class GrpcServer:
    """A listening server. The owner closes it."""

    def __init__(self, server: grpc.aio.Server, answers: "_Answers", place: unix_sockets.BoundSocket) -> None:
        self._server = server
        self._answers = answers
        self._place = place

    async def close(self, grace: float = 5.0) -> None:
        """Shuts down gracefully.

        1. Remove the socket, accept no call.   2. End the streams with UNAVAILABLE, so that no client takes a part for
        the whole.   3. Wait up to `grace` for the other calls, then cancel them and wait for their end.   4. Wait up to
        `grace` for uncancelled calls, then cancel these too, and log it.
        """
        await unix_sockets.remove_socket(self._place)
        self._answers.end_streams()
        await self._server.stop(grace)
        await self._answers.finish(grace)


class _Answers(grpc.GenericRpcHandler):
    """Dispatches calls to handlers; tracks open streams so that shutdown can end them."""

    def __init__(self, table: Iterable[Method], handlers: Mapping[str, Handler], tapped: Tapped) -> None:
        self._uncancelled = Uncancelled()
        self._tapped = tapped
        self._calls: set[asyncio.Task[Any]] = set()
        self._streams: set[asyncio.Timeout] = set()
        self._ending = False
        self._by_path = {
            path: self._made(method, handler)
            for path, (method, handler) in matched(table, handlers).items()
            if handler is not None
        }

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[Any, Any]":
        path = handler_call_details.method
        return self._by_path.get(path) or grpc.unary_unary_rpc_method_handler(_unimplemented(path))

    def end_streams(self) -> None:
        """Ends every open stream, and every stream that is opened later."""
        self._ending = True
        now = asyncio.get_running_loop().time()
        for stream in tuple(self._streams):
            stream.reschedule(now)

    async def finish(self, grace: float) -> None:
        """Waits, after the server stopped, for cancelled handlers and uncancelled calls."""
        if self._calls:
            await asyncio.wait(self._calls, timeout=grace)
        await self._uncancelled.drain(grace)

    def _made(self, method: Method, handler: Handler) -> "grpc.RpcMethodHandler[Any, Any]":
        if isinstance(method, ServerStream):
            work = self._sending(method, cast("StreamHandler", handler))
            return grpc.unary_stream_rpc_method_handler(self._watched(method, work))
        work = self._responding(method, cast("UnaryHandler", handler))
        return grpc.unary_unary_rpc_method_handler(self._watched(method, work))

    def _watched(self, method: Method, work: "_Work") -> _Answer:
        """Wraps the handler of one call: parses, taps, and turns every exception into a status."""

        async def answer(data: bytes, context: _Context) -> bytes | None:
            self._remember(asyncio.current_task())
            try:
                request = _parsed(method, data)
                with self._tapped.call(method.name, request) as call:
                    return await work(request, context, call)
            except Exception as error:
                failure = from_exception(error, method.name)
                if failure is not error:
                    log.exception("gRPC handler failed unexpectedly", extra={"method": method.name})
                await context.abort(_CODES[failure.code], details(failure))

        return answer

    def _remember(self, call: asyncio.Task[Any] | None) -> None:
        if call is not None:
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)

    def _responding(self, method: Unary[Any, Any], handler: UnaryHandler) -> "_Work":
        async def work(request: Message, _context: _Context, call: Call) -> bytes:
            handling = cast("Coroutine[Any, Any, Message]", handler(request))
            response = await (self._uncancelled.run(handling) if method.uncancelled else handling)
            call.answered(response)
            return _serialized(method, response)

        return work

    def _sending(self, method: Method, handler: StreamHandler) -> "_Work":
        async def work(request: Message, context: _Context, call: Call) -> None:
            responses = handler(request)
            call.streamed(0)
            try:
                while (response := await self._next(responses)) is not None:
                    await context.write(_serialized(method, response))
                    call.streamed(1)
            finally:
                await _closed(responses)

        return work

    async def _next(self, responses: AsyncIterator[Message]) -> Message | None:
        """Returns the next response, None at the end. Shutdown ends streams here, between writes: a client whose write
        is cut would not receive the status. Raises Unavailable."""
        if self._ending:
            raise Unavailable(_STOPPING)
        try:
            async with asyncio.timeout(None) as until:
                self._streams.add(until)
                return await anext(responses, None)
        except TimeoutError as error:
            if not until.expired():
                raise
            raise Unavailable(_STOPPING) from error
        finally:
            self._streams.discard(until)


_Work = Callable[[Any, _Context, Call], Awaitable[bytes | None]]


def _parsed(method: Method, data: bytes) -> Message:
    try:
        return cast("Message", method.request.FromString(data))
    except DecodeError as error:
        raise InvalidArgument(f"{method.name}: the request is not a valid {method.request.__name__}") from error


def _serialized(method: Method, response: Message) -> bytes:
    if not isinstance(response, method.response):
        raise TypeError(f"{method.name} answered {type(response).__name__}, expected {method.response.__name__}")
    data: bytes = response.SerializeToString()
    if len(data) > MAX_MESSAGE:
        raise Internal(f"{method.name}: the response has {len(data)} bytes, the maximum is {MAX_MESSAGE}")
    return data


def _unimplemented(path: str) -> _Answer:
    refused = Unimplemented(f"{path.rpartition('/')[2]} is not supported by podwire")

    async def refuse(_data: bytes, context: _Context) -> bytes | None:
        await context.abort(_CODES[refused.code], str(refused))
        return None

    return refuse


async def _closed(responses: AsyncIterator[Message]) -> None:
    close = getattr(responses, "aclose", None)
    if close is not None:
        await close()
