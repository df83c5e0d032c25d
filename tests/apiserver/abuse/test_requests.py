"""Wrong options, patches, deletions, subresources and reviews, verb by verb: the right code, reason and words."""

import base64
from typing import Any

import msgspec
import pytest

CORE = "/api/v1/namespaces/default"
MAPS = f"{CORE}/configmaps"
PODS = f"{CORE}/pods"
POD = f"{PODS}/there"
SERVICES = f"{CORE}/services"
ACCOUNT = f"{CORE}/serviceaccounts/default"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
DEPLOYMENT = f"{DEPLOYMENTS}/there"
AUTHENTICATION = "/apis/authentication.k8s.io/v1"
AUTHORIZATION = "/apis/authorization.k8s.io/v1"

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


@pytest.fixture
def stocked(house):
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    house.made(MAPS, {"metadata": {"name": "there"}, "data": {"key": "value"}})
    house.made("/api/v1/nodes", {"metadata": {"name": "n1"}})
    house.made(PODS, {"metadata": {"name": "there"}, "spec": template["spec"]})
    house.made(PODS, {"metadata": {"name": "bound"}, "spec": {**template["spec"], "nodeName": "n1"}})
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    house.made(DEPLOYMENTS, {"metadata": {"name": "there"}, "spec": spec})
    return house


def assert_refused(reply, code, reason, *parts):
    assert (reply.status, reply.body["reason"]) == (code, reason), reply.raw[:600]
    for part in parts:
        assert part in reply.message


WRITE_OPTIONS = [
    ({"dryRun": "Some"}, 422, "dryRun: Unsupported value"),
    ({"dryRun": ["All", "Some"]}, 422, "dryRun: Unsupported value"),
    ({"fieldManager": "x" * 129}, 422, "fieldManager: Too long"),
    ({"fieldManager": "\u00e9" * 65}, 422, "fieldManager: Too long"),
    ({"fieldManager": "a\nb"}, 422, "printable"),
    ({"fieldValidation": "Maybe"}, 422, "fieldValidation: Unsupported value"),
]


@pytest.mark.parametrize(("query", "code", "part"), WRITE_OPTIONS, ids=lambda each: str(each)[:30])
@pytest.mark.parametrize(
    ("method", "path", "body", "media"),
    [
        pytest.param("POST", MAPS, {"metadata": {"name": "b"}}, "application/json", id="create"),
        pytest.param("PUT", f"{MAPS}/there", {"metadata": {"name": "there"}}, "application/json", id="update"),
        pytest.param("PATCH", f"{MAPS}/there", {"data": {"a": "b"}}, MERGE_PATCH, id="patch"),
        pytest.param("POST", f"{POD}/binding", {"target": {"name": "n1"}}, "application/json", id="binding"),
        pytest.param("POST", f"{POD}/eviction", {}, "application/json", id="eviction"),
        pytest.param("PUT", f"{DEPLOYMENT}/scale", {"spec": {"replicas": 3}}, "application/json", id="scale"),
        pytest.param("POST", f"{ACCOUNT}/token", {}, "application/json", id="token"),
        pytest.param("POST", f"{AUTHENTICATION}/selfsubjectreviews", {}, "application/json", id="review"),
    ],
)
def test_wrong_options_of_a_write_are_invalid(stocked, method, path, body, media, query, code, part):
    assert_refused(stocked.refused(method, path, body, media=media, query=query), code, "Invalid", part)


DRY_RUNS = [
    pytest.param("POST", MAPS, {"metadata": {"name": "b"}}, 201, id="create"),
    pytest.param("POST", SERVICES, {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 1}]}}, 201, id="service"),
    pytest.param("PUT", f"{MAPS}/there", {"metadata": {"name": "there"}}, 200, id="update"),
    pytest.param("PATCH", f"{MAPS}/there", {"data": {"a": "b"}}, 200, id="patch"),
    pytest.param("DELETE", f"{MAPS}/there", None, 200, id="delete"),
    pytest.param("DELETE", MAPS, None, 200, id="delete all"),
    pytest.param("DELETE", f"{PODS}/bound", None, 200, id="delete with grace"),
    pytest.param("POST", f"{POD}/binding", {"target": {"name": "n1"}}, 201, id="binding"),
    pytest.param("POST", f"{POD}/eviction", {}, 201, id="eviction"),
    pytest.param("PATCH", f"{DEPLOYMENT}/scale", {"spec": {"replicas": 3}}, 200, id="scale"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "body", "code"), DRY_RUNS)
def test_a_dry_run_stores_nothing_and_spends_no_revision(stocked, method, path, body, code):
    before = stocked.state()
    media = MERGE_PATCH if method == "PATCH" else "application/json"
    assert stocked.ask(method, path, body, media=media, query={"dryRun": "All"}).status == code
    assert stocked.state() == before


PATCHES = [
    (JSON_PATCH, b"", 400, "empty"),
    (JSON_PATCH, b"{}", 400, "must be a list"),
    (JSON_PATCH, b"null", 400, "must be a list"),
    (JSON_PATCH, b"[1]", 400, "operation 0: must be an object"),
    (JSON_PATCH, b'[{"op":"spoil","path":"/data"}]', 422, "op must be one of"),
    (JSON_PATCH, b'[{"op":["add"],"path":"/data"}]', 422, "op must be one of"),
    (JSON_PATCH, b'[{"op":"add","path":"/data/a"}]', 400, "add needs a value"),
    (JSON_PATCH, b'[{"op":"add","path":"data","value":1}]', 400, "path must be a JSON pointer"),
    (JSON_PATCH, b'[{"op":"add","path":"/data/~2","value":1}]', 400, "path must be a JSON pointer"),
    (JSON_PATCH, b'[{"op":"move","path":"/data/a"}]', 400, "from must be a JSON pointer"),
    (JSON_PATCH, b'[{"op":"move","from":"/metadata","path":"/metadata/labels"}]', 422, "into itself"),
    (JSON_PATCH, b'[{"op":"remove","path":""}]', 422, "whole object"),
    (JSON_PATCH, b'[{"op":"remove","path":"/data/absent"}]', 422, "/data/absent"),
    (JSON_PATCH, b'[{"op":"add","path":"/data/a/b","value":1}]', 422, "/data/a/b"),
    (JSON_PATCH, b'[{"op":"test","path":"/data/key","value":"other"}]', 422, "test failed"),
    (JSON_PATCH, b'[{"op":"replace","path":"","value":7}]', 400, "JSON object"),
    (JSON_PATCH, b'[{"op":"replace","path":"/data","value":[]}]', 400, "ConfigMap.data"),
    (JSON_PATCH, b'[{"op":"replace","path":"/kind","value":"Pod"}]', 400, "kind"),
    (JSON_PATCH, b'[{"op":"replace","path":"/metadata/name","value":"b"}]', 400, "does not match"),
    (JSON_PATCH, b'[{"op":"remove","path":"/metadata"}]', 400, "name must be provided"),
    (JSON_PATCH, b'[{"op":"replace","path":"/metadata/resourceVersion","value":"1"}]', 409, "modified"),
    (MERGE_PATCH, b"", 400, "empty"),
    (MERGE_PATCH, b"[]", 400, ""),
    (MERGE_PATCH, b"null", 400, ""),
    (MERGE_PATCH, b'{"metadata":null}', 400, "name must be provided"),
    (MERGE_PATCH, b'{"metadata":[]}', 400, "ConfigMap.metadata"),
    (MERGE_PATCH, b'{"metadata":{"name":"b"}}', 400, "does not match"),
    (MERGE_PATCH, b'{"metadata":{"namespace":"b"}}', 400, "namespace"),
    (MERGE_PATCH, b'{"metadata":{"resourceVersion":"1"}}', 409, "modified"),
    (MERGE_PATCH, b'{"metadata":{"labels":{"a b":"c"}}}', 422, "metadata.labels"),
    (MERGE_PATCH, b'{"data":{"key":1}}', 400, "ConfigMap.data"),
    (STRATEGIC, b"[]", 400, "must be an object"),
    (STRATEGIC, b'{"$patch":"spoil"}', 400, "unknown patch type"),
    (STRATEGIC, b'{"data":{"$retainKeys":1}}', 400, "retainKeys"),
    (STRATEGIC, b'{"metadata":{"$setElementOrder/finalizers":1}}', 400, "setElementOrder"),
    (STRATEGIC, b'{"metadata":{"ownerReferences":[{}]}}', 422, "ownerReferences.uid"),
    (STRATEGIC, b'{"metadata":{"ownerReferences":[1]}}', 400, "metadata.ownerReferences"),
    ("application/json", b"{}", 415, "accepted media types"),
    ("application/apply-patch+yaml", b"{}", 422, "fieldManager: Required value: is required for apply patch"),
    ("text/plain", b"{}", 415, "accepted media types"),
]
REASONS = {
    400: "BadRequest",
    409: "Conflict",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
}


@pytest.mark.parametrize(("media", "body", "code", "part"), PATCHES, ids=lambda each: str(each)[:60])
def test_an_invalid_patch_is_refused_with_the_reason(stocked, media, body, code, part):
    assert_refused(stocked.refused("PATCH", f"{MAPS}/there", body, media=media), code, REASONS[code], part)


DELETIONS = [
    ({}, b"[]", 400, "DeleteOptions"),
    ({}, b"null", 400, "DeleteOptions"),
    ({}, b'{"kind":"Pod","apiVersion":"v1"}', 400, "expected DeleteOptions, got Pod"),
    ({}, b'{"apiVersion":"nope/v1"}', 400, "expected DeleteOptions"),
    ({}, b'{"gracePeriodSeconds":"5"}', 400, "gracePeriodSeconds"),
    ({}, b'{"gracePeriodSeconds":1.5}', 400, "gracePeriodSeconds"),
    ({}, b'{"propagationPolicy":"Sideways"}', 422, "propagationPolicy: Unsupported value"),
    ({}, b'{"orphanDependents":true,"propagationPolicy":"Orphan"}', 422, "cannot be both set"),
    ({}, b'{"dryRun":["Some"]}', 422, "dryRun: Unsupported value"),
    ({}, b'{"preconditions":{"uid":"x"}}', 409, "UID in"),
    ({}, b'{"preconditions":{"resourceVersion":"1"}}', 409, "ResourceVersion in"),
    ({"gracePeriodSeconds": "soon"}, b"", 400, "gracePeriodSeconds"),
    ({"gracePeriodSeconds": "1_0"}, b"", 400, "gracePeriodSeconds"),
    ({"gracePeriodSeconds": "\u0663"}, b"", 400, "gracePeriodSeconds"),
    ({"gracePeriodSeconds": "9" * 5000}, b"", 400, "gracePeriodSeconds"),
    ({"orphanDependents": "perhaps"}, b"", 400, "orphanDependents"),
    ({"propagationPolicy": "Sideways"}, b"", 422, "propagationPolicy"),
]


@pytest.mark.parametrize(("query", "body", "code", "part"), DELETIONS, ids=lambda each: str(each)[:50])
@pytest.mark.parametrize("path", [f"{MAPS}/there", f"{PODS}/bound"])
def test_an_invalid_deletion_is_refused_with_the_reason(stocked, path, query, body, code, part):
    assert_refused(stocked.refused("DELETE", path, body, query=query), code, REASONS[code], part)


@pytest.mark.parametrize("seconds", [2**63 - 1, 253402300799, -(2**63), -1])
def test_a_grace_period_beyond_all_time_is_still_a_date(stocked, seconds):
    reply = stocked.ask("DELETE", f"{PODS}/bound", {"gracePeriodSeconds": seconds})
    assert reply.status == 200
    assert len(reply.body["metadata"]["deletionTimestamp"]) == len("2026-01-01T00:00:00Z")
    assert stocked.ask("DELETE", f"{PODS}/bound", {"gracePeriodSeconds": 5}).status == 200


LISTS = [
    ({"limit": "many"}, 400),
    ({"limit": "-1"}, 400),
    ({"limit": "1.0"}, 400),
    ({"limit": "9" * 25}, 400),
    ({"timeoutSeconds": "soon"}, 400),
    ({"timeoutSeconds": "9" * 400}, 400),
    ({"resourceVersion": "now"}, 400),
    ({"resourceVersion": "-1"}, 400),
    ({"resourceVersion": "\u0663"}, 400),
    ({"resourceVersion": "9" * 19}, 400),
    ({"resourceVersion": "9" * 30}, 400),
    ({"resourceVersionMatch": "Exact"}, 422),
    ({"resourceVersionMatch": "Nearly", "resourceVersion": "1"}, 422),
    ({"resourceVersionMatch": "Exact", "resourceVersion": "0"}, 422),
    ({"resourceVersionMatch": "Exact", "resourceVersion": str(2**63 - 1)}, 504),
    ({"labelSelector": "a in"}, 400),
    ({"labelSelector": "a=b=c"}, 400),
    ({"labelSelector": ",,"}, 400),
    ({"labelSelector": "\x00"}, 400),
    ({"fieldSelector": "data.key=value"}, 400),
    ({"fieldSelector": "metadata.name"}, 400),
    ({"watch": "perhaps"}, 400),
]


@pytest.mark.parametrize(
    ("method", "query", "code"),
    [(method, *list_) for method in ("GET", "DELETE") for list_ in LISTS if method == "GET" or "watch" not in list_[0]],
    ids=lambda each: str(each)[:50],
)
def test_wrong_options_of_a_list_are_refused(stocked, method, query, code):
    assert stocked.refused(method, MAPS, query=query).status == code


WATCHES = [
    ({"resourceVersion": "now"}, 400),
    ({"timeoutSeconds": "soon"}, 400),
    ({"timeoutSeconds": "9" * 400}, 400),
    ({"limit": "many"}, 400),
    ({"sendInitialEvents": "perhaps"}, 422),
    ({"sendInitialEvents": "true"}, 422),
    ({"sendInitialEvents": "true", "resourceVersionMatch": "Exact", "allowWatchBookmarks": "1"}, 422),
    ({"resourceVersionMatch": "NotOlderThan"}, 422),
    ({"labelSelector": "("}, 400),
    ({"fieldSelector": "x=y"}, 400),
]


@pytest.mark.parametrize(("query", "code"), WATCHES, ids=lambda each: str(each)[:50])
def test_wrong_options_of_a_watch_are_refused_before_it_begins(stocked, query, code):
    assert stocked.refused("GET", MAPS, query={"watch": "1", **query}).status == code


def sealed(**token: Any) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).decode().rstrip("=")


TOKENS = [
    pytest.param("nonsense", id="nonsense"),
    pytest.param("!!!!", id="no base64"),
    pytest.param("\u00e9", id="no ASCII"),
    pytest.param("x" * 60_000, id="long"),
    pytest.param(sealed(), id="empty"),
    pytest.param(sealed(v="meta.k8s.io/v1", rv=5), id="no key"),
    pytest.param(sealed(v="meta.k8s.io/v1", rv=5, start=""), id="an empty key"),
    pytest.param(sealed(v="meta.k8s.io/v2", rv=5, start="a\0"), id="another version"),
    pytest.param(sealed(v="meta.k8s.io/v1", rv=0, start="a\0"), id="revision 0"),
    pytest.param(sealed(v="meta.k8s.io/v1", rv=-7, start="a\0"), id="a negative revision"),
    pytest.param(sealed(v="meta.k8s.io/v1", rv="5", start="a\0"), id="a text for a revision"),
    pytest.param(sealed(v="meta.k8s.io/v1", rv=2**70, start="a\0"), id="a revision beyond all"),
    pytest.param(sealed(v="meta.k8s.io/v1", rv=5, start="../../secrets/\0"), id="dots"),
    pytest.param(sealed(v="meta.k8s.io/v1", rv=5, start="a/../../secrets/x\0"), id="dots inside"),
    pytest.param(sealed(v="meta.k8s.io/v1", rv=5, start="/a\0"), id="a leading slash"),
    pytest.param(sealed(v="meta.k8s.io/v1", rv=5, start="a/b/c\0"), id="too deep"),
]


@pytest.mark.parametrize("token", TOKENS)
def test_a_forged_continue_token_is_a_bad_request(stocked, token):
    assert_refused(
        stocked.refused("GET", MAPS, query={"limit": "1", "continue": token}), 400, "BadRequest", "continue key"
    )


def test_a_continue_token_of_another_place_shows_nothing_of_that_place(stocked):
    for name in "abc":
        stocked.made(f"{CORE}/secrets", {"metadata": {"name": name}, "stringData": {"k": "canary"}})
        stocked.made("/api/v1/namespaces", {"metadata": {"name": f"ns-{name}"}})
    token = stocked.ask("GET", f"{CORE}/secrets", query={"limit": "1"}).body["metadata"]["continue"]
    everywhere = stocked.ask("GET", "/api/v1/secrets", query={"limit": "1"}).body["metadata"]["continue"]
    for path in (MAPS, "/api/v1/namespaces/ns-a/secrets", "/api/v1/nodes", "/api/v1/namespaces"):
        for item in (token, everywhere):
            reply = stocked.ask("GET", path, query={"limit": "5", "continue": item})
            assert b"canary" not in reply.raw
            assert reply.status in (200, 400)


BINDINGS = [
    ({}, 422, "target.name: Required value"),
    ({"target": {"kind": "Pod", "name": "n1"}}, 422, "target.kind"),
    ({"target": {"name": "../n1"}}, 422, "target.name: Invalid value"),
    ({"target": []}, 400, "Binding.target"),
    ({"metadata": {"name": "other"}, "target": {"name": "n1"}}, 400, "does not match"),
    ({"metadata": {"namespace": "other"}, "target": {"name": "n1"}}, 400, "namespace"),
    ({"metadata": {"uid": "x"}, "target": {"name": "n1"}}, 409, "UID in"),
    ({"metadata": {"labels": {"a b": ""}}, "target": {"name": "n1"}}, 422, "metadata.labels"),
    ({"metadata": {"annotations": {"a b": ""}}, "target": {"name": "n1"}}, 422, "metadata.annotations"),
    ({"kind": "Pod", "target": {"name": "n1"}}, 400, "kind"),
]


@pytest.mark.parametrize(("body", "code", "part"), BINDINGS, ids=lambda each: str(each)[:50])
def test_a_wrong_binding_is_refused(stocked, body, code, part):
    assert_refused(stocked.refused("POST", f"{POD}/binding", body), code, REASONS[code], part)


EVICTIONS = [
    ({"metadata": {"name": "other"}}, 400, "does not match"),
    ({"metadata": {"namespace": "other"}}, 400, "namespace"),
    ({"apiVersion": "policy/v9"}, 400, "policy/v9"),
    ({"deleteOptions": {"propagationPolicy": "Sideways"}}, 422, "propagationPolicy"),
    ({"deleteOptions": {"dryRun": ["Some"]}}, 422, "dryRun"),
    ({"deleteOptions": {"preconditions": {"uid": "x"}}}, 409, "UID in"),
]


@pytest.mark.parametrize(("body", "code", "part"), EVICTIONS, ids=lambda each: str(each)[:50])
def test_a_wrong_eviction_is_refused_and_costs_no_budget(stocked, body, code, part):
    spec = {"minAvailable": 0, "selector": {"matchLabels": {"a": "b"}}}
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    made = stocked.made(budgets, {"metadata": {"name": "budget"}, "spec": spec})
    status = {
        "disruptionsAllowed": 1,
        "observedGeneration": 1,
        "currentHealthy": 1,
        "desiredHealthy": 0,
        "expectedPods": 1,
    }
    assert stocked.ask("PUT", f"{budgets}/budget/status", {**made, "status": status}).status == 200
    labels = {"metadata": {"labels": {"a": "b"}}, "status": {"phase": "Running"}}
    assert stocked.ask("PATCH", f"{POD}/status", labels, media=MERGE_PATCH).status == 200
    assert_refused(stocked.refused("POST", f"{POD}/eviction", body), code, REASONS[code], part)


def test_a_budget_with_a_selector_that_cannot_be_read_is_not_stored(stocked):
    wrong = {"matchExpressions": [{"key": "a", "operator": "Resembles"}]}
    body = {"metadata": {"name": "b"}, "spec": {"selector": wrong}}
    reply = stocked.refused("POST", "/apis/policy/v1/namespaces/default/poddisruptionbudgets", body)
    assert_refused(reply, 422, "Invalid", "spec.selector.matchExpressions[0].operator")


SUBRESOURCES = [
    ("PUT", f"{DEPLOYMENT}/scale", {"metadata": {"name": "there"}, "spec": {"replicas": -1}}, 422),
    ("PUT", f"{DEPLOYMENT}/scale", {"metadata": {"name": "there"}, "spec": {"replicas": 2**31}}, 400),
    ("PUT", f"{DEPLOYMENT}/scale", {"metadata": {"name": "there"}, "spec": {"replicas": "3"}}, 400),
    ("PUT", f"{DEPLOYMENT}/scale", {"kind": "Pod", "metadata": {"name": "there"}}, 400),
    ("POST", f"{DEPLOYMENT}/scale", {}, 405),
    ("DELETE", f"{DEPLOYMENT}/scale", None, 405),
    ("GET", f"{POD}/scale", None, 404),
    ("GET", f"{POD}/nonsense", None, 404),
    ("GET", f"{POD}/log", None, 400),
    ("GET", f"{PODS}/absent/log", None, 404),
    ("GET", f"{PODS}/bound/log", None, 503),
    ("POST", f"{PODS}/bound/exec", None, 400),
    ("GET", "/api/v1/nodes/n1/proxy/../../secrets", None, 400),
    ("GET", "/api/v1/nodes/absent/proxy/x", None, 404),
    ("PUT", f"{POD}/status", {"metadata": {"name": "other"}}, 400),
    ("PUT", f"{POD}/status", {"metadata": {"name": "there"}, "status": []}, 400),
    ("PUT", f"{POD}/ephemeralcontainers", {"metadata": {"name": "there"}, "spec": {"ephemeralContainers": [{}]}}, 422),
    ("PUT", f"{POD}/binding", {}, 405),
    ("PUT", "/api/v1/namespaces/default/finalize", {}, 400),
    ("PATCH", "/api/v1/namespaces/default/finalize", {}, 405),
    ("DELETE", "/api/v1/namespaces/default", None, 403),
    ("DELETE", "/api/v1/namespaces", None, 405),
    ("POST", "/api/v1/pods", {}, 405),
    ("POST", f"{POD}", {}, 405),
    ("PUT", PODS, {}, 405),
    ("PATCH", PODS, {}, 405),
]


@pytest.mark.parametrize(("method", "path", "body", "code"), SUBRESOURCES, ids=lambda each: str(each)[-40:])
def test_a_missing_or_unsuitable_subresource_is_refused(stocked, method, path, body, code):
    assert stocked.refused(method, path, body).status == code


REVIEWS = [
    (f"{AUTHENTICATION}/tokenreviews", {}, (400, 422)),
    (f"{AUTHENTICATION}/tokenreviews", {"spec": {"token": 7}}, (400,)),
    (f"{AUTHENTICATION}/tokenreviews", {"spec": {"token": "x", "audiences": "y"}}, (400,)),
    (f"{AUTHORIZATION}/subjectaccessreviews", {}, (400, 422)),
    (f"{AUTHORIZATION}/subjectaccessreviews", {"spec": {"user": "x"}}, (400, 422)),
    (f"{AUTHORIZATION}/subjectaccessreviews", {"spec": {"resourceAttributes": {}}}, (400, 422)),
    (f"{AUTHORIZATION}/selfsubjectaccessreviews", {"spec": {"resourceAttributes": []}}, (400,)),
    (f"{AUTHORIZATION}/selfsubjectaccessreviews", [], (400,)),
    (f"{AUTHORIZATION}/localsubjectaccessreviews", {"spec": {"user": "x", "resourceAttributes": {}}}, (404, 405)),
    (
        f"{AUTHORIZATION}/namespaces/default/localsubjectaccessreviews",
        {"spec": {"user": "x", "resourceAttributes": {"namespace": "other"}}},
        (400, 422),
    ),
    (f"{ACCOUNT}/token", {"spec": {"expirationSeconds": 1}}, (422,)),
    (f"{ACCOUNT}/token", {"spec": {"expirationSeconds": 2**63 - 1}}, (422,)),
    (f"{ACCOUNT}/token", {"spec": {"audiences": ["x" * 20_000]}}, (422,)),
    (f"{ACCOUNT}/token", {"spec": {"audiences": ["x"] * 40_000}}, (422,)),
    (f"{ACCOUNT}/token", {"spec": {"boundObjectRef": {}}}, (400, 422)),
    (f"{ACCOUNT}/token", {"spec": {"boundObjectRef": {"kind": "Secret"}}}, (400, 422)),
    (f"{ACCOUNT}/token", {"spec": {"boundObjectRef": {"kind": "Pod", "name": "../x"}}}, (404, 422)),
    (f"{ACCOUNT}/token", {"metadata": {"name": "other"}}, (400, 422)),
    (f"{CORE}/serviceaccounts/absent/token", {}, (404,)),
]


@pytest.mark.parametrize(("path", "body", "codes"), REVIEWS, ids=lambda each: str(each)[-50:])
def test_a_wrong_review_or_token_request_is_refused(stocked, path, body, codes):
    assert stocked.refused("POST", path, body).status in codes


@pytest.mark.parametrize("token", ["x", "a.b.c", "\u00e9", "\x00", "x" * 1_000_000, "eyJhbGciOiJub25lIn0.e30."])
def test_a_review_of_a_bad_token_reports_it(stocked, token):
    reply = stocked.ask("POST", f"{AUTHENTICATION}/tokenreviews", {"spec": {"token": token}})
    assert (reply.status, reply.body["status"].get("authenticated", False)) == (201, False)


ACCEPTED = [
    ("text/html", 406),
    ("application/vnd.kubernetes.protobuf", 200),
    ("application/json;as=Table;g=meta.k8s.io;v=v9", 406),
    ("application/json;as=Nothing;g=meta.k8s.io;v=v1", 406),
    ("*/*;q=0", 406),
    (";" * 60_000, 406),
    ("text/html, */*;q=0.1", 200),
    ("application/json;q=nonsense", 200),
]


@pytest.mark.parametrize(("accept", "code"), ACCEPTED, ids=lambda each: str(each)[:50])
def test_an_unsupported_response_form_is_not_acceptable(stocked, accept, code):
    assert stocked.ask("GET", MAPS, accept=accept).status == code


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "TRACE", "CONNECT", "get", "Get", "", "X" * 1000])
def test_other_methods_are_not_allowed(stocked, method):
    assert_refused(stocked.refused(method, MAPS), 405, "MethodNotAllowed")
