"""Helpers of the API server's tests: a clock that tests move, a store whose requests meet, a client without sockets."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

import msgspec

from podwire.apiserver import Assembled
from podwire.protocols.k8sapi.server_side import Answer, BodyTooLarge, Certificate, Request, Response, Stream
from podwire.protocols.storage import Item, Page
from podwire.store.memory import MemoryStore
from tests.eventually import eventually_async

ADMIN = Certificate("kubernetes-admin", ("system:masters",))
JSON = "application/json"
META = "g=meta.k8s.io;v=v1"
TABLE = f"{JSON};as=Table;{META}"
PARTIAL = f"{JSON};as=PartialObjectMetadata;{META}"
PARTIAL_LIST = f"{JSON};as=PartialObjectMetadataList;{META}"
CONFIGS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
PATCHES = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
SOON = 30.0
"""Seconds after which a frame that was promised has not come."""


class MovableClock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def wall(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    def move(self, seconds: float) -> None:
        self.now += seconds


class InterleavingStore(MemoryStore):
    """Lets everybody else run before each of its answers, so that requests meet in the middle."""

    async def get(self, key: str) -> Item | None:
        await asyncio.sleep(0)
        return await super().get(key)

    async def list(self, prefix: str, *, at: int | None = None, after: str | None = None, limit: int = 0) -> Page:
        await asyncio.sleep(0)
        return await super().list(prefix, at=at, after=after, limit=limit)

    async def create(self, key: str, value: bytes) -> Item:
        await asyncio.sleep(0)
        return await super().create(key, value)

    async def update(self, key: str, value: bytes, *, expected: int) -> Item:
        await asyncio.sleep(0)
        return await super().update(key, value, expected=expected)

    async def delete(self, key: str, *, expected: int) -> int:
        await asyncio.sleep(0)
        return await super().delete(key, expected=expected)


@dataclass(frozen=True)
class Reply:
    """A whole answer; `body` is decoded where it is JSON."""

    status: int
    body: Any
    headers: Mapping[str, str]
    warnings: list[str]
    raw: bytes

    @property
    def message(self) -> str:
        return str(self.body["message"])

    @property
    def version(self) -> str:
        return str(self.body["metadata"]["resourceVersion"])

    @property
    def names(self) -> list[str]:
        return [item["metadata"]["name"] for item in self.body["items"]]


class Watching:
    """A watch that is being read."""

    def __init__(self, stream: Stream) -> None:
        self._frames: asyncio.Queue[Any] = asyncio.Queue()
        self._task = asyncio.create_task(self._pump(stream))

    async def _pump(self, stream: Stream) -> None:
        async with contextlib.aclosing(stream.chunks) as chunks:
            async for chunk in chunks:
                for line in chunk.splitlines():
                    self._frames.put_nowait(msgspec.json.decode(line))
        self._frames.put_nowait(None)

    async def next(self) -> Any:
        """The next frame; None when the watch has ended."""
        async with asyncio.timeout(SOON):
            return await self._frames.get()

    async def take(self, count: int) -> list[Any]:
        return [await self.next() for _ in range(count)]

    async def reported(self, count: int) -> list[tuple[str, str]]:
        """The next frames as type and name."""
        return [(item["type"], item["object"]["metadata"]["name"]) for item in await self.take(count)]

    async def rest(self) -> list[Any]:
        """All frames until the watch ends."""
        frames = []
        while (frame := await self.next()) is not None:
            frames.append(frame)
        return frames

    async def is_quiet(self, seconds: float = 0.02) -> bool:
        """Whether nothing comes for a while."""
        await asyncio.sleep(seconds)
        return self._frames.empty()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


@dataclass
class Api:
    """Asks the server, as its admin by default."""

    assembled: Assembled
    store: Any
    clock: Any
    watches: list[Watching] = field(default_factory=list)

    async def ask(
        self,
        method: str,
        url: str,
        body: Any = None,
        *,
        accept: str = JSON,
        content_type: str = JSON,
        headers: Mapping[str, str] | None = None,
        user: Certificate | None = ADMIN,
    ) -> Answer:
        path, _, query = url.partition("?")
        data = body if isinstance(body, bytes) else b"" if body is None else msgspec.json.encode(body)

        async def read(limit: int) -> bytes:
            if len(data) > limit:
                raise BodyTooLarge(limit)
            return data

        sent = {"accept": accept, **({"content-type": content_type} if data else {}), **(headers or {})}
        request = Request(
            method=method,
            path=path,
            query=parse_qs(query, keep_blank_values=True),
            headers=sent,
            certificate=user,
            read=read,
        )
        return await self.assembled.server.handle(request)

    async def call(self, method: str, url: str, body: Any = None, **rest: Any) -> Reply:
        answer = await self.ask(method, url, body, **rest)
        if isinstance(answer, Stream) and answer.whole:
            whole = b"".join([chunk async for chunk in answer.chunks])
            answer = Response(
                status=answer.status, body=whole, content_type=answer.content_type, headers=answer.headers
            )
        assert not isinstance(answer, Stream), f"{method} {url} streams"
        headers = {name.lower(): value for name, value in answer.headers}
        warnings = [value for name, value in answer.headers if name == "Warning"]
        decoded = answer.body.decode() if answer.content_type.startswith("text/") else _decoded(answer.body)
        return Reply(answer.status, decoded, {**headers, "content-type": answer.content_type}, warnings, answer.body)

    async def get(self, url: str, **rest: Any) -> Reply:
        return await self.call("GET", url, **rest)

    async def post(self, url: str, body: Any = None, **rest: Any) -> Reply:
        return await self.call("POST", url, body, **rest)

    async def put(self, url: str, body: Any, **rest: Any) -> Reply:
        return await self.call("PUT", url, body, **rest)

    async def patch(self, url: str, body: Any, kind: str = "merge", **rest: Any) -> Reply:
        return await self.call("PATCH", url, body, content_type=PATCHES[kind], **rest)

    async def delete(self, url: str, body: Any = None, **rest: Any) -> Reply:
        return await self.call("DELETE", url, body, **rest)

    async def made(self, url: str, body: Any) -> Any:
        """Create an object that must be created."""
        reply = await self.post(url, body)
        assert reply.status == 201, reply.raw
        return reply.body

    async def watch(self, url: str, **rest: Any) -> Watching:
        """A watch that is under way: what exists at this moment is initial state, everything later is a change."""
        mark = "&" if "?" in url else "?"
        answer = await self.ask("GET", f"{url}{mark}watch=true", **rest)
        assert isinstance(answer, Stream), answer
        watching = Watching(answer)
        self.watches.append(watching)
        for _ in range(3):
            await asyncio.sleep(0)
        return watching


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body) if body else None
    except msgspec.DecodeError:
        return body


async def answer_when(ask: Callable[[], Awaitable[Any]], done: Callable[[Any], bool]) -> Any:
    """Asks until the answer satisfies `done`, and returns it: for effects that follow in the background."""

    async def satisfying() -> list[Any]:
        answer = await ask()
        return [answer] if done(answer) else []

    [answer] = await eventually_async(satisfying, within=SOON, interval=0.002)
    return answer
