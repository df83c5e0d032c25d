"""The claims of a pod: those that are allocated and those that still need devices. Pure."""

from dataclasses import dataclass

from podwire.objects import claims, node_affinity
from podwire.objects.claims import MOST_CONSUMERS, NotGenerated, ResourceClaim
from podwire.objects.node_affinity import Wanted
from podwire.objects.pods import Pod
from podwire.scheduler.claims import claim_requests
from podwire.scheduler.claims.cache import ClaimCache
from podwire.scheduler.claims.claim_requests import ClaimRequests, Unsatisfiable
from podwire.scheduler.kinds import CLAIMS, DEVICE_CLASSES, SLICES


class NotYet(Exception):
    """Another component is working on it and its watch event will retry the pod; users need no Event."""


@dataclass(frozen=True, slots=True)
class Allocated:
    claim: ResourceClaim
    usable: Wanted | None
    """Matches the nodes on which its devices can be used; None for all nodes."""


@dataclass(frozen=True, slots=True)
class PodClaims:
    allocated: tuple[Allocated, ...]
    to_allocate: tuple[ClaimRequests, ...]

    @property
    def prioritized(self) -> bool:
        return any(request.prioritized for claim in self.to_allocate for request in claim.requests)


def of_pod(pod: Pod, claim_cache: ClaimCache) -> PodClaims:
    """Raises Unsatisfiable and NotYet."""
    if claim_cache.forbidden_kinds:
        raise Unsatisfiable(min(claim_cache.forbidden_kinds.values()))
    if not claim_cache.known:
        raise NotYet("claims, classes and devices have not all been listed yet")
    if missing := claim_cache.unsupported_kinds & {CLAIMS.kind, SLICES.kind, DEVICE_CLASSES.kind}:
        raise Unsatisfiable(f"{CLAIMS.api_version} {min(missing)} is not served by this API server")
    allocated, to_allocate = [], []
    for claim in _claims(pod, claim_cache):
        if claim.status.allocation is not None:
            selector = claim.status.allocation.node_selector
            allocated.append(Allocated(claim, node_affinity.selected(selector) if selector else None))
        elif claim_cache.is_pending(claim):
            raise NotYet(f"resourceclaim {claim.ref} is in the process of being allocated")
        else:
            to_allocate.append(claim_requests.of_claim(claim, claim_cache.classes))
    return PodClaims(tuple(allocated), tuple(to_allocate))


def _claims(pod: Pod, claim_cache: ClaimCache) -> list[ResourceClaim]:
    """Returns each claim once, although a pod may name one twice."""
    by_name: dict[str, ResourceClaim] = {}
    for entry in claims.of_pod(pod):
        try:
            name = claims.name_of(pod, entry)
        except NotGenerated as error:
            raise NotYet(str(error)) from None
        if name is None:
            continue
        claim = claim_cache.claim(f"{pod.namespace}/{name}")
        if claim is None and entry.resource_claim_name is None:
            raise NotYet(f'resourceclaim "{name}" not found')
        if claim is None:
            raise Unsatisfiable(f'resourceclaim "{name}" not found')
        _check(pod, claim, generated=entry.resource_claim_name is None)
        by_name[claim.ref] = claim
    return list(by_name.values())


def _check(pod: Pod, claim: ResourceClaim, *, generated: bool) -> None:
    if generated and claim.owner[1] != pod.uid:
        raise Unsatisfiable(f"ResourceClaim {claim.ref} was not created for pod {pod.ref} (pod is not owner)")
    if claim.deleting:
        raise Unsatisfiable(f'resourceclaim "{claim.name}" is being deleted')
    if claim.allocated and len(claim.status.reserved_for) >= MOST_CONSUMERS and not claim.reserved_for(pod.uid):
        raise Unsatisfiable(f'resourceclaim "{claim.name}" is in use by {MOST_CONSUMERS} consumers already')


def named(pod: Pod, claim: ResourceClaim) -> bool:
    """Returns whether a pod refers to a claim."""
    if pod.namespace != claim.namespace:
        return False
    if claim.owner[1] == pod.uid:
        return True
    return any(resource_claim.get("resourceClaimName") == claim.name for resource_claim in pod.spec.resource_claims)
