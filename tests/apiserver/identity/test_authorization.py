import pytest

from podwire.apiserver.identity.authorization import Attributes, Authorizer, forbidden
from podwire.apiserver.identity.users import ANONYMOUS_USER, User, account_groups
from podwire.protocols.k8sapi.status import ApiError

ADMIN = User("kubernetes-admin", groups=("system:masters", "system:authenticated"))
KUBELET = User("system:node:a", groups=("system:nodes", "system:authenticated"))
ACCOUNT = User("system:serviceaccount:ns:web", groups=(*account_groups("ns"), "system:authenticated"))
MALFORMED = User("system:serviceaccount:ns", groups=("system:authenticated",))


def to(verb: str, resource: str, **more: str) -> Attributes:
    return Attributes(verb=verb, version="v1", resource=resource, **more)


def path(where: str, verb: str = "get") -> Attributes:
    return Attributes(verb=verb, path=where)


def allowed(user: User, attributes: Attributes) -> bool:
    return Authorizer().check(user, attributes).allowed


@pytest.mark.parametrize("user", [ADMIN, KUBELET], ids=["system:masters", "any other certificate"])
@pytest.mark.parametrize(
    "attributes",
    [
        to("delete", "nodes", name="a"),
        to("get", "secrets", namespace="ns", name="s"),
        to("create", "pods", subresource="exec", namespace="ns", name="p"),
        path("/metrics"),
    ],
    ids=lambda each: each.resource or each.path,
)
def test_a_certificate_may_do_everything(user, attributes):
    assert allowed(user, attributes)


@pytest.mark.parametrize(
    "attributes",
    [
        pytest.param(to("list", "pods", namespace="ns"), id="list its namespace"),
        pytest.param(to("watch", "deployments", group="apps", namespace="ns"), id="watch its namespace"),
        pytest.param(to("get", "pods", subresource="log", namespace="ns", name="p"), id="read a log"),
        pytest.param(to("get", "namespaces", namespace="ns", name="ns"), id="read its namespace itself"),
        pytest.param(to("create", "selfsubjectaccessreviews", group="authorization.k8s.io"), id="ask what it may"),
        pytest.param(to("create", "selfsubjectreviews", group="authentication.k8s.io"), id="ask who it is"),
        pytest.param(path("/api"), id="discover"),
        pytest.param(path("/apis/apps/v1"), id="discover a group"),
        pytest.param(path("/openapi/v3/apis/apps/v1"), id="read a schema"),
        pytest.param(path("/version"), id="read the version"),
        pytest.param(path("/livez/ping"), id="ask after health"),
        pytest.param(path("/openid/v1/jwks"), id="read the keys that verify its token"),
    ],
)
def test_a_service_account_may(attributes):
    assert allowed(ACCOUNT, attributes)


@pytest.mark.parametrize(
    "attributes",
    [
        pytest.param(to("list", "pods", namespace="other"), id="read another namespace"),
        pytest.param(to("list", "pods"), id="read all namespaces"),
        pytest.param(to("list", "nodes"), id="read the cluster"),
        pytest.param(to("get", "namespaces", namespace="nsx", name="nsx"), id="read a namespace with a longer name"),
        pytest.param(to("create", "pods", namespace="ns"), id="write"),
        pytest.param(to("patch", "pods", subresource="status", namespace="ns", name="p"), id="write a status"),
        pytest.param(to("get", "secrets", namespace="ns", name="s"), id="read a secret"),
        pytest.param(to("list", "secrets", namespace="ns"), id="list secrets"),
        pytest.param(to("get", "pods", subresource="exec", namespace="ns", name="p"), id="exec by a GET"),
        pytest.param(to("get", "pods", subresource="proxy/x", namespace="ns", name="p"), id="proxy by a GET"),
        pytest.param(to("create", "subjectaccessreviews", group="authorization.k8s.io"), id="ask what others may"),
        pytest.param(to("create", "serviceaccounts", subresource="token", namespace="ns", name="web"), id="mint"),
        pytest.param(to("create", "selfsubjectreviews", namespace="ns"), id="create a namesake in another group"),
        pytest.param(path("/metrics"), id="read metrics"),
        pytest.param(path("/api", "post"), id="post to discovery"),
        pytest.param(path("/apiserver"), id="read a path that only begins alike"),
    ],
)
def test_a_service_account_may_not(attributes):
    assert not allowed(ACCOUNT, attributes)


def test_a_name_that_only_begins_like_a_service_account_may_nothing():
    assert not allowed(MALFORMED, path("/version"))


@pytest.mark.parametrize("where", ["/livez", "/readyz", "/healthz", "/version"])
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


def test_a_certificate_that_calls_itself_anonymous_gains_nothing():
    assert not allowed(User("system:anonymous", groups=("system:authenticated",)), path("/api"))


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
