"""Taps on HTTP: wrappers around a handler and around a client that report requests to a tap."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import msgspec

from podwire.interfaces import Tap
from podwire.protocols.k8sapi.client_side import Incoming, Reply
from podwire.protocols.k8sapi.client_side.http import Http, Query
from podwire.protocols.k8sapi.server_side import Answer, Handler, Request, Response, Stream
from podwire.transports.tapped import Call, Tapped

UNNAMED_CALLER = "client"
"""The caller of a request without a user agent."""


@dataclass(slots=True)
class TappedRequest:
    """A request as reported to the tap; the body is set once the handler has read it."""

    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class TappedExchange:
    """The end of a request: the request and the whole answer; empty for a stream."""

    asked: TappedRequest
    content_type: str
    body: bytes


def tapped_handler(handler: Handler, tap: Tap | None, callee: str) -> Handler:
    """Returns the handler itself without a tap; with one, a handler that answers the same and reports."""
    if tap is None:
        return handler
    tapped = Tapped(tap, caller=UNNAMED_CALLER, callee=callee)

    async def handle(request: Request) -> Answer:
        asked = TappedRequest(request.headers)

        async def read(limit: int) -> bytes:
            asked.body = await request.read(limit)
            return asked.body

        call = tapped.call(title(request), asked, caller=request.headers.get("user-agent", ""))
        with _CallScope(call) as scope:
            answer = await handler(msgspec.structs.replace(request, read=read))
            if isinstance(answer, Stream):
                scope.keep_open()
                return replace(answer, chunks=_Chunks(answer.chunks, call, asked, answer))
            body = answer.body if isinstance(answer, Response) else b""
            status = answer.status if isinstance(answer, Response) else 101
            content_type = answer.content_type if isinstance(answer, Response) else ""
            call.answered(TappedExchange(asked, content_type, body), str(status))
            return answer

    return handle


def title(request: Request) -> str:
    """Describes a request in one line: method, path, and the decoded query."""
    return _title(
        request.method, request.path, [(name, value) for name, values in request.query.items() for value in values]
    )


def _title(method: str, path: str, query: Sequence[tuple[str, str]]) -> str:
    asked = "&".join(f"{name}={value}" for name, value in query)
    return f"{method} {path}?{asked}" if asked else f"{method} {path}"


class _CallScope:
    """Ends the call with the block, unless it is kept open: then it ends with its stream."""

    __slots__ = ("_call", "_kept")

    def __init__(self, call: Call) -> None:
        self._call = call
        self._kept = False

    def keep_open(self) -> None:
        self._kept = True

    def __enter__(self) -> Self:
        self._call.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if not self._kept:
            self._call.__exit__(*error)  # type: ignore[arg-type]  # the three arguments of __exit__


class _Chunks:
    """Chunks of a stream, each event reported as it passes; closing them ends the call, whether or not it had begun."""

    def __init__(self, chunks: AsyncIterator[bytes], call: Call, asked: TappedRequest, answer: Stream) -> None:
        self._chunks = chunks
        self._call = call
        self._ended = False
        self._events = not answer.whole
        call.answered(TappedExchange(asked, answer.content_type, b""), str(answer.status))

    def __aiter__(self) -> "_Chunks":
        return self

    async def __anext__(self) -> bytes:
        try:
            chunk = await anext(self._chunks)
        except StopAsyncIteration:
            self._end(None)
            raise
        except BaseException as error:  # the tap receives how the stream ended, cancellation included
            self._end(error)
            raise
        if self._events:
            self._call.event(chunk)
        return chunk

    async def aclose(self) -> None:
        close = getattr(self._chunks, "aclose", None)
        try:
            if close is not None:
                await close()
        finally:
            self._end(None)

    def _end(self, error: BaseException | None) -> None:
        if not self._ended:
            self._ended = True
            self._call.__exit__(type(error) if error else None, error, None)


class TappedHttp:
    """Wraps the API client's Http: for a client whose server is not tapped."""

    def __init__(self, http: Http, tap: Tap, *, caller: str, callee: str) -> None:
        self._http = http
        self._tapped = Tapped(tap, caller=caller, callee=callee)

    async def request(
        self, method: str, path: str, *, query: Query = (), headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Reply:
        asked = TappedRequest(headers or {}, body)
        with self._tapped.call(_title(method, path, query), asked) as call:
            reply = await self._http.request(method, path, query=query, headers=headers, body=body)
            content_type = reply.headers.get("content-type", "")
            call.answered(TappedExchange(asked, content_type, reply.body), str(reply.status))
            return reply

    async def stream(
        self, method: str, path: str, *, query: Query = (), headers: Mapping[str, str] | None = None
    ) -> Incoming:
        asked = TappedRequest(headers or {})
        call = self._tapped.call(_title(method, path, query), asked)
        with _CallScope(call) as scope:
            incoming = await self._http.stream(method, path, query=query, headers=headers)
            scope.keep_open()
            return _TappedIncoming(incoming, call, asked)


class _TappedIncoming:
    """A streamed answer; each complete line is reported."""

    def __init__(self, incoming: Incoming, call: Call, asked: TappedRequest) -> None:
        self._incoming = incoming
        self._call = call
        self._partial_line = b""
        self._ended = False
        content_type = incoming.headers.get("content-type", "")
        call.answered(TappedExchange(asked, content_type, b""), str(incoming.status))

    @property
    def status(self) -> int:
        return self._incoming.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._incoming.headers

    async def read(self) -> bytes:
        try:
            data = await self._incoming.read()
        except BaseException as error:  # as above
            self._end(error)
            raise
        whole, newline, rest = data.rpartition(b"\n")
        if newline:
            self._call.event(self._partial_line + whole)
        self._partial_line = rest if newline else self._partial_line + data
        if not data:
            self._end(None)
        return data

    def close(self) -> None:
        self._incoming.close()
        self._end(None)

    def _end(self, error: BaseException | None) -> None:
        if not self._ended:
            self._ended = True
            self._call.__exit__(type(error) if error else None, error, None)
