"""Addresses for Services of type LoadBalancer, out of a pool of the node network. Decides alone what a Service gets.

The service proxies of the nodes announce and serve the addresses (`podwire/proxy`). A Service with a
`loadBalancerClass` belongs to somebody else. An address that two Services have, because two processes gave it at the
same time, stays with the older one. Writes name the version on which they were decided, so of two processes one gives
a Service its address.
"""

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, NamedTuple

from podwire.controllers.context import Context
from podwire.controllers.kinds import SERVICES
from podwire.controllers.metadata import PartialObject
from podwire.controllers.pod_control import reference_to
from podwire.controllers.reconciler import Reconciler
from podwire.protocols.k8sapi.client_side.events import NORMAL, WARNING
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object

FINALIZER = "service.kubernetes.io/load-balancer-cleanup"

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class NoAddress(Exception):
    """A Service cannot get an address; says why."""


class Holder(NamedTuple):
    """A Service that has addresses of a load balancer."""

    created: str
    uid: str
    name: str
    addresses: tuple[str, ...]


def is_balanced(service: Object) -> bool:
    """Returns whether a Service gets its addresses here."""
    spec = service.get("spec") or {}
    deleted = service["metadata"].get("deletionTimestamp")
    return spec.get("type") == "LoadBalancer" and spec.get("loadBalancerClass") is None and not deleted


def addresses_of(service: Object) -> tuple[str, ...]:
    ingress = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    return tuple(row["ip"] for row in ingress if row.get("ip"))


def holder_of(service: Object) -> Holder:
    meta = service["metadata"]
    name = f"{meta['namespace']}/{meta['name']}"
    return Holder(meta["creationTimestamp"], meta["uid"], name, addresses_of(service))


def decide(service: Object, others: Iterable[Holder], pool: Sequence[Network]) -> list[str]:
    """Returns the addresses of a Service: one of each of its families. Raises NoAddress."""
    spec, own = service["spec"], holder_of(service)
    taken = {address: other.name for other in others for address in other.addresses if other.uid != own.uid}
    older = {address for other in others if other[:2] < own[:2] for address in other.addresses}
    asked = spec.get("loadBalancerIP") or ""
    if asked:
        _check_asked(asked, spec, taken, pool)
    families = spec.get("ipFamilies") or ["IPv4"]
    addresses = []
    for family in families:
        networks = [network for network in pool if f"IPv{network.version}" == family]
        if not networks:
            if len(families) > 1 and spec.get("ipFamilyPolicy") == "PreferDualStack":
                continue
            raise NoAddress(f"the pool {_shown(pool)} has no {family} addresses")
        if asked and _family_of(asked) == family:
            addresses.append(str(ipaddress.ip_address(asked)))
            continue
        kept = [ip for ip in own.addresses if ip not in older and any(ipaddress.ip_address(ip) in n for n in networks)]
        addresses.append(kept[0] if kept else _free(networks, taken))
    if not addresses:
        raise NoAddress(f"the pool {_shown(pool)} has no addresses of its families")
    return addresses


def _check_asked(asked: str, spec: Object, taken: Mapping[str, str], pool: Sequence[Network]) -> None:
    try:
        address = ipaddress.ip_address(asked)
    except ValueError as error:
        raise NoAddress(f'requested load balancer IP "{asked}" is not an address') from error
    if _family_of(asked) not in (spec.get("ipFamilies") or ["IPv4"]):
        raise NoAddress(f'requested load balancer IP "{asked}" is not of a family of the service')
    if not any(address in network for network in pool):
        raise NoAddress(f'requested load balancer IP "{asked}" is not in the pool {_shown(pool)}')
    if str(address) in taken:
        raise NoAddress(f'requested load balancer IP "{asked}" is used by service {taken[str(address)]}')


def _free(networks: Sequence[Network], taken: Mapping[str, str]) -> str:
    for network in networks:
        for host in network.hosts():
            if str(host) not in taken:
                return str(host)
    raise NoAddress(f"no address is free in the pool {_shown(networks)}")


def _family_of(address: str) -> str:
    return "IPv6" if ":" in address else "IPv4"


def _shown(pool: Iterable[Network]) -> str:
    return ", ".join(map(str, pool))


class ServiceBalancer(Reconciler):
    """Gives addresses, and takes them back when a Service changes its type or is deleted."""

    name: ClassVar[str] = "service-lb-controller"
    component: ClassVar[str] = "service-controller"
    kind: ClassVar[Kind] = SERVICES
    workers: ClassVar[int] = 1

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._pool = context.balancer_pool
        self._holders: dict[str, Holder] = {}
        """Of all Services with addresses, also with those that were written and not reported yet."""
        self._waiting: dict[str, str] = {}
        """The reason for which each of these Services has no address."""

    def on_change(self, before: PartialObject | None, now: PartialObject | None) -> None:
        latest = now or before
        if latest is not None:
            freed = self._holders.pop(latest.uid, None)
            if now is None:
                self._waiting.pop(latest.uid, None)
            elif (holder := holder_of(now.object())).addresses:
                self._holders[now.uid] = holder
            if freed is not None and (now is None or latest.uid not in self._holders):
                for uid in self._waiting:
                    self.enqueue(uid)
        super().on_change(before, now)

    async def reconcile(self, owner: PartialObject) -> None:
        service = owner.object()
        if is_balanced(service):
            await self._ensure(service)
        elif FINALIZER in owner.metadata.finalizers and service["spec"].get("loadBalancerClass") is None:
            await self._release(service)

    async def _ensure(self, service: Object) -> None:
        meta = service["metadata"]
        uid, reference = meta["uid"], reference_to(service)
        try:
            addresses = decide(service, list(self._holders.values()), self._pool)
        except NoAddress as error:
            if self._waiting.get(uid) != str(error):
                self._waiting[uid] = str(error)
                detail = f"Error syncing load balancer: failed to ensure load balancer: {error}"
                self.recorder.tell(reference, WARNING, "SyncLoadBalancerFailed", detail)
            return
        self._waiting.pop(uid, None)
        finalizers = meta.get("finalizers") or []
        if tuple(addresses) == addresses_of(service) and FINALIZER in finalizers:
            return
        self.recorder.tell(reference, NORMAL, "EnsuringLoadBalancer", "Ensuring load balancer")
        if FINALIZER not in finalizers:
            service = await self.api.replace({**service, "metadata": {**meta, "finalizers": [*finalizers, FINALIZER]}})
        self._holders[uid] = holder_of(service)._replace(addresses=tuple(addresses))
        ingress = [{"ip": address, "ipMode": "VIP"} for address in addresses]
        try:
            await self.update_status(service, {**(service.get("status") or {}), "loadBalancer": {"ingress": ingress}})
        except ApiError:
            self._holders[uid] = holder_of(service)
            raise
        self.recorder.tell(reference, NORMAL, "EnsuredLoadBalancer", "Ensured load balancer")

    async def _release(self, service: Object) -> None:
        reference, meta = reference_to(service), service["metadata"]
        self.recorder.tell(reference, NORMAL, "DeletingLoadBalancer", "Deleting load balancer")
        if addresses_of(service):
            status = {**service["status"], "loadBalancer": {}}
            service = await self.api.replace({**service, "status": status}, subresource="status")
        kept = [finalizer for finalizer in meta["finalizers"] if finalizer != FINALIZER]
        try:
            await self.api.replace({**service, "metadata": {**service["metadata"], "finalizers": kept}})
        except ApiError as error:
            if error.code != 404:
                raise
        self.recorder.tell(reference, NORMAL, "DeletedLoadBalancer", "Deleted load balancer")
