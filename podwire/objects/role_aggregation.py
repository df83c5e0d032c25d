"""Aggregated ClusterRoles: their rules are those of all ClusterRoles that their selectors pick. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from podwire.objects.selectors import from_object

Object = dict[str, Any]

MOST_PASSES = 8
"""Aggregated roles may consist of aggregated roles; each pass settles one level."""


def aggregated(role: Object, roles: Iterable[Object]) -> list[Object] | None:
    """Returns the rules of an aggregated role: those of all roles that its selectors pick, each rule once.

    None for a role without an aggregation rule. The order is upstream's: by selector, then by name of the role.
    """
    aggregation = role.get("aggregationRule")
    if aggregation is None:
        return None
    others = sorted(roles, key=lambda other: str(other["metadata"]["name"]))
    rules: list[Object] = []
    for selector in map(from_object, aggregation.get("clusterRoleSelectors") or ()):
        for other in others:
            labels: Mapping[str, str] = other["metadata"].get("labels") or {}
            if other["metadata"]["name"] == role["metadata"]["name"] or not selector.matches(labels):
                continue
            rules.extend(rule for rule in other.get("rules") or () if rule not in rules)
    return rules


def outdated(roles: Mapping[str, Object]) -> dict[str, list[Object]]:
    """Returns the rules that aggregated roles should have and do not have, by the keys of the roles."""
    settled, changed = dict(roles), dict[str, list[Object]]()
    for _ in range(MOST_PASSES):
        found = {
            key: rules
            for key, role in settled.items()
            if (rules := aggregated(role, settled.values())) is not None and rules != (role.get("rules") or [])
        }
        if not found:
            break
        changed |= found
        settled |= {key: {**settled[key], "rules": rules} for key, rules in found.items()}
    return {key: rules for key, rules in changed.items() if rules != (roles[key].get("rules") or [])}
