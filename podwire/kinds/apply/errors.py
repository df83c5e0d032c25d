"""Errors of an apply in upstream's words: configurations that cannot be owned field by field, and conflicts."""

from typing import Any

from podwire.kinds.apply.managers import Manager
from podwire.kinds.apply.ownership import Conflicts
from podwire.kinds.apply.types import BadElement, Deduced, Elements, Leaf, ListMap, SetList, Type, shown
from podwire.protocols.k8sapi.status import ApiError, Reason

MOST_ERRORS = 100
"""Errors of one configuration that are reported."""

_SCALARS: dict[str, tuple[type, ...]] = {"string": (str,), "boolean": (bool,), "number": (int, float)}
_EXPECTED = {"string": "string", "boolean": "boolean", "number": "numeric (int or float)"}
_WORDS = {str: "string", bool: "boolean", int: "int", float: "float", dict: "map", list: "list"}

CAUSE = "FieldManagerConflict"


def configuration_errors(of: Type, config: Any) -> list[str]:
    """Returns the errors of a configuration, with paths: `.spec.replica: field not declared in schema`."""
    errors: list[str] = []
    _value(of, config, (), errors)
    return errors[:MOST_ERRORS]


def joined(errors: list[str]) -> str:
    """Returns the errors as one message, joined as upstream joins them."""
    return errors[0] if len(errors) == 1 else "\n  ".join(["errors:", *errors])


def _value(of: Type, value: Any, path: tuple[str, ...], errors: list[str]) -> None:
    if value is None or isinstance(of, Deduced) or len(errors) > MOST_ERRORS:
        return
    if isinstance(of, Leaf):
        _scalar(of, value, path, errors)
    elif isinstance(of, ListMap | SetList):
        if isinstance(value, list):
            _elements(of, value, path, errors)
        else:
            errors.append(_at(path, f"expected list, got {_named(value)}"))
    elif isinstance(value, dict):
        for name, member in value.items():
            kind = of.member(name)
            if kind is None:
                errors.append(_at((*path, f"f:{name}"), "field not declared in schema"))
            else:
                _value(kind, member, (*path, f"f:{name}"), errors)
    else:
        errors.append(_at(path, f"expected map, got {_named(value)}"))


def _scalar(of: Leaf, value: Any, path: tuple[str, ...], errors: list[str]) -> None:
    allowed = _SCALARS.get(of.scalar)
    if allowed is None or type(value) in allowed:  # not isinstance: True is not a number here
        return
    errors.append(_at(path, f"expected {_EXPECTED[of.scalar]}, got {_named(value)}"))


def _elements(of: Elements, value: list[Any], path: tuple[str, ...], errors: list[str]) -> None:
    seen: set[str] = set()
    for index, item in enumerate(value):
        try:
            name = of.name(item)
        except BadElement as error:
            errors.append(_at(path, f"element {index}: {error}"))
            continue
        if name in seen:
            errors.append(_at(path, f"duplicate entries for key {shown((name,))}"))
        seen.add(name)
        _value(of.element, item, (*path, name), errors)


def _at(path: tuple[str, ...], what: str) -> str:
    return f"{shown(path)}: {what}" if path else what


def _named(value: Any) -> str:
    return _WORDS.get(type(value), type(value).__name__)


def conflict_error(conflicts: Conflicts) -> ApiError:
    """Returns a 409 with one cause for each field and each manager that owns it."""
    causes = [
        {"reason": CAUSE, "message": f"conflict with {manager}", "field": shown(path)}
        for manager, path in conflicts.found
    ]
    return ApiError(Reason.CONFLICT, _message(conflicts.found), details={"causes": causes})


def _message(conflicts: list[tuple[Manager, tuple[str, ...]]]) -> str:
    if len(conflicts) == 1:
        manager, path = conflicts[0]
        return f"Apply failed with 1 conflict: conflict with {manager}: {shown(path)}"
    fields: dict[Manager, list[str]] = {}
    for manager, path in conflicts:
        fields.setdefault(manager, []).append(f"- {shown(path)}")
    lines = [line for manager, conflicting in fields.items() for line in (f"conflicts with {manager}:", *conflicting)]
    return f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)
