"""The claims of a pod, found and looked at: which have their devices, which still need some. Pure."""

from dataclasses import dataclass

from podwire.objects import claims, node_affinity
from podwire.objects.claims import MOST_CONSUMERS, NotGenerated, ResourceClaim
from podwire.objects.node_affinity import Wanted
from podwire.objects.pods import Pod
from podwire.scheduler.claims import claim_requests
from podwire.scheduler.claims.cache import Book
from podwire.scheduler.claims.claim_requests import CannotBeMet, Needs
from podwire.scheduler.kinds import CLAIMS, DEVICE_CLASSES, SLICES


class NotYet(Exception):
    """Somebody is at work on it, and tells when it is done: nothing that people need to hear of."""


@dataclass(frozen=True, slots=True)
class Allocated:
    claim: ResourceClaim
    usable: Wanted | None
    """Where its devices can be used; None for everywhere."""


@dataclass(frozen=True, slots=True)
class PodClaims:
    allocated: tuple[Allocated, ...]
    needed: tuple[Needs, ...]

    @property
    def prioritized(self) -> bool:
        return any(request.prioritized for each in self.needed for request in each.requests)


def of_pod(pod: Pod, book: Book) -> PodClaims:
    """Raises CannotBeMet, and NotYet."""
    if not book.known:
        raise NotYet("claims, classes and devices have not all been listed yet")
    if missing := book.unserved & {CLAIMS.kind, SLICES.kind, DEVICE_CLASSES.kind}:
        raise CannotBeMet(f"{CLAIMS.api_version} {min(missing)} is not served by this API server")
    allocated, needed = [], []
    for claim in _claims(pod, book):
        if claim.status.allocation is not None:
            selector = claim.status.allocation.node_selector
            allocated.append(Allocated(claim, node_affinity.selected(selector) if selector else None))
        elif book.in_flight(claim):
            raise NotYet(f"resourceclaim {claim.ref} is in the process of being allocated")
        else:
            needed.append(claim_requests.of_claim(claim, book.classes))
    return PodClaims(tuple(allocated), tuple(needed))


def _claims(pod: Pod, book: Book) -> list[ResourceClaim]:
    """Each once, although a pod may name one twice."""
    found: dict[str, ResourceClaim] = {}
    for each in claims.of_pod(pod):
        try:
            name = claims.name_of(pod, each)
        except NotGenerated as error:
            raise NotYet(str(error)) from None
        if name is None:
            continue
        claim = book.claim(f"{pod.namespace}/{name}")
        if claim is None and each.resource_claim_name is None:
            raise NotYet(f'resourceclaim "{name}" not found')
        if claim is None:
            raise CannotBeMet(f'resourceclaim "{name}" not found')
        _check(pod, claim, generated=each.resource_claim_name is None)
        found[claim.ref] = claim
    return list(found.values())


def _check(pod: Pod, claim: ResourceClaim, *, generated: bool) -> None:
    if generated and claim.owner[1] != pod.uid:
        raise CannotBeMet(f"ResourceClaim {claim.ref} was not created for pod {pod.ref} (pod is not owner)")
    if claim.deleting:
        raise CannotBeMet(f'resourceclaim "{claim.name}" is being deleted')
    if claim.allocated and len(claim.status.reserved_for) >= MOST_CONSUMERS and not claim.reserved_for(pod.uid):
        raise CannotBeMet(f'resourceclaim "{claim.name}" is in use by {MOST_CONSUMERS} consumers already')


def named(pod: Pod, claim: ResourceClaim) -> bool:
    """Whether a pod speaks of a claim."""
    if pod.namespace != claim.namespace:
        return False
    if claim.owner[1] == pod.uid:
        return True
    return any(each.get("resourceClaimName") == claim.name for each in pod.spec.resource_claims)
