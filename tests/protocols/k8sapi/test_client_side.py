"""The client against a scripted API server on a real socket."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.client_side import (
    Client,
    Interrupted,
    PatchType,
    Propagation,
    Scope,
    TooSlow,
    Unreachable,
)
from podwire.protocols.k8sapi.client_side.calls import Patience, refusal
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.kubeconfig import Access
from podwire.protocols.k8sapi.server_side import Request, Response, Stream
from podwire.protocols.k8sapi.status import ApiError, Reason
from podwire.protocols.k8sapi.watch import Added, Deleted, Synced, Updated
from podwire.transports.http_client import connect
from podwire.transports.http_server import serve

PODS = BUILTIN.of_kind("v1", "Pod")
ALL, IN_DEFAULT = "/api/v1/pods", "/api/v1/namespaces/default/pods"


class Script:
    """Answers requests in order, the last answer for ever; keeps what was asked."""

    def __init__(self) -> None:
        self.answers: list = []
        self.asked: list[tuple[str, str, dict]] = []
        self.requests: list[Request] = []
        self.bodies: list = []

    async def handle(self, request: Request):
        body = await request.read(10_000_000)
        query = {name: values[0] for name, values in request.query.items()}
        self.asked.append((request.method, request.path, query))
        self.requests.append(request)
        self.bodies.append(msgspec.json.decode(body) if body else None)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return await answer(request) if callable(answer) else answer


def ok(value, status: int = 200) -> Response:
    return Response(status=status, body=msgspec.json.encode(value))


def failure(code: int, reason: str, *headers: tuple[str, str]) -> Response:
    status = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": f"it is {reason}"}
    return Response(status=code, body=msgspec.json.encode(status), headers=headers)


def listing(version: int, *items: dict, token: str = "") -> Response:
    meta = {"resourceVersion": str(version), **({"continue": token} if token else {})}
    return ok({"kind": "PodList", "apiVersion": "v1", "metadata": meta, "items": items})


def frame(type_: str, object_: dict) -> bytes:
    return msgspec.json.encode({"type": type_, "object": object_}) + b"\n"


class Feed:
    """A watch stream that the test feeds: bytes, None to end it, an exception to break it."""

    def __init__(self, *chunks) -> None:
        self.queue: asyncio.Queue = asyncio.Queue()
        self.closed = asyncio.Event()
        for chunk in chunks:
            self.queue.put_nowait(chunk)

    async def __call__(self, _request: Request) -> Stream:
        return Stream(chunks=self._chunks())

    async def _chunks(self) -> AsyncIterator[bytes]:
        try:
            while (chunk := await self.queue.get()) is not None:
                if isinstance(chunk, Exception):
                    raise chunk
                yield chunk
        finally:
            self.closed.set()


def pod(name: str, version: int = 1, uid: str = "u1") -> dict:
    meta = {"name": name, "namespace": "default", "uid": uid, "resourceVersion": str(version)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta}


@pytest.fixture
def script():
    return Script()


@pytest.fixture
async def server(script):
    server = await serve(script.handle)
    yield server
    await server.close(0.1)


@pytest.fixture
async def client(server):
    access = Access(server=f"http://127.0.0.1:{server.port}", token="me")
    async with connect(access) as http:
        yield Client(http, patience=Patience(deadline=5.0, tries=3, first_wait=0.01))


def merge_patch(client: Client):
    return client.patch(PODS, "a", {"x": 1}, "default", field_manager="m")


def strategic_status_patch(client: Client):
    return client.patch(PODS, "a", {"x": 1}, "default", type_=PatchType.STRATEGIC, subresource="status")


def careful_delete(client: Client):
    return client.delete(
        PODS, "a", "default", grace_seconds=0, propagation=Propagation.FOREGROUND, uid="u1", resource_version="7"
    )


BINDING = {
    "apiVersion": "v1",
    "kind": "Binding",
    "metadata": {"name": "a", "namespace": "default"},
    "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
}
OPTIONS = {"apiVersion": "v1", "kind": "DeleteOptions"}


@pytest.mark.parametrize(
    ("call", "asked", "body"),
    [
        pytest.param(lambda c: c.get(PODS, "a", "default"), ("GET", f"{IN_DEFAULT}/a", {}), None, id="get"),
        pytest.param(
            lambda c: c.create(pod("a"), field_manager="m", dry_run=True),
            ("POST", IN_DEFAULT, {"fieldManager": "m", "dryRun": "All"}),
            pod("a"),
            id="create",
        ),
        pytest.param(
            lambda c: c.replace(pod("a"), subresource="status"),
            ("PUT", f"{IN_DEFAULT}/a/status", {}),
            pod("a"),
            id="replace",
        ),
        pytest.param(merge_patch, ("PATCH", f"{IN_DEFAULT}/a", {"fieldManager": "m"}), {"x": 1}, id="patch"),
        pytest.param(strategic_status_patch, ("PATCH", f"{IN_DEFAULT}/a/status", {}), {"x": 1}, id="patch status"),
        pytest.param(
            lambda c: c.apply(pod("a"), field_manager="m", force=True),
            ("PATCH", f"{IN_DEFAULT}/a", {"fieldManager": "m", "force": "true"}),
            pod("a"),
            id="apply",
        ),
        pytest.param(
            careful_delete,
            ("DELETE", f"{IN_DEFAULT}/a", {}),
            {
                **OPTIONS,
                "gracePeriodSeconds": 0,
                "propagationPolicy": "Foreground",
                "preconditions": {"uid": "u1", "resourceVersion": "7"},
            },
            id="delete",
        ),
        pytest.param(
            lambda c: c.delete_collection(PODS, Scope(namespace="default", label_selector="a=b")),
            ("DELETE", IN_DEFAULT, {"labelSelector": "a=b"}),
            OPTIONS,
            id="delete collection",
        ),
        pytest.param(
            lambda c: c.bind("a", "default", "n1"), ("POST", f"{IN_DEFAULT}/a/binding", {}), BINDING, id="bind"
        ),
        pytest.param(
            lambda c: c.evict("a", "default"),
            ("POST", f"{IN_DEFAULT}/a/eviction", {}),
            {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a", "namespace": "default"}},
            id="evict",
        ),
        pytest.param(
            lambda c: c.token("sa", "default", {"audiences": ["x"]}),
            ("POST", "/api/v1/namespaces/default/serviceaccounts/sa/token", {}),
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": ["x"]}},
            id="token",
        ),
    ],
)
async def test_each_verb_sends_the_request_that_the_api_expects(client, script, call, asked, body):
    script.answers = [ok(pod("a"))]
    await call(client)
    assert script.asked == [asked]
    assert script.bodies == [body]
    assert script.requests[0].headers["authorization"] == "Bearer me"


async def test_a_patch_has_its_content_type(client, script):
    script.answers = [ok(pod("a"))]
    for entry in PatchType:
        await client.patch(PODS, "a", {}, "default", type_=entry)
    assert [request.headers["content-type"] for request in script.requests] == [item.value for item in PatchType]


async def test_a_refusal_is_an_api_error(client, script):
    script.answers = [failure(409, "Conflict")]
    with pytest.raises(ApiError, match="it is Conflict") as caught:
        await client.create(pod("a"))
    assert (caught.value.code, caught.value.reason) == (409, Reason.CONFLICT)


async def test_an_error_without_a_status_is_an_api_error(client, script):
    script.answers = [Response(status=404, body=b"404 page not found\n", content_type="text/plain")]
    with pytest.raises(ApiError, match="404 page not found") as caught:
        await client.get(PODS, "a", "default")
    assert caught.value.code == 404


async def test_an_answer_that_is_not_json_is_interrupted(client, script):
    script.answers = [Response(status=200, body=b"<html>", content_type="text/html")]
    with pytest.raises(Interrupted, match="not JSON"):
        await client.create(pod("a"))


async def test_an_unknown_kind_is_refused_before_anything_is_sent_until_it_is_learnt(client, script):
    thing = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "x"}}
    with pytest.raises(ApiError, match=r'no matches for kind "Thing" in version "example\.com/v1"'):
        await client.create(thing)
    assert script.asked == []
    client.learn([Kind(group="example.com", version="v1", resource="things", kind="Thing", namespaced=False)])
    script.answers = [ok(thing)]
    await client.create(thing)
    assert script.asked == [("POST", "/apis/example.com/v1/things", {})]


async def test_a_listing_is_read_to_its_last_page(client, script):
    bare = {"metadata": {"name": "b"}}
    script.answers = [listing(5, pod("a"), token="t1"), listing(5, bare)]
    found = await client.list(PODS, Scope(namespace="default", field_selector="spec.nodeName=n"))
    assert [item["metadata"]["name"] for item in found.items] == ["a", "b"]
    assert found.items[1]["kind"] == "Pod"
    assert found.resource_version == "5"
    query = {"fieldSelector": "spec.nodeName=n", "limit": "500"}
    assert script.asked == [("GET", IN_DEFAULT, query), ("GET", IN_DEFAULT, {**query, "continue": "t1"})]


async def test_an_expired_continue_token_restarts_the_list_without_pages(client, script):
    script.answers = [listing(5, pod("a"), token="t1"), failure(410, "Expired"), listing(9, pod("b"))]
    found = await client.list(PODS)
    assert ([item["metadata"]["name"] for item in found.items], found.resource_version) == (["b"], "9")
    assert script.asked[-1] == ("GET", ALL, {})


async def test_bare_metadata_is_asked_for_and_named(client, script):
    script.answers = [listing(5, {"kind": "PartialObjectMetadata", "metadata": {"name": "a"}})]
    found = await client.list(PODS, Scope(metadata_only=True))
    assert "as=PartialObjectMetadataList" in script.requests[0].headers["accept"]
    assert found.items[0]["kind"] == "Pod"


@pytest.mark.parametrize("code", [429, 503])
async def test_a_request_is_retried_after_retry_after(client, script, code):
    script.answers = [failure(code, "TooManyRequests", ("Retry-After", "0")), ok(pod("a"))]
    await client.create(pod("a"))
    assert len(script.asked) == 2


async def test_endless_retry_after_is_an_error(client, script):
    script.answers = [failure(429, "TooManyRequests", ("Retry-After", "0"))]
    with pytest.raises(ApiError) as caught:
        await client.get(PODS, "a", "default")
    assert (caught.value.code, len(script.asked)) == (429, 3)


async def test_an_eviction_that_a_budget_forbids_is_not_retried(client, script):
    script.answers = [failure(429, "TooManyRequests", ("Retry-After", "10"))]
    with pytest.raises(ApiError) as caught:
        await client.evict("a", "default")
    assert (caught.value.code, len(script.asked)) == (429, 1)


async def test_a_server_that_is_not_there_is_unreachable():
    async with connect(Access(server="http://127.0.0.1:1")) as http:
        client = Client(http, patience=Patience(tries=2, first_wait=0.01))
        with pytest.raises(Unreachable, match="GET /api/v1/pods"):
            await client.list(PODS)


async def hang_up(request: Request) -> Stream:
    async def chunks() -> AsyncIterator[bytes]:
        yield b'{"half":'
        raise ConnectionError

    return Stream(chunks=chunks())


async def test_a_read_that_broke_off_is_asked_again_a_write_is_not(client, script):
    script.answers = [hang_up, ok(pod("a"))]
    assert await client.get(PODS, "a", "default") == pod("a")
    script.answers = [hang_up, ok(pod("a"))]
    script.asked.clear()
    with pytest.raises(Interrupted):
        await client.create(pod("a"))
    assert len(script.asked) == 1


async def test_no_answer_within_the_deadline_is_an_error(server, script):
    script.answers = [Feed()]
    async with connect(Access(server=f"http://127.0.0.1:{server.port}")) as http:
        client = Client(http, patience=Patience(deadline=0.1))
        with pytest.raises(TooSlow, match=r"within 0\.1 s"):
            await client.get(PODS, "a", "default")


@pytest.mark.parametrize("aggregated", [True, False])
async def test_discovery_in_either_form(client, script, aggregated):
    things = {"resource": "things", "scope": "Namespaced", "responseKind": {"kind": "Thing"}, "verbs": ["list"]}
    pods = {"resource": "pods", "scope": "Namespaced", "responseKind": {"kind": "Pod"}, "verbs": ["list"]}

    def group(name: str, resource: dict) -> dict:
        return {"metadata": {"name": name}, "versions": [{"version": "v1", "resources": [resource]}]}

    if aggregated:
        answers = [group("", pods), group("example.com", things)]
        script.answers = [ok({"kind": "APIGroupDiscoveryList", "items": [answer]}) for answer in answers]
    else:
        groups = [{"name": "example.com", "versions": [{"version": "v1"}]}]
        row = {"namespaced": True, "verbs": ["list"]}
        script.answers = [
            ok({"kind": "APIVersions", "versions": ["v1"]}),
            ok({"kind": "APIResourceList", "resources": [{"name": "pods", "kind": "Pod", **row}]}),
            ok({"kind": "APIGroupList", "groups": groups}),
            ok({"kind": "APIResourceList", "resources": [{"name": "things", "kind": "Thing", **row}]}),
        ]
    found = await client.discover()
    assert [(item.group, item.resource, item.kind) for item in found] == [
        ("", "pods", "Pod"),
        ("example.com", "things", "Thing"),
    ]


async def changes(informer, count: int) -> list:
    async with asyncio.timeout(30):
        return [await anext(informer) for _ in range(count)]


async def test_an_informer_lists_then_follows(client, script):
    feed = Feed(frame("ADDED", pod("b", 6)), frame("MODIFIED", pod("a", 7)), frame("DELETED", pod("b", 8)))
    script.answers = [listing(5, pod("a")), feed]
    async with client.informer(PODS, Scope(namespace="default", label_selector="x=y")) as informer:
        assert await changes(informer, 5) == [
            Added(pod("a")),
            Synced(),
            Added(pod("b", 6)),
            Updated(pod("a", 7), pod("a")),
            Deleted(pod("b", 8)),
        ]
        assert informer.objects == {("default", "a"): pod("a", 7)}
    _, (method, path, query) = script.asked
    assert (method, path) == ("GET", IN_DEFAULT)
    assert 300 <= int(query.pop("timeoutSeconds")) <= 600
    assert query == {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": "5", "labelSelector": "x=y"}
    await asyncio.wait_for(feed.closed.wait(), 20)


async def test_a_watch_that_ends_is_resumed_where_it_got_to(client, script):
    bookmark = {"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": "9"}}
    first = Feed(frame("ADDED", pod("a", 6)), frame("BOOKMARK", bookmark), None)
    script.answers = [listing(5), first, Feed(frame("ADDED", pod("b", 10)))]
    async with client.informer(PODS) as informer:
        assert await changes(informer, 3) == [Synced(), Added(pod("a", 6)), Added(pod("b", 10))]
    assert [query.get("resourceVersion") for _, _, query in script.asked] == [None, "5", "9"]


@pytest.mark.parametrize(
    "cut",
    [
        pytest.param(ConnectionError("cut"), id="between frames"),
        pytest.param(frame("ADDED", pod("é🚀", 7))[:-30], id="inside a frame"),
        pytest.param(b"<html>proxy error</html>\n", id="by somebody else's words"),
    ],
)
async def test_a_broken_watch_resumes_without_loss_or_duplicate(client, script, cut):
    ends = [] if isinstance(cut, Exception) else [ConnectionError("cut")]
    first = Feed(frame("ADDED", pod("a", 6)), cut, *ends)
    script.answers = [listing(5), first, Feed(frame("ADDED", pod("é🚀", 7)))]
    async with client.informer(PODS) as informer:
        assert await changes(informer, 3) == [Synced(), Added(pod("a", 6)), Added(pod("é🚀", 7))]
    assert script.asked[-1][2]["resourceVersion"] == "6"


@pytest.mark.parametrize("how", ["event", "answer"])
async def test_an_expired_version_relists_and_reports_missed_changes(client, script, how):
    expired = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    gone = Feed(frame("ERROR", expired)) if how == "event" else failure(410, "Expired")
    script.answers = [listing(5, pod("a"), pod("b")), gone, listing(50, pod("b", 40), pod("c")), Feed()]
    async with client.informer(PODS) as informer:
        assert await changes(informer, 6) == [
            Added(pod("a")),
            Added(pod("b")),
            Synced(),
            Deleted(pod("a")),
            Updated(pod("b", 40), pod("b")),
            Added(pod("c")),
        ]


async def test_an_informer_waits_for_a_server_that_is_not_well(client, script):
    script.answers = [failure(500, "InternalError"), failure(403, "Forbidden"), listing(5, pod("a")), Feed()]
    async with client.informer(PODS) as informer:
        assert await changes(informer, 2) == [Added(pod("a")), Synced()]


async def test_an_informer_of_an_unknown_kind_fails(client, script):
    script.answers = [failure(404, "NotFound")]
    with pytest.raises(ApiError, match="NotFound"):
        await changes(client.informer(PODS), 1)


async def test_an_informer_can_begin_with_a_watch(client, script):
    end = {"metadata": {"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}}}
    feed = Feed(frame("ADDED", pod("a", 3)), frame("BOOKMARK", end), frame("ADDED", pod("b", 10)))
    script.answers = [feed]
    async with client.informer(PODS, watch_list=True) as informer:
        assert await changes(informer, 3) == [Added(pod("a", 3)), Synced(), Added(pod("b", 10))]
    [(_, _, query)] = script.asked
    assert query["sendInitialEvents"] == "true"
    assert query["resourceVersionMatch"] == "NotOlderThan"
    assert "resourceVersion" not in query


async def test_a_server_that_cannot_begin_with_a_watch_is_listed(client, script):
    script.answers = [failure(422, "Invalid"), listing(5, pod("a")), Feed()]
    async with client.informer(PODS, watch_list=True) as informer:
        assert await changes(informer, 2) == [Added(pod("a")), Synced()]


async def test_bare_metadata_can_be_watched(client, script):
    partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": pod("a", 6)["metadata"]}
    script.answers = [listing(5), Feed(frame("ADDED", partial))]
    async with client.informer(PODS, Scope(metadata_only=True)) as informer:
        assert await changes(informer, 2) == [Synced(), Added(pod("a", 6))]
    assert "as=PartialObjectMetadata;" in script.requests[-1].headers["accept"]


async def test_a_large_object_comes_through_a_watch_whole(client, script):
    large = {**pod("a", 6), "data": {"x": "é" * 2_000_000}}
    wire = frame("ADDED", large)
    script.answers = [listing(5), Feed(*(wire[at : at + 65_537] for at in range(0, len(wire), 65_537)))]
    async with client.informer(PODS) as informer:
        assert await changes(informer, 2) == [Synced(), Added(large)]


async def test_cancelling_an_informer_hangs_up(client, script):
    feed = Feed(frame("ADDED", pod("a", 6)))
    script.answers = [listing(5), feed]
    informer = client.informer(PODS)

    added = asyncio.Event()

    async def follow() -> None:
        async for item in informer:
            if isinstance(item, Added):
                added.set()

    task = asyncio.create_task(follow())
    await asyncio.wait_for(added.wait(), 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(feed.closed.wait(), 20)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        pytest.param(404, Reason.NOT_FOUND, id="a kind that is not served"),
        pytest.param(503, Reason.SERVICE_UNAVAILABLE, id="a proxy without a server"),
        pytest.param(409, Reason.UNKNOWN, id="a conflict of either kind"),
        pytest.param(418, Reason.UNKNOWN, id="a teapot"),
    ],
)
def test_an_unambiguous_code_without_a_status_has_its_reason(code, reason):
    error = refusal(code, {}, b"404 page not found\n")
    assert (error.reason, error.code, error.message) == (reason, code, "404 page not found")
