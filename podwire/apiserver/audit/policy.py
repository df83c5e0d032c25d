"""Audit policies (audit.k8s.io/v1): what is recorded of which requests. Pure, but for reading the file."""

import enum
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podwire.apiserver.identity.authorization import Attributes
from podwire.apiserver.identity.users import User
from podwire.objects import names
from podwire.protocols.settings import BadConfig, Read, flag, list_of, mapped, one_of, parsed

MOST_REMEMBERED = 10_000
"""Kinds of requests whose decision is cached."""


class Level(enum.IntEnum):
    NONE = 0
    METADATA = 1
    REQUEST = 2
    REQUEST_RESPONSE = 3


LEVELS = {
    "None": Level.NONE,
    "Metadata": Level.METADATA,
    "Request": Level.REQUEST,
    "RequestResponse": Level.REQUEST_RESPONSE,
}
LEVEL_NAMES = {level: name for name, level in LEVELS.items()}

RECEIVED, STARTED, COMPLETE, PANIC = "RequestReceived", "ResponseStarted", "ResponseComplete", "Panic"
STAGES = (RECEIVED, STARTED, COMPLETE, PANIC)


@dataclass(frozen=True, slots=True)
class Decision:
    """How much is recorded of a request."""

    level: Level
    omit_stages: frozenset[str] = frozenset()
    omit_managed_fields: bool = False


NOTHING = Decision(Level.NONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupResources:
    """Resources of one group: all of them, or these: `pods`, `pods/log`, `*/status`, `pods/*`, `*`."""

    group: str = ""
    resources: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    def matches(self, attributes: Attributes) -> bool:
        if attributes.group != self.group:
            return False
        if not self.resources:
            return True
        if self.names and attributes.name not in self.names:
            return False
        resource, subresource = attributes.resource, attributes.subresource
        whole = f"{resource}/{subresource}" if subresource else resource
        return any(
            pattern in (whole, "*")
            or (subresource and pattern == f"*/{subresource}")
            or (pattern.endswith("/*") and pattern[:-2] == resource)
            for pattern in self.resources
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The first rule whose every condition holds decides; a condition that is not given always holds."""

    decision: Decision
    users: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    verbs: frozenset[str] = frozenset()
    resources: tuple[GroupResources, ...] = ()
    namespaces: frozenset[str] = frozenset()
    urls: tuple[str, ...] = ()

    def matches(self, user: User | None, attributes: Attributes) -> bool:
        if self.users and (user is None or user.name not in self.users):
            return False
        if self.groups and (user is None or self.groups.isdisjoint(user.groups)):
            return False
        if self.verbs and attributes.verb not in self.verbs:
            return False
        if self.namespaces or self.resources:
            if not attributes.resource:
                return False
            if self.namespaces and attributes.namespace not in self.namespaces:
                return False
            return not self.resources or any(entry.matches(attributes) for entry in self.resources)
        if self.urls:
            return not attributes.resource and any(_matches_url(url, attributes.path) for url in self.urls)
        return True


def _matches_url(pattern: str, path: str) -> bool:
    return pattern in ("*", path) or (pattern.endswith("*") and path.startswith(pattern.rstrip("*")))


class Policy:
    """Decides by the rules, in their order; a request that no rule matches is not recorded."""

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self._rules = rules
        self._by_name = any(entry.names for rule in rules for entry in rule.resources)
        self._cache: dict[tuple[Any, ...], Decision] = {}

    def decide(self, user: User | None, attributes: Attributes) -> Decision:
        """`user` is None for a request whose authentication failed."""
        key = (
            user and (user.name, user.groups),
            attributes.key,
            attributes.name if self._by_name else "",
        )
        decision = self._cache.get(key)
        if decision is None:
            if len(self._cache) >= MOST_REMEMBERED:
                self._cache.clear()
            found = (rule.decision for rule in self._rules if rule.matches(user, attributes))
            decision = self._cache[key] = next(found, NOTHING)
        return decision


def read_policy(path: str | os.PathLike[str]) -> Policy:
    """Raises BadConfig, which names the field and the reason, and OSError."""
    return policy_of(parsed(Path(path).read_bytes(), path))


def policy_of(document: object) -> Policy:
    """Raises BadConfig."""
    keys: dict[str, Read] = {
        "apiVersion": one_of("audit.k8s.io/v1"),
        "kind": one_of("Policy"),
        "metadata": _anything,
        "omitStages": _omit_stages,
        "omitManagedFields": flag,
        "rules": list_of(_rule),
    }
    read = mapped("", document, keys, required=("apiVersion", "kind", "rules"))
    stages, managed = read.get("omitStages", frozenset()), read.get("omitManagedFields", False)
    return Policy(tuple(make(stages, managed) for make in read["rules"]))


_MakeRule = Callable[[frozenset[str], bool], Rule]
"""Makes a rule of the stages and of `omitManagedFields` that the policy has for all rules."""


def _rule(key: str, value: object) -> _MakeRule:
    read = mapped(key, value, _RULE, required=("level",))
    if read.get("nonResourceURLs") and (read.get("resources") or read.get("namespaces")):
        reason = "rules cannot apply to both regular resources and non-resource URLs"
        raise BadConfig(f"{key}.nonResourceURLs", reason)

    def make(stages: frozenset[str], managed: bool) -> Rule:
        return Rule(
            decision=Decision(
                LEVELS[read["level"]],
                stages | read.get("omitStages", frozenset()),
                read.get("omitManagedFields", managed),
            ),
            users=frozenset(read.get("users", ())),
            groups=frozenset(read.get("userGroups", ())),
            verbs=frozenset(read.get("verbs", ())),
            resources=read.get("resources", ()),
            namespaces=frozenset(read.get("namespaces", ())),
            urls=read.get("nonResourceURLs", ()),
        )

    return make


def _anything(_key: str, value: object) -> object:
    return value


def _text(key: str, value: object) -> str:
    if not isinstance(value, str):
        raise BadConfig(key, "must be a string")
    return value


def _texts(key: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise BadConfig(key, "must be a list of strings")
    return tuple(_text(f"{key}[{index}]", item) for index, item in enumerate(value))


def _omit_stages(key: str, value: object) -> frozenset[str]:
    stages = _texts(key, value)
    for index, stage in enumerate(stages):
        if stage not in STAGES:
            raise BadConfig(f"{key}[{index}]", f"{stage!r}: allowed stages are {','.join(STAGES)}")
    return frozenset(stages)


def _urls(key: str, value: object) -> tuple[str, ...]:
    urls = _texts(key, value)
    for index, url in enumerate(urls):
        if url != "*" and not url.startswith("/"):
            raise BadConfig(f"{key}[{index}]", f"{url!r}: non-resource URL rules must begin with a '/' character")
        if "*" in url[:-1]:
            reason = "non-resource URL wildcards '*' must be the final character of the rule"
            raise BadConfig(f"{key}[{index}]", f"{url!r}: {reason}")
    return urls


def _group(key: str, value: object) -> str:
    group = _text(key, value)
    if group and (problems := names.dns_subdomain(group)):
        raise BadConfig(key, f"{group!r}: {','.join(problems)}")
    return group


def _group_resources(key: str, value: object) -> GroupResources:
    keys: dict[str, Read] = {"group": _group, "resources": _texts, "resourceNames": _texts}
    read = mapped(key, value, keys, renamed={"resourceNames": "names"})
    if read.get("names") and not read.get("resources"):
        raise BadConfig(f"{key}.resourceNames", "using resourceNames requires at least one resource")
    return GroupResources(**read)


_RULE: dict[str, Read] = {
    "level": one_of(*LEVELS),
    "users": _texts,
    "userGroups": _texts,
    "verbs": _texts,
    "resources": list_of(_group_resources),
    "namespaces": _texts,
    "nonResourceURLs": _urls,
    "omitStages": _omit_stages,
    "omitManagedFields": flag,
}
