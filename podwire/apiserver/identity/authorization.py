"""Authorization: system:masters may do everything, then nodes are asked about, then roles.

| user | may |
|---|---|
| of the group system:masters | everything |
| a kubelet: system:node:NAME of the group system:nodes | what its pods need, see `node_authorizer.py` |
| anybody, kubelets included | what roles and bindings grant, see `rbac.py` and `default_roles.py` |

A new cluster binds health and version to anonymous users, and discovery and reviews of oneself to authenticated ones.
"""

from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from podwire.apiserver.identity.rbac import Roles
from podwire.apiserver.identity.rules import EVERYTHING, AccessRequest, Rule
from podwire.apiserver.identity.users import MASTERS, User
from podwire.protocols.k8sapi.status import ApiError, access_denied, qualified


class Attributes(msgspec.Struct, frozen=True, kw_only=True):
    """The attributes of a request. `resource` is empty for non-resource requests, which have a `path`."""

    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    fields: tuple[tuple[str, str], ...] = ()
    """Fields of the field selector that must equal a value."""

    @property
    def key(self) -> tuple[str, ...]:
        """The attributes that rules match, except the name of the object: a key for caches of decisions."""
        return self.verb, self.group, self.resource, self.subresource, self.namespace, self.path


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision; `reason` is for reviews and logs."""

    allowed: bool
    reason: str = ""


class NodeDecisions(Protocol):
    """Decides about the requests of kubelets."""

    def check(self, user: User, attributes: Attributes) -> Decision | None:
        """Returns None for users that are not kubelets."""
        ...


MASTER = Decision(allowed=True, reason="member of system:masters")
_REFUSED = Decision(allowed=False)


@dataclass(frozen=True, slots=True)
class Authorizer:
    """Decides by name and groups alone, so that an access review gives the answer that the user would get."""

    roles: Roles = field(default_factory=Roles)
    nodes: NodeDecisions | None = None

    def check(self, user: User, attributes: Attributes) -> Decision:
        if MASTERS in user.groups:
            return MASTER
        by_node = self.nodes.check(user, attributes) if self.nodes is not None else None
        if by_node is not None and by_node.allowed:
            return by_node
        part = attributes.subresource
        reason = self.roles.reason(
            user,
            AccessRequest(
                verb=attributes.verb,
                group=attributes.group,
                resource=f"{attributes.resource}/{part}" if part else attributes.resource,
                namespace=attributes.namespace,
                name=attributes.name,
                path=attributes.path,
            ),
        )
        return Decision(allowed=True, reason=reason) if reason else by_node or _REFUSED

    def require(self, user: User, attributes: Attributes) -> None:
        """Raises Forbidden unless the request is allowed."""
        decision = self.check(user, attributes)
        if not decision.allowed:
            raise forbidden(user, attributes, decision.reason)

    def rules_of(self, user: User, namespace: str) -> list[Rule]:
        """Returns the rules of a user in a namespace; what the node authorizer allows is not a rule."""
        return [*EVERYTHING] if MASTERS in user.groups else self.roles.rules_of(user, namespace)


def forbidden(user: User, attributes: Attributes, reason: str = "") -> ApiError:
    """Returns upstream's error text, which users search for and tools match."""
    who = f'User "{user.name}" cannot {attributes.verb}'
    because = f": {reason}" if reason else ""
    if not attributes.resource:
        return access_denied(f'forbidden: {who} path "{attributes.path}"{because}')
    resource, part = attributes.resource, attributes.subresource
    what = qualified(resource, attributes.group) + (f' "{attributes.name}"' if attributes.name else "")
    whole = f"{resource}/{part}" if part else resource
    where = f'in the namespace "{attributes.namespace}"' if attributes.namespace else "at the cluster scope"
    return access_denied(
        f'{what} is forbidden: {who} resource "{whole}" in API group "{attributes.group}" {where}{because}',
        resource=resource,
        name=attributes.name,
        group=attributes.group,
    )
