"""The feed on the whole store: everything is delivered once and in order, also when the log cannot be followed."""

import asyncio
import contextlib

import msgspec
import pytest

from podwire.apiserver.registry import Registry
from podwire.cluster.apiserver_controllers import StoreFeed
from podwire.controllers import Absent, Complete, Present
from podwire.kinds.resource import storage_prefix as prefix
from podwire.kinds.strategies import strategy_of
from podwire.kinds.strategy import CUSTOM
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.storage import SlowWatcher
from podwire.store import MemoryStore


class Row:
    """As much of a resource as the feed looks at."""

    def __init__(self, kind, *, custom: bool = False) -> None:
        self.kind = kind
        self.prefix = prefix(kind, CUSTOM if custom else strategy_of(kind))


def value(name: str, uid: str = "", kind: str = "Pod") -> bytes:
    metadata = {"name": name, "namespace": "default", "uid": uid or f"uid-{name}"}
    return msgspec.json.encode({"kind": kind, "apiVersion": "v1", "metadata": metadata, "spec": {}})


class Fragile(MemoryStore):
    """A store whose watches can be cut."""

    def __init__(self) -> None:
        super().__init__()
        self.cut = asyncio.Event()

    def watch(self, prefix: str, *, after: int):
        watch, cut = super().watch(prefix, after=after), self.cut

        class Cuttable:
            async def next(self):
                if cut.is_set():
                    cut.clear()
                    raise SlowWatcher("cut")
                return await watch.next()

            def close(self) -> None:
                watch.close()

        return Cuttable()


@pytest.fixture
async def store():
    return Fragile()


@pytest.fixture
async def feed(store):
    """Events of the feed, as `(what, kind, name)`; the feed runs meanwhile."""
    heard: asyncio.Queue = asyncio.Queue()
    await store.create("/registry/pods/default/old", value("old"))
    feed = StoreFeed(store, Registry(Row(item) for item in BUILTIN.all))
    task = asyncio.create_task(feed.follow(heard.put_nowait))
    yield heard
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def next_of(feed) -> tuple[str, ...]:
    async with asyncio.timeout(20):
        tidings = await feed.get()
    if isinstance(tidings, Complete):
        return ("complete",)
    seen = tidings.seen
    what = {Present: "present", Absent: "absent"}[type(tidings)]
    return what, f"{seen.kind.group}/{seen.kind.resource}", seen.name


async def test_the_feed_delivers_objects_then_complete_then_changes(store, feed):
    assert await next_of(feed) == ("present", "/pods", "old")
    assert await next_of(feed) == ("complete",)
    item = await store.create("/registry/pods/default/new", value("new"))
    assert await next_of(feed) == ("present", "/pods", "new")
    await store.delete("/registry/pods/default/new", expected=item.revision)
    assert await next_of(feed) == ("absent", "/pods", "new")


@pytest.mark.parametrize(
    ("key", "resource"),
    [
        pytest.param("/registry/services/specs/default/a", "/services", id="a name of two segments"),
        pytest.param("/registry/minions/a", "/nodes", id="another name"),
        pytest.param("/registry/events/default/a", "/events", id="two resources, one store"),
        pytest.param(
            "/registry/horizontalpodautoscalers/default/a", "autoscaling/horizontalpodautoscalers", id="two versions"
        ),
    ],
)
async def test_events_carry_the_resource_of_their_key(store, feed, key, resource):
    await next_of(feed)
    await next_of(feed)
    await store.create("/registry/unknown/a", b"not even JSON")
    await store.create(key, value("a"))
    assert await next_of(feed) == ("present", resource, "a")


async def test_a_cut_watch_loses_nothing_and_repeats_nothing(store, feed):
    await next_of(feed)
    await next_of(feed)
    gone = await store.create("/registry/pods/default/gone", value("gone"))
    replaced = await store.create("/registry/pods/default/replaced", value("replaced", "first"))
    assert await next_of(feed) == ("present", "/pods", "gone")
    assert await next_of(feed) == ("present", "/pods", "replaced")
    store.cut.set()
    await store.delete(gone.key, expected=gone.revision)
    await store.delete(replaced.key, expected=replaced.revision)
    await store.create(replaced.key, value("replaced", "second"))
    heard = [await next_of(feed) for _ in range(3)]
    assert heard == [
        ("absent", "/pods", "gone"),
        ("absent", "/pods", "replaced"),
        ("present", "/pods", "replaced"),
    ]
    await asyncio.sleep(0.02)
    assert feed.empty()
