"""EndpointSlice mirroring: Endpoints that somebody wrote for a Service without a selector appear as slices, too."""

from typing import Any, ClassVar

from podwire.controllers.adoption import controller_reference
from podwire.controllers.context import Context
from podwire.controllers.endpoints.addresses import IPV4, IPV6, canonical
from podwire.controllers.endpoints.slice_writer import SliceWriter
from podwire.controllers.endpoints.slices import MANAGED_BY, SERVICE_NAME, Changes, Owner, distribute, grouped
from podwire.controllers.kinds import ENDPOINT_SLICES, ENDPOINTS, SERVICES
from podwire.controllers.metadata import PartialObject, resource_of
from podwire.controllers.own_writes import OwnWrites
from podwire.controllers.pod_control import reference_to
from podwire.controllers.reconciler import Reconciler
from podwire.protocols.k8sapi.client_side.events import WARNING
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.watch import Object

MANAGER = "endpointslicemirroring-controller.k8s.io"
SKIP = "endpointslice.kubernetes.io/skip-mirror"
LEADER = "control-plane.alpha.kubernetes.io/leader"
MOST_ADDRESSES = 1000
"""Addresses of one subset that are mirrored."""
_NOT_COPIED = frozenset(
    {"endpoints.kubernetes.io/last-change-trigger-time", "kubectl.kubernetes.io/last-applied-configuration"}
)


def is_mirrored(endpoints: Object, service: Object | None) -> bool:
    """Returns whether Endpoints are mirrored: somebody wrote them for a Service, and they do not ask to be skipped."""
    meta = endpoints["metadata"]
    if (meta.get("labels") or {}).get(SKIP) == "true" or LEADER in (meta.get("annotations") or {}):
        return False
    return service is not None and not service["spec"].get("selector") and service["spec"].get("type") != "ExternalName"


def owner_of(endpoints: Object) -> Owner:
    meta = endpoints["metadata"]
    annotations = {key: text for key, text in (meta.get("annotations") or {}).items() if key not in _NOT_COPIED}
    return Owner(
        reference=controller_reference({**endpoints, "apiVersion": "v1", "kind": "Endpoints"}),
        namespace=meta["namespace"],
        name=meta["name"],
        labels={**(meta.get("labels") or {}), SERVICE_NAME: meta["name"], MANAGED_BY: MANAGER},
        annotations=annotations,
    )


def mirrored(endpoints: Object, family: str) -> tuple[list[tuple[list[Any], dict[str, Any] | None]], int, int]:
    """Returns ports and endpoint of each address of a family, and how many addresses were invalid or too many."""
    pairs: list[tuple[list[Any], dict[str, Any] | None]] = []
    invalid = skipped = 0
    for subset in endpoints.get("subsets") or ():
        ports = [{"name": "", "protocol": "TCP", **port} for port in subset.get("ports") or ()]
        addresses = [
            (address, part == "addresses")
            for part in ("addresses", "notReadyAddresses")
            for address in subset.get(part) or ()
        ]
        skipped += max(0, len(addresses) - MOST_ADDRESSES)
        for address, ready in addresses[:MOST_ADDRESSES]:
            if not canonical(address["ip"]):
                invalid += 1
            elif ip := canonical(address["ip"], family):
                endpoint = {"addresses": [ip], "conditions": {"ready": ready}}
                kept = {key: address[key] for key in ("hostname", "nodeName", "targetRef") if address.get(key)}
                pairs.append((ports, {**endpoint, **kept}))
    return pairs, invalid, skipped


class MirroringController(Reconciler):
    """Reconciles Endpoints when they, their Service or their slices change."""

    name: ClassVar[str] = "endpointslice-mirroring-controller"
    kind: ClassVar[Kind] = ENDPOINTS
    dependents: ClassVar[tuple[Kind, ...]] = (SERVICES, ENDPOINT_SLICES)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._writer = SliceWriter(context.api, self.expectations, OwnWrites())

    def on_dependent(self, before: PartialObject | None, now: PartialObject | None) -> None:
        latest = now or before
        if latest is not None and latest.resource == resource_of(SERVICES):
            endpoints = self.graph.find(ENDPOINTS, latest.name, latest.namespace)
            if endpoints is not None:
                self.enqueue(endpoints.uid)
        elif latest is not None and latest.labels.get(MANAGED_BY) == MANAGER:
            super().on_dependent(before, now)

    async def reconcile(self, owner: PartialObject) -> None:
        mine = [slice_ for slice_ in self.graph.listed(ENDPOINT_SLICES, owner.namespace) if _is_ours(slice_, owner)]
        if self._writer.lags(owner.uid, mine):
            return
        endpoints = owner.object()
        service = self.graph.find(SERVICES, owner.name, owner.namespace)
        existing = [slice_.object() for slice_ in mine if not slice_.deleting]
        changes = Changes()
        if not is_mirrored(endpoints, service.object() if service else None) or owner.deleting:
            changes.delete += existing
        else:
            self._plan(endpoints, existing, changes)
        await self._writer.write(owner.uid, changes)

    def _plan(self, endpoints: Object, existing: list[Object], changes: Changes) -> None:
        owner = owner_of(endpoints)
        for family in (IPV4, IPV6):
            pairs, invalid, skipped = mirrored(endpoints, family)
            of_family = [slice_ for slice_ in existing if slice_.get("addressType") == family]
            some = distribute(owner, family, grouped(pairs), of_family, MOST_ADDRESSES, placeholder=False)
            changes.create += some.create
            changes.update += some.update
            changes.delete += some.delete
        about = reference_to(endpoints)
        if invalid:
            message = f"Skipped {invalid} invalid IP addresses when mirroring to EndpointSlices"
            self.recorder.tell(about, WARNING, "InvalidIPAddress", message)
        if skipped:
            message = (
                f"A max of {MOST_ADDRESSES} addresses can be mirrored to EndpointSlices per Endpoints subset. "
                f"{skipped} addresses were skipped"
            )
            self.recorder.tell(about, WARNING, "TooManyAddressesToMirror", message)


def _is_ours(slice_: PartialObject, endpoints: PartialObject) -> bool:
    return slice_.labels.get(MANAGED_BY) == MANAGER and slice_.labels.get(SERVICE_NAME) == endpoints.name
