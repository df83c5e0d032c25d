"""Merges OpenAPI v2 documents of aggregated API servers into our own, by upstream's rules.

Of another server's document counts what is below the paths of its APIService. A path that is known stays as it is. A
definition or parameter of the same name and another content is renamed: `Name_v2`, `Name_v3`, …; two definitions that
differ in `x-kubernetes-group-version-kind` only are one, which has both values.
"""

from collections.abc import Callable, Mapping
from typing import Any

Json = dict[str, Any]
GVK = "x-kubernetes-group-version-kind"
_DEFINITIONS, _PARAMETERS = "#/definitions/", "#/parameters/"


def part_of(document: Any, prefix: str) -> Json:
    """Returns the paths of a document below a prefix, with the definitions and parameters that they need.

    Raises TypeError for what is not an OpenAPI v2 document.
    """
    if not isinstance(document, dict) or not isinstance(document.get("paths"), dict):
        raise TypeError("the document has no paths")
    definitions, parameters = document.get("definitions") or {}, document.get("parameters") or {}
    if not isinstance(definitions, dict) or not isinstance(parameters, dict):
        raise TypeError("definitions and parameters must be objects")
    paths = {path: item for path, item in document["paths"].items() if path.startswith(prefix)}
    wanted, seen = references(paths), set[str]()
    while wanted - seen:
        name = min(wanted - seen)
        seen.add(name)
        for beginning, named in ((_DEFINITIONS, definitions), (_PARAMETERS, parameters)):
            wanted |= references(named.get(name.removeprefix(beginning)) if name.startswith(beginning) else None)
    return {
        "paths": paths,
        "definitions": {name: schema for name, schema in definitions.items() if f"{_DEFINITIONS}{name}" in seen},
        "parameters": {name: schema for name, schema in parameters.items() if f"{_PARAMETERS}{name}" in seen},
    }


def references(value: Any) -> set[str]:
    """Returns all `$ref` of a document or a part of one."""
    found: set[str] = set()
    todo = [value]
    while todo:
        node = todo.pop()
        if isinstance(node, dict):
            if isinstance(target := node.get("$ref"), str):
                found.add(target)
            todo.extend(node.values())
        elif isinstance(node, list):
            todo.extend(node)
    return found


def merge(whole: Json, other: Mapping[str, Any]) -> None:
    """Adds a part of another document to a document."""
    paths = {path: item for path, item in other["paths"].items() if path not in whole["paths"]}
    if not paths:
        return
    renames = {
        **_renames(whole["definitions"], other["definitions"], _DEFINITIONS, _same_definition),
        **_renames(whole.setdefault("parameters", {}), other["parameters"], _PARAMETERS, lambda one, two: one == two),
    }
    for kind, beginning in (("definitions", _DEFINITIONS), ("parameters", _PARAMETERS)):
        for name, schema in other[kind].items():
            _add(whole[kind], renames.get(beginning + name, beginning + name).removeprefix(beginning), schema, renames)
    whole["paths"] |= {path: _renamed(item, renames) for path, item in paths.items()}
    if not whole["parameters"]:
        del whole["parameters"]


def _add(known: Json, name: str, schema: Any, renames: Mapping[str, str]) -> None:
    if name not in known:
        known[name] = _renamed(schema, renames)
    elif isinstance(values := schema.get(GVK), list) and isinstance(own := known[name].get(GVK), list):
        known[name] = {**known[name], GVK: [*own, *(value for value in values if value not in own)]}


def _renames(known: Json, others: Json, beginning: str, same: Callable[[Any, Any], bool]) -> dict[str, str]:
    """Returns other names for what is known under its name with another content."""
    renames: dict[str, str] = {}
    taken = {*known, *others}
    for name, schema in others.items():
        if name not in known or same(known[name], schema):
            continue
        number = 2
        while f"{name}_v{number}" in taken and not same(known.get(f"{name}_v{number}"), schema):
            number += 1
        renames[beginning + name] = f"{beginning}{name}_v{number}"
        taken.add(f"{name}_v{number}")
    return renames


def _same_definition(one: Any, two: Any) -> bool:
    return bool(_without_kinds(one) == _without_kinds(two))


def _without_kinds(schema: Any) -> Any:
    return {key: value for key, value in schema.items() if key != GVK} if isinstance(schema, dict) else schema


def _renamed(value: Any, renames: Mapping[str, str]) -> Any:
    if not renames:
        return value
    if isinstance(value, dict):
        return {
            key: renames.get(item, item) if key == "$ref" and isinstance(item, str) else _renamed(item, renames)
            for key, item in value.items()
        }
    return [_renamed(item, renames) for item in value] if isinstance(value, list) else value
