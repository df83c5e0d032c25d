"""Default roles of a new cluster, decided without a server."""

import msgspec
import pytest

from podwire.apiserver.identity import default_policy
from podwire.apiserver.identity.authorization import Attributes, Authorizer, forbidden
from podwire.apiserver.identity.rbac import Roles
from podwire.apiserver.identity.users import ANONYMOUS_USER, User, account_groups
from podwire.kinds.resource import PREFIX
from podwire.protocols.k8sapi.status import ApiError

ADMIN = User("kubernetes-admin", groups=("system:masters", "system:authenticated"))
CERTIFICATE = User("jane", groups=("devs", "system:authenticated"))
ACCOUNT = User("system:serviceaccount:ns:web", groups=(*account_groups("ns"), "system:authenticated"))
SCHEDULER = User("system:kube-scheduler", groups=("system:authenticated",))
CONTROLLER = User(
    "system:serviceaccount:kube-system:replicaset-controller",
    groups=(*account_groups("kube-system"), "system:authenticated"),
)


def default_roles() -> Roles:
    roles = Roles()
    for resource, namespace, obj in default_policy.defaults():
        metadata = {**obj["metadata"], "namespace": namespace}
        place = f"{namespace}/{metadata['name']}" if namespace else metadata["name"]
        roles.put(f"{PREFIX}{resource}/{place}", msgspec.json.encode({**obj, "metadata": metadata}))
    return roles


DEFAULTS = Authorizer(default_roles())


def to(verb: str, resource: str, **more: str) -> Attributes:
    return Attributes(verb=verb, version="v1", resource=resource, **more)


def path(where: str, verb: str = "get") -> Attributes:
    return Attributes(verb=verb, path=where)


def allowed(user: User, attributes: Attributes) -> bool:
    return DEFAULTS.check(user, attributes).allowed


EVERYTHING = [
    to("delete", "nodes", name="a"),
    to("get", "secrets", namespace="ns", name="s"),
    to("create", "pods", subresource="exec", namespace="ns", name="p"),
    to("create", "clusterrolebindings", group="rbac.authorization.k8s.io"),
    path("/metrics"),
]


@pytest.mark.parametrize("attributes", EVERYTHING, ids=lambda each: each.resource or each.path)
def test_system_masters_may_do_everything_even_without_roles(attributes):
    assert Authorizer().check(ADMIN, attributes).allowed


@pytest.mark.parametrize("attributes", EVERYTHING, ids=lambda each: each.resource or each.path)
@pytest.mark.parametrize("user", [CERTIFICATE, SCHEDULER, ACCOUNT], ids=["a user", "a component", "an account"])
def test_nobody_else_may_do_everything(user, attributes):
    assert not allowed(user, attributes)


@pytest.mark.parametrize("user", [CERTIFICATE, ACCOUNT], ids=["a user", "a service account"])
@pytest.mark.parametrize(
    "attributes",
    [
        pytest.param(to("create", "selfsubjectaccessreviews", group="authorization.k8s.io"), id="ask what it may"),
        pytest.param(to("create", "selfsubjectreviews", group="authentication.k8s.io"), id="ask who it is"),
        pytest.param(path("/api"), id="discover"),
        pytest.param(path("/apis/apps/v1"), id="discover a group"),
        pytest.param(path("/openapi/v3/apis/apps/v1"), id="read a schema"),
        pytest.param(path("/version"), id="read the version"),
        pytest.param(path("/livez"), id="ask after health"),
    ],
)
def test_authenticated_users_may_discover_and_ask_about_themselves(user, attributes):
    assert allowed(user, attributes)


@pytest.mark.parametrize(
    "attributes",
    [
        pytest.param(to("list", "pods", namespace="ns"), id="list its namespace"),
        pytest.param(to("get", "namespaces", namespace="ns", name="ns"), id="read its namespace itself"),
        pytest.param(to("get", "pods", subresource="log", namespace="ns", name="p"), id="read a log"),
        pytest.param(to("list", "pods"), id="read all namespaces"),
        pytest.param(to("list", "nodes"), id="read the cluster"),
        pytest.param(to("create", "pods", namespace="ns"), id="write"),
        pytest.param(to("get", "secrets", namespace="ns", name="s"), id="read a secret"),
        pytest.param(to("get", "pods", subresource="exec", namespace="ns", name="p"), id="exec by a GET"),
        pytest.param(to("create", "subjectaccessreviews", group="authorization.k8s.io"), id="ask what others may"),
        pytest.param(to("create", "serviceaccounts", subresource="token", namespace="ns", name="web"), id="mint"),
        pytest.param(to("create", "selfsubjectreviews", namespace="ns"), id="create a namesake in another group"),
        pytest.param(path("/metrics"), id="read metrics"),
        pytest.param(path("/api", "post"), id="post to discovery"),
        pytest.param(path("/apiserver"), id="read a path that only begins alike"),
    ],
)
def test_a_service_account_without_a_role_may_not(attributes):
    assert not allowed(ACCOUNT, attributes)


def test_only_service_accounts_may_read_the_keys_of_the_issuer():
    assert allowed(ACCOUNT, path("/openid/v1/jwks"))
    assert not allowed(CERTIFICATE, path("/openid/v1/jwks"))


@pytest.mark.parametrize("where", ["/livez", "/readyz", "/healthz", "/version", "/version/"])
def test_anonymous_may_ask_after_health_and_version(where):
    assert allowed(ANONYMOUS_USER, path(where))


@pytest.mark.parametrize(
    "attributes",
    [
        path("/"),
        path("/api"),
        path("/livez/ping"),
        path("/livez", "post"),
        path("/livez/../metrics"),
        to("get", "pods"),
    ],
    ids=lambda each: f"{each.verb} {each.path or each.resource}",
)
def test_anonymous_users_may_do_nothing_more(attributes):
    assert not allowed(ANONYMOUS_USER, attributes)


@pytest.mark.parametrize(
    ("user", "attributes", "expected"),
    [
        (SCHEDULER, to("create", "pods", subresource="binding", namespace="ns", name="p"), True),
        (SCHEDULER, to("get", "secrets", namespace="ns", name="s"), False),
        (SCHEDULER, to("get", "configmaps", namespace="kube-system", name="extension-apiserver-authentication"), True),
        (SCHEDULER, to("get", "configmaps", namespace="kube-system", name="other"), False),
        (CONTROLLER, to("create", "pods", namespace="ns"), True),
        (CONTROLLER, to("create", "secrets", namespace="ns"), False),
    ],
    ids=lambda each: getattr(each, "name", getattr(each, "verb", str(each))),
)
def test_components_have_their_own_roles(user, attributes, expected):
    assert allowed(user, attributes) is expected


def test_a_decision_names_binding_role_and_subject():
    decision = DEFAULTS.check(SCHEDULER, to("list", "nodes"))

    assert decision.reason == (
        'RBAC: allowed by ClusterRoleBinding "system:kube-scheduler" of ClusterRole "system:kube-scheduler" '
        'to User "system:kube-scheduler"'
    )


JANE = User("u")


@pytest.mark.parametrize(
    ("attributes", "message", "details"),
    [
        pytest.param(
            to("list", "pods", namespace="default"),
            'pods is forbidden: User "u" cannot list resource "pods" in API group "" in the namespace "default"',
            {"kind": "pods"},
            id="a namespace",
        ),
        pytest.param(
            to("get", "pods", namespace="default", name="web"),
            'pods "web" is forbidden: User "u" cannot get resource "pods" in API group "" in the namespace "default"',
            {"kind": "pods", "name": "web"},
            id="a name",
        ),
        pytest.param(
            to("list", "deployments", group="apps"),
            'deployments.apps is forbidden: User "u" cannot list resource "deployments" in API group "apps" '
            "at the cluster scope",
            {"kind": "deployments", "group": "apps"},
            id="the cluster",
        ),
        pytest.param(
            to("create", "pods", subresource="exec", namespace="ns", name="web"),
            'pods "web" is forbidden: User "u" cannot create resource "pods/exec" in API group "" '
            'in the namespace "ns"',
            {"kind": "pods", "name": "web"},
            id="a subresource",
        ),
        pytest.param(path("/x"), 'forbidden: User "u" cannot get path "/x"', {}, id="a path"),
    ],
)
def test_the_refusal_is_upstreams_sentence(attributes, message, details):
    error = forbidden(JANE, attributes)
    assert (error.code, error.reason, error.message, error.details) == (403, "Forbidden", message, details)


def test_require_raises_when_check_refuses():
    Authorizer().require(ADMIN, path("/metrics"))
    with pytest.raises(ApiError, match='User "system:anonymous" cannot get path "/metrics"'):
        Authorizer().require(ANONYMOUS_USER, path("/metrics"))
