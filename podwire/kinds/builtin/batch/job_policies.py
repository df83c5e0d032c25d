"""Checks the two policies of a Job: which failures end it, and which successes are enough."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from podwire.kinds.field_checks import Choice, Errors, Object, named, non_negative
from podwire.objects import names
from podwire.protocols.k8sapi.status import OMITTED, duplicate, invalid, required, too_long, too_many

MOST_RULES, MOST_EXIT_CODES, MOST_PATTERNS = 20, 255, 20
LONGEST_INDEXES = 64 * 1024
_ACTIONS = Choice(("Count", "FailIndex", "FailJob", "Ignore"))
_OPERATORS = Choice(("In", "NotIn"))
_STATUSES = Choice(("False", "True", "Unknown"))


def _choose(choice: Choice, value: str, path: str, errors: Errors) -> None:
    if value:
        choice.check(value, path, errors)
    else:
        values = " ".join(f'"{allowed}"' for allowed in choice.values)
        errors.append(required(path, f"valid values: [{values}]"))


def failure_policy(spec: Object, path: str, errors: Errors) -> None:
    """Checks `podFailurePolicy`."""
    rules = (spec.get("podFailurePolicy") or {}).get("rules") or ()
    if len(rules) > MOST_RULES:
        errors.append(too_many(f"{path}.rules", len(rules), MOST_RULES))
    pod = (spec.get("template") or {}).get("spec") or {}
    containers = {
        container.get("name") for part in ("containers", "initContainers") for container in pod.get(part) or ()
    }
    for index, rule in enumerate(rules):
        _failure_rule(spec, rule, containers, f"{path}.rules[{index}]", errors)


def _failure_rule(spec: Object, rule: Object, containers: set[Any], path: str, errors: Errors) -> None:
    action = rule.get("action") or ""
    if action == "FailIndex":
        if spec.get("backoffLimitPerIndex") is None:
            errors.append(invalid(f"{path}.action", action, "requires the backoffLimitPerIndex to be set"))
    else:
        _choose(_ACTIONS, action, f"{path}.action", errors)
    codes, patterns = rule.get("onExitCodes"), rule.get("onPodConditions") or ()
    if codes is not None:
        _exit_codes(codes, containers, f"{path}.onExitCodes", errors)
    if len(patterns) > MOST_PATTERNS:
        errors.append(too_many(f"{path}.onPodConditions", len(patterns), MOST_PATTERNS))
    for index, pattern in enumerate(patterns):
        place = f"{path}.onPodConditions[{index}]"
        named(names.qualified_name, pattern.get("type") or "", f"{place}.type", errors)
        _choose(_STATUSES, pattern.get("status") or "", f"{place}.status", errors)
    if codes is not None and patterns:
        errors.append(invalid(path, OMITTED, "specifying both OnExitCodes and OnPodConditions is not supported"))
    if codes is None and not patterns:
        errors.append(invalid(path, OMITTED, "specifying one of OnExitCodes and OnPodConditions is required"))


def _exit_codes(given: Object, containers: set[Any], path: str, errors: Errors) -> None:
    operator = given.get("operator") or ""
    _choose(_OPERATORS, operator, f"{path}.operator", errors)
    name = given.get("containerName")
    if name is not None and name not in containers:
        detail = "must be one of the container or initContainer names in the pod template"
        errors.append(invalid(f"{path}.containerName", name, detail))
    values: Sequence[int] = given.get("values") or []
    if not values:
        errors.append(invalid(f"{path}.values", values, "at least one value is required"))
    elif len(values) > MOST_EXIT_CODES:
        errors.append(too_many(f"{path}.values", len(values), MOST_EXIT_CODES))
    for index, value in enumerate(values):
        if operator == "In" and value == 0:
            errors.append(invalid(f"{path}.values[{index}]", value, "must not be 0 for the In operator"))
        if value in values[:index]:
            errors.append(duplicate(f"{path}.values[{index}]", value))
    if list(values) != sorted(values):
        errors.append(invalid(f"{path}.values", values, "must be ordered"))


def success_policy(spec: Object, path: str, errors: Errors) -> None:
    """Checks `successPolicy` of an Indexed Job."""
    rules = (spec.get("successPolicy") or {}).get("rules") or ()
    if not rules:
        detail = "at least one rules must be specified when the successPolicy is specified"
        errors.append(required(f"{path}.rules", detail))
    if len(rules) > MOST_RULES:
        errors.append(too_many(f"{path}.rules", len(rules), MOST_RULES))
    for index, rule in enumerate(rules):
        _success_rule(rule, spec.get("completions") or 0, f"{path}.rules[{index}]", errors)


def _success_rule(rule: Mapping[str, Any], completions: int, path: str, errors: Errors) -> None:
    count, text = rule.get("succeededCount"), rule.get("succeededIndexes")
    if count is None and text is None:
        errors.append(required(path, "at least one of succeededCount or succeededIndexes must be specified"))
    total = 0
    if text is not None:
        if len(text) > LONGEST_INDEXES:
            errors.append(too_long(f"{path}.succeededIndexes", LONGEST_INDEXES))
            return
        try:
            total = count_indexes(text, completions)
        except ValueError as error:
            detail = f"error parsing succeededIndexes: {error}"
            errors.append(invalid(f"{path}.succeededIndexes", text, detail))
    if count is not None:
        place = f"{path}.succeededCount"
        non_negative(count, place, errors)
        if count > completions:
            detail = f"must be less than or equal to {completions} (the number of specified completions)"
            errors.append(invalid(place, count, detail))
        if text is not None and count > total:
            named_indexes = "the number of indexes in the specified succeededIndexes field"
            detail = f"must be less than or equal to {total} ({named_indexes})"
            errors.append(invalid(place, count, detail))


def count_indexes(text: str, completions: int) -> int:
    """Returns how many indexes `1,3-5` names. Raises ValueError."""
    last, total = -1, 0
    for part in text.split(",") if text else ():
        limits = part.split("-")
        if len(limits) > 2:
            raise ValueError(
                f'the fragment "{part}" violates the requirement that an index interval can have at most two parts '
                "separated by '-'"
            )
        numbers = [_index(limit, completions) for limit in limits]
        if len(numbers) == 2 and numbers[0] >= numbers[1]:
            raise ValueError(f"non-increasing order, previous: {numbers[0]}, current: {numbers[1]}")
        if total and last >= numbers[0]:
            raise ValueError(f"non-increasing order, previous: {last}, current: {numbers[0]}")
        last = numbers[-1]
        total += last - numbers[0] + 1
    return total


def _index(text: str, completions: int) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text, re.ASCII):
        raise ValueError(f'cannot convert string to integer for index: "{text}"')
    if int(text) >= completions:
        raise ValueError(f'too large index: "{text}"')
    return int(text)
