"""Evaluates CEL selectors: each is compiled once and evaluated once per device."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from podwire.objects import quantity
from podwire.protocols.cel import CelError, CompileError, Program, Unavailable, Values, compile_expression
from podwire.protocols.cel.cost import Size, estimate
from podwire.protocols.cel.devices import COST_LIMIT, LONGEST, VARIABLES
from podwire.protocols.cel.syntax import Call, Const, walk
from podwire.scheduler.claims.devices import Attribute, Candidate, Pool

_NAMES, _ENTRIES, _TEXT = 64, 48, 64
"""Bounds for the cost estimate: longest domain or name, most attributes and capacities of a device, longest value."""
_INNER = Size(_ENTRIES, inside=Size(_TEXT), key=Size(_NAMES))
_MAP = Size(_ENTRIES, inside=_INNER, key=Size(_NAMES))
_SIZES = {"device": Size(fields={"driver": Size(_NAMES), "attributes": _MAP, "capacity": _MAP})}
_INDEXES = ("_[_]", "_[?_]")


class BadSelector(Exception):
    """An expression that cannot be evaluated; says which one and why."""


@lru_cache(maxsize=1024)
def program(expression: str) -> Program:
    """Raises BadSelector."""
    if len(expression.encode()) > LONGEST:
        raise BadSelector(f"must not be longer than {LONGEST} bytes")
    try:
        compiled = compile_expression(expression, VARIABLES)
    except CompileError as error:
        raise BadSelector(f"CEL compile error: {error}") from None
    except Unavailable as error:
        raise BadSelector(str(error)) from None
    if compiled.returns not in ("bool", "dyn"):
        raise BadSelector(f"CEL compile error: must evaluate to bool or the unknown type, not {compiled.returns}")
    if estimate(compiled.tree, _SIZES) > COST_LIMIT:
        raise BadSelector("too complex, exceeds cost limit")
    return compiled


def matching(pool: Pool, expressions: tuple[str, ...]) -> tuple[Candidate, ...]:
    """Returns the devices of a pool that match all expressions, or on which an expression fails."""
    found = pool.matching.get(expressions)
    if found is None:
        found = pool.matching[expressions] = tuple(device for device in pool.devices if matches(device, expressions))
    return found


def matches(candidate: Candidate, expressions: tuple[str, ...]) -> bool | str:
    """Returns whether a device matches; a text says which expression failed and why, and aborts the search."""
    known = candidate.matched.get(expressions)
    if known is None:
        known = candidate.matched[expressions] = _matches(candidate, expressions)
    return known


def _matches(candidate: Candidate, expressions: tuple[str, ...]) -> bool | str:
    for index, expression in enumerate(expressions):
        outcome = evaluated(candidate, expression)
        if isinstance(outcome, str):
            return f"selector #{index}: {outcome}"
        if not outcome:
            return False
    return True


def evaluated(candidate: Candidate, expression: str) -> bool | str:
    try:
        compiled = program(expression)
    except BadSelector as error:
        return str(error)
    try:
        if candidate.values is None:
            candidate.values = Values({"device": shown(candidate)})
    except ValueError as error:
        return f"runtime error: {error}"
    outcome = compiled.run(candidate.values)
    if isinstance(outcome, CelError) and outcome.message.startswith("no such key"):
        outcome = compiled.run({"device": _completed(shown(candidate), compiled)})
    if isinstance(outcome, CelError):
        return f"runtime error: {outcome}"
    return outcome if isinstance(outcome, bool) else "runtime error: the result is not a boolean"


def _completed(device: dict[str, Any], compiled: Program) -> Mapping[str, Any]:
    """Adds the domains that the expressions name as empty maps.

    A missing domain reads as an empty map when it is indexed, but is not `in` the map. So expressions see the device as
    it is first, and with the added domains only when that failed.
    """
    named = {device["driver"]} | {
        node.args[1].value
        for node in walk(compiled.tree.root)
        if isinstance(node, Call)
        and node.function in _INDEXES
        and isinstance(node.args[1], Const)
        and isinstance(node.args[1].value, str)
    }
    for part in ("attributes", "capacity"):
        device[part] = {**{name: {} for name in named}, **device[part]}
    return device


def shown(candidate: Candidate) -> dict[str, Any]:
    """Returns the CEL variable `device`. The import is lazy: the library is loaded with the first expression."""
    from podwire.protocols.cel.environment import kept  # noqa: PLC0415 - see above

    attributes: dict[str, dict[str, Any]] = {}
    for name, attribute in candidate.attributes.items():
        domain, _, id_ = name.partition("/")
        attributes.setdefault(domain, {})[id_] = _shown(attribute)
    capacity: dict[str, dict[str, Any]] = {}
    for name, amount in candidate.capacity.items():
        domain, _, id_ = name.partition("/")
        capacity.setdefault(domain, {})[id_] = kept(quantity.Quantity(amount.nano))
    return {
        "driver": candidate.driver,
        "allowMultipleAllocations": candidate.shared,
        "attributes": attributes,
        "capacity": capacity,
    }


def _shown(attribute: Attribute) -> Any:
    from podwire.protocols.cel.environment import kept  # noqa: PLC0415 - as above
    from podwire.protocols.cel.functions import versions  # noqa: PLC0415 - likewise

    if attribute.type == "version":
        return kept(versions.parse(str(attribute.value)))
    if not isinstance(attribute.value, tuple):
        return attribute.value
    return [kept(versions.parse(str(item))) if attribute.type == "versions" else item for item in attribute.value]
