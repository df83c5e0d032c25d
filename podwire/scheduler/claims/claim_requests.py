"""What a claim asks for, with its classes looked up: requests, the ways to meet each, and what ties them together."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from podwire.objects import quantity
from podwire.objects.claims import DeviceConstraint, ExactRequest, ResourceClaim
from podwire.objects.device_classes import DeviceClass
from podwire.objects.device_taints import DeviceToleration

MOST_DEVICES = 32
"""Of one claim."""


class CannotBeMet(Exception):
    """By no node, whatever devices it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to meet a request; `name` is how results call it: `request` or `request/alternative`."""

    name: str
    class_name: str
    selectors: tuple[str, ...]
    """The class's own first."""
    count: int
    """0 for all that there are."""
    admin: bool = False
    tolerations: tuple[DeviceToleration, ...] = ()
    amounts: tuple[tuple[str, int], ...] = ()
    """How much of a capacity, in nanos."""


@dataclass(frozen=True, slots=True)
class Request:
    name: str
    ways: tuple[Way, ...]
    prioritized: bool


@dataclass(frozen=True, slots=True)
class Needs:
    claim: ResourceClaim
    requests: tuple[Request, ...]

    @property
    def constraints(self) -> tuple[DeviceConstraint, ...]:
        return self.claim.spec.devices.constraints


def of_claim(claim: ResourceClaim, classes: Mapping[str, DeviceClass]) -> Needs:
    """Raises CannotBeMet."""
    requests = tuple(_requests(claim, classes))
    fewest = sum(min(max(way.count, 1) for way in each.ways) for each in requests)
    if fewest > MOST_DEVICES:
        raise CannotBeMet(f"number of devices requested exceeds the claim limit of {MOST_DEVICES}: {fewest}")
    return Needs(claim, requests)


def _requests(claim: ResourceClaim, classes: Mapping[str, DeviceClass]) -> Iterator[Request]:
    for request in claim.spec.devices.requests:
        if request.exactly is not None:
            yield Request(request.name, (_way(request.name, request.exactly, classes),), prioritized=False)
        elif request.first_available:
            ways = tuple(_way(f"{request.name}/{each.name}", each, classes) for each in request.first_available)
            yield Request(request.name, ways, prioritized=True)
        else:
            raise CannotBeMet(f"request {request.name}: unknown request type")


def _way(name: str, given: ExactRequest, classes: Mapping[str, DeviceClass]) -> Way:
    class_ = classes.get(given.device_class_name)
    if class_ is None:
        raise CannotBeMet(f"request {name}: device class {given.device_class_name} does not exist")
    if given.allocation_mode not in ("", "ExactCount", "All"):
        raise CannotBeMet(f"request {name}: unsupported count mode {given.allocation_mode}")
    return Way(
        name=name,
        class_name=class_.name,
        selectors=tuple(each.cel.expression for each in (*class_.spec.selectors, *given.selectors)),
        count=0 if given.allocation_mode == "All" else max(given.count, 1),
        admin=given.admin_access,
        tolerations=given.tolerations,
        amounts=tuple((key, quantity.parse(str(each)).nano) for key, each in given.capacity.requests.items()),
    )
