"""From a claim as the API server has it to orders: what is ours of it, for which pod, and what it is to be. Pure."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from podwire.dradriver.claims.allocations import ClaimRef, Offered, Order, PodRef, Refused
from podwire.dradriver.names import DRIVER
from podwire.dradriver.parameters.effective import effective
from podwire.dradriver.parameters.pod_checks import check_pod_interfaces
from podwire.objects.claims import AllocatedDevice, ResourceClaim


def base(request: str) -> str:
    """What people called it: without the alternative that was taken."""
    return request.partition("/")[0]


def check_asked(claim: ResourceClaim, asked: ClaimRef) -> None:
    """Raises Refused."""
    if claim.uid != asked.uid:
        raise Refused("metadata.uid", f"is {claim.uid}, not {asked.uid}: the claim was deleted and made anew")
    if claim.status.allocation is None:
        raise Refused("status.allocation", "the claim is not allocated")


def consumer_of(claim: ResourceClaim, outlived: Collection[str] = ()) -> PodRef:
    """The one pod that an interface can be in. Raises Refused.

    `outlived` are the uids of pods that it was prepared for before the machine was started: whoever asks for the first
    time since then asks for them, however many wait for the claim.
    """
    consumers = claim.status.reserved_for
    consumers = tuple(each for each in consumers if each.uid in outlived) or consumers
    if not consumers:
        raise Refused("status.reservedFor", "the claim is reserved for nobody")
    if len(consumers) > 1:
        named = ", ".join(sorted(each.name for each in consumers))
        reason = f"{named}: a network interface is in one pod at a time; make a claim for each, from a template"
        raise Refused("status.reservedFor", reason)
    if not consumers[0].is_pod:
        raise Refused("status.reservedFor", f"{consumers[0].resource} {consumers[0].name} is no pod")
    return PodRef(namespace=claim.namespace, name=consumers[0].name, uid=consumers[0].uid)


def ours(claim: ResourceClaim) -> list[tuple[str, AllocatedDevice]]:
    """The devices of this driver, each with its field; what other drivers have is theirs."""
    return [
        (f"status.allocation.devices.results[{i}]", each)
        for i, each in enumerate(claim.allocated)
        if each.driver == DRIVER
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What is known of the node."""

    node: str
    find: Callable[[str], Offered | None]
    """A device by its name."""
    present: Callable[[str], bool] = lambda _path: True
    """Whether a character device is there, by its path."""


def orders_of(claim: ResourceClaim, pod: PodRef, host: Host) -> tuple[Order, ...]:
    """Raises Refused."""
    return tuple(_order(claim, pod, result, field, host) for field, result in ours(claim))


def _order(claim: ResourceClaim, pod: PodRef, result: AllocatedDevice, field: str, host: Host) -> Order:
    if result.pool != host.node:
        raise Refused(f"{field}.pool", f"{result.pool} is not the pool of this node, {host.node}")
    if result.admin_access:
        raise Refused(f"{field}.adminAccess", "an interface cannot be used by an administrator beside its owner")
    offered = host.find(result.device)
    if offered is None:
        raise Refused(f"{field}.device", f"{result.device} is not a device of this node")
    return Order(
        claim=ClaimRef(namespace=claim.namespace, name=claim.name, uid=claim.uid),
        pod=pod,
        request=base(result.request),
        pool=result.pool,
        share_id=result.share_id or "",
        offered=offered,
        settings=effective(claim, result, offered, host.present),
    )


def covers(prepared: Sequence[Order], claim: ResourceClaim) -> bool:
    """Whether all that is ours of a claim is prepared, and nothing else."""
    have = {(each.request, each.pool, each.offered.device, each.share_id) for each in prepared}
    return bool(have) and have == {
        (base(each.request), each.pool, each.device, each.share_id or "") for _, each in ours(claim)
    }


def check_pod(pod: PodRef, orders: Iterable[Order], others: Iterable[Order]) -> None:
    """Whether all interfaces of a pod get along, those included that it was prepared before. Raises Refused."""
    of_pod = [*(each for each in others if each.pod.uid == pod.uid), *orders]
    check_pod_interfaces([(_whose(each), each.settings) for each in of_pod])


def check_same_pod(pod: PodRef, prepared: Iterable[Order]) -> None:
    """A claim goes from one pod to the next only when it is unprepared between. Raises Refused."""
    for each in prepared:
        if each.pod.uid != pod.uid:
            reason = f"the claim is still prepared for pod {each.pod.namespace}/{each.pod.name}"
            raise Refused("status.reservedFor", reason)


def _whose(order: Order) -> str:
    return f"claim {order.claim.namespace}/{order.claim.name}, request {order.request}, device {order.offered.device}"
