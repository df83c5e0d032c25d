"""RBAC rules: what one rule allows, tables of what many allow, and whether rules cover others. Pure."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

MOST_COMBINATIONS = 20_000
"""Combinations of verbs, groups, resources and names of one rule that are put into a table, or of rules that are
compared with others. A rule of three megabytes can have 10^15."""
MOST_ENTRIES = 200_000
"""Combinations in one table."""


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

    @property
    def combinations(self) -> int:
        """The number of rules with one verb, group, resource and name that together allow the same."""
        resources = len(self.api_groups) * len(self.resources) * max(1, len(self.resource_names))
        return len(self.verbs) * (resources + len(self.paths))

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


class _Grant(NamedTuple):
    """The reason why something is allowed: for every name, or for some names only."""

    always: str
    names: dict[str, str]


@dataclass(slots=True)
class RuleTable:
    """Everything that rules allow, with the reason: of one user in the cluster or in one namespace."""

    resources: dict[tuple[str, str, str], _Grant] = field(default_factory=dict)
    paths: list[tuple[str, str, str]] = field(default_factory=list)
    """Verb, path and reason."""
    wide: list[tuple[Rule, str]] = field(default_factory=list)
    """Rules with too many combinations for a table, which are matched one by one."""
    size: int = 0

    def add(self, rules: Iterable[Rule], reason: str) -> None:
        for rule in rules:
            count = rule.combinations
            if count > MOST_COMBINATIONS or self.size + count > MOST_ENTRIES:
                self.wide.append((rule, reason))
                continue
            self.size += count
            for verb in rule.verbs:
                self.paths.extend((verb, path, reason) for path in rule.paths)
                for group in rule.api_groups:
                    for resource in rule.resources:
                        self._add((verb, group, resource), rule.resource_names, reason)

    def _add(self, key: tuple[str, str, str], names: tuple[str, ...], reason: str) -> None:
        grant = self.resources.get(key)
        if grant is None:
            grant = self.resources[key] = _Grant("" if names else reason, {})
        elif not names and not grant.always:
            self.resources[key] = _Grant(reason, grant.names)
        for name in names:
            grant.names.setdefault(name, reason)

    def reason(self, asked: AccessRequest) -> str:
        """Returns why something is allowed; empty if it is not."""
        resource = asked.resource
        if not resource:
            allowed = (path for path in self.paths if path[0] in ("*", asked.verb) and below(asked.path, path[1]))
            return next(allowed, ("", "", ""))[2] or self._among_wide(asked)
        _, slash, part = resource.partition("/")
        alike = (resource, "*", f"*/{part}") if slash else (resource, "*")
        find = self.resources.get
        for verb in (asked.verb, "*"):
            for group in (asked.group, "*"):
                for word in alike:
                    grant = find((verb, group, word))
                    if grant is not None and (reason := grant.always or grant.names.get(asked.name, "")):
                        return reason
        return self._among_wide(asked) if self.wide else ""

    def _among_wide(self, asked: AccessRequest) -> str:
        return next((reason for rule, reason in self.wide if rule.allows(asked)), "")


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


class TooManyCombinations(Exception):
    """Rules that would take too long to compare."""


def uncovered(held: Iterable[Rule], wanted: Sequence[Rule]) -> list[Rule]:
    """Returns the parts of the wanted rules that no single held rule covers. Raises TooManyCombinations."""
    if sum(rule.combinations for rule in wanted) > MOST_COMBINATIONS:
        raise TooManyCombinations
    table = RuleTable()
    table.add(held, "held")
    return [part for part in break_down(wanted) if not table.reason(_as_request(part))]


def _as_request(part: Rule) -> AccessRequest:
    """Returns a broken-down rule as a request: a rule covers the part exactly if it allows the request, since `*` in
    the part is allowed by `*` alone."""
    return AccessRequest(
        verb=part.verbs[0],
        group=next(iter(part.api_groups), ""),
        resource=next(iter(part.resources), ""),
        name=next(iter(part.resource_names), ""),
        path=next(iter(part.paths), ""),
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
