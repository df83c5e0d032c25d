"""Builds the default roles and bindings as objects from their tables, and reconciles stored ones with them. Pure."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from podwire.apiserver.identity import default_roles
from podwire.apiserver.identity.controller_roles import CONTROLLER_ROLES
from podwire.apiserver.identity.rules import Rule, uncovered
from podwire.kinds.stored import Object

GROUP = "rbac.authorization.k8s.io"
RESOURCES = ("clusterroles", "roles", "clusterrolebindings", "rolebindings")
AUTOUPDATE = "rbac.authorization.kubernetes.io/autoupdate"
BOOTSTRAPPING = {"kubernetes.io/bootstrapping": "rbac-defaults"}

_VERBS = {
    "read": "get,list,watch",
    "write": "create,delete,deletecollection,patch,update",
    "readwrite": "create,delete,deletecollection,get,list,patch,update,watch",
    "readupdate": "get,list,patch,update,watch",
}
_SUBJECTS = {"user": "User", "group": "Group"}


class Default(NamedTuple):
    """A default role or binding."""

    resource: str
    namespace: str
    object: Object


def defaults() -> Iterator[Default]:
    """Yields all default objects, roles before bindings."""
    yield from _cluster_roles(default_roles.CLUSTER_ROLES)
    yield from _cluster_roles(CONTROLLER_ROLES)
    yield from _cluster_roles(default_roles.COMPONENT_ROLES)
    yield from _aggregated()
    for place, rules in _roles(default_roles.ROLES):
        namespace, _, name = place.partition("/")
        yield Default("roles", namespace, _object(name, rules=rules))
    yield from _cluster_bindings(default_roles.CLUSTER_BINDINGS)
    yield from _cluster_bindings(default_roles.COMPONENT_BINDINGS)
    for name, _ in _roles(CONTROLLER_ROLES):
        account = {"kind": "ServiceAccount", "name": name.rpartition(":")[2], "namespace": "kube-system"}
        yield Default("clusterrolebindings", "", _binding(name, "ClusterRole", name, [account]))
    for place, subjects in _bindings(default_roles.BINDINGS):
        namespace, _, names = place.partition("/")
        name, _, role = names.partition("=")
        yield Default("rolebindings", namespace, _binding(name, "Role", role or name, subjects))


def node_rules() -> tuple[Rule, ...]:
    """Returns the rules of the role of kubelets."""
    rules = next(rules for name, rules in _roles(default_roles.CLUSTER_ROLES) if name == "system:node")
    return msgspec.convert(rules, tuple[Rule, ...])


def _cluster_roles(table: str) -> Iterator[Default]:
    labels = {f"system:{label}": label for label, _ in default_roles.AGGREGATED.values()}
    labels["system:aggregated-metrics-reader"] = "aggregate-to-view"
    for name, rules in _roles(table):
        yield Default("clusterroles", "", _object(name, label=labels.get(name, ""), rules=rules))


def _aggregated() -> Iterator[Default]:
    """Yields roles whose rules are those of other roles; aggregation fills them in."""
    for name, (selected, label) in default_roles.AGGREGATED.items():
        selector = {"matchLabels": {f"{GROUP}/{selected}": "true"}}
        rule = {"clusterRoleSelectors": [selector]}
        yield Default("clusterroles", "", _object(name, label=label, aggregationRule=rule, rules=[]))


def _cluster_bindings(table: str) -> Iterator[Default]:
    for name, subjects in _bindings(table):
        yield Default("clusterrolebindings", "", _binding(name, "ClusterRole", name, subjects))


def _object(name: str, *, label: str = "", **content: Any) -> Object:
    labels = {**BOOTSTRAPPING, **({f"{GROUP}/{label}": "true"} if label else {})}
    return {"metadata": {"name": name, "labels": labels, "annotations": {AUTOUPDATE: "true"}}, **content}


def _binding(name: str, kind: str, role: str, subjects: list[Object]) -> Object:
    reference = {"apiGroup": GROUP, "kind": kind, "name": role}
    binding = _object(name, roleRef=reference)
    return {**binding, "subjects": subjects} if subjects else binding


# The notation.


def _lines(table: str, indented: str) -> Iterator[str]:
    """Yields lines, joined with those that are indented by at least so much and continue them."""
    whole = ""
    for line in table.strip("\n").splitlines():
        if whole and line.startswith(indented):
            whole += f" {line.strip()}"
            continue
        if whole:
            yield whole
        whole = line
    yield whole


def _roles(table: str) -> Iterator[tuple[str, list[Object]]]:
    name, rules = "", list[Object]()
    for line in _lines(table, "      "):
        if line.startswith(" "):
            rules.append(_rule(line.strip()))
            continue
        if name:
            yield name, rules
        name, rules = line, []
    yield name, rules


def _rule(text: str) -> Object:
    subject, _, objects = text.partition(": ")
    verbs, groups = subject.split(" ")
    rule: Object = {"verbs": _VERBS.get(verbs, verbs).split(",")}
    words = objects.split()
    if groups == "urls":
        return {**rule, "nonResourceURLs": words}
    rule["apiGroups"] = ["" if group == "core" else group for group in groups.split(",")]
    rule["resources"] = [word for word in words if word[0] != "@"]
    if names := [word[1:] for word in words if word[0] == "@"]:
        rule["resourceNames"] = names
    return rule


def _bindings(table: str) -> Iterator[tuple[str, list[Object]]]:
    for line in _lines(table, "    "):
        name, _, subjects = f"{line} ".partition(": ")
        yield name, [_subject(word) for word in subjects.split()]


def _subject(word: str) -> Object:
    kind, _, name = word.partition(":")
    if kind == "account":
        namespace, _, name = name.partition("/")
        return {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    return {"apiGroup": GROUP, "kind": _SUBJECTS[kind], "name": name}


# Reconciliation.


def reconciled(stored: Object, default: Object) -> Object:
    """Returns a stored object with everything that it lacks of its default; the object itself if it lacks nothing.

    Rules and subjects that somebody added stay. The annotation `autoupdate: "false"` keeps an object as it is.
    """
    metadata = stored["metadata"]
    if (metadata.get("annotations") or {}).get(AUTOUPDATE) == "false":
        return stored
    wanted = default["metadata"]
    merged = {part: {**wanted[part], **(metadata.get(part) or {})} for part in ("labels", "annotations")}
    changed = {**stored, "metadata": {**metadata, **merged}}
    if "roleRef" in default:
        present = stored.get("subjects") or []
        if missing := [subject for subject in default.get("subjects", ()) if subject not in present]:
            changed["subjects"] = [*present, *missing]
    else:
        _add_rules(changed, default)
    return changed if changed != stored else stored


def _add_rules(role: Object, default: Object) -> None:
    rules, wanted_rules = role.get("rules") or [], default["rules"]
    if rules != wanted_rules:  # coverage costs more than equality
        held = msgspec.convert(rules, tuple[Rule, ...])
        if missing := uncovered(held, msgspec.convert(wanted_rules, tuple[Rule, ...])):
            role["rules"] = [*rules, *msgspec.to_builtins(missing)]
    wanted = default.get("aggregationRule")
    if wanted is None:
        role.pop("aggregationRule", None)
        return
    selectors = (role.get("aggregationRule") or {}).get("clusterRoleSelectors") or []
    if lacking := [selector for selector in wanted["clusterRoleSelectors"] if selector not in selectors]:
        role["aggregationRule"] = {"clusterRoleSelectors": [*selectors, *lacking]}
