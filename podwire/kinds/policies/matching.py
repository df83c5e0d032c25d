"""Matching of requests with policies and bindings: rules for resources, and selectors of objects and namespaces."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from podwire.objects.selectors import EVERYTHING, LabelSelector, from_object
from podwire.protocols.k8sapi.kinds import Kind

Json = Mapping[str, Any]
ALL = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The target of a request. `namespace` is, for a namespace itself, its own name."""

    verb: str
    kind: Kind
    subresource: str
    namespace: str
    name: str

    @property
    def is_namespace(self) -> bool:
        return self.kind.resource == "namespaces" and not self.kind.group

    @property
    def cluster_wide(self) -> bool:
        return self.is_namespace or not self.namespace


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One of a policy's resourceRules."""

    operations: frozenset[str]
    groups: frozenset[str]
    versions: frozenset[str]
    resources: frozenset[tuple[str, str]]
    """With their subresources; empty for the resource itself."""
    scope: str
    names: frozenset[str]

    def matches(self, target: Target, kind: Kind) -> bool:
        """Returns whether the rule matches the request, with `kind` as its resource."""
        return (
            _among(self.operations, target.verb)
            and _among(self.groups, kind.group)
            and _among(self.versions, kind.version)
            and self._resource(kind.resource, target.subresource)
            and (self.scope == ALL or (self.scope == "Cluster") == target.cluster_wide)
            and (not self.names or target.name in self.names)
        )

    def _resource(self, resource: str, part: str) -> bool:
        return any((mine, its) in self.resources for mine in (resource, ALL) for its in (part, ALL))


def _among(allowed: frozenset[str], word: str) -> bool:
    return word in allowed or ALL in allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraints:
    """matchConstraints of a policy, matchResources of a binding."""

    rules: tuple[Rule, ...] = ()
    excluded: tuple[Rule, ...] = ()
    equivalent: bool = True
    """A rule for one version of a resource is meant for all of them."""
    objects: LabelSelector = EVERYTHING
    namespaces: LabelSelector = EVERYTHING

    def kind_for(self, target: Target, others: Iterable[Kind]) -> Kind | None:
        """Returns the kind in which the request is evaluated: its own, or one of the `others`, which are the same
        objects in other versions. None when no rule matches."""
        others = tuple(others) if self.equivalent else ()
        if _ruled(self.excluded, target, others) is not None:
            return None
        return _ruled(self.rules, target, others) if self.rules else target.kind

    def names(self, resource: str) -> bool:
        """Returns whether the rules can match a resource at all."""
        words = {word for rule in self.rules for word, _ in rule.resources}
        return not self.rules or resource in words or ALL in words

    def picks(self, *objects: Json | None) -> bool:
        """Returns whether the selector matches the new object or the old one."""
        if self.objects.everything:
            return True
        return any(
            obj is not None and self.objects.matches((obj.get("metadata") or {}).get("labels") or {}) for obj in objects
        )


def _ruled(rules: Sequence[Rule], target: Target, others: Sequence[Kind]) -> Kind | None:
    if any(candidate.matches(target, target.kind) for candidate in rules):
        return target.kind
    return next((kind for rule in rules for kind in others if rule.matches(target, kind)), None)


def constraints(resources: Json | None) -> Constraints:
    """MatchResources, compiled; without any, everything matches. Raises ValueError for a selector that is none."""
    if resources is None:
        return Constraints()
    return Constraints(
        rules=tuple(map(_rule, resources.get("resourceRules") or ())),
        excluded=tuple(map(_rule, resources.get("excludeResourceRules") or ())),
        equivalent=resources.get("matchPolicy") == "Equivalent",
        objects=from_object(resources.get("objectSelector") or {}),
        namespaces=from_object(resources.get("namespaceSelector") or {}),
    )


def _rule(rule: Json) -> Rule:
    parts = (path.partition("/") for path in rule.get("resources") or ())
    return Rule(
        operations=frozenset(rule.get("operations") or ()),
        groups=frozenset(rule.get("apiGroups") or ()),
        versions=frozenset(rule.get("apiVersions") or ()),
        resources=frozenset((resource, part) for resource, _, part in parts),
        scope=rule.get("scope") or ALL,
        names=frozenset(rule.get("resourceNames") or ()),
    )
