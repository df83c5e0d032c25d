"""Flow control in a whole API server: its objects, its headers, and who is answered under load."""

import asyncio

import pytest

from podwire.apiserver.limits import Limits
from podwire.protocols.k8sapi.server_side import Certificate, Request, Stream
from tests.apiserver.support import ADMIN, CONFIGS
from tests.eventually import eventually_async

SCHEMAS = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas"
LEVELS = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations"
USER, OTHER = Certificate("someone"), Certificate("another")
EVERYTHING = {
    "metadata": {"name": "everything"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
    "subjects": [
        {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user.common_name} for user in (USER, OTHER)
    ],
}
FLOW_HEADER, LEVEL_HEADER = "x-kubernetes-pf-flowschema-uid", "x-kubernetes-pf-prioritylevel-uid"


@pytest.fixture
def serve(serve):
    """Servers where two users may do everything, without being exempt."""

    async def start(*args, **settings):
        api = await serve(*args, **settings)
        await api.made("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", EVERYTHING)
        await asyncio.sleep(0.01)
        return api

    return start


async def test_a_new_server_has_the_flow_schemas_and_priority_levels_of_upstream(api):
    schemas, levels = await api.get(SCHEMAS), await api.get(LEVELS)
    assert schemas.names == [
        "catch-all", "exempt", "global-default", "kube-controller-manager", "kube-scheduler",
        "kube-system-service-accounts", "podwire-components", "probes", "service-accounts",
        "system-leader-election", "system-node-high", "system-nodes",
    ]  # fmt: skip
    assert {level["metadata"]["name"]: level["spec"].get("limited", {}).get("nominalConcurrencyShares")
            for level in levels.body["items"]} == {
        "catch-all": 5, "exempt": None, "global-default": 20, "leader-election": 10, "node-high": 40, "system": 30,
        "workload-high": 40, "workload-low": 100,
    }  # fmt: skip


async def test_every_answer_names_its_flow_schema_and_priority_level(api):
    schemas = {item["metadata"]["name"]: item["metadata"]["uid"] for item in (await api.get(SCHEMAS)).body["items"]}
    levels = {item["metadata"]["name"]: item["metadata"]["uid"] for item in (await api.get(LEVELS)).body["items"]}
    for path, user, schema, level in (
        (CONFIGS, ADMIN, "exempt", "exempt"),
        (f"{CONFIGS}/absent", USER, "global-default", "global-default"),
        ("/healthz", USER, "probes", "exempt"),
        ("/version", USER, "global-default", "global-default"),
    ):
        reply = await api.get(path, user=user)
        assert (reply.headers[FLOW_HEADER], reply.headers[LEVEL_HEADER]) == (schemas[schema], levels[level])


async def test_a_condition_without_a_type_does_not_end_the_controller(api):
    await api.made(SCHEMAS, {"metadata": {"name": "mine"}, "spec": {"priorityLevelConfiguration": {"name": "absent"}}})
    patch = {"status": {"conditions": [{"status": "True"}]}}
    reply = await api.patch(f"{SCHEMAS}/mine/status", patch)
    assert reply.status == 200

    async def is_reported() -> bool:
        conditions = (await api.get(f"{SCHEMAS}/mine")).body["status"]["conditions"]
        return any(condition.get("type") == "Dangling" for condition in conditions) and len(conditions) == 2

    await eventually_async(is_reported, 20)


async def test_a_schema_says_whether_its_priority_level_exists(api):
    async def dangling(name: str) -> str:
        conditions = (await api.get(f"{SCHEMAS}/{name}")).body["status"].get("conditions", [])
        return "".join(condition["status"] for condition in conditions if condition["type"] == "Dangling")

    await eventually_async(lambda: dangling("global-default"), 20)
    assert await dangling("global-default") == "False"
    rule = {
        "subjects": [{"kind": "Group", "group": {"name": "*"}}],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    }
    spec = {"priorityLevelConfiguration": {"name": "later"}, "rules": [rule]}
    await api.made(SCHEMAS, {"metadata": {"name": "mine"}, "spec": spec})
    await eventually_async(lambda: dangling("mine"), 20)
    assert await dangling("mine") == "True"
    limited = {"limitResponse": {"type": "Reject"}}
    await api.made(LEVELS, {"metadata": {"name": "later"}, "spec": {"type": "Limited", "limited": limited}})

    async def found() -> bool:
        return await dangling("mine") == "False"

    await eventually_async(found, 20)


def dripping(release: asyncio.Event, user: Certificate, name: str) -> Request:
    """A request whose body does not come to its end."""

    async def read(_limit: int) -> bytes:
        await release.wait()
        return b'{"metadata":{"name":"%b"}}' % name.encode()

    return Request(method="POST", path=CONFIGS, certificate=user, read=read)


async def test_one_user_with_many_slow_requests_does_not_stop_others(serve):
    api = await serve(limits=Limits(requests_in_flight=20, queue_seconds=0.2))
    release = asyncio.Event()
    handle = api.assembled.server.handle
    slow = [asyncio.create_task(handle(dripping(release, USER, f"slow-{number}"))) for number in range(200)]
    await asyncio.sleep(0.05)
    assert (await api.post(CONFIGS, {"metadata": {"name": "admin"}}, user=ADMIN)).status == 201
    node = Certificate("system:node:n1", ("system:nodes",))
    assert (await api.get("/api/v1/nodes/n1", user=node)).status == 404, "another level has its own seats"
    refused = await api.get(CONFIGS, user=OTHER)
    assert (refused.status, refused.body["reason"], refused.headers["retry-after"]) == (429, "TooManyRequests", "1")
    assert refused.message == "Too many requests, please try again later."
    assert FLOW_HEADER in refused.headers
    release.set()
    codes = {answer.status for answer in await asyncio.gather(*slow)}
    assert codes == {201, 429}
    assert (await api.get(CONFIGS, user=OTHER)).status == 200
    assert all(level.running == level.waiting == 0 for level in api.assembled.server._flow_control.seats.levels)


async def test_a_user_who_waits_is_served_between_the_requests_of_a_busy_one(serve):
    api = await serve(limits=Limits(requests_in_flight=8))
    release = asyncio.Event()
    handle = api.assembled.server.handle
    slow = [asyncio.create_task(handle(dripping(release, USER, f"slow-{number}"))) for number in range(100)]
    await asyncio.sleep(0.05)
    waiting = asyncio.create_task(api.get(CONFIGS, user=OTHER))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    release.set()
    assert (await waiting).status == 200
    await asyncio.gather(*slow)


async def test_a_watch_has_a_seat_for_its_initial_state_only(serve):
    api = await serve(limits=Limits(requests_in_flight=1))
    seats = api.assembled.server._flow_control.seats
    for _ in range(3):
        watching = await api.watch(CONFIGS, user=USER)
        await watching.close()
    watches = []
    for _ in range(5):
        answer = await api.assembled.server.handle(
            Request(method="GET", path=CONFIGS, query={"watch": ["1"]}, certificate=USER)
        )
        assert isinstance(answer, Stream)
        first = asyncio.create_task(anext(answer.chunks))
        watches.append((answer, first))
        await eventually_async(lambda: not any(level.running for level in seats.levels))
    assert api.assembled.server._watches.open == 5
    for answer, first in watches:
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await answer.chunks.aclose()
        await answer.chunks.aclose()
    assert api.assembled.server._watches.open == 0


async def test_a_watch_that_is_never_read_gives_its_seat_back(serve):
    api = await serve(limits=Limits(requests_in_flight=1))
    for _ in range(3):
        answer = await api.assembled.server.handle(
            Request(method="GET", path=CONFIGS, query={"watch": ["1"]}, certificate=USER)
        )
        assert isinstance(answer, Stream)
        await answer.chunks.aclose()
    assert (await api.get(CONFIGS, user=USER)).status == 200
    assert api.assembled.server._watches.open == 0


async def test_one_user_has_at_most_half_of_the_watches_and_an_exempt_one_is_not_limited(serve):
    api = await serve(limits=Limits(watches=4))
    for _ in range(2):
        await api.watch(f"{CONFIGS}?resourceVersion=1", user=USER)
    query = {"watch": ["1"], "resourceVersion": ["1"]}
    refused = await api.assembled.server.handle(Request(method="GET", path=CONFIGS, query=query, certificate=USER))
    assert refused.status == 429
    for user in (OTHER, OTHER, ADMIN, ADMIN, ADMIN):
        await api.watch(f"{CONFIGS}?resourceVersion=1", user=user)


@pytest.mark.parametrize("path", [f"{SCHEMAS}/exempt", f"{LEVELS}/catch-all"])
async def test_a_mandatory_object_that_is_deleted_still_works(api, path):
    assert (await api.delete(path)).status == 200
    await asyncio.sleep(0.01)
    assert (await api.get(CONFIGS)).status == 200
    assert (await api.get(CONFIGS, user=USER)).status == 200


async def test_long_lists_and_writes_with_many_watches_take_several_seats(serve, monkeypatch):
    api = await serve()
    for number in range(120):
        await api.made(CONFIGS, {"metadata": {"name": f"c{number}"}})
    seats, taken = api.assembled.server._flow_control.seats, []
    take_free, release = seats.take_free, seats.release
    monkeypatch.setattr(seats, "take_free", lambda level, number=1: taken.append(number) or take_free(level, number))
    monkeypatch.setattr(seats, "release", lambda level, number=1: taken.append(-number) or release(level, number))

    await api.get(CONFIGS, user=USER)
    await api.get(f"{CONFIGS}/c1", user=USER)
    assert taken == [2, -2, 1, -1]

    watch = Request(method="GET", path=CONFIGS, query={"watch": ["1"]}, certificate=USER)
    streams = [await api.assembled.server.handle(watch) for _ in range(11)]
    taken.clear()
    await api.post(CONFIGS, {"metadata": {"name": "watched"}}, user=USER)
    assert taken == [2], "it keeps them for a moment"
    await eventually_async(lambda: taken == [2, -2])
    for stream in streams:
        await stream.chunks.aclose()
    taken.clear()
    await api.post(CONFIGS, {"metadata": {"name": "unwatched"}}, user=USER)
    assert taken == [1, -1]
