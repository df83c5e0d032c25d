"""watch: what comes first, what comes then, in which form, and how it ends."""

import asyncio
import contextlib
import logging
import random

import pytest

from podwire.apiserver import watches
from podwire.apiserver.bootstrap import SYSTEM
from podwire.apiserver.registry import Resource
from podwire.apiserver.server import Limits
from podwire.protocols.k8sapi.server_side import Stream
from podwire.protocols.storage import StoreUnavailable
from podwire.store.memory import MemoryStore

CONFIGS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
INITIAL = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"


def types(frames):
    return [each["type"] for each in frames]


# --- what comes first -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", ["", "?resourceVersion=", "?resourceVersion=0"])
async def test_without_a_revision_the_present_state_comes_first(api, config, query):
    for name in "ab":
        await api.made(CONFIGS, config(name))

    watch = await api.watch(f"{CONFIGS}{query}")
    await api.made(CONFIGS, config("c"))

    assert await watch.told(3) == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c")]


async def test_from_a_revision_every_later_change_comes_and_nothing_before(api, config):
    await api.made(CONFIGS, config("a"))
    revision = api.store.revision
    await api.made(CONFIGS, config("b"))
    await api.patch(f"{CONFIGS}/a", {"data": {"x": "1"}})
    await api.delete(f"{CONFIGS}/b")

    watch = await api.watch(f"{CONFIGS}?resourceVersion={revision}")
    await api.made(CONFIGS, config("c"))

    assert await watch.told(4) == [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b"), ("ADDED", "c")]


async def test_frames_show_the_object_as_a_read_would(api, config):
    watch = await api.watch(CONFIGS)

    made = await api.made(CONFIGS, config("a", x="1"))

    assert await watch.next() == {"type": "ADDED", "object": made}


async def test_a_revision_that_is_forgotten_is_an_error_event(api, config):
    await api.made(CONFIGS, config("a"))
    await api.store.compact(api.store.revision)

    watch = await api.watch(f"{CONFIGS}?resourceVersion=2")

    (frame,) = await watch.rest()
    assert frame["type"] == "ERROR"
    assert frame["object"]["code"] == 410
    assert frame["object"]["reason"] == "Expired"
    assert frame["object"]["message"] == f"too old resource version: 2 ({api.store.revision})"


async def test_a_revision_of_the_future_is_waited_for(api, config):
    watch = await api.watch(f"{CONFIGS}?resourceVersion={api.store.revision + 1}")

    await api.made(CONFIGS, config("too-early"))
    await api.made(CONFIGS, config("in-time"))

    assert await watch.told(1) == [("ADDED", "in-time")]


async def test_a_watch_in_a_namespace_that_is_not_there_waits(api, config):
    watch = await api.watch("/api/v1/namespaces/team/configmaps")
    await api.made("/api/v1/namespaces", {"metadata": {"name": "team"}})

    await api.made("/api/v1/namespaces/team/configmaps", config("a"))

    assert await watch.told(1) == [("ADDED", "a")]


# --- initial events ---------------------------------------------------------------------------------------------------


async def test_initial_events_end_with_a_bookmark_that_says_so(api, config):
    for name in "ab":
        await api.made(CONFIGS, config(name))

    watch = await api.watch(f"{CONFIGS}?{INITIAL}")

    *initial, bookmark = await watch.take(3)
    assert types(initial) == ["ADDED", "ADDED"]
    assert bookmark["type"] == "BOOKMARK"
    assert (bookmark["object"]["kind"], bookmark["object"]["apiVersion"]) == ("ConfigMap", "v1")
    metadata = bookmark["object"]["metadata"]
    assert metadata["resourceVersion"] == str(api.store.revision)
    assert metadata["annotations"] == {"k8s.io/initial-events-end": "true"}
    await api.made(CONFIGS, config("c"))
    assert await watch.told(1) == [("ADDED", "c")]


async def test_initial_events_of_nothing_are_just_the_bookmark(api):
    watch = await api.watch(f"{CONFIGS}?{INITIAL}")

    assert (await watch.next())["type"] == "BOOKMARK"


async def test_initial_events_are_the_state_at_the_bookmark_whatever_is_deleted_meanwhile(racing, config):
    for number in range(30):
        await racing.made(CONFIGS, config(f"n{number:02}"))
    deleting = asyncio.gather(*(racing.delete(f"{CONFIGS}/n{number:02}") for number in range(30)))
    watch = await racing.watch(f"{CONFIGS}?{INITIAL}")
    await deleting

    seen: set[str] = set()
    while (frame := await watch.next())["type"] != "BOOKMARK":
        seen.add(frame["object"]["metadata"]["name"])
    then = frame["object"]["metadata"]["resourceVersion"]
    exact = await racing.get(f"{CONFIGS}?resourceVersion={then}&resourceVersionMatch=Exact")
    assert seen == {*exact.names}
    while seen:
        frame = await watch.next()
        assert frame["type"] == "DELETED"
        seen.remove(frame["object"]["metadata"]["name"])


async def test_initial_events_may_be_declined(api, config):
    await api.made(CONFIGS, config("a"))

    watch = await api.watch(f"{CONFIGS}?sendInitialEvents=false&resourceVersionMatch=NotOlderThan")
    await api.made(CONFIGS, config("b"))

    assert await watch.told(1) == [("ADDED", "b")]


async def test_initial_events_of_a_revision_of_the_future_time_out(api, monkeypatch):
    monkeypatch.setattr("podwire.apiserver.lists.FRESH_WITHIN", 0.01)

    reply = await api.get(f"{CONFIGS}?watch=true&resourceVersion=999999&{INITIAL}")

    assert (reply.status, reply.body["reason"]) == (504, "Timeout")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        pytest.param(
            "sendInitialEvents=true",
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            id="initial events alone",
        ),
        pytest.param(
            "resourceVersion=5&resourceVersionMatch=NotOlderThan",
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            id="match alone",
        ),
        pytest.param(
            "sendInitialEvents=true&resourceVersion=5&resourceVersionMatch=Exact", "Unsupported value", id="exact match"
        ),
    ],
)
async def test_options_that_do_not_go_together_are_invalid(api, query, said):
    reply = await api.get(f"{CONFIGS}?watch=true&{query}")

    assert (reply.status, reply.body["reason"]) == (422, "Invalid")
    assert said in reply.message


# --- selectors --------------------------------------------------------------------------------------------------------


async def test_entering_a_selection_is_added_and_leaving_it_is_deleted(api, config):
    await api.made(CONFIGS, config("a", labels={"app": "x"}))
    watch = await api.watch(f"{CONFIGS}?labelSelector=app%3Dx")
    assert await watch.told(1) == [("ADDED", "a")]

    await api.patch(f"{CONFIGS}/a", {"data": {"still": "in"}})
    left = await api.patch(f"{CONFIGS}/a", {"metadata": {"labels": {"app": "y"}}, "data": {"now": "out"}})
    await api.patch(f"{CONFIGS}/a", {"data": {"still": "out"}})
    back = await api.patch(f"{CONFIGS}/a", {"metadata": {"labels": {"app": "x"}}})
    await api.delete(f"{CONFIGS}/a")

    modified, leaving, entering, deleted = await watch.take(4)
    assert types([modified, leaving, entering, deleted]) == ["MODIFIED", "DELETED", "ADDED", "DELETED"]
    assert leaving["object"]["metadata"]["labels"] == {"app": "x"}
    assert leaving["object"]["data"] == {"still": "in"}
    assert leaving["object"]["metadata"]["resourceVersion"] == left.version
    assert entering["object"] == back.body


async def test_a_field_selector_sees_a_pod_come_to_its_node(api, pod):
    await api.made(PODS, pod("a"))
    watch = await api.watch(f"{PODS}?fieldSelector=spec.nodeName%3Dn1")
    target = {"target": {"kind": "Node", "name": "n1"}}

    await api.made(f"{PODS}/a/binding", target)
    await api.patch(f"{PODS}/a/status", {"status": {"phase": "Running"}})

    assert await watch.told(2) == [("ADDED", "a"), ("MODIFIED", "a")]


@pytest.mark.parametrize("scope", ["one namespace", "all namespaces"])
async def test_a_watch_of_one_name_sees_that_name_only(api, config, scope):
    url = CONFIGS if scope == "one namespace" else "/api/v1/configmaps"
    await api.made(CONFIGS, config("a"))
    watch = await api.watch(f"{url}?fieldSelector=metadata.name%3Da")

    await api.made(CONFIGS, config("aa"))
    await api.made(CONFIGS, config("b.a"))
    await api.patch(f"{CONFIGS}/a", {"data": {"x": "1"}})
    await api.delete(f"{CONFIGS}/a")

    assert await watch.told(3) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    assert await watch.is_quiet()


async def test_a_namespaces_watch_never_sees_one_whose_name_begins_alike(api, config):
    names = ("a", "ab", "a-b")
    for name in names:
        await api.made("/api/v1/namespaces", {"metadata": {"name": name}})
    seen = {name: await api.watch(f"/api/v1/namespaces/{name}/configmaps") for name in names}

    for name in names:
        await api.made(f"/api/v1/namespaces/{name}/configmaps", config(f"in-{name}"))

    for name, watch in seen.items():
        assert await watch.told(1) == [("ADDED", f"in-{name}")]
        assert await watch.is_quiet(0)


async def test_a_resources_watch_never_sees_one_whose_name_begins_alike(api):
    """`services` lie beside `services/endpoints` in the store, `ingress` beside `ingressclasses`."""
    watch = await api.watch("/apis/networking.k8s.io/v1/ingresses")
    services = await api.watch(f"/api/v1/services?resourceVersion={api.store.revision}")

    ingress_class = {"metadata": {"name": "c"}, "spec": {"controller": "example.com/c"}}
    await api.made("/apis/networking.k8s.io/v1/ingressclasses", ingress_class)
    await api.made("/api/v1/namespaces/default/endpoints", {"metadata": {"name": "e"}})

    assert await watch.is_quiet()
    assert await services.is_quiet()


# --- deletions --------------------------------------------------------------------------------------------------------


async def test_a_deletion_shows_the_last_state_with_its_own_revision(api, config):
    await api.made(CONFIGS, config("a", x="1"))
    last = await api.patch(f"{CONFIGS}/a", {"data": {"x": "2"}})
    watch = await api.watch(f"{CONFIGS}?resourceVersion={last.version}")

    await api.delete(f"{CONFIGS}/a")

    frame = await watch.next()
    assert frame["type"] == "DELETED"
    assert frame["object"]["data"] == {"x": "2"}
    assert frame["object"]["metadata"]["uid"] == last.body["metadata"]["uid"]
    assert int(frame["object"]["metadata"]["resourceVersion"]) == api.store.revision > int(last.version)


async def test_an_object_that_is_replaced_quickly_is_two_objects(api, config):
    first = await api.made(CONFIGS, config("a"))
    watch = await api.watch(f"{CONFIGS}?resourceVersion={api.store.revision}")

    await api.delete(f"{CONFIGS}/a")
    second = await api.made(CONFIGS, config("a"))

    deleted, added = await watch.take(2)
    assert types([deleted, added]) == ["DELETED", "ADDED"]
    assert deleted["object"]["metadata"]["uid"] == first["metadata"]["uid"]
    assert added["object"]["metadata"]["uid"] == second["metadata"]["uid"] != first["metadata"]["uid"]


# --- forms ------------------------------------------------------------------------------------------------------------


async def test_a_watch_can_show_tables(api, pod, forms):
    await api.made(PODS, pod("a"))
    watch = await api.watch(PODS, accept=forms["table"])
    await api.patch(f"{PODS}/a", {"metadata": {"labels": {"x": "y"}}})
    await api.delete(f"{PODS}/a")

    frames = await watch.take(3)

    assert types(frames) == ["ADDED", "MODIFIED", "DELETED"]
    tables = [each["object"] for each in frames]
    assert {(each["kind"], each["apiVersion"]) for each in tables} == {("Table", "meta.k8s.io/v1")}
    assert [each["name"] for each in tables[0]["columnDefinitions"]][:3] == ["Name", "Ready", "Status"]
    assert tables[1]["rows"][0]["cells"][:3] == ["a", "0/1", "Pending"]
    assert tables[1]["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    assert tables[1]["rows"][0]["object"]["metadata"]["labels"] == {"x": "y"}


async def test_a_watch_can_show_metadata_only(api, config, forms):
    watch = await api.watch(f"{CONFIGS}?{INITIAL}", accept=forms["metadata"])
    made = await api.made(CONFIGS, config("a", x="1"))

    bookmark, added = await watch.take(2)

    assert bookmark["object"]["kind"] == "PartialObjectMetadata"
    assert added["object"] == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": made["metadata"],
    }


async def test_a_tables_bookmark_says_its_revision(api, forms):
    watch = await api.watch(f"{PODS}?{INITIAL}", accept=forms["table"])

    bookmark = (await watch.next())["object"]

    assert bookmark["kind"] == "Table"
    assert bookmark["metadata"]["resourceVersion"] == str(api.store.revision)
    assert bookmark["rows"][0]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_the_frame_of_a_change_is_made_once_for_all_watchers(api, config, monkeypatch):
    served = []
    serve = Resource.serve
    monkeypatch.setattr(Resource, "serve", lambda self, item: served.append(item.key) or serve(self, item))
    revision = api.store.revision
    plain = [await api.watch(f"{CONFIGS}?resourceVersion={revision}") for _ in range(5)]
    selective = [await api.watch(f"{CONFIGS}?resourceVersion={revision}&labelSelector=!x") for _ in range(5)]

    await api.assembled.engine.creator.create(
        api.assembled.engine.registry.builtin("", "configmaps"),
        "default",
        {"kind": "ConfigMap", "apiVersion": "v1", **config("a")},
        SYSTEM,
    )

    frames = [await each.next() for each in (*plain, *selective)]
    assert all(each == frames[0] for each in frames)
    assert len(served) == 1


async def test_all_watchers_see_the_same_order(racing, config):
    watching = [await racing.watch(f"{CONFIGS}?resourceVersion={racing.store.revision}") for _ in range(4)]

    writes = [racing.made(CONFIGS, config(f"n{each}")) for each in range(20)]
    await asyncio.gather(*writes)
    await asyncio.gather(*(racing.delete(f"{CONFIGS}/n{each}") for each in range(0, 20, 2)))

    orders = [
        [(each["type"], each["object"]["metadata"]["resourceVersion"]) for each in await watch.take(30)]
        for watch in watching
    ]
    assert all(each == orders[0] for each in orders)
    revisions = [int(version) for _, version in orders[0]]
    assert revisions == sorted(set(revisions))


# --- bookmarks --------------------------------------------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch):
    """Bookmarks every 20 ms, and one 20 ms before the end, after 100 ms."""
    monkeypatch.setattr(watches, "BOOKMARK_EVERY", 0.02)
    monkeypatch.setattr(watches, "BOOKMARK_BEFORE_END", 0.02)
    monkeypatch.setattr(watches, "LIFETIME", (0.1, 0.1))


async def test_bookmarks_come_by_themselves_and_say_how_far_the_watch_is(ticking, quick):
    watch = await ticking.watch(f"{CONFIGS}?allowWatchBookmarks=true&resourceVersion={ticking.store.revision}")
    await ticking.made("/api/v1/namespaces/default/secrets", {"metadata": {"name": "elsewhere"}})

    bookmark = await watch.next()

    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["kind"] == "ConfigMap"
    assert bookmark["object"]["metadata"]["resourceVersion"] == str(ticking.store.revision)
    assert "annotations" not in bookmark["object"]["metadata"]


async def test_a_watch_ends_in_time_with_a_bookmark_shortly_before(ticking, monkeypatch):
    monkeypatch.setattr(watches, "BOOKMARK_BEFORE_END", 0.02)
    monkeypatch.setattr(watches, "LIFETIME", (0.05, 0.05))

    watch = await ticking.watch(f"{CONFIGS}?allowWatchBookmarks=true&resourceVersion={ticking.store.revision}")

    assert types(await watch.rest()) == ["BOOKMARK"]


async def test_without_leave_there_are_no_bookmarks(ticking, quick):
    watch = await ticking.watch(f"{CONFIGS}?resourceVersion={ticking.store.revision}")

    assert await watch.rest() == []


async def test_a_watcher_whom_nothing_concerns_gets_its_bookmarks_however_busy_the_resource_is(ticking, config, quick):
    await ticking.made(CONFIGS, config("busy"))
    asked = "labelSelector=app%3Dx&allowWatchBookmarks=true"
    watch = await ticking.watch(f"{CONFIGS}?{asked}&resourceVersion={ticking.store.revision}")

    async def work():
        for number in range(1000):
            await ticking.patch(f"{CONFIGS}/busy", {"data": {"n": str(number)}})
            await asyncio.sleep(0.002)

    working = asyncio.create_task(work())
    bookmarks = await watch.rest()
    working.cancel()

    revisions = [int(each["object"]["metadata"]["resourceVersion"]) for each in bookmarks]
    assert set(types(bookmarks)) == {"BOOKMARK"}
    assert len(revisions) >= 2
    assert revisions == sorted(set(revisions))


async def test_what_a_bookmark_says_is_a_place_to_go_on_from(ticking, config, quick):
    """Nothing up to the bookmark comes again, nothing after it is missing."""
    first = await ticking.watch(f"{CONFIGS}?allowWatchBookmarks=true&resourceVersion={ticking.store.revision}")
    names = [f"n{each:02}" for each in range(30)]

    async def work():
        for name in names:
            await ticking.made(CONFIGS, config(name))
            await asyncio.sleep(0.002)

    working = asyncio.create_task(work())
    before = []
    while (frame := await first.next())["type"] != "BOOKMARK":
        before.append(frame["object"]["metadata"]["name"])
    again = await ticking.watch(f"{CONFIGS}?resourceVersion={frame['object']['metadata']['resourceVersion']}")
    await working
    after = [name for _, name in await again.told(len(names) - len(before))]

    assert [*before, *after] == names


async def test_a_client_may_say_how_long(ticking):
    watch = await ticking.watch(f"{CONFIGS}?timeoutSeconds=1&resourceVersion={ticking.store.revision}")
    begun = asyncio.get_running_loop().time()

    assert await watch.rest() == []

    assert 0.9 < asyncio.get_running_loop().time() - begun < 3


async def test_the_wall_clock_does_not_end_a_watch(api, config):
    """Lifetimes are measured by the clock that never jumps."""
    watch = await api.watch(f"{CONFIGS}?timeoutSeconds=3600&resourceVersion={api.store.revision}")
    api.clock.wall = lambda: api.clock.now + 100_000

    await api.made(CONFIGS, config("a"))
    await api.made(CONFIGS, config("b"))

    assert await watch.told(2) == [("ADDED", "a"), ("ADDED", "b")]


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
    async with asyncio.timeout(5):
        seen += [chunk async for chunk in slow.chunks]
    frames = b"".join(seen).splitlines()
    assert len(frames) < 40
    assert b"ERROR" not in frames[-1]


async def test_a_closed_watch_leaves_nothing_in_the_store(api):
    subscribers = api.store._feed._subscribers
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
    assert await plain.told(1) == [("ADDED", "a")]


async def test_a_watch_needs_no_place_among_the_requests(serve, config):
    api = await serve(limits=Limits(reading=1, writing=1))
    watching = [await api.watch(f"{CONFIGS}?resourceVersion={api.store.revision}") for _ in range(5)]

    await api.made(CONFIGS, config("a"))

    for watch in watching:
        assert await watch.told(1) == [("ADDED", "a")]


async def test_a_get_of_one_object_is_no_watch(api, config):
    made = await api.made(CONFIGS, config("a"))

    reply = await api.get(f"{CONFIGS}/a?watch=true")

    assert reply.body == made


async def test_a_watch_that_nobody_reads_costs_no_subscription(api):
    await asyncio.sleep(0.01)
    before = sum(map(len, api.store._feed._subscribers.values()))

    answer = await api.ask("GET", f"{CONFIGS}?watch=true")

    assert sum(map(len, api.store._feed._subscribers.values())) == before
    with contextlib.suppress(AttributeError):
        await answer.chunks.aclose()


# --- all together -----------------------------------------------------------------------------------------------------


class Mirror:
    """What somebody knows who follows a watch."""

    def __init__(self, listed):
        self.known = {each["metadata"]["name"]: each for each in listed.body["items"]}

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
async def test_who_lists_and_then_watches_knows_what_is_there_whatever_happens_meanwhile(racing, config, seed):
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
        assert mirror.known == {each["metadata"]["name"]: each for each in present.body["items"]}
