"""RBAC rules: what one rule allows, and whether rules cover others. Pure."""

import json
from collections.abc import Iterable, Iterator, Sequence

import msgspec


class AccessRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An access request. `resource` is empty for non-resource requests, which have a `path`."""

    verb: str
    group: str = ""
    resource: str = ""
    """With its subresource: `pods/log`."""
    namespace: str = ""
    name: str = ""
    path: str = ""


class Rule(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A PolicyRule."""

    verbs: tuple[str, ...] = ()
    api_groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()
    paths: tuple[str, ...] = msgspec.field(default=(), name="nonResourceURLs")

    def allows(self, asked: AccessRequest) -> bool:
        if not _named(asked.verb, self.verbs):
            return False
        if not asked.resource:
            return any(below(asked.path, path) for path in self.paths)
        return (
            _named(asked.group, self.api_groups)
            and any(_matches(asked.resource, resource) for resource in self.resources)
            and (not self.resource_names or asked.name in self.resource_names)
        )


EVERYTHING = (
    Rule(verbs=("*",), api_groups=("*",), resources=("*",)),
    Rule(verbs=("*",), paths=("*",)),
)
"""The rules of cluster-admin."""


def _named(word: str, words: Iterable[str]) -> bool:
    return any(allowed in ("*", word) for allowed in words)


def _matches(resource: str, given: str) -> bool:
    """Matches `*`, `pods`, `pods/log` and `*/scale`; `pods` does not match a subresource."""
    _, slash, part = resource.partition("/")
    return given in ("*", resource) or bool(slash and given == f"*/{part}")


def below(path: str, given: str) -> bool:
    """Returns whether a path is the given one, or is below it when that ends in an asterisk."""
    return path == given or (given.endswith("*") and path.startswith(given.rstrip("*")))


def break_down(rules: Iterable[Rule]) -> Iterator[Rule]:
    """Yields rules with one verb, one group, one resource and at most one name each, which together allow the same."""
    for rule in rules:
        for group in rule.api_groups:
            for resource in rule.resources:
                for verb in rule.verbs:
                    for name in rule.resource_names or ("",):
                        yield Rule((verb,), (group,), (resource,), (name,) if name else ())
        for path in rule.paths:
            for verb in rule.verbs:
                yield Rule(verbs=(verb,), paths=(path,))


def uncovered(held: Sequence[Rule], wanted: Iterable[Rule]) -> list[Rule]:
    """Returns the parts of the wanted rules that no single held rule covers."""
    return [part for part in break_down(wanted) if not any(_covers(rule, part) for rule in held)]


def _covers(rule: Rule, part: Rule) -> bool:
    """Returns whether a rule allows everything that a broken-down one does."""
    if not _named(part.verbs[0], rule.verbs):
        return False
    if part.paths:
        return any(below(part.paths[0], path) for path in rule.paths)
    return (
        _named(part.api_groups[0], rule.api_groups)
        and any(_matches(part.resources[0], resource) for resource in rule.resources)
        and (not rule.resource_names or bool(part.resource_names and part.resource_names[0] in rule.resource_names))
    )


def describe(parts: Iterable[Rule]) -> str:
    """Returns broken-down rules as upstream prints them: one line for each resource, with all its verbs."""
    lines: set[str] = set()
    by_resource: dict[tuple[tuple[str, ...], ...], list[str]] = {}
    for part in parts:
        if part.paths:
            lines.add(_described(NonResourceURLs=part.paths, Verbs=part.verbs))
        else:
            by_resource.setdefault((part.api_groups, part.resources, part.resource_names), []).extend(part.verbs)
    for (groups, resources, names), verbs in by_resource.items():
        lines.add(_described(APIGroups=groups, Resources=resources, ResourceNames=names, Verbs=verbs))
    return "\n".join(sorted(lines))


def _described(**fields: Sequence[str]) -> str:
    return "{" + ", ".join(f"{field}:{quoted(values)}" for field, values in fields.items() if values) + "}"


def quoted(words: Iterable[str]) -> str:
    """Returns words as Go prints a list of quoted strings."""
    return "[" + " ".join(json.dumps(word, ensure_ascii=False) for word in words) + "]"
