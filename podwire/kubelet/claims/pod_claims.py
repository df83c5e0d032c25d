"""The claims that a pod uses, whether it may use them, and the devices of each container. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from podwire.kubelet.claims.claim_info import ClaimInfo, PreparedDevice, fingerprint
from podwire.kubelet.claims.errors import ClaimsNotReady
from podwire.objects import claims
from podwire.objects.claims import NotGenerated, PodClaim, ResourceClaim
from podwire.objects.containers import Container
from podwire.objects.pods import Pod


class PodClaimRef(NamedTuple):
    """A claim that a pod refers to, by the name of the object."""

    name: str
    generated: bool
    """It was generated for the pod, and must be owned by it."""


class DeviceRequest(NamedTuple):
    """A claim, or one request of it, that a container uses."""

    status_name: str
    """Its name in the container's status: `claim:NAME` or `claim:NAME/REQUEST`; empty for an extended resource."""
    claim: str
    request: str
    """Empty for all."""


def claim_refs(pod: Pod) -> tuple[PodClaimRef, ...]:
    """Each claim once, although a pod may name it twice. Raises ClaimsNotReady while one is not generated yet."""
    refs: dict[str, PodClaimRef] = {}
    for entry in claims.of_pod(pod):
        try:
            name = claims.name_of(pod, entry)
        except NotGenerated as error:
            raise ClaimsNotReady(str(error)) from None
        if name is not None:
            refs[name] = PodClaimRef(name, entry.resource_claim_name is None)
    if extended := _extended(pod):
        refs[extended["resourceClaimName"]] = PodClaimRef(extended["resourceClaimName"], True)
    return tuple(refs.values())


def uses_claims(pod: Pod) -> bool:
    return bool(pod.spec.resource_claims or _extended(pod))


def check(pod: Pod, ref: PodClaimRef, claim: ResourceClaim) -> None:
    """Raises ClaimsNotReady if the pod must not use the claim, or not yet."""
    if ref.generated and claim.owner[1] != pod.uid:
        raise ClaimsNotReady(f"ResourceClaim {claim.ref} was not created for pod {pod.ref} (pod is not owner)")
    if not claim.reserved_for(pod.uid):
        who = f"pod {pod.name} ({pod.uid})"
        raise ClaimsNotReady(f"{who} is not allowed to use ResourceClaim {claim.name} ({claim.uid})")
    if claim.status.allocation is None:
        raise ClaimsNotReady(f"ResourceClaim {claim.name}: not allocated")


def version(claim: ResourceClaim) -> str:
    """Changes when the claim changes for its pods. Drivers write the status of devices when they are asked to prepare
    them, so that is not a reason to ask them again."""
    users = sorted(user.uid for user in claim.status.reserved_for)
    allocation = fingerprint(claim.allocated) if claim.status.allocation is not None else ""
    return " ".join((claim.uid, claim.owner[1], allocation, *users))


def device_requests(pod: Pod, container: Container) -> Iterator[DeviceRequest]:
    """Claims that are not generated yet are left out."""
    entries = {entry.name: entry for entry in claims.of_pod(pod)}
    for used in container.resources.claims:
        entry, request = used.get("name", ""), used.get("request") or ""
        if entry in entries and (name := _name(pod, entries[entry])) is not None:
            yield DeviceRequest(f"claim:{entry}/{request}" if request else f"claim:{entry}", name, request)
    extended = _extended(pod)
    for mapping in extended.get("requestMappings") or ():
        if mapping.get("containerName") == container.name:
            yield DeviceRequest("", extended["resourceClaimName"], mapping.get("requestName", ""))


def devices(record: ClaimInfo, request: str) -> Iterator[tuple[str, PreparedDevice]]:
    """Drivers and devices that satisfy a request; all devices if it is empty."""
    for driver, prepared in sorted(record.drivers.items()):
        for device in prepared or ():
            if not request or not device.requests or request in device.requests:
                yield driver, device


def cdi_devices(requests: Iterable[DeviceRequest], claims_: Mapping[str, ClaimInfo]) -> tuple[str, ...]:
    """CDI device ids, each once."""
    ids: dict[str, None] = {}
    for request in requests:
        for _, device in devices(claims_[request.claim], request.request):
            ids |= dict.fromkeys(device.cdi)
    return tuple(ids)


def _name(pod: Pod, entry: PodClaim) -> str | None:
    try:
        return claims.name_of(pod, entry)
    except NotGenerated:
        return None


def _extended(pod: Pod) -> dict[str, Any]:
    return pod.status.extended_resource_claim_status or {}
