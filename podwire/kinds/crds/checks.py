"""Value validation of a schema, compiled once to closures that append upstream's errors."""

import math
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from podwire.kinds.crds.formats import test_of
from podwire.kinds.crds.patterns import BadPattern, TooCostly, compile_pattern
from podwire.protocols.k8sapi.status import (
    FieldError,
    Problem,
    duplicate,
    invalid,
    required,
    too_long,
    too_many,
)

Json = Mapping[str, Any]
Check = Callable[[Any, str, list[FieldError]], None]
"""Checks a value at a path and appends its errors to a list."""

NOWHERE = "<nil>"
"""The field that upstream names when alternatives of a schema are not met."""

_NAMES: Mapping[type, str] = {
    bool: "boolean",
    dict: "object",
    float: "number",
    int: "integer",
    list: "array",
    str: "string",
    type(None): "null",
}
_INT32 = range(-(2**31), 2**31)
_INT64 = range(-(2**63), 2**63)


def child(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def compiled(schema: Json) -> Check:
    """Returns the check of a schema and all below it."""
    before = [*_type_checks(schema)]
    by_kind = {
        dict: _object_checks(schema),
        list: _list_checks(schema),
        str: _string_checks(schema),
        int: _number_checks(schema),
        float: _number_checks(schema),
    }
    after = [*_enum_checks(schema), *_alternative_checks(schema)]

    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        known = len(errors)
        for step in before:
            step(value, path, errors)
        if len(errors) > known or value is None:
            return  # of the wrong type, or nothing more to look at
        for step in by_kind.get(type(value), ()):
            step(value, path, errors)
        for step in after:
            step(value, path, errors)

    return check


def _says(path: str, sentence: str) -> str:
    return f"{path} in body {sentence}"


def _type_checks(schema: Json) -> list[Check]:
    names: tuple[str, ...] = (schema["type"],) if schema.get("type") else ()
    if schema.get("x-kubernetes-int-or-string"):
        names = ("integer", "string")
    if not names:
        return []
    expected, nullable = ",".join(names), bool(schema.get("nullable"))

    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        type_ = _NAMES.get(type(value), "")
        if type_ in names or (value is None and nullable) or _is_number(type_, value, names):
            return
        errors.append(invalid(path, type_, _says(path, f'must be of type {expected}: "{type_}"')))

    return [check]


def _is_number(type_: str, value: Any, names: Sequence[str]) -> bool:
    """JSON has one kind of number: 1 may be a number, 1.0 an integer."""
    if type_ == "integer":
        return "number" in names
    return type_ == "number" and "integer" in names and value.is_integer()


def _enum_checks(schema: Json) -> list[Check]:
    allowed = schema.get("enum")
    if not allowed:
        return []
    keys = {identity(choice) for choice in allowed}
    detail = "supported values: " + ", ".join(f'"{_plain(choice)}"' for choice in allowed)

    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        if identity(value) not in keys:
            errors.append(FieldError(Problem.NOT_SUPPORTED, path, value, detail))

    return [check]


def _number_checks(schema: Json) -> list[Check]:
    checks: list[Check] = []
    low, high, step = schema.get("minimum"), schema.get("maximum"), schema.get("multipleOf")
    if low is not None:
        above = bool(schema.get("exclusiveMinimum"))
        words = f"should be greater than {'' if above else 'or equal to '}{_plain(low)}"
        checks.append(_refusing(lambda value: value <= low if above else value < low, words))
    if high is not None:
        below = bool(schema.get("exclusiveMaximum"))
        words = f"should be less than {'' if below else 'or equal to '}{_plain(high)}"
        checks.append(_refusing(lambda value: value >= high if below else value > high, words))
    if step:
        checks.append(_refusing(lambda value: not _is_multiple(value, step), f"should be a multiple of {_plain(step)}"))
    if schema.get("format") in ("int32", "int64") and schema.get("type") == "integer":
        checks.append(_range_check(schema["format"]))
    return checks


def _is_multiple(value: float, step: float) -> bool:
    if isinstance(value, int) and isinstance(step, int):
        return value % step == 0
    ratio = value / step
    return math.isfinite(ratio) and abs(ratio - round(ratio)) < 1e-9


def _range_check(name: str) -> Check:
    numbers = _INT32 if name == "int32" else _INT64

    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        if int(value) not in numbers:
            errors.append(invalid(path, value, f"Checked value must be of type integer with format {name} in {path}"))

    return check


def _refusing(wrong: Callable[[Any], bool], words: str) -> Check:
    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        if wrong(value):
            errors.append(invalid(path, value, _says(path, words)))

    return check


def _string_checks(schema: Json) -> list[Check]:
    checks: list[Check] = []
    least, most = schema.get("minLength"), schema.get("maxLength")
    if least is not None:
        checks.append(_refusing(lambda value: len(value) < least, f"should be at least {least} chars long"))
    if most is not None:
        checks.append(_longest(most))
    if pattern := schema.get("pattern"):
        checks.append(_pattern_check(pattern))
    name = schema.get("format") or ""
    if test := test_of(name):
        checks.append(_format_check(name, test))
    return checks


def _longest(most: int) -> Check:
    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        if len(value) > most:
            errors.append(too_long(path, most))

    return check


def _pattern_check(pattern: str) -> Check:
    try:
        search = compile_pattern(pattern)
    except BadPattern as error:  # a definition with such a pattern is rejected, so it was stored by other means
        return _refusing(lambda _value: True, f"cannot be matched against '{pattern}': {error}")

    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        try:
            matched = search(value)
        except TooCostly as error:
            error.path = path
            raise
        if not matched:
            errors.append(invalid(path, value, _says(path, f"should match '{pattern}'")))

    return check


def _format_check(name: str, test: Callable[[str], object]) -> Check:
    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        if not test(value):
            errors.append(invalid(path, value, _says(path, f"must be of type {name}: {_quoted(value)}")))

    return check


def _list_checks(schema: Json) -> list[Check]:
    checks: list[Check] = []
    least, most = schema.get("minItems"), schema.get("maxItems")
    if least is not None:
        checks.append(_refusing(lambda value: len(value) < least, f"should have at least {least} items"))
    if most is not None:
        checks.append(_most(most))
    if schema.get("uniqueItems"):
        checks.append(
            _refusing(
                lambda value: len({identity(element) for element in value}) < len(value), "shouldn't contain duplicates"
            )
        )
    if isinstance(items := schema.get("items"), dict):
        checks.append(_each_item(compiled(items)))
    kind, keys = schema.get("x-kubernetes-list-type"), schema.get("x-kubernetes-list-map-keys")
    if kind == "set":
        checks.append(_unique(lambda each: each))
    elif kind == "map" and keys:
        checks.append(
            _unique(lambda each: {key: each[key] for key in keys if key in each} if type(each) is dict else each)
        )
    return checks


def _most(limit: int) -> Check:
    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        if len(value) > limit:
            errors.append(too_many(path, len(value), limit))

    return check


def _each_item(item: Check) -> Check:
    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        for index, element in enumerate(value):
            item(element, f"{path}[{index}]", errors)

    return check


def _unique(key_of: Callable[[Any], Any]) -> Check:
    """Returns the check that the elements of a set, or the keys of a list-type map, differ."""

    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        seen: set[Hashable] = set()
        for index, element in enumerate(value):
            key = key_of(element)
            if identity(key) in seen:
                errors.append(duplicate(f"{path}[{index}]", key))
            seen.add(identity(key))

    return check


def _object_checks(schema: Json) -> list[Check]:
    checks: list[Check] = []
    least, most = schema.get("minProperties"), schema.get("maxProperties")
    if least is not None:
        checks.append(_refusing(lambda value: len(value) < least, f"should have at least {least} properties"))
    if most is not None:
        checks.append(_most(most))
    if schema.get("required"):
        checks.append(_required_check(tuple(schema["required"])))
    if schema.get("x-kubernetes-embedded-resource"):
        checks.append(_embedded)
    properties = {name: compiled(property_) for name, property_ in (schema.get("properties") or {}).items()}
    values = schema.get("additionalProperties")
    if properties or isinstance(values, dict):
        checks.append(_members(properties, compiled(values) if isinstance(values, dict) else None))
    return checks


def _required_check(names: tuple[str, ...]) -> Check:
    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        errors += [required(child(path, name)) for name in names if name not in value]

    return check


def _embedded(value: Any, path: str, errors: list[FieldError]) -> None:
    """Checks that an embedded object has apiVersion and kind."""
    for name in ("apiVersion", "kind"):
        if not value.get(name):
            errors.append(required(child(path, name), "must not be empty"))
        elif not isinstance(value[name], str):
            type_ = _NAMES.get(type(value[name]), "")
            errors.append(invalid(child(path, name), type_, f'must be of type string: "{type_}"'))


def _members(properties: Mapping[str, Check], rest: Check | None) -> Check:
    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        for name, below in value.items():
            member = properties.get(name, rest)
            if member is not None:
                member(below, child(path, name), errors)

    return check


def _alternative_checks(schema: Json) -> list[Check]:
    checks: list[Check] = []
    if every := schema.get("allOf"):
        checks.append(_all_of([compiled(alternative) for alternative in every]))
    if some := schema.get("anyOf"):
        checks.append(_any_of([compiled(alternative) for alternative in some]))
    if one := schema.get("oneOf"):
        checks.append(_one_of([compiled(alternative) for alternative in one]))
    if isinstance(unwanted := schema.get("not"), dict):
        checks.append(_none_of(compiled(unwanted)))
    return checks


def _tried(checks: Sequence[Check], value: Any, path: str) -> list[list[FieldError]]:
    outcomes: list[list[FieldError]] = []
    for check in checks:
        errors: list[FieldError] = []
        check(value, path, errors)
        outcomes.append(errors)
    return outcomes


def _shortest(outcomes: list[list[FieldError]]) -> list[FieldError]:
    """Returns the errors of the alternative that has the fewest."""
    return min(outcomes, key=len)


def _unmet(path: str, words: str) -> FieldError:
    return invalid(NOWHERE, "", f'"{path}" must {words}')


def _all_of(checks: Sequence[Check]) -> Check:
    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        outcomes = _tried(checks, value, path)
        if any(outcomes):
            errors += [error for outcome in outcomes for error in outcome]
            none = ". None validated" if all(outcomes) else ""
            errors.append(_unmet(path, f"validate all the schemas (allOf){none}"))

    return check


def _any_of(checks: Sequence[Check]) -> Check:
    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        outcomes = _tried(checks, value, path)
        if all(outcomes):
            errors.append(_unmet(path, "validate at least one schema (anyOf)"))
            errors.extend(_shortest(outcomes))

    return check


def _one_of(checks: Sequence[Check]) -> Check:
    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        outcomes = _tried(checks, value, path)
        valid = sum(not outcome for outcome in outcomes)
        if valid == 1:
            return
        result = f"Found {valid} valid alternatives" if valid else "Found none valid"
        errors.append(_unmet(path, f"validate one and only one schema (oneOf). {result}"))
        if not valid:
            errors.extend(_shortest(outcomes))

    return check


def _none_of(unwanted: Check) -> Check:
    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        if not any(_tried([unwanted], value, path)):
            errors.append(_unmet(path, "not validate the schema (not)"))

    return check


def identity(value: Any) -> Hashable:
    """Returns a key that is equal for equal JSON values only: true is not 1, 1.0 is."""
    if isinstance(value, dict):
        return (dict, frozenset((key, identity(member)) for key, member in value.items()))
    if isinstance(value, list):
        return (list, *map(identity, value))
    return (bool, value) if isinstance(value, bool) else value


def _plain(value: Any) -> str:
    """Returns a value within a sentence: numbers as short as they can be."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    return str(value)


def _quoted(text: str) -> str:
    escaped = re.sub(r'[\\"]', r"\\\g<0>", text)
    return f'"{escaped}"'
