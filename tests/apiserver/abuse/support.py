"""A client of a whole API server without sockets, and the check that every rejected request must pass."""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from podwire.apiserver import Pki, Settings, assemble
from podwire.protocols.k8sapi.server_side import BodyTooLarge, Certificate, Request, Stream
from podwire.store.memory import MemoryStore
from podwire.transports.clock import SystemClock

ADMIN = Certificate("kubernetes-admin", ("system:masters",))
JSON = "application/json"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


@dataclass(frozen=True)
class Reply:
    """An answer, read to its end."""

    status: int
    raw: bytes
    headers: Mapping[str, str]
    content_type: str = JSON
    warnings: tuple[str, ...] = ()

    @property
    def body(self) -> Any:
        return msgspec.json.decode(self.raw)

    @property
    def message(self) -> str:
        return str(self.body["message"])

    @property
    def fields(self) -> list[str]:
        """The fields that a refusal names."""
        return [cause.get("field", "") for cause in self.body.get("details", {}).get("causes", [])]


class Failures(logging.Handler):
    """Keeps what the server logs: all of it as text, and apart what went wrong inside."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []
        self.failures: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        self.lines.append(f"{text} {vars(record)}")
        if record.exc_info or record.levelno >= logging.ERROR:
            self.failures.append(text)


class House:
    """The server, its store and its log; every method works until it has the whole answer."""

    def __init__(self, pki: Pki, settings: Settings | None = None, *, stream_seconds: float = 60) -> None:
        self._runner = asyncio.Runner()
        self._stream_seconds = stream_seconds
        self.log = Failures()
        self._logger = logging.getLogger("podwire")
        self._level = self._logger.level
        self._logger.addHandler(self.log)
        self._logger.setLevel(logging.DEBUG)
        self.store = MemoryStore()
        self.assembled = assemble(self.store, pki, SystemClock(), settings)
        self.run(self._decode_token())

    async def _decode_token(self) -> None:
        await self.assembled.start()
        self._background = asyncio.create_task(self.assembled.run())

    def close(self) -> None:
        self.run(self._close())
        self._runner.close()
        self._logger.removeHandler(self.log)
        self._logger.setLevel(self._level)

    async def _close(self) -> None:
        alive = not self._background.done()
        self._background.cancel()
        await asyncio.gather(self._background, return_exceptions=True)
        await self.store.close()
        assert alive, "the server's own work ended"

    def run(self, work: Any) -> Any:
        return self._runner.run(work)

    def settle(self) -> None:
        """Let what follows the store catch up."""
        self.run(asyncio.sleep(0.01))

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        media: str = JSON,
        query: Mapping[str, str | list[str]] | None = None,
        user: Certificate | None = ADMIN,
        **headers: str,
    ) -> Reply:
        """One request; a body of bytes goes as it is, another as JSON. Streams are read until they end, or so long."""
        data = b"" if body is None else body if isinstance(body, bytes) else msgspec.json.encode(body)
        named = {name.replace("_", "-"): value for name, value in headers.items()}

        async def read(limit: int) -> bytes:
            if len(data) > limit:
                raise BodyTooLarge(limit)
            return data

        request = Request(
            method=method,
            path=path,
            query={name: [given] if isinstance(given, str) else given for name, given in (query or {}).items()},
            headers={"content-type": media, **named},
            certificate=user,
            read=read,
        )
        return self.run(self._ask(request))

    async def _ask(self, request: Request) -> Reply:
        answer = await self.assembled.server.handle(request)
        headers = {name.lower(): value for name, value in answer.headers}
        warnings = tuple(value for name, value in answer.headers if name == "Warning")
        if isinstance(answer, Stream):
            chunks: list[bytes] = []
            async with contextlib.aclosing(answer.chunks) as stream:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._stream_seconds):
                        chunks.extend([chunk async for chunk in stream])
            return Reply(answer.status, b"".join(chunks), headers, answer.content_type)
        return Reply(answer.status, answer.body, headers, answer.content_type, warnings)

    def refused(self, method: str, path: str, body: Any = None, **how: Any) -> Reply:
        """A request that must be refused: by a proper Status, with nothing stored and no revision spent."""
        before = self.state()
        reply = self.ask(method, path, body, **how)
        check_refusal(reply)
        assert self.state() == before, f"{reply.status} {reply.raw[:500]!r}, but something was stored"
        return reply

    def made(self, path: str, body: Any, **how: Any) -> Any:
        """A POST that must succeed; the object."""
        reply = self.ask("POST", path, body, **how)
        assert reply.status == 201, reply.raw[:2000]
        return reply.body

    def state(self) -> tuple[int, dict[str, bytes]]:
        """All that is stored, and the revision."""
        page = self.run(self.store.list("/"))
        return self.store.revision, {item.key: item.value for item in page.items}

    def readable(self, collection: str, name: str) -> None:
        """Stored objects can be read, listed, shown as a table and watched."""
        for accept in (JSON, TABLE, PARTIAL):
            assert self.ask("GET", f"{collection}/{name}", accept=accept).body["apiVersion"]
            listed = self.ask("GET", collection, accept=accept)
            assert listed.status == 200, listed.raw[:2000]
            assert listed.body["rows" if accept == TABLE else "items"]
        assert name in [item["object"]["metadata"]["name"] for item in self.watched(collection)]

    def watched(self, collection: str, **query: str) -> list[Any]:
        """First events of a watch from the beginning."""
        asked = {name: [value] for name, value in {"watch": "1", **query}.items()}
        return self.run(self._first(Request(method="GET", path=collection, query=asked, certificate=ADMIN)))

    async def _first(self, request: Request) -> list[Any]:
        answer = await self.assembled.server.handle(request)
        assert isinstance(answer, Stream), answer
        async with asyncio.timeout(30), contextlib.aclosing(answer.chunks) as chunks:
            first = await anext(chunks)
        return [msgspec.json.decode(line) for line in first.splitlines()]


def check_refusal(reply: Reply) -> None:
    """A Status as clients know it: right in itself, and without a word about our insides."""
    assert 400 <= reply.status < 500 or reply.status in (501, 503, 504), reply.raw[:2000]
    assert reply.content_type == JSON, reply.raw[:200]
    status = reply.body
    assert (status["kind"], status["apiVersion"], status["status"]) == ("Status", "v1", "Failure")
    assert status["code"] == reply.status
    assert status["reason"], status
    assert status["message"], status
    for word in ("Traceback", "podwire/", "NoneType", "object has no attribute", "<class", " object at 0x"):
        assert word not in status["message"], status["message"]
