"""HTTP requests that are watched from outside: a handler that tells a tap, around any other; the same for a client."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from podwire.interfaces import Tap
from podwire.protocols.k8sapi.client_side import Incoming, Reply
from podwire.protocols.k8sapi.client_side.http import Http, Query
from podwire.protocols.k8sapi.server_side import Answer, Handler, Request, Response, Stream
from podwire.transports.tapped import Passing, Tapped

NOBODY = "client"
"""A caller that does not say what it is."""


@dataclass(slots=True)
class Asked:
    """A request as the tap is told of it; the body is there once somebody has read it."""

    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Answered:
    """The end of a request: what was asked, and the whole answer, of which a stream has none."""

    asked: Asked
    content_type: str
    body: bytes


def watched(handler: Handler, tap: Tap | None, callee: str) -> Handler:
    """The handler itself without a tap; with one, a handler that answers the same and tells."""
    if tap is None:
        return handler
    tapped = Tapped(tap, caller=NOBODY, callee=callee)

    async def handle(request: Request) -> Answer:
        asked = Asked(request.headers)

        async def read(limit: int) -> bytes:
            asked.body = await request.read(limit)
            return asked.body

        passing = tapped.call(title(request), asked, caller=request.headers.get("user-agent", ""))
        with _Handed(passing) as handed:
            answer = await handler(replace(request, read=read))
            if isinstance(answer, Stream):
                handed.keep()
                return replace(answer, chunks=_Chunks(answer.chunks, passing, asked, answer))
            body = answer.body if isinstance(answer, Response) else b""
            status = answer.status if isinstance(answer, Response) else 101
            content_type = answer.content_type if isinstance(answer, Response) else ""
            passing.answered(Answered(asked, content_type, body), str(status))
            return answer

    return handle


def title(request: Request) -> str:
    """A request in one line, for people: method, path, and the query as it is meant."""
    return _title(request.method, request.path, [(name, each) for name, all_ in request.query.items() for each in all_])


def _title(method: str, path: str, query: Sequence[tuple[str, str]]) -> str:
    asked = "&".join(f"{name}={value}" for name, value in query)
    return f"{method} {path}?{asked}" if asked else f"{method} {path}"


class _Handed:
    """A call that ends with the block, unless it is kept: then it ends with its stream."""

    __slots__ = ("_kept", "_passing")

    def __init__(self, passing: Passing) -> None:
        self._passing = passing
        self._kept = False

    def keep(self) -> None:
        self._kept = True

    def __enter__(self) -> Self:
        self._passing.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if not self._kept:
            self._passing.__exit__(*error)  # type: ignore[arg-type]  # the three that every exit is given


class _Chunks:
    """A stream's chunks, each told as it is handed on; closing them ends the call, whether or not it had begun."""

    def __init__(self, chunks: AsyncIterator[bytes], passing: Passing, asked: Asked, answer: Stream) -> None:
        self._chunks = chunks
        self._passing = passing
        self._ended = False
        passing.answered(Answered(asked, answer.content_type, b""), str(answer.status))

    def __aiter__(self) -> "_Chunks":
        return self

    async def __anext__(self) -> bytes:
        try:
            chunk = await anext(self._chunks)
        except StopAsyncIteration:
            self._end(None)
            raise
        except BaseException as error:
            self._end(error)
            raise
        self._passing.event(chunk)
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
            self._passing.__exit__(type(error) if error else None, error, None)


class TappedHttp:
    """The API client's HTTP port around another: for a client whose server tells nobody."""

    def __init__(self, http: Http, tap: Tap, *, caller: str, callee: str) -> None:
        self._http = http
        self._tapped = Tapped(tap, caller=caller, callee=callee)

    async def request(
        self, method: str, path: str, *, query: Query = (), headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Reply:
        asked = Asked(headers or {}, body)
        with self._tapped.call(_title(method, path, query), asked) as passing:
            reply = await self._http.request(method, path, query=query, headers=headers, body=body)
            content_type = reply.headers.get("content-type", "")
            passing.answered(Answered(asked, content_type, reply.body), str(reply.status))
            return reply

    async def stream(
        self, method: str, path: str, *, query: Query = (), headers: Mapping[str, str] | None = None
    ) -> Incoming:
        asked = Asked(headers or {})
        passing = self._tapped.call(_title(method, path, query), asked)
        with _Handed(passing) as handed:
            incoming = await self._http.stream(method, path, query=query, headers=headers)
            handed.keep()
            return _Heard(incoming, passing, asked)


class _Heard:
    """A streamed answer, each whole line of it told."""

    def __init__(self, incoming: Incoming, passing: Passing, asked: Asked) -> None:
        self._incoming = incoming
        self._passing = passing
        self._begun = b""
        self._ended = False
        content_type = incoming.headers.get("content-type", "")
        passing.answered(Answered(asked, content_type, b""), str(incoming.status))

    @property
    def status(self) -> int:
        return self._incoming.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._incoming.headers

    async def read(self) -> bytes:
        try:
            data = await self._incoming.read()
        except BaseException as error:
            self._end(error)
            raise
        whole, newline, rest = data.rpartition(b"\n")
        if newline:
            self._passing.event(self._begun + whole)
        self._begun = rest if newline else self._begun + data
        if not data:
            self._end(None)
        return data

    def close(self) -> None:
        self._incoming.close()
        self._end(None)

    def _end(self, error: BaseException | None) -> None:
        if not self._ended:
            self._ended = True
            self._passing.__exit__(type(error) if error else None, error, None)
