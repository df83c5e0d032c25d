"""Whether a configuration can be owned field by field: known fields, lists whose elements can be told apart."""

from typing import Any

from podwire.kinds.apply.types import BadElement, Deduced, Elements, Leaf, ListMap, SetList, Type, shown

MOST_TOLD = 100
"""Errors of one configuration that are told."""

_SCALARS: dict[str, tuple[type, ...]] = {"string": (str,), "boolean": (bool,), "number": (int, float)}
_EXPECTED = {"string": "string", "boolean": "boolean", "number": "numeric (int or float)"}
_WORDS = {str: "string", bool: "boolean", int: "int", float: "float", dict: "map", list: "list"}


def complaints(of: Type, config: Any) -> list[str]:
    """What is wrong with it, each with its place: `.spec.replica: field not declared in schema`."""
    found: list[str] = []
    _value(of, config, (), found)
    return found[:MOST_TOLD]


def told(found: list[str]) -> str:
    """All in one sentence, as upstream joins them."""
    return found[0] if len(found) == 1 else "\n  ".join(["errors:", *found])


def _value(of: Type, value: Any, path: tuple[str, ...], found: list[str]) -> None:
    if value is None or isinstance(of, Deduced) or len(found) > MOST_TOLD:
        return
    if isinstance(of, Leaf):
        _scalar(of, value, path, found)
    elif isinstance(of, ListMap | SetList):
        if isinstance(value, list):
            _elements(of, value, path, found)
        else:
            found.append(_at(path, f"expected list, got {_named(value)}"))
    elif isinstance(value, dict):
        for name, each in value.items():
            kind = of.member(name)
            if kind is None:
                found.append(_at((*path, f"f:{name}"), "field not declared in schema"))
            else:
                _value(kind, each, (*path, f"f:{name}"), found)
    else:
        found.append(_at(path, f"expected map, got {_named(value)}"))


def _scalar(of: Leaf, value: Any, path: tuple[str, ...], found: list[str]) -> None:
    allowed = _SCALARS.get(of.scalar)
    if allowed is None or type(value) in allowed:  # not isinstance: True is no number here
        return
    found.append(_at(path, f"expected {_EXPECTED[of.scalar]}, got {_named(value)}"))


def _elements(of: Elements, value: list[Any], path: tuple[str, ...], found: list[str]) -> None:
    seen: set[str] = set()
    for index, each in enumerate(value):
        try:
            name = of.name(each)
        except BadElement as error:
            found.append(_at(path, f"element {index}: {error}"))
            continue
        if name in seen:
            found.append(_at(path, f"duplicate entries for key {shown((name,))}"))
        seen.add(name)
        _value(of.element, each, (*path, name), found)


def _at(path: tuple[str, ...], what: str) -> str:
    return f"{shown(path)}: {what}" if path else what


def _named(value: Any) -> str:
    return _WORDS.get(type(value), type(value).__name__)
