"""Nobody grants what they do not have: roles, bindings, aggregation, and the verbs `escalate` and `bind`."""

import pytest

from podwire.protocols.k8sapi.server_side import Certificate
from tests.apiserver.support import answer_when

GROUP = "rbac.authorization.k8s.io"
RBAC = f"/apis/{GROUP}/v1"
TEAM = f"{RBAC}/namespaces/default"
BOB = Certificate("bob", ("devs",))
EVERYTHING = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
ROLES = {
    "verbs": ["*"],
    "apiGroups": [GROUP],
    "resources": ["roles", "clusterroles", "rolebindings", "clusterrolebindings"],
}
WRITING = {**ROLES, "verbs": ["get", "list", "create", "update", "patch", "delete"]}
PODS = {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}
READY = {"verbs": ["get"], "nonResourceURLs": ["/ready"]}


def role(name, *rules, **more):
    return {"metadata": {"name": name}, "rules": list(rules), **more}


def binding(name, to, kind="ClusterRole", user="bob"):
    reference = {"apiGroup": GROUP, "kind": kind, "name": to}
    subjects = [{"apiGroup": GROUP, "kind": "User", "name": user}]
    return {"metadata": {"name": name}, "roleRef": reference, "subjects": subjects}


@pytest.fixture
async def bob(api):
    """Gives bob a role with these rules; returns when the server knows it."""

    async def give(*rules):
        await api.made(f"{RBAC}/clusterroles", role("bobs", *rules, READY))
        await api.made(f"{RBAC}/clusterrolebindings", binding("bobs", "bobs"))
        await answer_when(lambda: api.get("/ready", user=BOB), lambda reply: reply.status == 404)
        return api

    return give


async def test_a_user_who_may_write_roles_grants_no_more_than_they_have(bob):
    api = await bob(WRITING, PODS)

    reply = await api.post(f"{RBAC}/clusterroles", role("more", EVERYTHING, PODS), user=BOB)

    assert reply.status == 403
    assert reply.message == (
        'clusterroles.rbac.authorization.k8s.io "more" is forbidden: '
        'user "bob" (groups=["devs" "system:authenticated"]) '
        "is attempting to grant RBAC permissions not currently held:\n"
        '{APIGroups:["*"], Resources:["*"], Verbs:["*"]}'
    )
    assert (await api.post(f"{RBAC}/clusterroles", role("same", PODS), user=BOB)).status == 201


async def test_missing_permissions_are_listed_by_resource_with_all_their_verbs(bob):
    api = await bob(WRITING)
    secrets = {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a"]}

    reply = await api.post(f"{RBAC}/clusterroles", role("more", PODS, secrets), user=BOB)

    assert reply.message.splitlines()[1:] == [
        '{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}',
        '{APIGroups:[""], Resources:["secrets"], ResourceNames:["a"], Verbs:["get" "list"]}',
    ]


@pytest.mark.parametrize("how", ["put", "merge", "apply"])
async def test_no_update_of_a_role_escalates(bob, how):
    api = await bob(WRITING, PODS)
    made = await api.made(f"{TEAM}/roles", role("mine", PODS))
    secrets = {"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"]}
    url = f"{TEAM}/roles/mine"
    if how == "put":
        reply = await api.put(url, {**made, "rules": [secrets]}, user=BOB)
    elif how == "merge":
        reply = await api.patch(url, {"rules": [secrets]}, user=BOB)
    else:
        whole = {"apiVersion": f"{GROUP}/v1", "kind": "Role", **role("mine", secrets)}
        reply = await api.patch(f"{url}?fieldManager=bob&force=true", whole, "apply", user=BOB)

    assert reply.status == 403
    assert "not currently held" in reply.message
    assert (await api.get(url)).body["rules"] == [PODS]


async def test_a_put_that_creates_a_role_does_not_escalate(bob):
    api = await bob(WRITING)
    whole = {"apiVersion": f"{GROUP}/v1", "kind": "ClusterRole", **role("new", EVERYTHING)}

    assert (await api.put(f"{RBAC}/clusterroles/new", whole, user=BOB)).status == 403


@pytest.mark.parametrize("target", ["cluster-admin", "admin", "system:kube-controller-manager"])
async def test_a_user_who_may_write_bindings_does_not_bind_a_stronger_role(bob, target):
    api = await bob(WRITING)

    cluster = await api.post(f"{RBAC}/clusterrolebindings", binding("mine", target), user=BOB)
    local = await api.post(f"{TEAM}/rolebindings", binding("mine", target), user=BOB)

    assert (cluster.status, local.status) == (403, 403)
    assert "is attempting to grant RBAC permissions not currently held" in cluster.message


async def test_no_subject_is_added_to_the_binding_of_a_stronger_role(bob):
    api = await bob(WRITING)
    subject = {"apiGroup": GROUP, "kind": "User", "name": "bob"}

    url = f"{RBAC}/clusterrolebindings/cluster-admin"
    reply = await api.patch(url, {"subjects": [subject]}, user=BOB)

    assert reply.status == 403


async def test_binding_a_role_that_does_not_exist_names_it(bob):
    api = await bob(WRITING)

    reply = await api.post(f"{RBAC}/clusterrolebindings", binding("mine", "none"), user=BOB)

    assert (reply.status, reply.message) == (404, 'clusterroles.rbac.authorization.k8s.io "none" not found')


async def test_the_verb_escalate_allows_to_write_any_rules(bob):
    api = await bob({**WRITING, "verbs": [*WRITING["verbs"], "escalate"]})

    assert (await api.post(f"{RBAC}/clusterroles", role("more", EVERYTHING), user=BOB)).status == 201
    assert (await api.post(f"{RBAC}/clusterrolebindings", binding("mine", "cluster-admin"), user=BOB)).status == 403


async def test_the_verb_bind_allows_to_bind_the_named_role_only(bob):
    bind = {"verbs": ["bind"], "apiGroups": [GROUP], "resources": ["clusterroles"], "resourceNames": ["edit"]}
    api = await bob(WRITING, bind)

    assert (await api.post(f"{TEAM}/rolebindings", binding("mine", "edit"), user=BOB)).status == 201
    assert (await api.post(f"{TEAM}/rolebindings", binding("more", "admin"), user=BOB)).status == 403


async def test_only_cluster_admins_write_aggregation_rules(bob):
    api = await bob(WRITING, PODS)
    rule = {"clusterRoleSelectors": [{"matchLabels": {"x": "y"}}]}

    reply = await api.post(f"{RBAC}/clusterroles", role("all", aggregationRule=rule), user=BOB)

    assert reply.status == 403
    assert reply.message.endswith("must have cluster-admin privileges to use the aggregationRule")


async def test_owners_and_finalizers_of_a_stronger_role_may_be_changed(bob):
    api = await bob(WRITING)

    url = f"{RBAC}/clusterroles/cluster-admin"
    assert (await api.patch(url, {"metadata": {"finalizers": ["example.com/x"]}}, user=BOB)).status == 200
    assert (await api.patch(url, {"metadata": {"labels": {"x": "y"}}}, user=BOB)).status == 403


async def test_the_role_of_a_binding_cannot_be_changed(api):
    await api.made(f"{TEAM}/rolebindings", binding("b", "view"))
    reference = {"apiGroup": GROUP, "kind": "ClusterRole", "name": "cluster-admin"}

    reply = await api.patch(f"{TEAM}/rolebindings/b", {"roleRef": reference})

    assert reply.status == 422
    assert "cannot change roleRef" in reply.message


async def test_a_service_account_with_all_rights_may_grant_them(api):
    name = "system:serviceaccount:default:default"
    await api.made(f"{RBAC}/clusterrolebindings", binding("all", "cluster-admin", user=name))
    account = {"impersonate-user": name}
    await answer_when(lambda: api.get("/api/v1/secrets", headers=account), lambda reply: reply.status == 200)

    url = f"{RBAC}/clusterroles"
    assert (await api.post(url, role("more", EVERYTHING), headers=account)).status == 201


async def test_a_rule_with_billions_of_combinations_is_refused_at_once(bob):
    api = await bob(WRITING)
    many = [f"w{number}" for number in range(3_000)]
    rule = {"verbs": many, "apiGroups": many, "resources": many}

    reply = await api.post(f"{TEAM}/roles", role("wide", rule), user=BOB)

    assert reply.status == 403
    assert "more than 20000 combinations" in reply.message


async def test_a_rule_with_billions_of_combinations_of_an_administrator_still_grants(api):
    many = [f"w{number}" for number in range(2_000)]
    rule = {"verbs": ["get", *many], "apiGroups": ["", *many], "resources": ["pods", *many]}
    await api.made(f"{RBAC}/clusterroles", role("wide", rule))
    await api.made(f"{RBAC}/clusterrolebindings", binding("wide", "wide"))

    pods = "/api/v1/namespaces/default/pods"
    reply = await answer_when(lambda: api.get(f"{pods}/none", user=BOB), lambda reply: reply.status == 404)

    assert reply.status == 404
    assert (await api.get(pods, user=BOB)).status == 403
