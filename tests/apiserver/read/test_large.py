"""Lists and watches of large collections: memory that is given back, and turns for other requests."""

import asyncio
import contextlib

import msgspec
import pytest

from podwire.apiserver.limits import Limits
from podwire.apiserver.request.response import CHUNK
from podwire.protocols.k8sapi.server_side import Stream
from podwire.store.broadcast import SHARED
from podwire.store.memory import MemoryStore
from tests.apiserver.support import CONFIGS, PODS

MANY = 3000
NODES = "/api/v1/nodes"


@pytest.fixture
async def crowded(serve, pod):
    """A server with many pods of twenty nodes, in five namespaces, put into the store directly."""
    api = await serve(limits=Limits(revision_wait=0.01))
    made = await api.made(PODS, pod("model"))
    made["spec"]["containers"][0]["env"] = [{"name": f"E{number}", "value": "x" * 20} for number in range(20)]
    made["metadata"].pop("resourceVersion")
    for number in range(MANY):
        metadata = {**made["metadata"], "name": f"p{number:05d}", "labels": {"number": str(number)}}
        obj = {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": {**metadata, "namespace": f"ns{number % 5}"},
            "spec": {**made["spec"], "nodeName": f"n{number % 20}"},
            "status": {"phase": "Running" if number % 3 else "Pending"},
        }
        await api.store.create(f"/registry/pods/ns{number % 5}/p{number:05d}", msgspec.json.encode(obj))
    return api


async def turns_during(work) -> int:
    """How often another task had its turn."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(count())
    await work
    other.cancel()
    return turns


@pytest.mark.parametrize("form", ["object", "metadata", "table"])
async def test_a_long_list_comes_in_chunks_that_are_the_whole_list(crowded, forms, form):
    accept = {"object": "application/json", "metadata": forms["metadata list"], "table": forms["table"]}[form]
    answer = await crowded.ask("GET", "/api/v1/pods", accept=accept)
    assert isinstance(answer, Stream)
    assert answer.whole
    chunks = [chunk async for chunk in answer.chunks]
    assert len(chunks) > 2
    assert max(map(len, chunks)) < 2 * CHUNK
    listed = msgspec.json.decode(b"".join(chunks))
    pretty = (await crowded.get("/api/v1/pods?pretty=true", accept=accept)).body
    assert listed == pretty
    assert len(listed["rows" if form == "table" else "items"]) == MANY + 1


@pytest.mark.parametrize("url", ["/api/v1/pods", "/api/v1/pods?labelSelector=number%3D7",
                                 "/api/v1/pods?fieldSelector=spec.nodeName%3Dn7"])  # fmt: skip
async def test_other_requests_have_turns_while_a_long_list_is_made(crowded, url):
    short = await turns_during(crowded.get("/api/v1/pods?limit=1"))
    assert await turns_during(crowded.get(url)) > short


async def test_a_long_list_shows_the_state_of_its_revision(crowded):
    answer = await crowded.ask("GET", "/api/v1/pods")
    first = await anext(answer.chunks)
    key = f"/registry/pods/ns4/p{MANY - 1:05d}"
    last = await crowded.store.get(key)
    await crowded.store.delete(key, expected=last.revision)
    rest = b"".join([chunk async for chunk in answer.chunks])
    items = msgspec.json.decode(first + rest)["items"]
    assert items[-1]["metadata"]["name"] == f"p{MANY - 1:05d}"
    assert len(items) == MANY + 1


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        ("spec.nodeName=n7", lambda number: number % 20 == 7),
        ("spec.nodeName=n7,status.phase=Running", lambda number: number % 20 == 7 and number % 3),
        ("spec.nodeName=n7,status.phase!=Running", lambda number: number % 20 == 7 and not number % 3),
        ("status.phase!=Running,status.phase!=Failed", lambda number: not number % 3),
        ("metadata.namespace=ns2,spec.nodeName=n7", lambda number: number % 20 == 7 and number % 5 == 2),
        ("metadata.name=p00007", lambda number: number == 7),
        ("spec.nodeName=nowhere", lambda number: False),
    ],
)
async def test_selectors_find_the_same_by_index_page_by_page_and_in_the_past(crowded, selector, chosen):
    names = {f"p{number:05d}" for number in range(MANY) if chosen(number)}
    url = f"/api/v1/pods?fieldSelector={selector.replace('!=', '!%3D').replace('=', '%3D').replace('!%253D', '!%3D')}"

    reply = await crowded.get(url)
    assert set(reply.names) - {"model"} == names
    past = await crowded.get(f"{url}&resourceVersion={crowded.store.revision}&resourceVersionMatch=Exact")
    assert past.body["items"] == reply.body["items"]

    pages, token = [], ""
    while True:
        page = await crowded.get(f"{url}&limit=70&continue={token}")
        pages += page.body["items"]
        assert page.version == reply.version
        token = page.body["metadata"].get("continue", "")
        if not token:
            break
    assert pages == reply.body["items"]


async def test_a_page_of_an_index_goes_on_at_its_revision(crowded):
    url = "/api/v1/pods?fieldSelector=spec.nodeName%3Dn7&limit=100"
    first = await crowded.get(url)
    last = f"/registry/pods/ns2/p{MANY - 13:05d}"
    await crowded.store.delete(last, expected=(await crowded.store.get(last)).revision)
    second = await crowded.get(f"{url}&continue={first.body['metadata']['continue']}")
    assert len(first.names) + len(second.names) == MANY // 20
    assert second.version == first.version


async def test_an_index_sees_a_pod_come_to_its_node(crowded, pod):
    url = "/api/v1/pods?fieldSelector=spec.nodeName%3Dfresh"
    assert (await crowded.get(url)).names == []
    await crowded.made(PODS, pod("late"))
    await crowded.made(f"{PODS}/late/binding", {"target": {"kind": "Node", "name": "fresh"}})
    assert (await crowded.get(url)).names == ["late"]
    await crowded.delete(f"{PODS}/late", {"gracePeriodSeconds": 0})
    assert (await crowded.get(url)).names == []


@pytest.mark.parametrize("query", ["", "&fieldSelector=metadata.namespace%3Ddefault", "&labelSelector=app%3Dx"])
async def test_what_a_watch_derives_from_changes_is_freed_when_it_has_sent_them(serve, config, query):
    store = MemoryStore()
    api = await serve(store)
    watch = await api.watch(f"/api/v1/configmaps?resourceVersion={store.revision}{query}")
    await api.made(CONFIGS, config("a", labels={"app": "x"}))
    item = await store.get("/registry/configmaps/default/a")
    for number in range(SHARED + 500):
        item = await store.update(item.key, item.value, expected=item.revision)
        if not number % 100:
            await watch.take(100 if number else 2)
    changes = store._versions.history.after(1, "/registry/configmaps/")
    assert len(changes) > SHARED + 400
    kept = sum(len(change.notes or ()) for change in changes)
    assert 0 < sum(change.notes is not None for change in changes) <= SHARED
    assert kept <= 5 * SHARED


async def test_a_slow_client_keeps_only_what_it_has_not_been_sent(crowded):
    answer = await crowded.ask("GET", f"/api/v1/pods?watch=true&resourceVersion={crowded.store.revision - MANY}")
    async with contextlib.aclosing(answer.chunks) as chunks:
        await anext(chunks)
        history = crowded.store._versions.history.after(1, "/registry/pods/")
        assert not any(change.notes for change in history[:100]), "a replay is encoded for its reader only"


async def test_a_watch_by_node_starts_with_the_nodes_pods_and_follows_them(crowded, pod):
    watch = await crowded.watch("/api/v1/pods?fieldSelector=spec.nodeName%3Dn7")
    initial = await watch.reported(MANY // 20)
    assert {kind for kind, _ in initial} == {"ADDED"}
    await crowded.made(PODS, pod("other"))
    await crowded.made(PODS, pod("mine"))
    await crowded.made(f"{PODS}/mine/binding", {"target": {"kind": "Node", "name": "n7"}})
    assert await watch.reported(1) == [("ADDED", "mine")]
    await crowded.delete(f"{PODS}/mine", {"gracePeriodSeconds": 0})
    assert (await watch.next())["type"] in ("MODIFIED", "DELETED")
