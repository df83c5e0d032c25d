"""Kinds that are asked, not stored: who am I, may I, whose token is this; and tokens for service accounts."""

import base64

import msgspec
import pytest

from podwire.protocols.k8sapi.server_side import Certificate
from tests.apiserver.support import TABLE

AUTHENTICATION = "/apis/authentication.k8s.io/v1"
AUTHORIZATION = "/apis/authorization.k8s.io/v1"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
TOKEN = f"{ACCOUNTS}/default/token"
PODS = "/api/v1/namespaces/default/pods"
SECRETS = "/api/v1/namespaces/default/secrets"
NODES = "/api/v1/nodes"

ANONYMOUS_USER = "system:anonymous"
MAY_DELETE_NODES = {"resourceAttributes": {"verb": "delete", "resource": "nodes"}}


def claims(token):
    part = token.split(".")[1]
    return msgspec.json.decode(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def bearer(issued):
    return {"authorization": f"Bearer {issued['status']['token']}"}


async def whoami(api, **rest):
    return await api.post(f"{AUTHENTICATION}/selfsubjectreviews", {}, **rest)


# --- who am I ---------------------------------------------------------------------------------------------------------


async def test_a_self_subject_review_returns_the_certificates_user(api):
    reply = await whoami(api, user=Certificate("jane", ("devs",)))

    assert reply.status == 201
    assert reply.body["kind"] == "SelfSubjectReview"
    assert reply.body["status"]["userInfo"] == {"username": "jane", "groups": ["devs", "system:authenticated"]}


async def test_a_self_subject_review_returns_a_service_accounts_groups_and_token(api):
    issued = await api.made(TOKEN, {"spec": {}})

    info = (await whoami(api, user=None, headers=bearer(issued))).body["status"]["userInfo"]

    assert info["username"] == "system:serviceaccount:default:default"
    assert {"system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"} <= {*info["groups"]}
    assert info["uid"] == (await api.get(f"{ACCOUNTS}/default")).body["metadata"]["uid"]
    assert info["extra"]["authentication.kubernetes.io/credential-id"][0].startswith("JTI=")


async def test_nothing_asked_is_stored(api):
    revision = api.store.revision

    await whoami(api)
    await api.post(f"{AUTHORIZATION}/selfsubjectaccessreviews", {"spec": MAY_DELETE_NODES})
    await api.made(TOKEN, {"spec": {}})

    assert api.store.revision == revision


# --- may I, may they --------------------------------------------------------------------------------------------------


async def test_a_self_access_review_has_a_reason(api):
    reply = await api.post(f"{AUTHORIZATION}/selfsubjectaccessreviews", {"spec": MAY_DELETE_NODES})

    assert reply.status == 201
    assert reply.body["status"]["allowed"] is True
    assert reply.body["status"]["reason"]
    assert reply.body["spec"] == MAY_DELETE_NODES


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [
        pytest.param({"user": ANONYMOUS_USER, **MAY_DELETE_NODES}, False, id="anybody"),
        pytest.param({"user": "jane", "groups": ["system:masters"], **MAY_DELETE_NODES}, True, id="a master"),
        pytest.param(
            {"user": ANONYMOUS_USER, "groups": ["system:unauthenticated"],
             "nonResourceAttributes": {"verb": "get", "path": "/healthz"}}, True, id="health"
        ),
        pytest.param(
            {"user": ANONYMOUS_USER, "nonResourceAttributes": {"verb": "get", "path": "/api"}}, False, id="discovery"
        ),
        pytest.param(
            {"user": "system:serviceaccount:team:bot",
             "resourceAttributes": {"verb": "list", "resource": "pods", "namespace": "team"}},
            False,
            id="an account at home without a role",
        ),
        pytest.param(
            {"user": "system:serviceaccount:team:bot",
             "resourceAttributes": {"verb": "list", "resource": "pods", "namespace": "other"}},
            False,
            id="an account elsewhere",
        ),
    ],
)  # fmt: skip
async def test_an_access_review_matches_the_authorizer(api, spec, allowed):
    reply = await api.post(f"{AUTHORIZATION}/subjectaccessreviews", {"spec": spec})

    assert reply.body["status"]["allowed"] is allowed


async def test_a_local_review_is_of_its_namespace(api):
    url = f"{AUTHORIZATION}/namespaces/default/localsubjectaccessreviews"
    asked = {"verb": "get", "resource": "pods", "namespace": "default"}

    inside = await api.post(url, {"spec": {"user": "jane", "resourceAttributes": asked}})
    outside = await api.post(url, {"spec": {"user": "jane", "resourceAttributes": {**asked, "namespace": "other"}}})
    path = await api.post(url, {"spec": {"user": "jane", "nonResourceAttributes": {"verb": "get", "path": "/"}}})

    assert inside.status == 201
    assert outside.status == 422
    assert "must match metadata.namespace" in outside.message
    assert path.status == 422


@pytest.mark.parametrize(
    ("kind", "spec", "field"),
    [
        pytest.param("selfsubjectaccessreviews", {}, "spec", id="nothing"),
        pytest.param(
            "selfsubjectaccessreviews",
            {**MAY_DELETE_NODES, "nonResourceAttributes": {"verb": "get", "path": "/"}},
            "spec",
            id="both",
        ),
        pytest.param("subjectaccessreviews", MAY_DELETE_NODES, "spec.user", id="nobody"),
    ],
)
async def test_a_review_of_nothing_in_particular_is_invalid(api, kind, spec, field):
    reply = await api.post(f"{AUTHORIZATION}/{kind}", {"spec": spec})

    assert (reply.status, reply.body["reason"]) == (422, "Invalid")
    assert [cause["field"] for cause in reply.body["details"]["causes"]] == [field]


async def test_my_rules_are_listed(api):
    everything = await api.post(f"{AUTHORIZATION}/selfsubjectrulesreviews", {"spec": {"namespace": "default"}})
    issued = await api.made(TOKEN, {"spec": {}})
    little = await api.post(
        f"{AUTHORIZATION}/selfsubjectrulesreviews",
        {"spec": {"namespace": "default"}},
        user=None,
        headers=bearer(issued),
    )

    assert everything.body["status"]["resourceRules"] == [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
    assert everything.body["status"]["incomplete"] is False
    assert all("*" not in rule["verbs"] for rule in little.body["status"]["resourceRules"])


# --- whose token is this ----------------------------------------------------------------------------------------------


async def test_a_token_review_returns_the_user_of_a_valid_token(api):
    issued = await api.made(TOKEN, {"spec": {}})

    reply = await api.post(f"{AUTHENTICATION}/tokenreviews", {"spec": {"token": issued["status"]["token"]}})

    assert reply.status == 201
    assert reply.body["status"]["authenticated"] is True
    assert reply.body["status"]["user"]["username"] == "system:serviceaccount:default:default"
    assert reply.body["status"]["audiences"]


@pytest.mark.parametrize("asked", [["vault"], ["vault", "other"]])
async def test_a_token_for_another_audience_is_good_for_that_only(api, asked):
    issued = await api.made(TOKEN, {"spec": {"audiences": ["vault"]}})
    token = issued["status"]["token"]

    good = await api.post(f"{AUTHENTICATION}/tokenreviews", {"spec": {"token": token, "audiences": asked}})
    bad = await api.post(f"{AUTHENTICATION}/tokenreviews", {"spec": {"token": token}})

    assert good.body["status"]["authenticated"] is True
    assert bad.body["status"]["authenticated"] is False
    assert (await api.get(PODS, user=None, headers=bearer(issued))).status == 401


async def test_a_token_review_rejects_a_bad_token_without_repeating_it(api):
    reply = await api.post(f"{AUTHENTICATION}/tokenreviews", {"spec": {"token": "a.b.c"}})

    assert reply.status == 201
    assert reply.body["status"]["authenticated"] is False
    assert reply.body["status"]["error"]


async def test_a_review_without_a_token_is_refused(api):
    assert (await api.post(f"{AUTHENTICATION}/tokenreviews", {"spec": {}})).status == 400


# --- tokens -----------------------------------------------------------------------------------------------------------


async def test_a_token_is_for_its_account_and_ends(api):
    issued = await api.made(TOKEN, {"spec": {"expirationSeconds": 600}})

    said = claims(issued["status"]["token"])
    assert said["sub"] == "system:serviceaccount:default:default"
    assert said["exp"] - said["iat"] == 600
    assert issued["status"]["expirationTimestamp"] == "2027-01-15T08:10:00Z"
    assert issued["metadata"]["name"] == "default"
    assert issued["spec"]["expirationSeconds"] == 600
    assert issued["spec"]["audiences"] == said["aud"]
    api.clock.move(601)
    assert (await api.get(PODS, user=None, headers=bearer(issued))).status == 401


async def test_a_token_has_an_hour_by_default(api):
    issued = await api.made(TOKEN, {"spec": {}})

    assert issued["spec"]["expirationSeconds"] == 3600


async def test_a_token_dies_with_its_account(api):
    issued = await api.made(TOKEN, {"spec": {}})
    assert (await api.get("/api", user=None, headers=bearer(issued))).status == 200

    await api.delete(f"{ACCOUNTS}/default")
    assert (await api.get(PODS, user=None, headers=bearer(issued))).status == 401
    await api.made(ACCOUNTS, {"metadata": {"name": "default"}})
    assert (await api.get(PODS, user=None, headers=bearer(issued))).status == 401


@pytest.mark.parametrize(
    ("kind", "url", "body"),
    [
        pytest.param("Secret", SECRETS, {"metadata": {"name": "x"}}, id="secret"),
        pytest.param("Node", NODES, {"metadata": {"name": "x"}}, id="node"),
        pytest.param(
            "Pod",
            PODS,
            {"metadata": {"name": "x"}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
            id="pod",
        ),
    ],
)
async def test_a_bound_token_expires_with_its_bound_object(api, kind, url, body):
    made = await api.made(url, body)
    reference = {"apiVersion": "v1", "kind": kind, "name": "x", "uid": made["metadata"]["uid"]}

    issued = await api.made(TOKEN, {"spec": {"boundObjectRef": reference}})

    said = claims(issued["status"]["token"])["kubernetes.io"]
    assert said[kind.lower()] == {"name": "x", "uid": made["metadata"]["uid"]}
    assert (await api.get("/api", user=None, headers=bearer(issued))).status == 200
    await api.delete(f"{url}/x")
    assert (await api.get(PODS, user=None, headers=bearer(issued))).status == 401
    await api.made(url, body)
    assert (await api.get(PODS, user=None, headers=bearer(issued))).status == 401


@pytest.mark.parametrize("there", [True, False], ids=["known", "unknown"])
async def test_a_pods_token_names_the_node(api, pod, there):
    node = await api.made(NODES, {"metadata": {"name": "n1"}}) if there else None
    await api.made(PODS, pod("x", node="n1"))

    issued = await api.made(TOKEN, {"spec": {"boundObjectRef": {"kind": "Pod", "name": "x"}}})

    said = claims(issued["status"]["token"])["kubernetes.io"]["node"]
    assert said == ({"name": "n1", "uid": node["metadata"]["uid"]} if node else {"name": "n1"})
    info = (await whoami(api, user=None, headers=bearer(issued))).body["status"]["userInfo"]
    assert info["extra"]["authentication.kubernetes.io/node-name"] == ["n1"]


@pytest.mark.parametrize(
    ("spec", "status", "said"),
    [
        pytest.param({"expirationSeconds": 599}, 422, "may not specify a duration less than 10 minutes", id="short"),
        pytest.param(
            {"expirationSeconds": 2**32 + 1}, 422, "may not specify a duration larger than 2^32 seconds", id="long"
        ),
        pytest.param({"boundObjectRef": {"kind": "Pod", "name": "none"}}, 404, 'pods "none" not found', id="no pod"),
        pytest.param(
            {"boundObjectRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"}},
            400,
            "cannot bind token to object of type apps/v1, Kind=Deployment",
            id="a kind that cannot be bound to",
        ),
        pytest.param(
            {"boundObjectRef": {"kind": "Secret", "name": "mine", "uid": "other"}},
            409,
            "the UID in the bound object reference (other) does not match the UID in record",
            id="another uid",
        ),
        pytest.param(
            {"boundObjectRef": {"kind": "Pod", "name": "others"}},
            400,
            'cannot bind token for serviceaccount "default" to pod running with different serviceaccount name.',
            id="another account's pod",
        ),
    ],
)
async def test_a_token_that_cannot_be_is_refused(api, pod, spec, status, said):
    await api.made(SECRETS, {"metadata": {"name": "mine"}})
    await api.made(ACCOUNTS, {"metadata": {"name": "other"}})
    await api.made(PODS, pod("others", serviceAccountName="other"))

    reply = await api.post(TOKEN, {"spec": spec})

    assert reply.status == status
    assert said in reply.message


async def test_a_missing_account_has_no_token(api):
    reply = await api.post(f"{ACCOUNTS}/nobody/token", {"spec": {}})

    assert (reply.status, reply.message) == (404, 'serviceaccounts "nobody" not found')


@pytest.mark.parametrize(
    ("metadata", "status"),
    [
        pytest.param({"name": "other"}, 422, id="name"),
        pytest.param({"namespace": "other"}, 422, id="namespace"),
        pytest.param({"uid": "other"}, 409, id="uid"),
    ],
)
async def test_a_request_for_another_account_than_the_urls_is_refused(api, metadata, status):
    assert (await api.post(TOKEN, {"metadata": metadata, "spec": {}})).status == status


async def test_component_statuses_are_there_for_old_clients(api):
    listed = await api.get("/api/v1/componentstatuses")

    assert listed.names == ["etcd-0"]
    assert (await api.get("/api/v1/componentstatuses/etcd-0")).body["conditions"][0]["type"] == "Healthy"
    assert (await api.get("/api/v1/componentstatuses/none")).status == 404


async def test_component_statuses_have_a_table(api):
    table = (await api.get("/api/v1/componentstatuses", accept=TABLE)).body

    assert table["kind"] == "Table"
    assert [row["cells"] for row in table["rows"]] == [["etcd-0", "Healthy", "ok", ""]]
