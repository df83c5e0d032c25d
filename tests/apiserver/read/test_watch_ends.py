"""watch: bookmarks, how it ends, and what somebody knows who follows one."""

import asyncio
import contextlib
import logging
import random

import pytest

from podwire.apiserver.limits import Limits
from podwire.kinds.resource import Resource
from podwire.protocols.k8sapi.server_side import Stream
from podwire.protocols.storage import StoreUnavailable
from podwire.store.memory import MemoryStore
from podwire.transports.clock import SystemClock

CONFIGS = "/api/v1/namespaces/default/configmaps"


def types(frames):
    return [frame["type"] for frame in frames]


# --- bookmarks --------------------------------------------------------------------------------------------------------


@pytest.fixture
async def quick(serve):
    """A server with bookmarks every 20 ms, and one 20 ms before the end, after 100 ms."""
    limits = Limits(bookmark_every=0.02, bookmark_before_end=0.02, watch_lifetime=(0.1, 0.1))
    return await serve(clock=SystemClock(), limits=limits)


async def test_bookmarks_are_sent_periodically_with_the_watchs_revision(quick):
    watch = await quick.watch(f"{CONFIGS}?allowWatchBookmarks=true&resourceVersion={quick.store.revision}")
    await quick.made("/api/v1/namespaces/default/secrets", {"metadata": {"name": "elsewhere"}})

    bookmark = await watch.next()

    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["kind"] == "ConfigMap"
    assert bookmark["object"]["metadata"]["resourceVersion"] == str(quick.store.revision)
    assert "annotations" not in bookmark["object"]["metadata"]


async def test_a_watch_ends_in_time_with_a_bookmark_shortly_before(serve):
    limits = Limits(bookmark_before_end=0.02, watch_lifetime=(0.05, 0.05))
    api = await serve(clock=SystemClock(), limits=limits)

    watch = await api.watch(f"{CONFIGS}?allowWatchBookmarks=true&resourceVersion={api.store.revision}")

    assert types(await watch.rest()) == ["BOOKMARK"]


async def test_bookmarks_are_sent_only_if_allowed(quick):
    watch = await quick.watch(f"{CONFIGS}?resourceVersion={quick.store.revision}")

    assert await watch.rest() == []


async def test_a_watch_without_matching_events_gets_bookmarks_on_a_busy_resource(config, quick):
    await quick.made(CONFIGS, config("busy"))
    asked = "labelSelector=app%3Dx&allowWatchBookmarks=true"
    watch = await quick.watch(f"{CONFIGS}?{asked}&resourceVersion={quick.store.revision}")

    async def work():
        for number in range(1000):
            await quick.patch(f"{CONFIGS}/busy", {"data": {"n": str(number)}})
            await asyncio.sleep(0.002)

    working = asyncio.create_task(work())
    bookmarks = await watch.rest()
    working.cancel()

    revisions = [int(bookmark["object"]["metadata"]["resourceVersion"]) for bookmark in bookmarks]
    assert set(types(bookmarks)) == {"BOOKMARK"}
    assert len(revisions) >= 2
    assert revisions == sorted(set(revisions))


async def test_a_watch_can_resume_from_a_bookmark(config, quick):
    """Nothing up to the bookmark comes again, nothing after it is missing."""
    first = await quick.watch(f"{CONFIGS}?allowWatchBookmarks=true&resourceVersion={quick.store.revision}")
    names = [f"n{number:02}" for number in range(30)]

    async def work():
        for name in names:
            await quick.made(CONFIGS, config(name))
            await asyncio.sleep(0.002)

    working = asyncio.create_task(work())
    before = []
    while (frame := await first.next())["type"] != "BOOKMARK":
        before.append(frame["object"]["metadata"]["name"])
    resumed = f"resourceVersion={frame['object']['metadata']['resourceVersion']}&timeoutSeconds=60"
    again = await quick.watch(f"{CONFIGS}?{resumed}")
    await working
    after = [name for _, name in await again.reported(len(names) - len(before))]

    assert [*before, *after] == names


async def test_a_client_may_set_the_timeout_of_a_watch(ticking):
    watch = await ticking.watch(f"{CONFIGS}?timeoutSeconds=1&resourceVersion={ticking.store.revision}")
    begun = asyncio.get_running_loop().time()

    assert await watch.rest() == []

    assert 0.9 < asyncio.get_running_loop().time() - begun < 30


async def test_the_wall_clock_does_not_end_a_watch(api, config):
    """Lifetimes are measured by the clock that never jumps."""
    watch = await api.watch(f"{CONFIGS}?timeoutSeconds=3600&resourceVersion={api.store.revision}")
    api.clock.wall = lambda: api.clock.now + 100_000

    await api.made(CONFIGS, config("a"))
    await api.made(CONFIGS, config("b"))

    assert await watch.reported(2) == [("ADDED", "a"), ("ADDED", "b")]


# --- ends -------------------------------------------------------------------------------------------------------------


async def test_a_slow_watcher_is_cut_and_the_others_are_not_held_back(serve, config):
    api = await serve(MemoryStore(queue=10))
    revision = api.store.revision
    slow = await api.ask("GET", f"{CONFIGS}?watch=true&resourceVersion={revision}")
    assert isinstance(slow, Stream)
    first = asyncio.ensure_future(anext(slow.chunks))
    quick = await api.watch(f"{CONFIGS}?resourceVersion={revision}")
    for number in range(40):
        await api.made(CONFIGS, config(f"n{number:02}"))
        await asyncio.sleep(0)

    assert len(await quick.take(40)) == 40
    seen = [await first]
    async with asyncio.timeout(30):
        seen += [chunk async for chunk in slow.chunks]
    frames = b"".join(seen).splitlines()
    assert len(frames) < 40
    assert b"ERROR" not in frames[-1]


async def test_a_closed_watch_leaves_nothing_in_the_store(api):
    subscribers = api.store._broadcaster._subscribers
    await asyncio.sleep(0.01)  # until all that runs in the background watches too
    before = {key: len(value) for key, value in subscribers.items()}

    watch = await api.watch(CONFIGS)
    assert sum(map(len, subscribers.values())) == sum(before.values()) + 1
    await watch.close()

    assert {key: len(value) for key, value in subscribers.items()} == before


async def test_a_store_that_ends_ends_the_watch_with_an_error(serve):
    api = await serve(account=False)
    watch = await api.watch(f"{CONFIGS}?resourceVersion={api.store.revision}")

    await api.store.close()

    (frame,) = await watch.rest()
    assert (frame["type"], frame["object"]["code"]) == ("ERROR", 500)


async def test_a_store_that_does_not_answer_is_an_error_event(api, monkeypatch):
    async def silent(*_args, **_options):
        raise StoreUnavailable("no answer")

    monkeypatch.setattr(api.store, "list", silent)

    (frame,) = await (await api.watch(CONFIGS)).rest()

    assert (frame["type"], frame["object"]["code"]) == ("ERROR", 500)
    assert "no answer" in frame["object"]["message"]


async def test_an_object_that_cannot_be_shown_ends_only_the_watch_that_wanted_it(
    api, config, forms, caplog, monkeypatch
):
    monkeypatch.setattr(Resource, "unpack", lambda _self, _item: 1 / 0)
    revision = api.store.revision
    tables = await api.watch(f"{CONFIGS}?resourceVersion={revision}", accept=forms["table"])
    plain = await api.watch(f"{CONFIGS}?resourceVersion={revision}")

    with caplog.at_level(logging.ERROR):
        await api.made(CONFIGS, config("a"))
        (frame,) = await tables.rest()

    assert (frame["type"], frame["object"]["code"]) == ("ERROR", 500)
    assert "division" not in frame["object"]["message"]
    assert await plain.reported(1) == [("ADDED", "a")]


async def test_a_get_of_one_object_is_not_a_watch(api, config):
    made = await api.made(CONFIGS, config("a"))

    reply = await api.get(f"{CONFIGS}/a?watch=true")

    assert reply.body == made


async def test_an_unread_watch_has_no_subscription(api):
    await asyncio.sleep(0.01)
    before = sum(map(len, api.store._broadcaster._subscribers.values()))

    answer = await api.ask("GET", f"{CONFIGS}?watch=true")

    assert sum(map(len, api.store._broadcaster._subscribers.values())) == before
    with contextlib.suppress(AttributeError):
        await answer.chunks.aclose()


# --- all together -----------------------------------------------------------------------------------------------------


class Mirror:
    """State that a follower of a watch knows."""

    def __init__(self, listed):
        self.known = {item["metadata"]["name"]: item for item in listed.body["items"]}

    async def follow(self, watch, until):
        """Take in every frame up to the object whose name is `until`."""
        while True:
            frame = await watch.next()
            name = frame["object"]["metadata"]["name"]
            there = name in self.known
            if frame["type"] == "DELETED":
                assert there
                del self.known[name]
            else:
                assert there is (frame["type"] == "MODIFIED")
                self.known[name] = frame["object"]
            if name == until:
                return


@pytest.mark.parametrize("seed", range(3))
async def test_list_then_watch_gives_the_state_despite_concurrent_writes(racing, config, seed):
    chance = random.Random(seed)
    labels = [{"app": "x"}, {"app": "y"}]

    async def work():
        for _ in range(60):
            name = f"n{chance.randrange(8)}"
            what = chance.choice(["make", "label", "write", "delete"])
            if what == "make":
                await racing.post(CONFIGS, config(name, labels=chance.choice(labels)))
            elif what == "label":
                await racing.patch(f"{CONFIGS}/{name}", {"metadata": {"labels": chance.choice(labels)}})
            elif what == "write":
                await racing.patch(f"{CONFIGS}/{name}", {"data": {"x": str(chance.random())}})
            else:
                await racing.delete(f"{CONFIGS}/{name}")

    working = [asyncio.create_task(work()) for _ in range(3)]
    mirrors = []
    for query in ["", "labelSelector=app%3Dx&", "fieldSelector=metadata.name!%3Dn3&"] * 3:
        await asyncio.sleep(0.001)
        listed = await racing.get(f"{CONFIGS}?{query}")
        watch = await racing.watch(f"{CONFIGS}?{query}resourceVersion={listed.version}")
        mirrors.append((query, Mirror(listed), watch))
    await asyncio.gather(*working)
    await racing.made(CONFIGS, config("the-end", labels={"app": "x"}))

    for query, mirror, watch in mirrors:
        await mirror.follow(watch, "the-end")
        present = await racing.get(f"{CONFIGS}?{query}")
        assert mirror.known == {item["metadata"]["name"]: item for item in present.body["items"]}
