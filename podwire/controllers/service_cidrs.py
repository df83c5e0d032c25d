"""ServiceCIDRs: ready as soon as they are protected, and gone only when no service needs them.

A range that is being deleted gives no more addresses. Its finalizer stays while an address lies in it alone: a service
would have an address of no range. The grace period is for API servers that do not know of the deletion yet.
"""

import ipaddress
from collections.abc import Iterable
from typing import ClassVar

from podwire.controllers.kinds import IP_ADDRESSES, SERVICE_CIDRS
from podwire.controllers.metadata import PartialObject
from podwire.controllers.reconciler import Reconciler
from podwire.objects.times import parse, rfc3339
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.watch import Object

FINALIZER = "networking.k8s.io/service-cidr-finalizer"
READY = {"type": "Ready", "status": "True", "reason": "", "message": "Kubernetes Service CIDR is ready"}
TERMINATING = {
    "type": "Ready",
    "status": "False",
    "reason": "Terminating",
    "message": "There are still IPAddresses referencing the ServiceCIDR, "
    "please remove them or create a new ServiceCIDR",
}
_MANAGED_BY = "ipaddress.kubernetes.io/managed-by"
_MANAGER = "ipallocator.k8s.io"

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def networks(cidr: Object) -> list[Network]:
    return [ipaddress.ip_network(text) for text in cidr["spec"].get("cidrs") or ()]


def is_needed(cidr: Object, others: Iterable[Object], addresses: Iterable[str]) -> bool:
    """Returns whether an address would be in no range any more without this one."""
    kept = [network for other in others for network in networks(other)]
    own = networks(cidr)
    if all(any(_within(network, other) for other in kept) for network in own):
        return False
    for text in addresses:
        ip = ipaddress.ip_address(text)
        if any(ip in network for network in own) and not any(ip in network for network in kept):
            return True
    return False


def _within(inner: Network, outer: Network) -> bool:
    return inner.version == outer.version and inner.prefixlen >= outer.prefixlen and inner.network_address in outer


class ServiceCidrController(Reconciler):
    """Reconciles a ServiceCIDR when it, another one or an IPAddress changes."""

    name: ClassVar[str] = "service-cidr-controller"
    kind: ClassVar[Kind] = SERVICE_CIDRS
    dependents: ClassVar[tuple[Kind, ...]] = (IP_ADDRESSES,)
    workers: ClassVar[int] = 1

    def on_change(self, before: PartialObject | None, now: PartialObject | None) -> None:
        super().on_change(before, now)
        if now is None or before is None:  # a range or an address less, or more: others may go now
            self._enqueue_deleted()

    def on_dependent(self, before: PartialObject | None, now: PartialObject | None) -> None:
        """Addresses have no controller reference; `on_change` enqueues the ranges that wait for them."""

    def _enqueue_deleted(self) -> None:
        for cidr in self.graph.everywhere(SERVICE_CIDRS):
            if cidr.deleting:
                self.enqueue(cidr.uid)

    async def reconcile(self, owner: PartialObject) -> None:
        cidr = owner.object()
        if owner.deleting:
            await self._delete(owner, cidr)
            return
        finalizers = cidr["metadata"].get("finalizers") or []
        if FINALIZER not in finalizers:
            metadata = {**cidr["metadata"], "finalizers": [*finalizers, FINALIZER]}
            cidr = await self.api.replace({**cidr, "metadata": metadata})
        await self._set_condition(cidr, READY)

    async def _delete(self, owner: PartialObject, cidr: Object) -> None:
        others = [other.object() for other in self.graph.everywhere(SERVICE_CIDRS) if other.uid != owner.uid]
        addresses = [
            address.name
            for address in self.graph.everywhere(IP_ADDRESSES)
            if address.labels.get(_MANAGED_BY) == _MANAGER
        ]
        if is_needed(cidr, others, addresses):
            await self._set_condition(cidr, TERMINATING)
            return
        metadata = cidr["metadata"]
        left = self.limits.cidr_deletion_grace - (self.clock.wall() - parse(metadata["deletionTimestamp"]))
        if left > 0:
            self.enqueue_after(owner.uid, left)
        elif FINALIZER in metadata.get("finalizers", ()):
            kept = [finalizer for finalizer in metadata["finalizers"] if finalizer != FINALIZER]
            await self.api.replace({**cidr, "metadata": {**metadata, "finalizers": kept}})

    async def _set_condition(self, cidr: Object, condition: dict[str, str]) -> None:
        status = cidr.get("status") or {}
        conditions = status.get("conditions") or []
        old: Object = next((known for known in conditions if known.get("type") == condition["type"]), {})
        if all(old.get(field, "") == text for field, text in condition.items()):
            return
        changed = old.get("status") != condition["status"]
        moment = rfc3339(self.clock.wall()) if changed else old["lastTransitionTime"]
        others = [known for known in conditions if known.get("type") != condition["type"]]
        new = {**condition, "lastTransitionTime": moment}
        await self.update_status(cidr, {**status, "conditions": [*others, new]})
