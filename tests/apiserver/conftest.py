"""A whole API server without sockets: assembled over a store in memory, with a clock that tests move.

`api` is a tiny client that calls the server's one function; `serve` makes more of them over other stores or settings.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import pytest

from podwire.apiserver import Pki, Settings, assemble
from podwire.apiserver.limits import Limits
from podwire.store.memory import MemoryStore
from podwire.transports.clock import SystemClock
from tests.apiserver.support import (
    DEFINITIONS,
    JSON,
    PARTIAL,
    PARTIAL_LIST,
    TABLE,
    WIDGETS,
    Api,
    InterleavingStore,
    MovableClock,
    Watching,
    answer_when,
)

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
    for watch in watches:
        await watch.close()
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


@pytest.fixture
async def widgets(api, definition) -> Api:
    """A server that serves widgets."""
    await api.made(DEFINITIONS, definition())
    await answer_when(lambda: api.get(WIDGETS), lambda reply: reply.status == 200)
    return api
