"""RBAC roles and bindings in memory, compiled so that a decision is a few lookups. Decisions do no I/O.

    role      its rules become a table by (verb, group, resource); `*` is an entry like any other
    user      the tables of all roles that are bound to the user or to one of the groups are merged when the user first
              asks, once for the cluster and once for each namespace with bindings
    decision  at most 2 x 2 x 3 lookups (the verb or `*`, the group or `*`, the resource, `*` or `*/subresource`)

Merged tables are dropped when any role or binding changes, which is rare, and are rebuilt by the next request.
"""

from collections.abc import Collection, Iterable, Iterator

import msgspec

from podwire.apiserver.identity.rules import AccessRequest, Rule, RuleTable
from podwire.apiserver.identity.users import ACCOUNT_PREFIX, User
from podwire.kinds.resource import PREFIX

CLUSTER_ROLES, ROLES = f"{PREFIX}clusterroles/", f"{PREFIX}roles/"
CLUSTER_BINDINGS, BINDINGS = f"{PREFIX}clusterrolebindings/", f"{PREFIX}rolebindings/"
PLACES = (CLUSTER_ROLES, ROLES, CLUSTER_BINDINGS, BINDINGS)

MOST_USERS = 4096
"""Merged tables that are kept; all are dropped when there are more."""
LONGEST_USER = 16 * 1024
"""Characters of a user's name and groups. Access reviews may name any; the tables of longer ones are not kept."""


class _Role(msgspec.Struct, frozen=True):
    rules: tuple[Rule, ...] | None = ()


class _Ref(msgspec.Struct, frozen=True):
    kind: str = ""
    name: str = ""


class _Subject(msgspec.Struct, frozen=True):
    kind: str = ""
    name: str = ""
    namespace: str = ""

    def described(self, namespace: str) -> str:
        if self.kind == "ServiceAccount":
            return f'{self.kind} "{self.name}/{self.namespace or namespace}"'
        return f'{self.kind} "{self.name}"'

    def is_for(self, name: str, groups: Collection[str], namespace: str) -> bool:
        match self.kind:
            case "User":
                return self.name == name
            case "Group":
                return self.name in groups
            case "ServiceAccount":
                return name == f"{ACCOUNT_PREFIX}{self.namespace or namespace}:{self.name}"
            case _:
                return False


class _Meta(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str = ""


class _Binding(msgspec.Struct, frozen=True, rename="camel"):
    metadata: _Meta = _Meta()
    role_ref: _Ref = _Ref()
    subjects: tuple[_Subject, ...] | None = ()

    @property
    def role(self) -> str:
        """The storage key of the role."""
        return role_key(self.role_ref.kind, self.metadata.namespace, self.role_ref.name)

    def reason(self, user: str, groups: Collection[str]) -> str:
        """Returns upstream's words for the binding by which a user has a role; empty for other users."""
        namespace = self.metadata.namespace
        for subject in self.subjects or ():
            if subject.is_for(user, groups, namespace):
                kind = "RoleBinding" if namespace else "ClusterRoleBinding"
                name = f"{self.metadata.name}/{namespace}" if namespace else self.metadata.name
                role, to = self.role_ref, subject.described(namespace)
                return f'RBAC: allowed by {kind} "{name}" of {role.kind} "{role.name}" to {to}'
        return ""


def role_key(kind: str, namespace: str, name: str) -> str:
    """Returns the storage key of a role that a binding refers to."""
    return f"{CLUSTER_ROLES}{name}" if kind == "ClusterRole" else f"{ROLES}{namespace}/{name}"


_read_role = msgspec.json.Decoder(_Role).decode
_read_binding = msgspec.json.Decoder(_Binding).decode


_Key = tuple[str, tuple[str, ...], str]
_NOTHING = RuleTable()


class Roles:
    """All roles and bindings, by their storage keys.

    They change in the event loop, and are asked about in the worker for large requests too: a change replaces the cache
    of tables, so that a table which was made of what was there before it is not remembered.
    """

    def __init__(self) -> None:
        self._rules: dict[str, tuple[Rule, ...]] = {}
        self._bindings: dict[str, dict[str, _Binding]] = {}
        """By namespace (empty for cluster-wide ones) and storage key."""
        self._tables: dict[_Key, RuleTable] = {}

    def put(self, place: str, value: bytes) -> None:
        if place.startswith((CLUSTER_ROLES, ROLES)):
            self._rules[place] = _read_role(value).rules or ()
        else:
            self._bindings.setdefault(_namespace(place), {})[place] = _read_binding(value)
        self._tables = {}

    def drop(self, place: str) -> None:
        self._rules.pop(place, None)
        if bindings := self._bindings.get(namespace := _namespace(place)):
            bindings.pop(place, None)
            if not bindings:
                del self._bindings[namespace]
        self._tables = {}

    def keep(self, prefix: str, places: Iterable[str]) -> None:
        """Removes everything under a prefix that does not exist any more."""
        present = {*places}
        known = [*self._rules, *(place for bindings in self._bindings.values() for place in bindings)]
        for place in known:
            if place.startswith(prefix) and place not in present:
                self.drop(place)

    def reason(self, user: User, asked: AccessRequest) -> str:
        """Returns why a user may do something; empty when no role allows it.

        A RoleBinding grants within its namespace only, whichever role it names.
        """
        reason = self._table(user, "").reason(asked)
        if not reason and asked.namespace:
            reason = self._table(user, asked.namespace).reason(asked)
        return reason

    def allow(self, user: User, asked: AccessRequest) -> bool:
        return bool(self.reason(user, asked))

    def rules_of(self, user: User, namespace: str) -> list[Rule]:
        """Returns the rules of a user, cluster-wide ones first."""
        namespaces = ("", namespace) if namespace else ("",)
        return [rule for place in namespaces for rules, _ in self._granted(user, place) for rule in rules]

    def role(self, kind: str, namespace: str, name: str) -> tuple[Rule, ...] | None:
        """Returns the rules of a role; None when it does not exist."""
        return self._rules.get(role_key(kind, namespace, name))

    def _table(self, user: User, namespace: str) -> RuleTable:
        if namespace not in self._bindings:
            return _NOTHING
        key = (user.name, user.groups, namespace)
        tables = self._tables
        table = tables.get(key)
        if table is None:
            table = RuleTable()
            for rules, reason in self._granted(user, namespace):
                table.add(rules, reason)
            if len(user.name) + sum(map(len, user.groups)) <= LONGEST_USER:
                if len(tables) >= MOST_USERS:
                    tables.clear()
                tables[key] = table
        return table

    def _granted(self, user: User, namespace: str) -> Iterator[tuple[tuple[Rule, ...], str]]:
        """Yields the rules of each role that is bound to a user in a namespace, or cluster-wide, with the reason."""
        groups = frozenset(user.groups)
        for binding in [*self._bindings.get(namespace, {}).values()]:
            if reason := binding.reason(user.name, groups):
                yield self._rules.get(binding.role, ()), reason


def _namespace(place: str) -> str:
    return place.removeprefix(BINDINGS).partition("/")[0] if place.startswith(BINDINGS) else ""
