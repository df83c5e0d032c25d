"""watch: what comes first, what comes then, and in which form."""

import asyncio

import pytest

from podwire.apiserver.identity.users import SYSTEM
from podwire.kinds.resource import Resource
from podwire.protocols.k8sapi.server_side import Certificate, Stream
from tests.apiserver.support import Watching

CONFIGS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
INITIAL = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"


def types(frames):
    return [frame["type"] for frame in frames]


# --- what comes first -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", ["", "?resourceVersion=", "?resourceVersion=0"])
async def test_without_a_revision_the_present_state_comes_first(api, config, query):
    for name in "ab":
        await api.made(CONFIGS, config(name))

    watch = await api.watch(f"{CONFIGS}{query}")
    await api.made(CONFIGS, config("c"))

    assert await watch.reported(3) == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c")]


async def test_from_a_revision_every_later_change_comes_and_nothing_before(api, config):
    await api.made(CONFIGS, config("a"))
    revision = api.store.revision
    await api.made(CONFIGS, config("b"))
    await api.patch(f"{CONFIGS}/a", {"data": {"x": "1"}})
    await api.delete(f"{CONFIGS}/b")

    watch = await api.watch(f"{CONFIGS}?resourceVersion={revision}")
    await api.made(CONFIGS, config("c"))

    assert await watch.reported(4) == [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b"), ("ADDED", "c")]


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

    assert await watch.reported(1) == [("ADDED", "in-time")]


async def test_a_watch_in_a_namespace_that_is_not_there_waits(api, config):
    watch = await api.watch("/api/v1/namespaces/team/configmaps")
    await api.made("/api/v1/namespaces", {"metadata": {"name": "team"}})

    await api.made("/api/v1/namespaces/team/configmaps", config("a"))

    assert await watch.reported(1) == [("ADDED", "a")]


# --- initial events ---------------------------------------------------------------------------------------------------


async def test_initial_events_end_with_an_annotated_bookmark(api, config):
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
    assert await watch.reported(1) == [("ADDED", "c")]


async def test_initial_events_of_nothing_are_just_the_bookmark(api):
    watch = await api.watch(f"{CONFIGS}?{INITIAL}")

    assert (await watch.next())["type"] == "BOOKMARK"


async def test_initial_events_are_the_state_at_the_bookmark_despite_deletions(racing, config):
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

    assert await watch.reported(1) == [("ADDED", "b")]


async def test_initial_events_of_a_revision_of_the_future_time_out(impatient):
    reply = await impatient.get(f"{CONFIGS}?watch=true&resourceVersion=999999&{INITIAL}")

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
    assert await watch.reported(1) == [("ADDED", "a")]

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

    assert await watch.reported(2) == [("ADDED", "a"), ("MODIFIED", "a")]


@pytest.mark.parametrize("scope", ["one namespace", "all namespaces"])
async def test_a_watch_of_one_name_sees_that_name_only(api, config, scope):
    url = CONFIGS if scope == "one namespace" else "/api/v1/configmaps"
    await api.made(CONFIGS, config("a"))
    watch = await api.watch(f"{url}?fieldSelector=metadata.name%3Da")

    await api.made(CONFIGS, config("aa"))
    await api.made(CONFIGS, config("b.a"))
    await api.patch(f"{CONFIGS}/a", {"data": {"x": "1"}})
    await api.delete(f"{CONFIGS}/a")

    assert await watch.reported(3) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    assert await watch.is_quiet()


async def test_a_namespaces_watch_never_sees_a_namespace_with_the_same_prefix(api, config):
    names = ("a", "ab", "a-b")
    for name in names:
        await api.made("/api/v1/namespaces", {"metadata": {"name": name}})
    seen = {name: await api.watch(f"/api/v1/namespaces/{name}/configmaps") for name in names}

    for name in names:
        await api.made(f"/api/v1/namespaces/{name}/configmaps", config(f"in-{name}"))

    for name, watch in seen.items():
        assert await watch.reported(1) == [("ADDED", f"in-{name}")]
        assert await watch.is_quiet(0)


async def test_a_resources_watch_never_sees_a_resource_with_the_same_prefix(api):
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
    tables = [frame["object"] for frame in frames]
    assert {(table["kind"], table["apiVersion"]) for table in tables} == {("Table", "meta.k8s.io/v1")}
    assert [definition["name"] for definition in tables[0]["columnDefinitions"]][:3] == ["Name", "Ready", "Status"]
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


async def test_a_tables_bookmark_has_its_revision(api, forms):
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

    frames = [await item.next() for item in (*plain, *selective)]
    assert all(frame == frames[0] for frame in frames)
    assert len(served) == 1


async def test_all_watchers_see_the_same_order(racing, config):
    watching = [await racing.watch(f"{CONFIGS}?resourceVersion={racing.store.revision}") for _ in range(4)]

    writes = [racing.made(CONFIGS, config(f"n{number}")) for number in range(20)]
    await asyncio.gather(*writes)
    await asyncio.gather(*(racing.delete(f"{CONFIGS}/n{number}") for number in range(0, 20, 2)))

    orders = [
        [(item["type"], item["object"]["metadata"]["resourceVersion"]) for item in await watch.take(30)]
        for watch in watching
    ]
    assert all(order == orders[0] for order in orders)
    revisions = [int(version) for _, version in orders[0]]
    assert revisions == sorted(set(revisions))


OLD = "/api/v1/watch"


async def old_watch(api, url):
    answer = await api.ask("GET", url)
    assert isinstance(answer, Stream), answer
    watching = Watching(answer)
    api.watches.append(watching)
    return watching


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param("/namespaces/default/configmaps", ["one", "two"], id="a namespace"),
        pytest.param("/configmaps?fieldSelector=metadata.namespace%3Ddefault", ["one", "two"], id="all namespaces"),
        pytest.param("/namespaces/default/configmaps/two", ["two"], id="one name"),
        pytest.param("/namespaces/default", ["default"], id="a namespace itself"),
        pytest.param("/namespaces?fieldSelector=metadata.name%3Ddefault", ["default"], id="namespaces"),
    ],
)
async def test_a_url_of_the_old_form_watches(api, config, path, expected):
    for name in "one", "two":
        await api.made(CONFIGS, config(name))

    watch = await old_watch(api, f"{OLD}{path}")

    assert [event["object"]["metadata"]["name"] for event in await watch.take(len(expected))] == expected


async def test_a_watch_of_the_old_form_needs_the_right_to_watch_and_is_read_only(api):
    url = f"{OLD}/namespaces/default/configmaps/two"

    refused = await api.get(url, user=Certificate("nobody", ()))
    assert refused.status == 403
    assert 'cannot watch resource "configmaps"' in refused.message
    assert (await api.delete(url)).status == 405
    other = await api.get(f"{url}?fieldSelector=metadata.name%3Done")
    assert (other.status, other.message) == (400, "fieldSelector metadata.name doesn't match requested name")
    assert (await api.get("/apis/apps/v1/watch/nothing")).status == 404
