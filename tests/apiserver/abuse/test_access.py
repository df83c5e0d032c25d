"""Authorization of everything that is served; and invalid credentials."""

import base64
import hashlib
import hmac
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives import serialization

from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.server_side import Certificate

METHODS = {"create": "POST", "delete": "DELETE", "deletecollection": "DELETE", "get": "GET", "list": "GET",
           "patch": "PATCH", "update": "PUT", "watch": "GET"}  # fmt: skip
SELF_REVIEWS = ("selfsubjectreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews")
UNNAMED = ("create", "deletecollection", "list", "watch")


def requests_of(kind: Kind, namespace: str) -> Iterator[tuple[str, str, str, str]]:
    """Verb, subresource, path: all that can be done with a kind."""
    for verb in kind.verbs:
        name = "" if verb in UNNAMED else "thing"
        yield verb, "", METHODS[verb], kind.target(namespace, name).path()
    for subresource in kind.subresources:
        for verb in subresource.verbs:
            yield verb, subresource.name, METHODS[verb], kind.target(namespace, "thing", subresource.name).path()


def everything(namespace: str) -> Iterator[tuple[Kind, str, str, str, str]]:
    for kind in BUILTIN.all:
        for request in requests_of(kind, namespace):
            yield kind, *request


@pytest.fixture
def served(house):
    for name in ("team", "other"):
        house.made("/api/v1/namespaces", {"metadata": {"name": name}})
        for account in ("default", "worker"):
            house.made(f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": account}})
    return house


def token(house: Any, namespace: str = "team", **wanted: Any) -> str:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/worker/token"
    return str(house.made(path, {"spec": wanted})["status"]["token"])


def codes(house: Any, **who: Any) -> dict[tuple[str, str, str, str], int]:
    """Status codes of all paths for one user."""
    found = {}
    for kind, verb, part, method, path in everything("team"):
        query = {"watch": "1", "resourceVersion": "x"} if verb == "watch" else {}
        media = "application/merge-patch+json" if verb == "patch" else "application/json"
        body = {} if method in ("PUT", "POST", "PATCH") else None
        found[kind.group, kind.resource, part, verb] = house.ask(
            method, path, body, query=query, media=media, **who
        ).status
    return found


def bearer(text: str) -> dict[str, Any]:
    return {"user": None, "authorization": f"Bearer {text}"}


def test_an_anonymous_user_may_only_read_health(served):
    assert set(codes(served, user=None).values()) == {403}
    for path, code in (("/healthz", 200), ("/livez", 200), ("/readyz", 200), ("/version", 200), ("/api", 403),
                       ("/apis", 403), ("/openapi/v2", 403), ("/", 403), ("/metrics", 403), ("/logs", 403),
                       ("/debug/pprof", 403), ("/openid/v1/jwks", 403), ("/healthz/ping", 403)):  # fmt: skip
        assert served.ask("GET", path, user=None).status == code, path


@pytest.mark.parametrize("namespace", ["team", "other"])
def test_a_service_account_without_a_role_may_only_review_itself(served, namespace):
    for (_group, resource, part, verb), code in codes(served, **bearer(token(served, namespace))).items():
        assert (code not in (401, 403)) is (resource in SELF_REVIEWS), (resource, part, verb, code)


@pytest.mark.parametrize("user", [Certificate("jane", ("devs",)), Certificate("system:kube-proxy")])
def test_a_certificate_without_a_role_reads_no_secret_and_writes_nothing(served, user):
    for (group, resource, part, verb), code in codes(served, user=user).items():
        writes = verb in ("create", "update", "patch", "delete", "deletecollection") and resource not in SELF_REVIEWS
        if (writes and resource != "events") or resource == "secrets":
            assert code == 403, (group, resource, part, verb, code)


def test_a_kubelet_may_not_read_secrets_or_become_an_administrator(served):
    kubelet = Certificate("system:node:n1", ("system:nodes",))
    answers = codes(served, user=kubelet)
    for verb in ("get", "list", "watch", "create", "delete"):
        assert answers["", "secrets", "", verb] == 403, verb
    binding = {
        "metadata": {"name": "mine"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:node:n1"}],
    }
    path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    assert served.refused("POST", path, binding, user=kubelet).status == 403


def test_an_administrator_may_do_everything(served):
    refused = {each: code for each, code in codes(served).items() if code in (401, 403)}
    assert not refused


@pytest.mark.parametrize("who", ["garbage", "expired", "no algorithm", "nobody's"])
def test_bad_credentials_get_401_even_on_public_endpoints(served, who):
    text = {
        "garbage": "garbage",
        "expired": expired(served),
        "no algorithm": forged(served, {"alg": "none"}, b""),
        "nobody's": token(served) + "A",
    }[who]
    assert set(codes(served, **bearer(text)).values()) == {401}
    assert served.ask("GET", "/healthz", **bearer(text)).status == 401


def expired(house: Any) -> str:
    account = house.ask("GET", "/api/v1/namespaces/team/serviceaccounts/worker").body
    return house.assembled.engine.identity.tokens.issue("team", "worker", account["metadata"]["uid"], seconds=-5).token


def forged(house: Any, header: dict[str, Any], key: bytes) -> str:
    """A good token's claims under another header, signed with what an attacker may know."""
    claims = token(house).split(".")[1]
    head = base64.urlsafe_b64encode(msgspec.json.encode(header)).decode().rstrip("=")
    signature = hmac.new(key, f"{head}.{claims}".encode(), hashlib.sha256).digest() if key else b""
    return f"{head}.{claims}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


def public_key(house: Any) -> bytes:
    public = house.assembled.pki.account_key.public_key()
    return public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


HEADERS = [
    {"alg": "none"},
    {"alg": "None", "typ": "JWT"},
    {"alg": "HS256", "typ": "JWT"},
    {"alg": "ES256", "kid": "../../../dev/null"},
    {"alg": "ES256", "kid": "' or 1=1 --"},
    {"alg": "ES256", "jku": "https://example.com/keys"},
    {"alg": "ES256", "jwk": {"kty": "oct", "k": "AAAA"}},
    {"alg": "ES256", "x5u": "file:///etc/passwd"},
    {"alg": "ES256", "crit": ["exp"]},
    {"alg": ["ES256"]},
    {},
]


@pytest.mark.parametrize("header", HEADERS, ids=str)
def test_a_token_with_a_header_of_its_own_is_refused(served, header):
    for key in (b"", public_key(served)):
        reply = served.refused("GET", "/api/v1/namespaces/team/pods", **bearer(forged(served, header, key)))
        assert (reply.status, reply.message) == (401, "Unauthorized")


OFFERED = ["Bearer", "Bearer ", "Bearer  ", "Basic dTpw", "Digest x", "bearer\tx", "Bearer a.b", "Bearer a.b.c.d",
           "Bearer ..", "Bearer \u00e9", "Bearer " + "x" * 1_000_000, "Bearer " + "." * 1_000_000, "Bearer a b c",
           "Negotiate x", "x", "", " ", "Bearer x, Bearer y"]  # fmt: skip


@pytest.mark.parametrize("offered", OFFERED, ids=lambda each: each[:30])
def test_credentials_that_are_none_never_make_an_anonymous_user(served, offered):
    assert served.refused("GET", "/healthz", user=None, authorization=offered).status == 401


def test_a_token_expires_with_its_account_and_its_bound_object(served):
    pods = "/api/v1/namespaces/team/pods"
    spec = {"containers": [{"name": "c", "image": "i"}], "serviceAccountName": "worker"}
    served.made(pods, {"metadata": {"name": "p"}, "spec": spec})
    bound = token(served, boundObjectRef={"kind": "Pod", "name": "p"})
    free = token(served)
    assert served.ask("GET", "/api", **bearer(bound)).status == 200
    served.ask("DELETE", f"{pods}/p", {"gracePeriodSeconds": 0})
    assert served.refused("GET", pods, **bearer(bound)).status == 401
    served.made(pods, {"metadata": {"name": "p"}, "spec": spec})
    assert served.refused("GET", pods, **bearer(bound)).status == 401
    served.ask("DELETE", "/api/v1/namespaces/team/serviceaccounts/worker")
    assert served.refused("GET", pods, **bearer(free)).status == 401
    served.made("/api/v1/namespaces/team/serviceaccounts", {"metadata": {"name": "worker"}})
    assert served.refused("GET", pods, **bearer(free)).status == 401


def test_a_token_for_another_audience_is_refused(served):
    other = token(served, audiences=["https://vault.example.com"])
    assert served.refused("GET", "/api/v1/namespaces/team/pods", **bearer(other)).status == 401


IMPERSONATIONS = [
    pytest.param({"impersonate_group": "system:masters"}, 400, id="a group without a user"),
    pytest.param({"impersonate_uid": "x"}, 400, id="a uid without a user"),
    pytest.param({"impersonate_extra_scopes": "x"}, 400, id="extra without a user"),
    pytest.param({"impersonate_user": ""}, 400, id="an empty user"),
    pytest.param({"impersonate_user": "system:anonymous"}, 403, id="nobody"),
    pytest.param({"impersonate_user": "system:serviceaccount:other:worker"}, 403, id="another namespace's account"),
    pytest.param({"impersonate_user": "system:serviceaccount:team"}, 403, id="half an account"),
    pytest.param({"impersonate_user": "system:serviceaccount:team:a:b"}, 403, id="more than an account"),
    pytest.param({"impersonate_user": "x", "impersonate_group": "system:unauthenticated"}, 403, id="who is not known"),
    pytest.param({"impersonate_user": "system:serviceaccount:team:worker"}, 403, id="this namespace's account"),
    pytest.param({"impersonate_user": "system:kube-scheduler"}, 200, id="a component"),
    pytest.param({"impersonate_user": "x", "impersonate_group": "system:masters"}, 200, id="another administrator"),
]


@pytest.mark.parametrize(("headers", "code"), IMPERSONATIONS)
def test_an_administrator_acts_as_others_with_their_rights(served, headers, code):
    assert served.ask("GET", "/api/v1/namespaces/team/pods", **headers).status == code


@pytest.mark.parametrize("name", ["kubernetes-admin", "system:serviceaccount:other:worker", "system:anonymous", "x"])
@pytest.mark.parametrize("group", ["", "system:masters", "a,system:masters"])
def test_other_users_may_not_impersonate(served, name, group):
    headers = {"impersonate_user": name, **({"impersonate_group": group} if group else {})}
    strangers = [{"user": None}, bearer(token(served)), {"user": Certificate("jane", ("devs",))}]
    for who in strangers:
        reply = served.refused("GET", "/api/v1/namespaces/team/pods", **who, **headers)
        assert (reply.status, "impersonate" in reply.message) == (403, True)


def test_a_certificate_wins_over_a_token_and_an_empty_one_is_none(served):
    pods = "/api/v1/namespaces/team/pods"
    assert served.ask("GET", pods, authorization="Bearer garbage").status == 200
    assert served.refused("GET", pods, user=Certificate("", ("system:masters",))).status == 403


CANARY = "c4n4ry-s3cr3t"


def test_no_secret_and_no_token_ever_reaches_the_log(served):
    issued = token(served)
    hidden = base64.b64encode(CANARY.encode()).decode()
    secrets = "/api/v1/namespaces/team/secrets"
    body = {"metadata": {"name": "s"}, "stringData": {"k": CANARY}, "data": {"d": hidden}}
    served.made(secrets, body)
    for wrong in ({**body, "kind": CANARY}, {**body, "data": CANARY}, {**body, "metadata": {"name": CANARY.upper()}}):
        served.ask("POST", secrets, wrong)
    served.ask("POST", secrets, msgspec.json.encode(body)[:-5])
    served.ask("PATCH", f"{secrets}/s", {"data": {"d": CANARY}}, media="application/merge-patch+json")
    served.ask("GET", f"{secrets}/s", **bearer(CANARY))
    served.ask("GET", f"{secrets}/s", **bearer(issued))
    served.ask("GET", f"{secrets}/s", **bearer(issued + "x"))
    served.ask("GET", f"{secrets}/s", user=None, authorization=f"Basic {hidden}")
    served.ask("POST", "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": CANARY}})
    served.ask("POST", "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": issued + "x"}})
    served.ask("DELETE", f"{secrets}/s")
    log = "\n".join(served.log.lines)
    assert log
    for secret in (CANARY, hidden, *issued.split(".")[1:]):
        assert secret not in log


def test_a_refusal_repeats_no_credential(served):
    for offered in (CANARY, f"{CANARY}.{CANARY}.{CANARY}"):
        reply = served.refused("GET", "/api/v1/namespaces/team/pods", **bearer(offered))
        assert (reply.message, CANARY.encode() in reply.raw) == ("Unauthorized", False)
