"""Constraints between the devices of one claim: matchAttribute and distinctAttribute. Pure."""

from collections.abc import Iterable, Sequence

from podwire.objects.claims import DeviceConstraint
from podwire.objects.slices import Value
from podwire.scheduler.claims.devices import Attribute, Candidate, qualified


def concerns(constraint: DeviceConstraint, request: str) -> bool:
    """Returns whether a constraint covers a request; it may name the request or the chosen subrequest."""
    names = constraint.requests
    return not names or request in names or request.partition("/")[0] in names


def broken(constraint: DeviceConstraint, others: Sequence[Candidate], added: Candidate) -> str:
    """Returns why a device violates a constraint together with others; empty when it does not."""
    if constraint.match_attribute is not None:
        return _unlike(constraint.match_attribute, others, added)
    if constraint.distinct_attribute is not None:
        return _nodes_with_matching_pods(constraint.distinct_attribute, others, added)
    return "a constraint that this scheduler does not know"


def _unlike(name: str, others: Sequence[Candidate], added: Candidate) -> str:
    own = _attribute(name, added)
    if own is None:
        return f"has no {name}"
    given = [_attribute(name, other) for other in others]
    if any(attribute is None or _kind(attribute) != _kind(own) for attribute in given):
        return f"{name} is of another type"
    common = set(_values(own.value)).intersection(
        *(_values(attribute.value) for attribute in given if attribute is not None)
    )
    return "" if common else f"{name} {_format(own.value)} is not that of the others"


def _nodes_with_matching_pods(name: str, others: Iterable[Candidate], added: Candidate) -> str:
    own = _attribute(name, added)
    if own is None:
        return f"has no {name}"
    for candidate in others:
        attribute = _attribute(name, candidate)
        if attribute is None or _kind(attribute) != _kind(own):
            return f"{name} is of another type"
        if not set(_values(own.value)).isdisjoint(_values(attribute.value)):
            return f"{name} {_format(own.value)} is that of another"
    return ""


def _attribute(name: str, candidate: Candidate) -> Attribute | None:
    return candidate.attributes.get(qualified(name, candidate.driver))


def _kind(attribute: Attribute) -> str:
    """Lists are compatible with single values of the same type."""
    return attribute.type.removesuffix("s")


def _values(value: Value) -> tuple[bool | int | str, ...]:
    return value if isinstance(value, tuple) else (value,)


def _format(value: Value) -> str:
    return ", ".join(str(item).lower() if isinstance(item, bool) else str(item) for item in _values(value))
