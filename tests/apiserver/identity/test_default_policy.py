"""The default roles and bindings: their notation, their reconciliation, and aggregated roles on a server."""

import pytest

from podwire.apiserver.identity import default_policy
from podwire.apiserver.identity.default_policy import AUTOUPDATE, reconciled
from podwire.objects.role_aggregation import aggregated
from podwire.protocols.k8sapi.server_side import Certificate
from podwire.store.memory import MemoryStore

RBAC = "/apis/rbac.authorization.k8s.io/v1"
LABEL = "rbac.authorization.k8s.io/aggregate-to-view"
DEFAULTS = {(resource, space, obj["metadata"]["name"]): obj for resource, space, obj in default_policy.defaults()}
WIDGETS = {"verbs": ["get"], "apiGroups": ["example.com"], "resources": ["widgets"]}


def default(resource, name, namespace=""):
    return DEFAULTS[resource, namespace, name]


def test_the_notation_becomes_rules():
    assert default("clusterroles", "system:kube-dns")["rules"] == [
        {"verbs": ["list", "watch"], "apiGroups": [""], "resources": ["endpoints", "services"]}
    ]
    assert default("clusterroles", "cluster-admin")["rules"] == [
        {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
        {"verbs": ["*"], "nonResourceURLs": ["*"]},
    ]
    assert default("roles", "extension-apiserver-authentication-reader", "kube-system")["rules"] == [
        {
            "verbs": ["get", "list", "watch"],
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": ["extension-apiserver-authentication"],
        }
    ]


def test_every_controller_of_upstream_has_a_role_for_its_service_account():
    roles = [name for resource, _, name in DEFAULTS if resource == "clusterroles" and ":controller:" in name]

    assert len(roles) == 38
    for name in roles:
        binding = default("clusterrolebindings", name)
        account = {
            "kind": "ServiceAccount",
            "name": name.removeprefix("system:controller:"),
            "namespace": "kube-system",
        }
        assert (binding["roleRef"]["name"], binding["subjects"]) == (name, [account])


@pytest.mark.parametrize(
    "name",
    ["cluster-admin", "admin", "edit", "view", "system:node", "system:kube-controller-manager",
     "system:volume-scheduler", "system:auth-delegator", "system:kubelet-api-admin",
     "system:certificates.k8s.io:legacy-unknown-approver",
     "system:monitoring", "system:node-bootstrapper", "system:persistent-volume-provisioner"],
)  # fmt: skip
def test_upstreams_roles_are_there(name):
    metadata = default("clusterroles", name)["metadata"]
    assert metadata["annotations"] == {AUTOUPDATE: "true"}
    assert metadata["labels"]["kubernetes.io/bootstrapping"] == "rbac-defaults"


def test_no_default_binding_gives_kubelets_the_role_of_nodes():
    assert "subjects" not in default("clusterrolebindings", "system:node")


def test_a_role_that_lacks_rules_gets_them_and_keeps_its_own():
    wanted = default("clusterroles", "system:kube-dns")
    stored = {"metadata": {"name": "system:kube-dns", "labels": {"mine": "yes"}}, "rules": [WIDGETS]}

    role = reconciled(stored, wanted)

    assert role["rules"][0] == WIDGETS
    assert len(role["rules"]) == 5
    assert role["metadata"]["labels"] == {"kubernetes.io/bootstrapping": "rbac-defaults", "mine": "yes"}
    assert reconciled(role, wanted) is role


def test_a_binding_that_lacks_subjects_gets_them():
    wanted = default("clusterrolebindings", "system:discovery")
    mine = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}

    binding = reconciled({**wanted, "subjects": [mine]}, wanted)

    assert binding["subjects"] == [mine, *wanted["subjects"]]


def test_an_object_that_opted_out_stays_as_it_is():
    wanted = default("clusterroles", "system:kube-dns")
    stored = {"metadata": {"name": "system:kube-dns", "annotations": {AUTOUPDATE: "false"}}, "rules": []}

    assert reconciled(stored, wanted) is stored


def role(name, rules, **labels):
    return {"metadata": {"name": name, "labels": labels}, "rules": rules}


def test_an_aggregated_role_has_each_rule_of_the_others_once_ordered_by_name():
    own = {"metadata": {"name": "a"}, "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"x": "1"}}]}}
    pods, nodes = ({"verbs": ["get"], "apiGroups": [""], "resources": [kind]} for kind in ("pods", "nodes"))
    roles = [role("z", [pods], x="1"), role("b", [nodes, pods], x="1"), role("c", [WIDGETS], x="2")]

    assert aggregated(own, roles) == [nodes, pods]
    assert aggregated(role("plain", []), roles) is None


async def test_a_new_cluster_has_the_rules_of_view_in_edit_and_admin(api):
    rules = {name: (await api.get(f"{RBAC}/clusterroles/{name}")).body["rules"] for name in ("view", "edit", "admin")}
    parts = (await api.get(f"{RBAC}/clusterroles/system:aggregate-to-view")).body["rules"]

    metrics = (await api.get(f"{RBAC}/clusterroles/system:aggregated-metrics-reader")).body["rules"]
    assert rules["view"] == [*parts, *metrics]
    assert all(rule in rules["edit"] for rule in rules["view"])
    assert all(rule in rules["admin"] for rule in rules["edit"])
    assert not any("secrets" in rule.get("resources", ()) for rule in rules["view"])


async def test_a_restart_repairs_a_default_role_and_keeps_deleted_rules_of_ones_that_opted_out(serve):
    store = MemoryStore()
    api = await serve(store)
    await api.patch(f"{RBAC}/clusterroles/system:kube-dns", {"rules": []})
    patch = {"rules": [], "metadata": {"annotations": {AUTOUPDATE: "false"}}}
    await api.patch(f"{RBAC}/clusterroles/system:node-proxier", patch)
    await api.delete(f"{RBAC}/clusterroles/system:basic-user")

    api = await serve(store, account=False)

    assert (await api.get(f"{RBAC}/clusterroles/system:kube-dns")).body["rules"]
    assert (await api.get(f"{RBAC}/clusterroles/system:basic-user")).status == 200
    assert (await api.get(f"{RBAC}/clusterroles/system:node-proxier")).body["rules"] == []


async def test_a_controller_manager_runs_each_controller_as_a_service_account_with_its_role(api):
    """The flow of kube-controller-manager --use-service-account-credentials."""
    manager = Certificate("system:kube-controller-manager")
    accounts = "/api/v1/namespaces/kube-system/serviceaccounts"
    account = {"metadata": {"name": "replicaset-controller"}}
    assert (await api.post(accounts, account, user=manager)).status == 201
    issued = await api.post(f"{accounts}/replicaset-controller/token", {"spec": {}}, user=manager)
    headers = {"authorization": f"Bearer {issued.body['status']['token']}"}

    allowed = await api.get("/apis/apps/v1/replicasets", user=None, headers=headers)
    refused = await api.get("/api/v1/secrets", user=None, headers=headers)
    lease = {"metadata": {"name": "kube-controller-manager"}}
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"

    assert (allowed.status, refused.status) == (200, 403)
    assert (await api.post(leases, lease, user=manager)).status == 201


@pytest.mark.parametrize("resource", default_policy.RESOURCES)
async def test_a_default_object_is_what_creating_it_would_store(api, resource):
    kind = api.assembled.engine.registry.builtin(default_policy.GROUP, resource)
    for (of, space, name), obj in DEFAULTS.items():
        if of != resource:
            continue
        stored = kind.unpack(await api.store.get(kind.key(space, name)))
        assert kind.validate(stored) == [], name
        within = f"namespaces/{space}/" if space else ""
        again = {**obj, "metadata": {**obj["metadata"], "name": f"{name}-again"}}
        made = await api.made(f"{RBAC}/{within}{resource}", again)
        rules = {"rules"} if "aggregationRule" in obj else set()
        for field in {*made, *stored} - {"metadata"} - rules:
            assert made.get(field) == stored.get(field), (name, field)
        for field in ("labels", "annotations", "namespace"):
            assert made["metadata"].get(field) == stored["metadata"].get(field), (name, field)
