"""Which claims a pod uses, whether it may, and what of them each container gets. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from podwire.kubelet.claims.claim_info import ClaimInfo, PreparedDevice, fingerprint
from podwire.kubelet.claims.errors import ClaimsNotReady
from podwire.objects import claims
from podwire.objects.claims import NotGenerated, PodClaim, ResourceClaim
from podwire.objects.containers import Container
from podwire.objects.pods import Pod


class PodClaimRef(NamedTuple):
    """A claim by the name of the object."""

    name: str
    generated: bool
    """It was made for the pod, and must belong to it."""


class DeviceRequest(NamedTuple):
    """What a container asks for."""

    told: str
    """As its status calls it: claim:NAME, or claim:NAME/REQUEST; empty for what stands for an extended resource."""
    claim: str
    request: str
    """Empty for all."""


def uses(pod: Pod) -> tuple[PodClaimRef, ...]:
    """Each once, although a pod may name one twice. ClaimsNotReady while one was not made yet."""
    found: dict[str, PodClaimRef] = {}
    for each in claims.of_pod(pod):
        try:
            name = claims.name_of(pod, each)
        except NotGenerated as error:
            raise ClaimsNotReady(str(error)) from None
        if name is not None:
            found[name] = PodClaimRef(name, each.resource_claim_name is None)
    if extended := _extended(pod):
        found[extended["resourceClaimName"]] = PodClaimRef(extended["resourceClaimName"], True)
    return tuple(found.values())


def wants(pod: Pod) -> bool:
    return bool(pod.spec.resource_claims or _extended(pod))


def check(pod: Pod, use: PodClaimRef, claim: ResourceClaim) -> None:
    """ClaimsNotReady when the pod must not use it, or not yet."""
    if use.generated and claim.owner[1] != pod.uid:
        raise ClaimsNotReady(f"ResourceClaim {claim.ref} was not created for pod {pod.ref} (pod is not owner)")
    if not claim.reserved_for(pod.uid):
        who = f"pod {pod.name} ({pod.uid})"
        raise ClaimsNotReady(f"{who} is not allowed to use ResourceClaim {claim.name} ({claim.uid})")
    if claim.status.allocation is None:
        raise ClaimsNotReady(f"ResourceClaim {claim.name}: not allocated")


def claim_fingerprint(claim: ResourceClaim) -> str:
    """Another one when the claim has changed for its pods. What drivers write into its status is no reason to ask them
    again: they write when they were asked."""
    users = sorted(each.uid for each in claim.status.reserved_for)
    allocation = fingerprint(claim.allocated) if claim.status.allocation is not None else ""
    return " ".join((claim.uid, claim.owner[1], allocation, *users))


def device_requests(pod: Pod, container: Container) -> Iterator[DeviceRequest]:
    """A claim that was not made yet is none."""
    entries = {each.name: each for each in claims.of_pod(pod)}
    for each in container.resources.claims:
        entry, request = each.get("name", ""), each.get("request") or ""
        if entry in entries and (name := _name(pod, entries[entry])) is not None:
            yield DeviceRequest(f"claim:{entry}/{request}" if request else f"claim:{entry}", name, request)
    extended = _extended(pod)
    for mapping in extended.get("requestMappings") or ():
        if mapping.get("containerName") == container.name:
            yield DeviceRequest("", extended["resourceClaimName"], mapping.get("requestName", ""))


def devices(record: ClaimInfo, request: str) -> Iterator[tuple[str, PreparedDevice]]:
    """With their drivers, those that a request was given; all for none."""
    for driver, prepared in sorted(record.drivers.items()):
        for each in prepared or ():
            if not request or not each.requests or request in each.requests:
                yield driver, each


def cdi_devices(wanted: Iterable[DeviceRequest], records: Mapping[str, ClaimInfo]) -> tuple[str, ...]:
    """Each once."""
    found: dict[str, None] = {}
    for wish in wanted:
        for _, device in devices(records[wish.claim], wish.request):
            found |= dict.fromkeys(device.cdi)
    return tuple(found)


def _name(pod: Pod, entry: PodClaim) -> str | None:
    try:
        return claims.name_of(pod, entry)
    except NotGenerated:
        return None


def _extended(pod: Pod) -> dict[str, Any]:
    return pod.status.extended_resource_claim_status or {}
