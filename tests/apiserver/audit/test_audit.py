"""Audit records of requests to a whole API server."""

import asyncio

import msgspec
import pytest

from podwire.apiserver.audit.log_file import encoded
from podwire.apiserver.audit.policy import policy_of
from podwire.protocols.k8sapi.server_side import Certificate, Stream
from podwire.store.memory import MemoryStore
from tests.apiserver.support import ADMIN, CONFIGS

USER = Certificate("someone", ("team",))
EVERYTHING = {
    "metadata": {"name": "everything"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "team"}],
}


@pytest.fixture
async def audited(serve):
    """`api, events = await audited(rule, …)`: a server, and what it has recorded, decoded."""

    async def start(*rules, store=None, **policy):
        records = []
        document = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", **policy, "rules": list(rules)}
        api = await serve(store, audit=policy_of(document), audit_sink=records.append)
        await api.made("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", EVERYTHING)
        await asyncio.sleep(0.01)
        records.clear()

        def events():
            lines = [encoded(record) for record in records]
            records.clear()
            return [msgspec.json.decode(line) for line in lines]

        return api, events

    return start


async def test_a_request_is_recorded_when_it_comes_and_when_it_is_answered(audited):
    api, events = await audited({"level": "Metadata"})
    reply = await api.get(f"{CONFIGS}?limit=5&labelSelector=a%3Db", user=USER, headers={"user-agent": "test/1"})
    received, complete = events()
    common = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Metadata",
        "auditID": reply.headers["audit-id"],
        "requestURI": f"{CONFIGS}?limit=5&labelSelector=a%3Db",
        "verb": "list",
        "user": {"username": "someone", "groups": ["team", "system:authenticated"]},
        "userAgent": "test/1",
        "objectRef": {"resource": "configmaps", "namespace": "default", "apiVersion": "v1"},
    }
    times = {"requestReceivedTimestamp": "2027-01-15T08:00:00.000000Z", "stageTimestamp": "2027-01-15T08:00:00.000000Z"}
    reason = complete["annotations"].pop("authorization.k8s.io/reason")
    assert 'RBAC: allowed by ClusterRoleBinding "everything"' in reason
    assert received == {**common, **times, "stage": "RequestReceived"}
    assert complete == {
        **common,
        **times,
        "stage": "ResponseComplete",
        "responseStatus": {"metadata": {}, "code": 200},
        "annotations": {"authorization.k8s.io/decision": "allow"},
    }


@pytest.mark.parametrize(
    ("level", "request_recorded", "response_recorded"),
    [("Metadata", False, False), ("Request", True, False), ("RequestResponse", True, True)],
)
async def test_levels_say_how_much_of_a_request_is_recorded(
    audited, config, level, request_recorded, response_recorded
):
    api, events = await audited({"level": level}, omitStages=["RequestReceived"])
    await api.post(CONFIGS, config("a"), user=USER)
    [event] = events()
    assert ("requestObject" in event, "responseObject" in event) == (request_recorded, response_recorded)
    assert event["objectRef"]["name"] == "a"
    assert event["objectRef"]["uid"]
    assert event.get("requestObject", config("a"))["metadata"]["name"] == "a"
    assert event.get("responseObject", {"metadata": event["objectRef"]})["metadata"]["uid"] == event["objectRef"]["uid"]


async def test_nothing_is_recorded_at_level_none(audited):
    api, events = await audited({"level": "None", "users": ["someone"]}, {"level": "Metadata"})
    reply = await api.get(CONFIGS, user=USER)
    assert ("audit-id" in reply.headers, events()) == (False, [])


@pytest.mark.parametrize("omit", [True, False])
async def test_managed_fields_are_left_out_where_the_policy_says_so(audited, omit):
    api, events = await audited({"level": "RequestResponse"}, omitStages=["RequestReceived"], omitManagedFields=omit)
    await api.post(CONFIGS, {"metadata": {"name": "a"}, "data": {"k": "v"}}, user=USER)
    await api.get(CONFIGS, user=USER)
    created, listed = events()
    assert ("managedFields" in created["responseObject"]["metadata"]) is not omit
    assert ("managedFields" in listed["responseObject"]["items"][0]["metadata"]) is not omit


async def test_a_body_in_yaml_is_recorded_as_json_and_an_unreadable_one_is_left_out(audited):
    api, events = await audited({"level": "Request"}, omitStages=["RequestReceived"])
    yaml = {"content-type": "application/yaml"}
    assert (await api.post(CONFIGS, b"metadata:\n  name: from-yaml\n", user=USER, headers=yaml)).status == 201
    assert (await api.post(CONFIGS, b"{", user=USER)).status == 400
    good, bad = events()
    assert good["requestObject"] == {"metadata": {"name": "from-yaml"}}
    assert "requestObject" not in bad
    assert (bad["responseStatus"]["code"], bad["responseStatus"]["reason"]) == (400, "BadRequest")


async def test_a_refused_request_is_recorded_with_the_reason(audited):
    api, events = await audited({"level": "Metadata"}, omitStages=["RequestReceived"])
    assert (await api.get("/api/v1/secrets", user=None)).status == 403
    [event] = events()
    assert event["user"] == {"username": "system:anonymous", "groups": ["system:unauthenticated"]}
    assert event["annotations"]["authorization.k8s.io/decision"] == "forbid"
    assert event["responseStatus"]["status"] == "Failure"
    assert (event["responseStatus"]["reason"], event["responseStatus"]["code"]) == ("Forbidden", 403)
    assert "secrets is forbidden" in event["responseStatus"]["message"]


async def test_a_request_whose_authentication_failed_is_recorded_without_a_user(audited):
    api, events = await audited({"level": "Metadata"})
    reply = await api.get(CONFIGS, user=None, headers={"authorization": "Bearer wrong"})
    received, complete = events()
    assert (reply.status, received["user"], complete["user"], complete["responseStatus"]["code"]) == (401, {}, {}, 401)
    assert complete["objectRef"]["resource"] == "configmaps"


async def test_an_impersonated_user_is_recorded_beside_the_one_who_asked(audited):
    api, events = await audited({"level": "Metadata"}, omitStages=["RequestReceived"])
    await api.get(CONFIGS, user=ADMIN, headers={"impersonate-user": "jane"})
    [event] = events()
    assert event["user"]["username"] == "kubernetes-admin"
    assert event["impersonatedUser"]["username"] == "jane"


async def test_a_watch_is_recorded_when_it_starts_and_when_it_ends(audited):
    api, events = await audited({"level": "Metadata"})
    watching = await api.watch(CONFIGS, user=USER)
    assert [event["stage"] for event in events()] == ["RequestReceived", "ResponseStarted"]
    await watching.close()
    [event] = events()
    assert (event["stage"], event["verb"], event["responseStatus"]["code"]) == ("ResponseComplete", "watch", 200)


async def test_an_internal_error_is_recorded_as_a_panic(audited):
    class Broken(MemoryStore):
        broken = False

        async def get(self, key):
            if self.broken:
                raise ZeroDivisionError
            return await super().get(key)

    store = Broken()
    api, events = await audited({"level": "Metadata"}, store=store, omitStages=["RequestReceived"])
    store.broken = True
    assert (await api.get(f"{CONFIGS}/a", user=USER)).status == 500
    store.broken = False
    assert [(event["stage"], event["responseStatus"]["code"]) for event in events()] == [("Panic", 500)]


async def test_paths_that_are_not_resources_are_recorded_too(audited):
    api, events = await audited({"level": "None", "nonResourceURLs": ["/healthz*"]}, {"level": "Metadata"})
    await api.get("/healthz", user=USER)
    assert events() == []
    await api.get("/version", user=USER)
    event = events()[-1]
    assert (event["verb"], event["requestURI"], "objectRef" in event) == ("get", "/version", False)


async def test_a_client_may_choose_the_id_of_its_events(audited):
    api, events = await audited({"level": "Metadata"})
    reply = await api.get(CONFIGS, user=USER, headers={"audit-id": "my-id"})
    assert (reply.headers["audit-id"], {event["auditID"] for event in events()}) == ("my-id", {"my-id"})


async def test_annotations_of_admission_are_part_of_the_event(audited, pod):
    api, events = await audited({"level": "Metadata"}, omitStages=["RequestReceived"])
    label = "pod-security.kubernetes.io/audit"
    await api.patch("/api/v1/namespaces/default", {"metadata": {"labels": {label: "baseline"}}})
    events()

    await api.made("/api/v1/namespaces/default/pods", pod(hostPID=True))

    [event] = events()
    assert event["annotations"]["pod-security.kubernetes.io/audit-violations"] == (
        'would violate PodSecurity "baseline:latest": host namespaces (hostPID=true)'
    )


@pytest.mark.parametrize("level", ["Metadata", "RequestResponse"])
async def test_a_list_that_is_sent_in_chunks_is_recorded_when_it_has_ended(audited, config, level):
    api, events = await audited({"level": level})
    for number in range(110):
        await api.made(CONFIGS, config(f"c{number}", x="y" * 20_000))
    events()

    answer = await api.ask("GET", CONFIGS)
    assert isinstance(answer, Stream)
    assert [event["stage"] for event in events()] == ["RequestReceived"]
    body = b"".join([chunk async for chunk in answer.chunks])
    await answer.chunks.aclose()

    [complete] = events()
    assert (complete["stage"], complete["responseStatus"]["code"]) == ("ResponseComplete", 200)
    assert complete.get("responseObject") == (msgspec.json.decode(body) if level == "RequestResponse" else None)


async def test_a_list_that_its_client_leaves_is_recorded_once(audited, config):
    api, events = await audited({"level": "Metadata"})
    for number in range(110):
        await api.made(CONFIGS, config(f"c{number}", x="y" * 20_000))
    events()

    answer = await api.ask("GET", CONFIGS)
    await anext(answer.chunks)
    await answer.chunks.aclose()

    assert [(event["stage"], event.get("responseStatus", {}).get("code")) for event in events()] == [
        ("RequestReceived", None),
        ("ResponseComplete", 200),
    ]
