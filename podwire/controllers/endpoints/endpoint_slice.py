"""The EndpointSlice controller: the pods of a Service with a selector, in slices of a hundred."""

from typing import ClassVar

from podwire.controllers.adoption import controller_reference
from podwire.controllers.context import Context
from podwire.controllers.endpoints.addresses import HEADLESS, endpoint_of, families_of, is_headless, ports_of
from podwire.controllers.endpoints.services import ServiceReconciler, has_no_pods
from podwire.controllers.endpoints.slice_writer import SliceWriter
from podwire.controllers.endpoints.slices import MANAGED_BY, SERVICE_NAME, Changes, Owner, distribute, grouped
from podwire.controllers.endpoints.trigger_times import marked
from podwire.controllers.kinds import ENDPOINT_SLICES, NODES, PODS
from podwire.controllers.metadata import PartialObject, resource_of
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.watch import Object

MANAGER = "endpointslice-controller.k8s.io"
ZONE = "topology.kubernetes.io/zone"
_RESERVED = frozenset({SERVICE_NAME, MANAGED_BY, HEADLESS})


def owner_of(service: Object) -> Owner:
    """Returns the metadata of a Service's slices: its labels, without those that slices use themselves."""
    meta = service["metadata"]
    labels = {key: value for key, value in (meta.get("labels") or {}).items() if key not in _RESERVED}
    if is_headless(service):
        labels[HEADLESS] = ""
    labels |= {SERVICE_NAME: meta["name"], MANAGED_BY: MANAGER}
    return Owner(
        reference=controller_reference({**service, "apiVersion": "v1", "kind": "Service"}),
        namespace=meta["namespace"],
        name=meta["name"],
        labels=labels,
    )


class EndpointSliceController(ServiceReconciler):
    """Keeps the slices of every Service with a selector."""

    name: ClassVar[str] = "endpointslice-controller"
    dependents: ClassVar[tuple[Kind, ...]] = (PODS, ENDPOINT_SLICES, NODES)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._writer = SliceWriter(context.api, self.expectations, self.writes)
        self._zones: dict[str, str | None] = {}

    def on_change(self, before: PartialObject | None, now: PartialObject | None) -> None:
        latest = now or before
        if latest is None or latest.resource != resource_of(NODES):
            super().on_change(before, now)
            return
        known = self._zones.get(latest.name)
        if now is None:
            self._zones.pop(latest.name, None)
            return
        self._zones[latest.name] = zone = now.labels.get(ZONE)
        if before is not None and zone != known:
            self.on_synced()

    async def reconcile(self, owner: PartialObject) -> None:
        service = owner.object()
        if has_no_pods(service) or owner.deleting:
            return
        mine = [slice_ for slice_ in self.graph.listed(ENDPOINT_SLICES, owner.namespace) if _is_ours(slice_, owner)]
        if self._writer.lags(owner.uid, mine):
            return
        selected = self.pods_of(service)
        changed_at = self.trigger_times.of(service, selected)
        pods = [pod for pod in selected if pod.reachable(terminating=True)]
        existing = [slice_.object() for slice_ in mine if not slice_.deleting]
        families, changes, slices_of = families_of(service), Changes(), owner_of(service)
        for family in families:
            endpoints = [(ports_of(service, pod), endpoint_of(service, pod, family, self._zones)) for pod in pods]
            of_family = [slice_ for slice_ in existing if slice_.get("addressType") == family]
            some = distribute(slices_of, family, grouped(endpoints), of_family)
            changes.create += [marked(slice_, changed_at) for slice_ in some.create]
            changes.update += [marked(slice_, changed_at) for slice_ in some.update]
            changes.delete += some.delete
        changes.delete += [slice_ for slice_ in existing if slice_.get("addressType") not in families]
        await self._writer.write(owner.uid, changes)


def _is_ours(slice_: PartialObject, service: PartialObject) -> bool:
    return slice_.labels.get(MANAGED_BY) == MANAGER and slice_.labels.get(SERVICE_NAME) == service.name
