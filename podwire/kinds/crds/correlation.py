"""Correlation of old and new values for transition rules: the old value of each new one, and the order of old lists.

Elements of a list correlate when the schema names their keys (list-type map). Such lists and sets have no order, but
CEL compares lists in order: rules get an old list in the new one's order, so that equal sets compare equal.
"""

from collections.abc import Callable, Mapping
from typing import Any

from podwire.kinds.crds.checks import identity

Json = Mapping[str, Any]
Align = Callable[[Any, Any], Any]
"""From the old value and the new one to the old one in the new one's order."""


def name_of(keys: tuple[str, ...], element: Any) -> Any:
    """Returns the key of an element of a list-type map."""
    return tuple(identity(element.get(key)) for key in keys) if isinstance(element, dict) else None


def map_keys(schema: Json) -> tuple[str, ...]:
    """Returns the names of the key fields of a list; none, unless it is of type map."""
    if schema.get("x-kubernetes-list-type") != "map":
        return ()
    return tuple(schema.get("x-kubernetes-list-map-keys") or ())


def aligning(schema: Json) -> Align | None:
    """Returns the function that orders old values of a schema; None where there is nothing to order."""
    properties = {
        name: align for name, property_ in (schema.get("properties") or {}).items() if (align := aligning(property_))
    }
    values, items = schema.get("additionalProperties"), schema.get("items")
    rest = aligning(values) if isinstance(values, dict) else None
    below = aligning(items) if isinstance(items, dict) else None
    if schema.get("type") == "array" and (schema.get("x-kubernetes-list-type") in ("map", "set") or below):
        return _list(schema, below)
    if properties or rest:
        return _object(properties, rest)
    return None


def _list(schema: Json, below: Align | None) -> Align:
    keys = map_keys(schema)
    in_order = schema.get("x-kubernetes-list-type") not in ("map", "set")

    def align(old: Any, new: Any) -> Any:
        if not isinstance(old, list) or not isinstance(new, list):
            return old
        if in_order:
            return [below(*pair) if below else pair[0] for pair in zip(old, new, strict=False)] + old[len(new) :]
        places = {name_of(keys, element) if keys else identity(element): index for index, element in enumerate(new)}
        named = [
            (places.get(name_of(keys, element) if keys else identity(element), len(new)), element) for element in old
        ]
        named.sort(key=lambda pair: pair[0])
        if below is None:
            return [element for _, element in named]
        return [below(element, new[place]) if place < len(new) else element for place, element in named]

    return align


def _object(properties: Mapping[str, Align], rest: Align | None) -> Align:
    def align(old: Any, new: Any) -> Any:
        if not isinstance(old, dict) or not isinstance(new, dict):
            return old
        aligned = dict(old)
        for name, member in old.items():
            below = properties.get(name, rest)
            if below is not None and name in new:
                aligned[name] = below(member, new[name])
        return aligned

    return align
