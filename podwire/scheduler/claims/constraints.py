"""What devices of one claim must have in common, or must not. Pure."""

from collections.abc import Iterable, Sequence

from podwire.objects.claims import DeviceConstraint
from podwire.objects.slices import Value
from podwire.scheduler.claims.devices import Attribute, Candidate, qualified


def concerns(constraint: DeviceConstraint, request: str) -> bool:
    """Requests are named whole, or by the alternative that was taken."""
    names = constraint.requests
    return not names or request in names or request.partition("/")[0] in names


def broken(constraint: DeviceConstraint, others: Sequence[Candidate], added: Candidate) -> str:
    """Why a device cannot join others under a constraint; empty when it can."""
    if constraint.match_attribute is not None:
        return _unlike(constraint.match_attribute, others, added)
    if constraint.distinct_attribute is not None:
        return _alike(constraint.distinct_attribute, others, added)
    return "a constraint that this scheduler does not know"


def _unlike(name: str, others: Sequence[Candidate], added: Candidate) -> str:
    own = _attribute(name, added)
    if own is None:
        return f"has no {name}"
    given = [_attribute(name, each) for each in others]
    if any(each is None or _kind(each) != _kind(own) for each in given):
        return f"{name} is of another type"
    common = set(_values(own.value)).intersection(*(_values(each.value) for each in given if each is not None))
    return "" if common else f"{name} {_told(own.value)} is not that of the others"


def _alike(name: str, others: Iterable[Candidate], added: Candidate) -> str:
    own = _attribute(name, added)
    if own is None:
        return f"has no {name}"
    for each in others:
        other = _attribute(name, each)
        if other is None or _kind(other) != _kind(own):
            return f"{name} is of another type"
        if not set(_values(own.value)).isdisjoint(_values(other.value)):
            return f"{name} {_told(own.value)} is that of another"
    return ""


def _attribute(name: str, candidate: Candidate) -> Attribute | None:
    return candidate.attributes.get(qualified(name, candidate.driver))


def _kind(attribute: Attribute) -> str:
    """A list goes with single values of what it lists."""
    return attribute.type.removesuffix("s")


def _values(value: Value) -> tuple[bool | int | str, ...]:
    return value if isinstance(value, tuple) else (value,)


def _told(value: Value) -> str:
    return ", ".join(str(each).lower() if isinstance(each, bool) else str(each) for each in _values(value))
