"""Explains in a few words why a device does not match: `mtu 1500 < 9000`. Pure."""

from collections.abc import Iterator
from typing import Any

from podwire.objects import device_taints, quantity
from podwire.protocols.cel.syntax import Call, Const, Ident, Node, Select
from podwire.scheduler.claims import capacities, constraints, selectors
from podwire.scheduler.claims.allocated_devices import AllocatedDevices
from podwire.scheduler.claims.claim_requests import ClaimRequests, Subrequest
from podwire.scheduler.claims.devices import Candidate, qualified

_OPPOSITE = {"_>=_": "<", "_>_": "<=", "_<=_": ">", "_<_": ">=", "_==_": "!=", "_!=_": "=="}
_TURNED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "==": "==", "!=": "!="}
_LONGEST = 80


def why_not(candidate: Candidate, subrequest: Subrequest, allocated_devices: AllocatedDevices) -> str:
    """Returns why a device cannot be allocated for a request; empty when it can."""
    met = selectors.matches(candidate, subrequest.selectors)
    if isinstance(met, str):
        return met
    if not met:
        for expression in subrequest.selectors:
            if selectors.evaluated(candidate, expression) is False:
                text = " ".join(expression.split())
                text = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
                tree = selectors.program(expression).tree
                return next(iter(_reasons(tree.root, candidate)), "") or f"does not match {text}"
        return "does not match"
    if candidate.refused:
        return candidate.refused
    for taint in device_taints.untolerated(candidate.taints, subrequest.tolerations):
        return f"has untolerated taint {{{taint.key}: {taint.value}}}"
    return "" if subrequest.admin else _taken(candidate, subrequest, allocated_devices)


def _taken(candidate: Candidate, subrequest: Subrequest, allocated_devices: AllocatedDevices) -> str:
    holders = allocated_devices.holders(candidate.identity)
    if holders and (not candidate.shared or candidate.identity in allocated_devices.held):
        return f"held by {', '.join(holders)}"
    if not candidate.shared and not subrequest.amounts:
        return ""
    amounts = capacities.taken(candidate, subrequest)
    if isinstance(amounts, str):
        return amounts
    lacking = (
        capacities.lacking(candidate, amounts, allocated_devices.shares(candidate.identity)) if candidate.shared else ""
    )
    return f"{lacking}, shared by {', '.join(holders)}" if lacking else ""


def apart(candidate: Candidate, subrequest: Subrequest, claim_requests: ClaimRequests) -> str:
    """Returns the constraint that excludes a device even alone."""
    for constraint in claim_requests.constraints:
        if constraints.concerns(constraint, subrequest.name) and (why := constraints.broken(constraint, (), candidate)):
            return why
    return ""


def _reasons(node: Node, candidate: Candidate) -> Iterator[str]:
    """Yields the first false condition of a false expression, if it can be explained."""
    match node:
        case Call(function="_&&_", args=args):
            for argument in args:
                yield from _reasons(argument, candidate)
        case Call(function=function, args=(left, right)) if function in _OPPOSITE:
            yield from _compared(left, _OPPOSITE[function], right, candidate)
        case Call(function="!_", args=(inner,)) if _path(inner) is not None:
            yield from _flag(inner, candidate, wanted=False)
        case Select():
            yield from _flag(node, candidate, wanted=True)


def _compared(left: Node, sign: str, right: Node, candidate: Candidate) -> Iterator[str]:
    if isinstance(left, Const):
        left, sign, right = right, _TURNED[sign], left
    match left, right:
        case Call(function="compareTo", args=(own_side, wanted_side)), Const(value=0):
            left, right = own_side, wanted_side
    wanted = _constant(right)
    if wanted is None or (name := _path(left)) is None:
        return
    own = _value(name, candidate)
    if own is None:
        yield f"has no {name[1]}"
    elif _holds(own, sign, wanted):
        yield f"{name[1]} {_format(own)} {sign} {_format(wanted)}"


def _flag(node: Node, candidate: Candidate, *, wanted: bool) -> Iterator[str]:
    name = _path(node)
    own = _value(name, candidate) if name else None
    if name and isinstance(own, bool) and own is not wanted:
        yield f"{name[1]} is {_format(own)}"


def _path(node: Node) -> tuple[str, str, str] | None:
    """Returns domain, name and part of `device.attributes["domain"].name`; the driver counts as a path."""
    match node:
        case Select(operand=Ident(name="device"), field="driver", test_only=False):
            return "", "driver", "driver"
        case Select(
            operand=Call(function="_[_]", args=(Select(operand=Ident(name="device"), field=part), Const(value=domain))),
            field=name,
            test_only=False,
        ):
            return str(domain), name, part
        case _:
            return None


def _value(path: tuple[str, str, str], candidate: Candidate) -> Any:
    domain, name, part = path
    if part == "driver":
        return candidate.driver
    full = qualified(f"{domain}/{name}", candidate.driver)
    if part == "capacity":
        found = candidate.capacity.get(full)
        return quantity.Quantity(found.nano, quantity.Format.BINARY_SI) if found else None
    attribute = candidate.attributes.get(full)
    return attribute.value if attribute and attribute.type in ("bool", "int", "string") else None


def _constant(node: Node) -> Any:
    match node:
        case Const(value=value):
            return value
        case Call(function="quantity", args=(Const(value=str(text)),)):
            return quantity.parse(text)
        case _:
            return None


def _holds(own: Any, sign: str, wanted: Any) -> bool:
    if sign in ("==", "!="):
        return bool((own == wanted) == (sign == "=="))
    if isinstance(own, str) != isinstance(wanted, str):
        return False
    return bool({"<": own < wanted, "<=": own <= wanted, ">": own > wanted, ">=": own >= wanted}[sign])


def _format(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
