"""Resolves a ResourceClaim to allocations: which devices are ours, for which pod, with which settings. Pure."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from podwire.dradriver.claims.allocations import Allocation, ClaimRef, Device, PodRef, Refused
from podwire.dradriver.names import DRIVER
from podwire.dradriver.parameters.effective import effective
from podwire.dradriver.parameters.pod_checks import check_pod_interfaces
from podwire.objects.claims import AllocatedDevice, ResourceClaim


def base(request: str) -> str:
    """Returns the request's name without the subrequest that was allocated."""
    return request.partition("/")[0]


def check_asked(claim: ResourceClaim, asked: ClaimRef) -> None:
    """Raises Refused."""
    if claim.uid != asked.uid:
        raise Refused("metadata.uid", f"is {claim.uid}, not {asked.uid}: the claim was deleted and created again")
    if claim.status.allocation is None:
        raise Refused("status.allocation", "the claim is not allocated")


def consumer_of(claim: ResourceClaim, outlived: Collection[str] = ()) -> PodRef:
    """The one pod that an interface can be in. Raises Refused.

    `outlived` are the uids of pods that it was prepared for before the machine was started: the first
    request since then is for them, however many pods wait for the claim.
    """
    consumers = claim.status.reserved_for
    consumers = tuple(consumer for consumer in consumers if consumer.uid in outlived) or consumers
    if not consumers:
        raise Refused("status.reservedFor", "the claim is not reserved for a pod")
    if len(consumers) > 1:
        named = ", ".join(sorted(consumer.name for consumer in consumers))
        reason = f"{named}: a network interface is in one pod at a time; make a claim for each, from a template"
        raise Refused("status.reservedFor", reason)
    if not consumers[0].is_pod:
        raise Refused("status.reservedFor", f"{consumers[0].resource} {consumers[0].name} is not a pod")
    return PodRef(namespace=claim.namespace, name=consumers[0].name, uid=consumers[0].uid)


def ours(claim: ResourceClaim) -> list[tuple[str, AllocatedDevice]]:
    """The devices of this driver, each with its field; what other drivers have is theirs."""
    return [
        (f"status.allocation.devices.results[{i}]", result)
        for i, result in enumerate(claim.allocated)
        if result.driver == DRIVER
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedClaim:
    """A claim that was read. Without allocations none of its devices is this driver's."""

    ref: ClaimRef
    allocations: tuple[Allocation, ...] = ()
    pod_claim: str = ""
    """The claim's name in the pod's spec, if it was generated for the pod."""
    is_new: bool = False
    """Whether nothing of it was prepared before."""

    @property
    def pod(self) -> PodRef | None:
        return self.allocations[0].pod if self.allocations else None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """Looks up what the node has."""

    name: str
    find: Callable[[str], Device | None]
    """Finds a device by its name."""
    present: Callable[[str], bool] = lambda _path: True
    """Whether a character device exists at a path."""


def resolve_allocations(claim: ResourceClaim, pod: PodRef, node: NodeView) -> tuple[Allocation, ...]:
    """Raises Refused."""
    allocations = []
    for field, result in ours(claim):
        if result.pool != node.name:
            raise Refused(f"{field}.pool", f"{result.pool} is not the pool of this node, {node.name}")
        if result.admin_access:
            raise Refused(f"{field}.adminAccess", "an interface cannot be shared with its owner for adminAccess")
        device = node.find(result.device)
        if device is None:
            help_ = "the pod starts when the device is back; delete the pod to get another device"
            raise Refused(f"{field}.device", f"{result.device} is not a device of this node any more; {help_}")
        allocation = Allocation(
            claim=ClaimRef(namespace=claim.namespace, name=claim.name, uid=claim.uid),
            pod=pod,
            request=base(result.request),
            pool=result.pool,
            share_id=result.share_id or "",
            device=device,
            settings=effective(claim, result, device, node.present),
        )
        allocations.append(allocation)
    return tuple(allocations)


def covers(prepared: Sequence[Allocation], claim: ResourceClaim) -> bool:
    """Whether all that is ours of a claim is prepared, and nothing else."""
    have = {
        (allocation.request, allocation.pool, allocation.device.name, allocation.share_id) for allocation in prepared
    }
    return bool(have) and have == {
        (base(result.request), result.pool, result.device, result.share_id or "") for _, result in ours(claim)
    }


def check_pod(pod: PodRef, allocations: Iterable[Allocation], others: Iterable[Allocation]) -> None:
    """Whether all interfaces of a pod get along, those included that it was prepared before. Raises Refused."""
    interfaces = []
    for allocation in (*(other for other in others if other.pod.uid == pod.uid), *allocations):
        claim = f"{allocation.claim.namespace}/{allocation.claim.name}"
        owner = f"claim {claim}, request {allocation.request}, device {allocation.device.name}"
        interfaces.append((owner, allocation.settings))
    check_pod_interfaces(interfaces)


def check_same_pod(pod: PodRef, prepared: Iterable[Allocation]) -> None:
    """A claim goes from one pod to the next only when it is unprepared between. Raises Refused."""
    for allocation in prepared:
        if allocation.pod.uid != pod.uid:
            reason = f"the claim is still prepared for pod {allocation.pod.namespace}/{allocation.pod.name}"
            raise Refused("status.reservedFor", reason)
