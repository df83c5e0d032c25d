"""Prevents privilege escalation: nobody grants by a role or binding what they may not do themselves.

| write | allowed for |
|---|---|
| Role, ClusterRole | users that have all its rules, or the verb `escalate` on it |
| ClusterRole with an aggregation rule, which can select anything | users that may do everything, or `escalate` |
| RoleBinding, ClusterRoleBinding | users that have all rules of the role, or the verb `bind` on the role |

Changes of owners and finalizers alone are free, so that the garbage collector can work.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from podwire.apiserver.admission.chain import WRITES, AdmissionPlugin, Operation
from podwire.apiserver.identity.authorization import Attributes, Authorizer
from podwire.apiserver.identity.rbac import Roles
from podwire.apiserver.identity.rules import (
    EVERYTHING,
    MOST_COMBINATIONS,
    Rule,
    TooManyCombinations,
    describe,
    quoted,
    uncovered,
)
from podwire.apiserver.identity.users import MASTERS, User
from podwire.kinds.stored import Object
from podwire.protocols.k8sapi.status import ApiError, access_denied, not_found, qualified

GROUP = "rbac.authorization.k8s.io"
_ROLES = ("roles", "clusterroles")
_BINDINGS = ("rolebindings", "clusterrolebindings")
_REFERENCES = {"Role": "roles", "ClusterRole": "clusterroles"}
_FREE = ("ownerReferences", "finalizers", "managedFields", "resourceVersion")
_TOO_MANY = (
    f"the rules have more than {MOST_COMBINATIONS} combinations of verbs, groups, resources and names, "
    "which are not compared with the permissions of the user; write several roles"
)
_AGGREGATION = "must have cluster-admin privileges to use the aggregationRule"


@dataclass(frozen=True, slots=True)
class RoleEscalation(AdmissionPlugin):
    """Refuses roles and bindings that would grant more than their author has."""

    authorizer: Authorizer
    roles: Roles

    verbs = WRITES
    resources = frozenset((GROUP, name) for name in (*_ROLES, *_BINDINGS))

    async def admit(self, operation: Operation) -> None:
        if MASTERS in operation.user.groups:
            return
        if operation.old is not None and _free(operation.obj) == _free(operation.old):
            return
        if operation.resource.name in _ROLES:
            self._check_role(operation)
        else:
            self._check_binding(operation)

    def _check_role(self, operation: Operation) -> None:
        name = operation.name if operation.old is not None else ""
        if self._may(operation, "escalate", operation.resource.name, name):
            return
        rules = msgspec.convert(operation.obj.get("rules") or (), tuple[Rule, ...])
        self._require(operation, rules)
        if any(map(_aggregates, (operation.obj, operation.old or {}))):
            held = self.roles.rules_of(operation.user, operation.namespace)
            if uncovered(held, EVERYTHING):
                raise _refused(operation, _AGGREGATION)

    def _check_binding(self, operation: Operation) -> None:
        reference = operation.obj.get("roleRef") or {}
        kind, name = reference.get("kind", ""), reference.get("name", "")
        resource = _REFERENCES.get(kind)
        if resource is None or reference.get("apiGroup", GROUP) != GROUP or not name:
            return  # validation refuses it
        if self._may(operation, "bind", resource, name):
            return
        rules = self.roles.role(kind, operation.namespace, name)
        if rules is None:
            raise not_found(resource, name, group=GROUP)
        self._require(operation, rules)

    def _may(self, operation: Operation, verb: str, resource: str, name: str) -> bool:
        attributes = Attributes(
            verb=verb, group=GROUP, version="*", resource=resource, namespace=operation.namespace, name=name
        )
        return self.authorizer.check(operation.user, attributes).allowed

    def _require(self, operation: Operation, rules: Sequence[Rule]) -> None:
        try:
            missing = uncovered(self.roles.rules_of(operation.user, operation.namespace), rules)
        except TooManyCombinations:
            raise _refused(operation, _TOO_MANY) from None
        if missing:
            raise _refused(operation, f"{_attempt(operation.user)}\n{describe(missing)}")


def _attempt(user: User) -> str:
    who = f'user "{user.name}" (groups={quoted(user.groups)})'
    return f"{who} is attempting to grant RBAC permissions not currently held:"


def _free(obj: Object) -> Object:
    """Returns an object without the fields that anybody who may write it may change."""
    metadata = {key: value for key, value in obj["metadata"].items() if key not in _FREE}
    return {**obj, "metadata": metadata}


def _aggregates(role: Object) -> bool:
    return bool((role.get("aggregationRule") or {}).get("clusterRoleSelectors"))


def _refused(operation: Operation, why: str) -> ApiError:
    resource = operation.resource
    message = f'{qualified(resource.name, resource.group)} "{operation.name}" is forbidden: {why}'
    return access_denied(message, resource=resource.name, name=operation.name, group=resource.group)
