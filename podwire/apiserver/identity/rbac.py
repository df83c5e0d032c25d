"""RBAC rules and bindings, cached in memory. Decisions do no I/O."""

from collections.abc import Iterable, Iterator

import msgspec

from podwire.apiserver.identity.users import ACCOUNT_PREFIX, User
from podwire.kinds.resource import PREFIX

CLUSTER_ROLES, ROLES = f"{PREFIX}clusterroles/", f"{PREFIX}roles/"
CLUSTER_BINDINGS, BINDINGS = f"{PREFIX}clusterrolebindings/", f"{PREFIX}rolebindings/"
PLACES = (CLUSTER_ROLES, ROLES, CLUSTER_BINDINGS, BINDINGS)


class AccessRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An access request. `resource` is empty for non-resource requests, which have a `path`."""

    verb: str
    group: str = ""
    resource: str = ""
    """With its subresource: `pods/log`."""
    namespace: str = ""
    name: str = ""
    path: str = ""


class Rule(msgspec.Struct, frozen=True, rename="camel"):
    verbs: tuple[str, ...] = ()
    api_groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()
    paths: tuple[str, ...] = msgspec.field(default=(), name="nonResourceURLs")

    def allows(self, asked: AccessRequest) -> bool:
        if not _named(asked.verb, self.verbs):
            return False
        if not asked.resource:
            return any(_under(asked.path, path) for path in self.paths)
        return (
            _named(asked.group, self.api_groups)
            and any(_matches(asked.resource, resource) for resource in self.resources)
            and (not self.resource_names or asked.name in self.resource_names)
        )


def _named(word: str, words: Iterable[str]) -> bool:
    return any(allowed in ("*", word) for allowed in words)


def _matches(resource: str, given: str) -> bool:
    """Matches `*`, `pods`, `pods/log` and `*/scale`; `pods` does not match a subresource."""
    _, slash, part = resource.partition("/")
    return given in ("*", resource) or bool(slash and given == f"*/{part}")


def _under(path: str, given: str) -> bool:
    return path == given or (given.endswith("*") and path.startswith(given[:-1]))


class _Role(msgspec.Struct, frozen=True):
    rules: tuple[Rule, ...] | None = ()


class _Ref(msgspec.Struct, frozen=True):
    kind: str = ""
    name: str = ""


class _Subject(msgspec.Struct, frozen=True):
    kind: str = ""
    name: str = ""
    namespace: str = ""


class _Meta(msgspec.Struct, frozen=True):
    namespace: str = ""


class _Binding(msgspec.Struct, frozen=True, rename="camel"):
    metadata: _Meta = _Meta()
    role_ref: _Ref = _Ref()
    subjects: tuple[_Subject, ...] | None = ()

    @property
    def role(self) -> str:
        """The storage key of the role."""
        if self.role_ref.kind == "ClusterRole":
            return f"{CLUSTER_ROLES}{self.role_ref.name}"
        return f"{ROLES}{self.metadata.namespace}/{self.role_ref.name}"

    def is_for(self, user: User) -> bool:
        return any(_is(subject, user, self.metadata.namespace) for subject in self.subjects or ())


def _is(subject: _Subject, user: User, namespace: str) -> bool:
    match subject.kind:
        case "User":
            return subject.name == user.name
        case "Group":
            return subject.name in user.groups
        case "ServiceAccount":
            return user.name == f"{ACCOUNT_PREFIX}{subject.namespace or namespace}:{subject.name}"
        case _:
            return False


_read_role = msgspec.json.Decoder(_Role).decode
_read_binding = msgspec.json.Decoder(_Binding).decode


class Roles:
    """All roles and bindings, by their storage keys."""

    def __init__(self) -> None:
        self._rules: dict[str, tuple[Rule, ...]] = {}
        self._bindings: dict[str, _Binding] = {}

    def put(self, place: str, value: bytes) -> None:
        if place.startswith((CLUSTER_ROLES, ROLES)):
            self._rules[place] = _read_role(value).rules or ()
        else:
            self._bindings[place] = _read_binding(value)

    def drop(self, place: str) -> None:
        self._rules.pop(place, None)
        self._bindings.pop(place, None)

    def keep(self, prefix: str, places: Iterable[str]) -> None:
        """Removes everything under a prefix that does not exist any more."""
        there = {*places}
        for table in (self._rules, self._bindings):
            for place in [key for key in table if key.startswith(prefix) and key not in there]:
                self.drop(place)

    def allow(self, user: User, asked: AccessRequest) -> bool:
        return any(rule.allows(asked) for rule in self._rules_of(user, asked.namespace))

    def _rules_of(self, user: User, namespace: str) -> Iterator[Rule]:
        """Yields the rules of a user; a RoleBinding grants within its namespace only, whichever role it names."""
        for place, binding in self._bindings.items():
            here = place.startswith(CLUSTER_BINDINGS) or (namespace and binding.metadata.namespace == namespace)
            if here and binding.is_for(user):
                yield from self._rules.get(binding.role, ())
