"""The requests of a claim with their device classes resolved: subrequests and constraints."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from podwire.objects import quantity
from podwire.objects.claims import DeviceConstraint, ExactRequest, ResourceClaim
from podwire.objects.device_classes import DeviceClass
from podwire.objects.device_taints import DeviceToleration

MAX_DEVICES = 32
"""Devices that one claim may have (resource.k8s.io: AllocationResultsMaxSize)."""


class Unsatisfiable(Exception):
    """No node can satisfy the claim, regardless of its devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subrequest:
    """One alternative of a request; results name it `request` or `request/subrequest`."""

    name: str
    class_name: str
    selectors: tuple[str, ...]
    """The selectors of the class come first."""
    count: int
    """0 means allocationMode All."""
    admin: bool = False
    tolerations: tuple[DeviceToleration, ...] = ()
    amounts: tuple[tuple[str, int], ...] = ()
    """Requested capacities by name, in nanos."""


@dataclass(frozen=True, slots=True)
class Request:
    name: str
    subrequests: tuple[Subrequest, ...]
    prioritized: bool


@dataclass(frozen=True, slots=True)
class ClaimRequests:
    claim: ResourceClaim
    requests: tuple[Request, ...]

    @property
    def constraints(self) -> tuple[DeviceConstraint, ...]:
        return self.claim.spec.devices.constraints


def of_claim(claim: ResourceClaim, classes: Mapping[str, DeviceClass]) -> ClaimRequests:
    """Raises CannotBeMet."""
    requests = tuple(_requests(claim, classes))
    fewest = sum(min(max(subrequest.count, 1) for subrequest in request.subrequests) for request in requests)
    if fewest > MAX_DEVICES:
        raise Unsatisfiable(f"number of devices requested exceeds the claim limit of {MAX_DEVICES}: {fewest}")
    return ClaimRequests(claim, requests)


def _requests(claim: ResourceClaim, classes: Mapping[str, DeviceClass]) -> Iterator[Request]:
    for request in claim.spec.devices.requests:
        if request.exactly is not None:
            yield Request(request.name, (_subrequest(request.name, request.exactly, classes),), prioritized=False)
        elif request.first_available:
            subrequests = tuple(
                _subrequest(f"{request.name}/{subrequest.name}", subrequest, classes)
                for subrequest in request.first_available
            )
            yield Request(request.name, subrequests, prioritized=True)
        else:
            raise Unsatisfiable(f"request {request.name}: unknown request type")


def _subrequest(name: str, given: ExactRequest, classes: Mapping[str, DeviceClass]) -> Subrequest:
    class_ = classes.get(given.device_class_name)
    if class_ is None:
        raise Unsatisfiable(f"request {name}: device class {given.device_class_name} does not exist")
    if given.allocation_mode not in ("", "ExactCount", "All"):
        raise Unsatisfiable(f"request {name}: unsupported count mode {given.allocation_mode}")
    return Subrequest(
        name=name,
        class_name=class_.name,
        selectors=tuple(selector.cel.expression for selector in (*class_.spec.selectors, *given.selectors)),
        count=0 if given.allocation_mode == "All" else max(given.count, 1),
        admin=given.admin_access,
        tolerations=given.tolerations,
        amounts=tuple((key, quantity.parse(str(request)).nano) for key, request in given.capacity.requests.items()),
    )
