"""Decides whether quotas allow a write, and what it adds to their usage. Pure; the words are upstream's."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from podwire.kinds.podspec.resource_totals import ZERO, Amounts, amounts
from podwire.kinds.quota.evaluators import Evaluator
from podwire.kinds.quota.scopes import Requirement, requirements

Object = Mapping[str, Any]


class Refused(Exception):
    """A quota does not allow the write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitedResource:
    """A resource that may not be used where no quota covers it, by the configuration of the plugin."""

    group: str = ""
    resource: str
    match_contains: tuple[str, ...] = ()
    match_scopes: tuple[Requirement, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A write to an object of a counted kind."""

    evaluator: Evaluator
    obj: Object
    old: Object | None = None
    status_only: bool = False
    """A write to the status is counted, and never refused."""
    now: float = 0.0

    @property
    def usage(self) -> Amounts:
        return self.evaluator.usage(self.obj, self.now)


def matches(quota: Object, evaluator: Evaluator, obj: Object) -> bool:
    """Returns whether an object counts for a quota."""
    hard = (quota.get("status") or {}).get("hard") or {}
    if not evaluator.matching(hard):
        return False
    return all(evaluator.matches_scope(requirement, obj) for requirement in requirements(quota))


def check(quotas: Sequence[Object], change: Change, limited: Sequence[LimitedResource] = ()) -> dict[str, Amounts]:
    """Returns what the write adds to the usage of each quota, by name; raises Refused."""
    evaluator, obj = change.evaluator, change.obj
    counting = [quota for quota in quotas if matches(quota, evaluator, obj)]
    restricted: set[str] = set()
    for quota in counting:
        name, status = quota["metadata"]["name"], quota.get("status") or {}
        resources = evaluator.matching(status.get("hard") or {})
        if missing := evaluator.unspecified(resources, obj):
            raise Refused(f"failed quota: {name}: {missing}")
        if not set(resources) <= (status.get("used") or {}).keys():
            raise Refused(f"status unknown for quota: {name}, resources: {','.join(sorted(resources))}")
        restricted.update(resources)
    if negative := sorted(name for name, amount in change.usage.items() if amount < ZERO):
        raise Refused(f"quota usage is negative for resource(s): {','.join(negative)}")
    added = {quota["metadata"]["name"]: _added(quota, change) for quota in counting}
    grows = any(added.values()) if counting else bool(_without_zeros(_growth(change)))
    if grows and limited:
        _check_covered(change, limited, restricted, quotas)
    for quota in counting:
        _check_hard(quota, added[quota["metadata"]["name"]], change)
    return {name: amounts_ for name, amounts_ in added.items() if amounts_}


def _growth(change: Change) -> Amounts:
    """Returns what an object uses more than before."""
    if change.old is None:
        return change.usage
    before = change.evaluator.usage(change.old, change.now)
    grown = {name: amount - before.get(name, ZERO) for name, amount in change.usage.items()}
    return {name: max(ZERO, amount) for name, amount in grown.items()}


def _added(quota: Object, change: Change) -> Amounts:
    """Returns what a write adds to one quota: all that the object uses if it did not count for it before."""
    counted_before = change.old is not None and matches(quota, change.evaluator, change.old)
    growth = _growth(change) if counted_before or change.old is None else change.usage
    hard = (quota.get("status") or {}).get("hard") or {}
    return {name: amount for name, amount in _without_zeros(growth).items() if name in hard}


def _without_zeros(given: Amounts) -> Amounts:
    return {name: amount for name, amount in given.items() if amount}


def _check_hard(quota: Object, added: Amounts, change: Change) -> None:
    if change.status_only:
        return
    hard, used = amounts(quota["status"]["hard"]), amounts(quota["status"].get("used"))
    exceeded = [name for name, amount in added.items() if used.get(name, ZERO) + amount > hard[name]]
    if exceeded:
        parts = (("requested", added), ("used", used), ("limited", hard))
        words = ", ".join(f"{what}: {shown({name: of[name] for name in exceeded})}" for what, of in parts)
        raise Refused(f"exceeded quota: {quota['metadata']['name']}, {words}")


def _check_covered(
    change: Change, limited: Sequence[LimitedResource], restricted: set[str], quotas: Iterable[Object]
) -> None:
    used = {name for name, amount in change.usage.items() if amount > ZERO}
    words = [word for resource in limited for word in resource.match_contains]
    uncovered = sorted(name for name in used - restricted if any(word in name for word in words))
    if uncovered:
        raise Refused(f"insufficient quota to consume: {','.join(uncovered)}")
    scopes = {
        requirement.get("scopeName")
        for quota in quotas
        for requirement in requirements(quota)
        if change.evaluator.matches_scope(requirement, change.obj)
    }
    needed = [
        requirement
        for resource in limited
        for requirement in resource.match_scopes
        if change.evaluator.matches_scope(requirement, change.obj) and requirement.get("scopeName") not in scopes
    ]
    if needed:
        listed = " ".join(
            f"{{{scope.get('scopeName')} {scope.get('operator')} [{' '.join(scope.get('values') or ())}]}}"
            for scope in needed
        )
        raise Refused(f"insufficient quota to match these scopes: [{listed}]")


def shown(given: Amounts) -> str:
    return ",".join(f"{name}={given[name]}" for name in sorted(given))


def total(quota: Object, evaluator: Evaluator, objects: Iterable[Object], now: float) -> Amounts:
    """Returns what objects of one kind use of a quota's resources, zeros included."""
    hard = (quota.get("spec") or {}).get("hard") or {}
    names = evaluator.matching(hard)
    used = dict.fromkeys(names, ZERO)
    needed = requirements(quota)
    for obj in objects:
        if all(evaluator.matches_scope(requirement, obj) for requirement in needed):
            for name, amount in evaluator.usage(obj, now).items():
                if name in used:
                    used[name] = used[name] + amount
    return used
