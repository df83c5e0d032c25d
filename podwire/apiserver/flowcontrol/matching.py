"""FlowSchemas as functions: which requests they match, and to which flow a request belongs. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from podwire.apiserver.identity.authorization import Attributes
from podwire.apiserver.identity.users import User

ALL = "*"


@dataclass(frozen=True, slots=True)
class FlowSchema:
    """One FlowSchema. `flow` is what distinguishes flows: requests of one flow wait for each other first."""

    name: str
    uid: str
    level: str
    precedence: int
    rules: tuple["Rule", ...]
    flow: Callable[[User, Attributes], str]

    def matches(self, user: User, attributes: Attributes) -> bool:
        return any(rule.matches(user, attributes) for rule in self.rules)


@dataclass(frozen=True, slots=True)
class Rule:
    """Any of the subjects, and any of the rules for resources (or for paths, where the request is for a path)."""

    users: frozenset[str]
    groups: frozenset[str]
    accounts: frozenset[tuple[str, str]]
    resources: tuple["ResourceRule", ...]
    paths: tuple["PathRule", ...]

    def matches(self, user: User, attributes: Attributes) -> bool:
        if not self._is_subject(user):
            return False
        rules: tuple[ResourceRule | PathRule, ...] = self.resources if attributes.resource else self.paths
        return any(rule.matches(attributes) for rule in rules)

    def _is_subject(self, user: User) -> bool:
        if user.name in self.users or ALL in self.users or ALL in self.groups:
            return True
        if not self.groups.isdisjoint(user.groups):
            return True
        if not self.accounts or (account := user.account) is None:
            return False
        return account in self.accounts or (account[0], ALL) in self.accounts


@dataclass(frozen=True, slots=True)
class ResourceRule:
    verbs: frozenset[str]
    groups: frozenset[str]
    resources: frozenset[str]
    namespaces: frozenset[str]
    cluster_scope: bool

    def matches(self, attributes: Attributes) -> bool:
        resource = attributes.resource
        if attributes.subresource:
            resource = f"{resource}/{attributes.subresource}"
        if attributes.namespace:
            in_scope = ALL in self.namespaces or attributes.namespace in self.namespaces
        else:
            in_scope = self.cluster_scope
        return (
            in_scope
            and _within(attributes.verb, self.verbs)
            and _within(attributes.group, self.groups)
            and _within(resource, self.resources)
        )


@dataclass(frozen=True, slots=True)
class PathRule:
    verbs: frozenset[str]
    paths: frozenset[str]

    def matches(self, attributes: Attributes) -> bool:
        return _within(attributes.verb, self.verbs) and (
            _within(attributes.path, self.paths)
            or any(path.endswith("/*") and attributes.path.startswith(path[:-1]) for path in self.paths)
        )


def read_flow_schema(obj: Mapping[str, Any]) -> FlowSchema:
    spec, metadata = obj["spec"], obj["metadata"]
    return FlowSchema(
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        level=spec["priorityLevelConfiguration"]["name"],
        precedence=spec.get("matchingPrecedence") or 1000,
        rules=tuple(map(_rule, spec.get("rules") or ())),
        flow=_FLOWS[(spec.get("distinguisherMethod") or {}).get("type", "")],
    )


_FLOWS: Mapping[str, Callable[[User, Attributes], str]] = {
    "": lambda _user, _attributes: "",
    "ByUser": lambda user, _attributes: user.name,
    "ByNamespace": lambda _user, attributes: attributes.namespace,
}


def _rule(rule: Mapping[str, Any]) -> Rule:
    subjects = rule.get("subjects") or ()
    return Rule(
        users=frozenset(subject["user"]["name"] for subject in subjects if subject["kind"] == "User"),
        groups=frozenset(subject["group"]["name"] for subject in subjects if subject["kind"] == "Group"),
        accounts=frozenset(
            (subject["serviceAccount"]["namespace"], subject["serviceAccount"]["name"])
            for subject in subjects
            if subject["kind"] == "ServiceAccount"
        ),
        resources=tuple(
            ResourceRule(
                verbs=frozenset(entry["verbs"]),
                groups=frozenset(entry["apiGroups"]),
                resources=frozenset(entry["resources"]),
                namespaces=frozenset(entry.get("namespaces") or ()),
                cluster_scope=bool(entry.get("clusterScope")),
            )
            for entry in rule.get("resourceRules") or ()
        ),
        paths=tuple(
            PathRule(frozenset(entry["verbs"]), frozenset(entry["nonResourceURLs"]))
            for entry in rule.get("nonResourceRules") or ()
        ),
    )


def _within(value: str, values: frozenset[str]) -> bool:
    return value in values or ALL in values
