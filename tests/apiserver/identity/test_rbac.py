"""Rights of service accounts by roles: rules, bindings, and requests of real tokens."""

import msgspec
import pytest

from podwire.apiserver.identity.node_graph import PODS, VOLUMES
from podwire.apiserver.identity.rbac import BINDINGS, CLUSTER_BINDINGS, CLUSTER_ROLES, MOST_USERS, ROLES, Roles
from podwire.apiserver.identity.rules import AccessRequest, Rule
from podwire.apiserver.identity.users import User, account_groups
from podwire.protocols.k8sapi.server_side import Certificate
from tests.apiserver.support import answer_when

WEB = User("system:serviceaccount:ns:web", groups=(*account_groups("ns"), "system:authenticated"))


def asked(verb="get", resource="pods", **more):
    return AccessRequest(verb=verb, resource=resource, **more)


@pytest.mark.parametrize(
    ("rule", "wanted", "allowed"),
    [
        pytest.param({"resources": ["pods"]}, asked(), True, id="named"),
        pytest.param({"resources": ["*"]}, asked(resource="pods/log"), True, id="everything"),
        pytest.param({"resources": ["pods"]}, asked(resource="pods/log"), False, id="a part is not the whole"),
        pytest.param({"resources": ["pods/log"]}, asked(resource="pods/log"), True, id="a part"),
        pytest.param({"resources": ["*/log"]}, asked(resource="pods/log"), True, id="that part of everything"),
        pytest.param({"resources": ["*/log"]}, asked(), False, id="a part of everything is not the whole"),
        pytest.param({"resources": ["pods"]}, asked("delete"), False, id="another verb"),
        pytest.param({"resources": ["pods"]}, asked(group="apps"), False, id="another group"),
        pytest.param({"resources": ["pods"], "apiGroups": ["*"]}, asked(group="apps"), True, id="any group"),
        pytest.param({"resources": ["pods"], "resourceNames": ["a"]}, asked(name="a"), True, id="this one"),
        pytest.param({"resources": ["pods"], "resourceNames": ["a"]}, asked(name="b"), False, id="another one"),
        pytest.param({"resources": ["pods"], "resourceNames": ["a"]}, asked("list"), False, id="all of them"),
        pytest.param({"nonResourceURLs": ["/metrics"]}, asked(resource="", path="/metrics"), True, id="a path"),
        pytest.param({"nonResourceURLs": ["/logs/*"]}, asked(resource="", path="/logs/a"), True, id="below a path"),
        pytest.param({"nonResourceURLs": ["/logs/*"]}, asked(resource="", path="/other"), False, id="another path"),
        pytest.param({"resources": ["*"]}, asked(resource="", path="/metrics"), False, id="a path is not a resource"),
    ],
)
def test_a_rule_allows(rule, wanted, allowed):
    given = msgspec.convert({"verbs": ["get"], "apiGroups": [""], **rule}, Rule)
    assert given.allows(wanted) is allowed


def bound(subject, *, place=f"{CLUSTER_BINDINGS}b", role="ClusterRole"):
    roles = Roles()
    rules = {"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]}
    roles.put(f"{CLUSTER_ROLES}r" if role == "ClusterRole" else f"{ROLES}ns/r", msgspec.json.encode(rules))
    metadata = {"namespace": "ns"} if place.startswith(BINDINGS) else {}
    binding = {"metadata": metadata, "roleRef": {"kind": role, "name": "r"}, "subjects": [subject]}
    roles.put(place, msgspec.json.encode(binding))
    return roles


@pytest.mark.parametrize(
    ("subject", "allowed"),
    [
        pytest.param({"kind": "ServiceAccount", "name": "web", "namespace": "ns"}, True, id="the account"),
        pytest.param({"kind": "ServiceAccount", "name": "web", "namespace": "other"}, False, id="of another namespace"),
        pytest.param({"kind": "Group", "name": "system:serviceaccounts:ns"}, True, id="its group"),
        pytest.param({"kind": "User", "name": "system:serviceaccount:ns:web"}, True, id="its name"),
        pytest.param({"kind": "User", "name": "web"}, False, id="somebody else"),
    ],
)
def test_a_binding_is_for_its_subjects(subject, allowed):
    assert bound(subject).allow(WEB, asked(namespace="any")) is allowed


@pytest.mark.parametrize("role", ["ClusterRole", "Role"])
def test_a_role_binding_gives_within_its_namespace_only(role):
    roles = bound({"kind": "ServiceAccount", "name": "web"}, place=f"{BINDINGS}ns/b", role=role)

    assert roles.allow(WEB, asked(namespace="ns"))
    assert not roles.allow(WEB, asked(namespace="other"))
    assert not roles.allow(WEB, asked())


def test_deleted_roles_and_bindings_grant_nothing():
    roles = bound({"kind": "Group", "name": "system:authenticated"})
    roles.keep(CLUSTER_ROLES, [f"{CLUSTER_ROLES}r"])
    assert roles.allow(WEB, asked())

    roles.keep(CLUSTER_ROLES, [])

    assert not roles.allow(WEB, asked())


def test_users_that_only_reviews_name_do_not_fill_the_memory():
    roles = bound({"kind": "Group", "name": "system:authenticated"})
    known = User("jane", groups=("system:authenticated",))
    endless = User("jane", groups=("system:authenticated", *(f"group-{number:06}" for number in range(20_000))))

    assert roles.allow(known, asked())
    assert roles.allow(endless, asked())
    assert cached(roles) == [known.groups]
    for number in range(MOST_USERS + 1):
        roles.allow(User(f"user-{number}"), asked())
    assert len(cached(roles)) <= MOST_USERS


def cached(roles):
    return [groups for _, groups, _ in roles._tables]


async def test_a_stored_object_that_cannot_be_read_grants_nothing_and_stops_nothing(api):
    for place in (CLUSTER_ROLES, CLUSTER_BINDINGS, BINDINGS, PODS, VOLUMES):
        await api.store.create(f"{place}odd/odd", b'{"metadata":7,"rules":[{"verbs":1}],"spec":{"nodeName":{}}}')
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    role = {"metadata": {"name": "r"}, "rules": [{"verbs": ["get"], "nonResourceURLs": ["/ready"]}]}
    await api.made(f"{rbac}/clusterroles", role)
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"}
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}]
    binding = {"metadata": {"name": "b"}, "roleRef": reference, "subjects": subjects}
    await api.made(f"{rbac}/clusterrolebindings", binding)

    await answer_when(lambda: api.get("/ready", user=Certificate("jane")), lambda reply: reply.status == 404)


# --- a driver's account on a real server ------------------------------------------------------------------------------

GROUP = "resource.k8s.io"
CLAIM = f"/apis/{GROUP}/v1/namespaces/default/resourceclaims/c"
RESULT = {"request": "nic", "driver": "net.example", "pool": "n1", "device": "eth0"}
ON_N1 = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]}
DEVICE = {"driver": "net.example", "pool": "n1", "device": "eth0", "networkData": {"interfaceName": "net1"}}
READ = {"verbs": ["get", "list", "watch"], "apiGroups": [GROUP], "resources": ["resourceclaims", "resourceslices"]}
STATUS = {"verbs": ["update", "patch"], "apiGroups": [GROUP], "resources": ["resourceclaims/status"]}


def driver_rule(*verbs, name="net.example"):
    rule = {"verbs": list(verbs), "apiGroups": [GROUP], "resources": ["resourceclaims/driver"]}
    return {**rule, "resourceNames": [name]}


@pytest.fixture
async def driver(api):
    """Asks as a driver's account, on node n1, with the rules that a test gives it."""
    name = "system:serviceaccount:default:driver"
    headers = {
        "impersonate-user": name,
        "impersonate-group": "system:serviceaccounts,system:serviceaccounts:default",
        "impersonate-extra-authentication.kubernetes.io%2fnode-name": "n1",
    }
    request = {"name": "nic", "exactly": {"deviceClassName": "nics"}}
    await api.made(CLAIM.removesuffix("/c"), {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}})
    allocation = {"devices": {"results": [RESULT]}, "nodeSelector": ON_N1}
    await api.patch(f"{CLAIM}/status", {"status": {"allocation": allocation}})

    async def ask(*rules, patch):
        rbac = "/apis/rbac.authorization.k8s.io/v1"
        await api.made(f"{rbac}/clusterroles", {"metadata": {"name": "driver"}, "rules": [READ, STATUS, *rules]})
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "driver"}
        subject = {"kind": "ServiceAccount", "name": "driver", "namespace": "default"}
        binding = {"metadata": {"name": "driver"}, "roleRef": reference, "subjects": [subject]}
        await api.made(f"{rbac}/clusterrolebindings", binding)
        url = f"/apis/{GROUP}/v1/resourceslices"
        await answer_when(lambda: api.get(url, headers=headers), lambda reply: reply.status == 200)
        return await api.patch(f"{CLAIM}/status", patch, headers=headers)

    return ask


@pytest.mark.parametrize(
    "verb", ["associated-node:patch", "associated-node:update", "arbitrary-node:update", "arbitrary-node:patch"]
)
async def test_a_driver_may_publish_its_devices(driver, verb):
    reply = await driver(driver_rule(verb), patch={"status": {"devices": [DEVICE]}})

    assert reply.status == 200, reply.raw
    assert reply.body["status"]["devices"][0]["networkData"] == {"interfaceName": "net1"}


@pytest.mark.parametrize(
    ("rules", "patch", "why"),
    [
        pytest.param(
            [], {"devices": [DEVICE]}, 'cannot associated-node:update resource "resourceclaims/driver"', id="no right"
        ),
        pytest.param(
            [driver_rule("associated-node:update", name="other")],
            {"devices": [DEVICE]},
            'resourceclaims.resource.k8s.io "net.example" is forbidden',
            id="the right of another driver",
        ),
        pytest.param(
            [driver_rule("associated-node:update")],
            {"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]},
            'cannot update resource "resourceclaims/binding"',
            id="what a scheduler writes",
        ),
    ],
)
async def test_a_driver_may_write_no_other_device_status(driver, rules, patch, why):
    reply = await driver(*rules, patch={"status": patch})

    assert reply.status == 403
    assert why in reply.message
