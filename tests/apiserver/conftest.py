"""A whole API server without sockets: assembled over a store in memory, with a clock that tests move.

`api` is a tiny client that calls the server's one function; `serve` makes more of them over other stores or settings.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

import msgspec
import pytest

from podwire.apiserver import Assembled, Pki, Settings, assemble
from podwire.apiserver.limits import Limits
from podwire.protocols.k8sapi.server_side import Answer, BodyTooLarge, Certificate, Request, Stream
from podwire.protocols.storage import Item, Page
from podwire.store.memory import MemoryStore
from podwire.transports.clock import SystemClock

ADMIN = Certificate("kubernetes-admin", ("system:masters",))
JSON = "application/json"
META = "g=meta.k8s.io;v=v1"
TABLE = f"{JSON};as=Table;{META}"
PARTIAL = f"{JSON};as=PartialObjectMetadata;{META}"
PARTIAL_LIST = f"{JSON};as=PartialObjectMetadataList;{META}"
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
        return [each["metadata"]["name"] for each in self.body["items"]]


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

    async def told(self, count: int) -> list[tuple[str, str]]:
        """The next frames as type and name."""
        return [(each["type"], each["object"]["metadata"]["name"]) for each in await self.take(count)]

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
    """Asks the server, as its admin unless told otherwise."""

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


Serve = Callable[..., Awaitable[Api]]


@pytest.fixture(scope="session")
def pki(tmp_path_factory):
    return Pki.open(tmp_path_factory.mktemp("pki"), names=[], ips=[])


@pytest.fixture
async def serve(pki) -> AsyncIterator[Serve]:
    """Assembles, fills and runs a server: `await serve(store, limits=Limits(...))`."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(store: Any = None, *, account: bool = True, clock: Any = None, **settings: Any) -> Api:
            store, clock = store if store is not None else MemoryStore(), clock or MovableClock()
            assembled = assemble(store, pki, clock, Settings(**settings))
            await assembled.start()
            api = Api(assembled, store, clock)
            running = asyncio.create_task(assembled.run())
            stack.push_async_callback(_stop, running, api.watches)
            await asyncio.sleep(0.001)  # what runs in the background watches the store from here on
            if account:
                await api.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
            return api

        yield start


async def _stop(running: "asyncio.Task[None]", watches: list[Watching]) -> None:
    for each in watches:
        await each.close()
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


@pytest.fixture
async def api(serve) -> Api:
    """A server with the default service account of the default namespace, which controllers would make."""
    return await serve()


@pytest.fixture
async def ticking(serve) -> Api:
    """A server whose clock runs by itself."""
    return await serve(clock=SystemClock())


@pytest.fixture
async def impatient(serve) -> Api:
    """A server that does not wait long for revisions of the future."""
    return await serve(limits=Limits(revision_wait=0.01))


@pytest.fixture
async def racing(serve) -> Api:
    """A server on a store in which requests meet."""
    return await serve(InterleavingStore())


@pytest.fixture
def pod() -> Callable[..., dict[str, Any]]:
    """A pod manifest; a node makes it a scheduled one."""

    def make(name: str = "web", node: str = "", labels: Mapping[str, str] | None = None, **spec: Any) -> dict[str, Any]:
        given = {"containers": [{"name": "c", "image": "busybox:1.36"}], **spec}
        if node:
            given["nodeName"] = node
        return {"metadata": {"name": name, "labels": dict(labels or {})}, "spec": given}

    return make


@pytest.fixture
def config() -> Callable[..., dict[str, Any]]:
    """A config map manifest, the plainest object there is."""

    def make(name: str = "one", labels: Mapping[str, str] | None = None, **data: str) -> dict[str, Any]:
        return {"metadata": {"name": name, **({"labels": dict(labels)} if labels else {})}, "data": data}

    return make


@pytest.fixture
def deployment() -> Callable[..., dict[str, Any]]:
    """A deployment manifest."""

    def make(name: str = "web", replicas: int = 2) -> dict[str, Any]:
        labels = {"app": name}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "nginx:1.27"}]}}
        spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
        return {"metadata": {"name": name}, "spec": spec}

    return make


@pytest.fixture
def definition() -> Callable[..., dict[str, Any]]:
    """A CustomResourceDefinition of `widgets.example.com`; versions by name, the first one is stored."""

    def make(*versions: str, scope: str = "Namespaced", status: bool = True, **more: Any) -> dict[str, Any]:
        names = {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"}
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        subresources = {"subresources": {"status": {}}} if status else {}
        listed = [
            {"name": each, "served": True, "storage": index == 0, "schema": {"openAPIV3Schema": schema},
             **subresources, **more}
            for index, each in enumerate(versions or ("v1",))
        ]  # fmt: skip
        spec = {"group": "example.com", "names": names, "scope": scope, "versions": listed}
        return {"metadata": {"name": "widgets.example.com"}, "spec": spec}

    return make


@pytest.fixture
def forms() -> dict[str, str]:
    """Accept headers by the name of the form."""
    return {"object": JSON, "table": TABLE, "metadata": PARTIAL, "metadata list": PARTIAL_LIST}


CONFIGS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"


async def until(ask: Callable[[], Awaitable[Any]], done: Callable[[Any], bool]) -> Any:
    """Ask again until the answer is the wanted one: for what happens a moment later in the background."""
    async with asyncio.timeout(SOON):
        while True:
            if done(found := await ask()):
                return found
            await asyncio.sleep(0.002)


@pytest.fixture
def eventually() -> Callable[..., Awaitable[Any]]:
    return until


@pytest.fixture
async def widgets(api, definition) -> Api:
    """A server that serves widgets."""
    await api.made(DEFINITIONS, definition())
    await until(lambda: api.get(WIDGETS), lambda reply: reply.status == 200)
    return api
