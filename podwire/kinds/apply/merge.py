"""A configuration put into an object: what it names takes its values, everything else stays."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from podwire.kinds.apply.types import BadElement, Deduced, Elements, ListMap, MapOf, Members, SetList, Struct, Type

_ABSENT = object()


def merge(of: Type, live: Any, config: Any) -> Any:
    """The object with the configuration in it; shares parts with both and changes neither."""
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
    """Both are of a kind. A null counts as empty: where an object or list is expected it takes nothing away."""
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
    """The elements in the configuration's order; those that only the object has stay where they were between them."""
    wanted = {of.name(item): item for item in config}
    present = _by_name(of, live)
    count = Counter(name for name, _ in present)
    known = {name: value for name, value in present if count[name] == 1}
    order = _interleaved([name for name, _ in present], list(wanted))
    values = iter([value for name, value in present if name not in wanted])
    merged = []
    for name in order:
        if name in wanted:
            merged.append(_merged(of.element, known.get(name, _ABSENT), wanted[name]))
        else:
            merged.append(next(values))
    return merged or _ABSENT


def _by_name(of: Elements, values: list[Any]) -> list[tuple[str, Any]]:
    """The object's elements, each with its name; one that has none keeps its place under a name of its own."""
    named = []
    for index, value in enumerate(values):
        try:
            named.append((of.name(value), value))
        except BadElement:
            named.append((f"i:{index}", value))
    return named


def _interleaved(present: list[str], wanted: list[str]) -> list[str]:
    """Both lists of names in one, each name of `wanted` once.

    The wanted ones keep their order. Those that are present only come as soon as everything before them has come, so
    they stay behind whatever they stood behind; a shared one that is not its turn yet is passed over.
    """
    named, known = set(wanted), set(present)
    turns = [name for name in wanted if name in known]
    order: list[str] = []
    done: set[str] = set()
    left = right = turn = 0
    while left < len(present) or right < len(wanted):
        if left < len(present):
            name = present[left]
            if name not in named:
                order.append(name)
                left += 1
                continue
            early = right < len(wanted) and turn < len(turns) and turns[turn] != name
            if name in done or early:
                left += 1
                continue
        if right < len(wanted):
            name = wanted[right]
            order.append(name)
            done.add(name)
            turn += turn < len(turns) and turns[turn] == name
            right += 1
    return order
