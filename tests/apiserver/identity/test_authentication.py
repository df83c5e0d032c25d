import logging

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from podwire.apiserver.identity.authentication import Authenticator, User
from podwire.apiserver.identity.authorization import Authorizer
from podwire.apiserver.identity.impersonation import impersonated
from podwire.apiserver.identity.rbac import CLUSTER_BINDINGS, CLUSTER_ROLES, Roles
from podwire.apiserver.identity.tokens import BadToken, Named, Tokens
from podwire.protocols.k8sapi.server_side import Certificate, Request
from podwire.protocols.k8sapi.status import ApiError


class StoppedClock:
    def wall(self) -> float:
        return 1_800_000_000.0

    def monotonic(self) -> float:
        return 1.0


class Alive:
    """The accounts and objects that are there, as (kind, namespace, name, uid)."""

    def __init__(self) -> None:
        self.there = {
            ("ServiceAccount", "ns", "web", "u1"),
            ("Pod", "ns", "web-0", "u2"),
            ("Node", "", "n1", "u3"),
            ("Secret", "ns", "s", "u4"),
        }

    async def exists(self, namespace: str, name: str, uid: str) -> bool:
        return ("ServiceAccount", namespace, name, uid) in self.there

    async def bound_exists(self, kind: str, namespace: str, name: str, uid: str) -> bool:
        return (kind, namespace, name, uid) in self.there


@pytest.fixture(scope="module")
def tokens():
    return Tokens(ec.generate_private_key(ec.SECP256R1()), "https://issuer", ["api"], StoppedClock())


@pytest.fixture
def alive():
    return Alive()


@pytest.fixture
def authenticator(tokens, alive):
    return Authenticator(tokens, alive, static={"s3cret": User("ci", "7", ("builders",))})


CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"
ADMIN = Certificate("kubernetes-admin", ("system:masters",))


def asking(certificate: Certificate | None = None, **headers: str) -> Request:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Request(method="GET", path="/api", headers=named, certificate=certificate)


async def refused(authenticator: Authenticator, request: Request) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await authenticator.authenticate(request)
    return caught.value


async def acting(authenticator: Authenticator, request: Request, roles: Roles | None = None) -> User:
    user = await authenticator.authenticate(request)
    return impersonated(user, request.headers, Authorizer(roles or Roles()))


async def not_acting(authenticator: Authenticator, request: Request, roles: Roles | None = None) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await acting(authenticator, request, roles)
    return caught.value


async def test_a_certificate_names_user_and_groups(authenticator):
    user = await authenticator.authenticate(asking(ADMIN))
    assert user == User("kubernetes-admin", groups=("system:masters", "system:authenticated"))


async def test_a_certificate_is_named_by_its_fingerprint(authenticator):
    user = await authenticator.authenticate(asking(Certificate("jane", fingerprint="ab12")))
    assert user.extra == {CREDENTIAL_ID: ("X509SHA256=ab12",)}


async def test_a_component_of_a_node_has_both_its_node_and_its_credential(authenticator):
    group = "system:podwire:network-driver"
    user = await authenticator.authenticate(asking(Certificate(f"{group}:n1", (group,), fingerprint="ab12")))
    assert user.extra == {CREDENTIAL_ID: ("X509SHA256=ab12",), "authentication.kubernetes.io/node-name": ("n1",)}


async def test_impersonation_does_not_carry_the_credential_over(authenticator):
    admin = Certificate("kubernetes-admin", ("system:masters",), fingerprint="ab12")
    assert (await acting(authenticator, asking(admin, impersonate_user="jane"))).extra == {}


async def test_without_credentials_one_is_anonymous(authenticator):
    user = await authenticator.authenticate(asking())
    assert user == User("system:anonymous", groups=("system:unauthenticated",))


async def test_a_certificate_without_a_name_is_none(authenticator):
    assert (await authenticator.authenticate(asking(Certificate("", ("ops",))))).name == "system:anonymous"


async def test_a_certificate_goes_before_a_token(authenticator):
    user = await authenticator.authenticate(asking(ADMIN, authorization="Bearer nonsense"))
    assert user.name == "kubernetes-admin"


async def test_a_service_account_token_names_account_pod_and_node(authenticator, tokens):
    token = tokens.issue("ns", "web", "u1", pod=Named("web-0", "u2"), node=Named("n1", "u3")).token
    user = await authenticator.authenticate(asking(authorization=f"Bearer {token}"))
    credential = user.extra["authentication.kubernetes.io/credential-id"]
    assert credential == (f"JTI={tokens.verify(token).jti}",)
    assert user == User(
        "system:serviceaccount:ns:web",
        "u1",
        ("system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"),
        {
            "authentication.kubernetes.io/credential-id": credential,
            "authentication.kubernetes.io/node-name": ("n1",),
            "authentication.kubernetes.io/node-uid": ("u3",),
            "authentication.kubernetes.io/pod-name": ("web-0",),
            "authentication.kubernetes.io/pod-uid": ("u2",),
        },
    )


@pytest.mark.parametrize(
    ("bound", "gone"),
    [
        pytest.param({}, ("ServiceAccount", "ns", "web", "u1"), id="the account"),
        pytest.param({"pod": Named("web-0", "u2")}, ("Pod", "ns", "web-0", "u2"), id="the pod"),
        pytest.param({"secret": Named("s", "u4")}, ("Secret", "ns", "s", "u4"), id="the secret"),
        pytest.param({"node": Named("n1", "u3")}, ("Node", "", "n1", "u3"), id="the node"),
    ],
)
async def test_a_token_dies_with(authenticator, tokens, alive, bound, gone):
    request = asking(authorization=f"Bearer {tokens.issue('ns', 'web', 'u1', **bound).token}")
    await authenticator.authenticate(request)
    alive.there.remove(gone)
    alive.there.add((*gone[:3], "a namesake made later"))
    assert (await refused(authenticator, request)).code == 401


async def test_a_pods_token_outlives_the_node_that_it_only_names(authenticator, tokens, alive):
    token = tokens.issue("ns", "web", "u1", pod=Named("web-0", "u2"), node=Named("n1", "u3")).token
    alive.there.remove(("Node", "", "n1", "u3"))
    assert (await authenticator.authenticate(asking(authorization=f"Bearer {token}"))).uid == "u1"


@pytest.mark.parametrize("offered", ["Bearer s3cret", "bearer   s3cret ", "BEARER s3cret"])
async def test_a_static_token_makes_its_user(authenticator, offered):
    user = await authenticator.authenticate(asking(authorization=offered))
    assert user == User("ci", "7", ("builders", "system:authenticated"))


@pytest.mark.parametrize(
    "offered",
    [
        "Bearer nonsense",
        "Bearer",
        "Bearer ",
        "",
        "Basic dTpw",
        "Bearer a.b.c",
        "Bearer \udc80",
        "s3cret",
        "Bearer " + "x" * 99_999,
    ],
)
async def test_bad_credentials_are_refused_and_never_anonymous(authenticator, offered):
    error = await refused(authenticator, asking(authorization=offered))
    assert (error.code, error.reason, error.message) == (401, "Unauthorized", "Unauthorized")


async def test_a_refusal_is_logged_with_its_reason_and_without_the_token(authenticator, tokens, caplog):
    token = tokens.issue("ns", "gone", "u9").token
    with caplog.at_level(logging.INFO, "podwire.apiserver"):
        await refused(authenticator, asking(authorization=f"Bearer {token}"))
    [record] = caplog.records
    assert record.error == "its service account is gone"
    assert token.split(".")[2] not in str(vars(record))


async def test_a_token_review_may_ask_for_another_audience(authenticator, tokens):
    token = tokens.issue("ns", "web", "u1", audiences=["vault"]).token
    assert (await authenticator.authenticate_token(token, ["vault"])).uid == "u1"
    with pytest.raises(BadToken):
        await authenticator.authenticate_token(token)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        pytest.param({"impersonate_user": "jane"}, User("jane", groups=("system:authenticated",)), id="a user"),
        pytest.param(
            {"impersonate_user": "jane", "impersonate_group": "devs, ops"},
            User("jane", groups=("devs", "ops", "system:authenticated")),
            id="with groups",
        ),
        pytest.param(
            {"impersonate_user": "jane", "impersonate_uid": "7", "impersonate_extra_acme.com%2fteam": "a,b"},
            User("jane", "7", ("system:authenticated",), {"acme.com/team": ("a", "b")}),
            id="with uid and extra",
        ),
        pytest.param(
            {"impersonate_user": "system:serviceaccount:ns:web"},
            User(
                "system:serviceaccount:ns:web",
                groups=("system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"),
            ),
            id="a service account",
        ),
        pytest.param(
            {"impersonate_user": "system:anonymous"},
            User("system:anonymous", groups=("system:unauthenticated",)),
            id="anonymous",
        ),
        pytest.param(
            {"impersonate_user": "jane", "impersonate_group": "system:unauthenticated"},
            User("jane", groups=("system:unauthenticated",)),
            id="somebody who is not authenticated",
        ),
    ],
)
async def test_system_masters_may_act_as(authenticator, headers, expected):
    assert await acting(authenticator, asking(ADMIN, **headers)) == expected


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        pytest.param(
            {"impersonate_user": "jane", "impersonate_group": "system:masters"},
            'users "jane" is forbidden: User "bob" cannot impersonate resource "users" in API group "" '
            "at the cluster scope",
            id="a user",
        ),
        pytest.param(
            {"impersonate_user": "system:serviceaccount:ns:web"},
            'serviceaccounts "web" is forbidden: User "bob" cannot impersonate resource "serviceaccounts" '
            'in API group "" in the namespace "ns"',
            id="a service account",
        ),
    ],
)
async def test_other_users_may_not_impersonate(authenticator, headers, message):
    error = await not_acting(authenticator, asking(Certificate("bob"), **headers))
    assert (error.code, error.message) == (403, message)


@pytest.mark.parametrize("header", ["impersonate_group", "impersonate_uid", "impersonate_extra_x"])
async def test_acting_in_a_group_needs_a_user(authenticator, header):
    error = await not_acting(authenticator, asking(ADMIN, **{header: "system:masters"}))
    assert error.code == 400
    assert "Impersonate-User is missing" in error.message


async def test_an_anonymous_user_may_not_impersonate(authenticator):
    error = await not_acting(authenticator, asking(impersonate_user="jane"))
    assert (error.code, 'User "system:anonymous" cannot impersonate' in error.message) == (403, True)


GROUPS = {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["groups"], "resourceNames": ["devs"]}
USERS = {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"]}
EXTRAS = {
    "verbs": ["impersonate"],
    "apiGroups": ["authentication.k8s.io"],
    "resources": ["userextras/scopes", "uids"],
    "resourceNames": ["view", "7"],
}


def roles_with(*rules):
    roles = Roles()
    roles.put(f"{CLUSTER_ROLES}r", msgspec.json.encode({"rules": rules}))
    subjects = [{"kind": "User", "name": "bob"}]
    binding = {"roleRef": {"kind": "ClusterRole", "name": "r"}, "subjects": subjects}
    roles.put(f"{CLUSTER_BINDINGS}b", msgspec.json.encode(binding))
    return roles


async def test_a_role_may_allow_to_impersonate_users_groups_and_extra_values(authenticator):
    headers = {"impersonate_group": "devs", "impersonate_uid": "7", "impersonate_extra_scopes": "view"}
    request = asking(Certificate("bob"), impersonate_user="jane", **headers)

    user = await acting(authenticator, request, roles_with(USERS, GROUPS, EXTRAS))

    assert user == User("jane", "7", ("devs", "system:authenticated"), {"scopes": ("view",)})


@pytest.mark.parametrize(
    ("headers", "refusal"),
    [
        pytest.param({"impersonate_group": "system:masters"}, 'groups "system:masters" is forbidden', id="a group"),
        pytest.param({"impersonate_group": "devs,ops"}, 'groups "ops" is forbidden', id="one of two groups"),
        pytest.param({"impersonate_uid": "8"}, 'uids.authentication.k8s.io "8" is forbidden', id="a uid"),
        pytest.param({"impersonate_extra_scopes": "all"}, '"all" is forbidden', id="an extra value"),
        pytest.param({"impersonate_extra_other": "view"}, 'resource "userextras/other"', id="an extra key"),
    ],
)
async def test_every_group_uid_and_extra_value_needs_its_own_permission(authenticator, headers, refusal):
    request = asking(Certificate("bob"), impersonate_user="jane", **headers)

    error = await not_acting(authenticator, request, roles_with(USERS, GROUPS, EXTRAS))

    assert error.code == 403
    assert refusal in error.message


async def test_the_servers_own_certificate_for_kubelets_is_refused(authenticator):
    error = await refused(authenticator, asking(Certificate("kube-apiserver-kubelet-client", ("system:masters",))))
    assert error.code == 401


async def test_the_driver_of_a_node_is_known_to_be_there(authenticator):
    group = "system:podwire:network-driver"
    user = await authenticator.authenticate(asking(Certificate(f"{group}:n1", (group,))))
    stranger = await authenticator.authenticate(asking(Certificate(f"{group}:n1", ("devs",))))

    assert user.extra == {"authentication.kubernetes.io/node-name": ("n1",)}
    assert stranger.extra == {}
