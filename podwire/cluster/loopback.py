"""An HTTP transport for the API client that calls the API server of the same process, without a socket."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

from podwire.protocols.k8sapi.client_side import Incoming, Interrupted, Reply
from podwire.protocols.k8sapi.client_side.http import Query
from podwire.protocols.k8sapi.server_side import (
    BodyTooLarge,
    Certificate,
    Handler,
    Request,
    Response,
    Stream,
    Tunnel,
    Upgrade,
)


@dataclass(frozen=True, slots=True)
class LoopbackHttp:
    """Implements the client's Http. The server sees the given identity as a verified client certificate."""

    handler: Handler
    identity: Certificate
    user_agent: str = "podwire"

    async def request(
        self, method: str, path: str, *, query: Query = (), headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Reply:
        answer = await self._ask(method, path, query, headers, body)
        if isinstance(answer, Stream):
            whole = b"".join([chunk async for chunk in answer.chunks])
            return Reply(answer.status, _headers(answer), whole)
        return Reply(answer.status, _headers(answer), answer.body)

    async def stream(
        self, method: str, path: str, *, query: Query = (), headers: Mapping[str, str] | None = None
    ) -> Incoming:
        answer = await self._ask(method, path, query, headers, b"")
        chunks = answer.chunks if isinstance(answer, Stream) else _once(answer)
        return _Incoming(answer.status, _headers(answer), chunks)

    async def _ask(
        self, method: str, path: str, query: Query, headers: Mapping[str, str] | None, body: bytes
    ) -> Response | Stream:
        async def read(limit: int) -> bytes:
            if len(body) > limit:
                raise BodyTooLarge(limit)
            return body

        parameters: dict[str, list[str]] = {}
        for name, value in query:
            parameters.setdefault(name, []).append(value)
        lowered = {"user-agent": self.user_agent, **{name.lower(): value for name, value in (headers or {}).items()}}
        request = Request(
            method=method, path=path, query=parameters, headers=lowered, certificate=self.identity, read=read
        )
        answer = await self.handler(request)
        if isinstance(answer, Upgrade | Tunnel):
            raise Interrupted(f"{method} {path}: upgrades need a real connection")
        return answer


def _headers(answer: Response | Stream) -> dict[str, str]:
    return {"content-type": answer.content_type, **{name.lower(): value for name, value in answer.headers}}


async def _once(answer: Response) -> AsyncIterator[bytes]:
    yield answer.body


@dataclass(slots=True)
class _Incoming:
    status: int
    headers: Mapping[str, str]
    chunks: AsyncIterator[bytes]
    closed: bool = field(default=False)

    async def read(self) -> bytes:
        if self.closed:
            raise Interrupted("closed")
        return await anext(self.chunks, b"")

    def close(self) -> None:
        self.closed = True
