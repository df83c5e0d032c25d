"""Authorization by the kind of user, and for service accounts by RBAC:

| user | may |
|---|---|
| system:masters, other users of a certificate or static token | everything |
| service account | read its namespace except secrets; discovery, health, version; self reviews; what roles grant |
| anonymous | health and version |

This server does not check for privilege escalation when a role is written, so no service account may write roles or
bindings: it could grant itself anything.
"""

from dataclasses import dataclass

from podwire.apiserver.identity.rbac import AccessRequest, Roles
from podwire.apiserver.identity.users import ACCOUNT_PREFIX, ANONYMOUS, MASTERS, UNAUTHENTICATED, User
from podwire.protocols.k8sapi.status import ApiError, access_denied, qualified

HEALTH = frozenset({"/healthz", "/livez", "/readyz"})
VERSION = frozenset({"/version", "/version/"})
ISSUER = frozenset({"/.well-known/openid-configuration", "/openid/v1/jwks"})
_PUBLIC_PATHS = HEALTH | VERSION
_ACCOUNT_PATHS = _PUBLIC_PATHS | ISSUER | {"/api", "/apis", "/openapi"}
_ACCOUNT_PREFIXES = ("/api/", "/apis/", "/openapi/", "/healthz/", "/livez/", "/readyz/")

_READING = frozenset({"get", "list", "watch"})
_READABLE_PARTS = frozenset({"", "log", "scale", "status"})
"""Subresources whose `get` only reads; a `get` of exec, attach, portforward or proxy acts."""

_ROLES_GROUP = "rbac.authorization.k8s.io"

_SELF_REVIEWS = frozenset(
    {
        ("authentication.k8s.io", "selfsubjectreviews"),
        ("authorization.k8s.io", "selfsubjectaccessreviews"),
        ("authorization.k8s.io", "selfsubjectrulesreviews"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attributes:
    """The attributes of a request. `resource` is empty for non-resource requests, which have a `path`."""

    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision; `reason` is for reviews and logs."""

    allowed: bool
    reason: str = ""


_MASTER = Decision(allowed=True, reason="member of system:masters")
_TRUSTED = Decision(allowed=True, reason="holds a certificate or static token of this cluster")
_PUBLIC = Decision(allowed=True, reason="open to everybody")
_ACCOUNT = Decision(allowed=True, reason="open to service accounts")
_OWN_NAMESPACE = Decision(allowed=True, reason="a service account may read its own namespace")
_BY_ROLE = Decision(allowed=True, reason="RBAC: a role of this service account allows it")
_REFUSED = Decision(allowed=False)


class Authorizer:
    """Decides by name and groups alone, so that an access review gives the answer that the user would get."""

    def __init__(self, roles: Roles | None = None) -> None:
        self._roles = roles or Roles()

    def check(self, user: User, attributes: Attributes) -> Decision:
        if MASTERS in user.groups:
            return _MASTER
        if user.name == ANONYMOUS or UNAUTHENTICATED in user.groups:
            return _PUBLIC if _is_public(attributes) else _REFUSED
        if user.name.startswith(ACCOUNT_PREFIX):
            return self._for_account(user, attributes)
        return _TRUSTED

    def _for_account(self, user: User, attributes: Attributes) -> Decision:
        account = user.account
        if account is None:
            return _REFUSED
        decision = _for_account(account[0], attributes)
        writes_roles = attributes.group == _ROLES_GROUP and attributes.verb not in _READING
        if decision.allowed or writes_roles or not self._roles.allow(user, _asked(attributes)):
            return decision
        return _BY_ROLE

    def require(self, user: User, attributes: Attributes) -> None:
        """Raises Forbidden unless the request is allowed."""
        if not self.check(user, attributes).allowed:
            raise forbidden(user, attributes)


def _is_public(attributes: Attributes) -> bool:
    return not attributes.resource and attributes.verb == "get" and attributes.path in _PUBLIC_PATHS


def _asked(attributes: Attributes) -> AccessRequest:
    part = f"/{attributes.subresource}" if attributes.subresource else ""
    return AccessRequest(
        verb=attributes.verb,
        group=attributes.group,
        resource=f"{attributes.resource}{part}",
        namespace=attributes.namespace,
        name=attributes.name,
        path=attributes.path,
    )


def _for_account(namespace: str, attributes: Attributes) -> Decision:
    if not attributes.resource:
        path = attributes.path
        known = path in _ACCOUNT_PATHS or path.startswith(_ACCOUNT_PREFIXES)
        return _ACCOUNT if attributes.verb == "get" and known else _REFUSED
    if (attributes.group, attributes.resource) in _SELF_REVIEWS:
        return _ACCOUNT if attributes.verb == "create" else _REFUSED
    reads = attributes.verb in _READING and attributes.subresource in _READABLE_PARTS
    if reads and attributes.namespace == namespace and (attributes.group, attributes.resource) != ("", "secrets"):
        return _OWN_NAMESPACE
    return _REFUSED


def forbidden(user: User, attributes: Attributes) -> ApiError:
    """Returns upstream's error text, which users search for and tools match."""
    who = f'User "{user.name}" cannot {attributes.verb}'
    if not attributes.resource:
        return access_denied(f'forbidden: {who} path "{attributes.path}"')
    resource, part = attributes.resource, attributes.subresource
    what = qualified(resource, attributes.group) + (f' "{attributes.name}"' if attributes.name else "")
    whole = f"{resource}/{part}" if part else resource
    where = f'in the namespace "{attributes.namespace}"' if attributes.namespace else "at the cluster scope"
    return access_denied(
        f'{what} is forbidden: {who} resource "{whole}" in API group "{attributes.group}" {where}',
        resource=resource,
        name=attributes.name,
        group=attributes.group,
    )
