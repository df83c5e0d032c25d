"""Merges an applied configuration into an object: its fields take its values, all others stay.

    type of the value         merged
    Struct, MapOf, Deduced    member by member
    ListMap                   elements with the same keys are merged; the configuration gives the order
    SetList                   the union; the configuration gives the order
    Leaf (atomic)             replaced

Nothing is removed here: fields that the applier no longer has are pruned afterwards, because only ownership knows them.
Elements that only the object has stay behind the elements that they were behind.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from podwire.kinds.apply.types import BadElement, Deduced, Elements, ListMap, MapOf, Members, SetList, Struct, Type

_ABSENT = object()


def merge(of: Type, live: Any, config: Any) -> Any:
    """Returns the object with the configuration in it; shares parts with both and changes neither."""
    merged = _merged(of, live, config)
    return {} if merged is _ABSENT else merged


def _merged(of: Type, live: Any, config: Any) -> Any:
    if config is _ABSENT:
        return live
    if live is _ABSENT or not (live or config):
        return config
    if isinstance(of, MapOf | Struct) and _either(dict, live, config):
        return _merged_members(of, live or {}, config or {})
    if isinstance(of, Deduced) and isinstance(live, dict) and isinstance(config, dict):
        return _merged_members(of, live, config)
    if isinstance(of, ListMap | SetList) and _either(list, live, config):
        return _merged_elements(of, live or [], config or [])
    return config


def _either(kind: type, live: Any, config: Any) -> bool:
    """Returns whether both are of a type. A null counts as empty: it removes nothing from an object or list."""
    return all(side is None or isinstance(side, kind) for side in (live, config))


def _merged_members(of: Members, live: Mapping[str, Any], config: Mapping[str, Any]) -> Any:
    merged = {**live}
    for name, value in config.items():
        kind = of.member(name)
        result = _merged(kind, live.get(name, _ABSENT), value) if kind is not None else value
        if result is _ABSENT:
            merged.pop(name, None)
        else:
            merged[name] = result
    return merged or _ABSENT


def _merged_elements(of: Elements, live: list[Any], config: list[Any]) -> Any:
    """Returns the elements in the configuration's order, with those that only the object has between them."""
    configured = {of.name(item): item for item in config}
    present = _by_name(of, live)
    count = Counter(name for name, _ in present)
    known = {name: value for name, value in present if count[name] == 1}
    order = _interleaved([name for name, _ in present], list(configured))
    values = iter([value for name, value in present if name not in configured])
    merged = []
    for name in order:
        if name in configured:
            merged.append(_merged(of.element, known.get(name, _ABSENT), configured[name]))
        else:
            merged.append(next(values))
    return merged or _ABSENT


def _by_name(of: Elements, values: list[Any]) -> list[tuple[str, Any]]:
    """Returns the object's elements, each with its name; one that has none keeps its place under a name of its own."""
    named = []
    for index, value in enumerate(values):
        try:
            named.append((of.name(value), value))
        except BadElement:
            named.append((f"i:{index}", value))
    return named


def _interleaved(present: list[str], configured: list[str]) -> list[str]:
    """Returns both lists of names in one, each name of `wanted` once.

    The configured ones keep their order. Those that only the object has follow the elements that they followed before;
    a shared one whose turn has not come yet is skipped.
    """
    named, known = set(configured), set(present)
    turns = [name for name in configured if name in known]
    order: list[str] = []
    done: set[str] = set()
    left = right = turn = 0
    while left < len(present) or right < len(configured):
        if left < len(present):
            name = present[left]
            if name not in named:
                order.append(name)
                left += 1
                continue
            early = right < len(configured) and turn < len(turns) and turns[turn] != name
            if name in done or early:
                left += 1
                continue
        if right < len(configured):
            name = configured[right]
            order.append(name)
            done.add(name)
            turn += turn < len(turns) and turns[turn] == name
            right += 1
    return order
