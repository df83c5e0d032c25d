"""One hollow node: its Node object, its lease, and what its pods hold. Everything is in memory."""

from collections.abc import Callable

import msgspec

from podwire.kubelet.claims.claim_info import ClaimInfo, ClaimUser, PreparedDevice
from podwire.kubelet.claims.errors import ClaimsNotReady
from podwire.kubelet.claims.plan import plan_prepare, plan_unprepare
from podwire.kubelet.claims.pod_claims import check, claim_refs, uses_claims
from podwire.kubelet.devices import DevicesNotReady
from podwire.kubelet.devices.pool import Device, Pool
from podwire.kubelet.devices.requests import device_requests
from podwire.kubelet.hollow.behaviour import prepare_error
from podwire.kubelet.hollow.pod import HollowPod
from podwire.kubelet.hollow.runtime import first_free
from podwire.kubelet.hollow.settings import MOST_PODS, HollowSettings, pod_address
from podwire.kubelet.node.lease import NodeLease
from podwire.kubelet.pods.admission import Rejection, admit
from podwire.objects import claims, nodes
from podwire.objects.nodes import Node
from podwire.objects.pods import Pod
from podwire.protocols.k8sapi.watch import Object

BOOT = "hollow"
"""The boot id of a node that never boots again."""

FindClaim = Callable[[str, str], Object | None]
"""Returns a ResourceClaim by namespace and name; None if the watch has not delivered it."""


class HollowNode:
    __slots__ = (
        "_addresses",
        "_claims",
        "_held",
        "_node",
        "_pools",
        "_stored",
        "busy",
        "lease",
        "name",
        "number",
        "pods",
        "reported",
        "settings",
    )  # fmt: skip

    def __init__(self, settings: HollowSettings, number: int, lease: NodeLease) -> None:
        self.settings = settings
        self.number = number
        self.name = settings.name(number)
        self.lease = lease
        self.pods: dict[str, HollowPod] = {}
        self.reported = 0.0
        """When its status was reported last, on the monotonic clock."""
        self.busy = False
        """A heartbeat is in flight."""
        self._stored: Object | None = None
        self._node: Node | None = None
        self._addresses: dict[str, int] = {}
        self._pools: dict[str, Pool] | None = None
        self._held: dict[str, dict[str, list[str]]] = {}
        """By uid of a pod and resource: the devices that it holds."""
        self._claims: dict[str, ClaimInfo] | None = None
        """By uid: claims that are prepared."""

    @property
    def stored(self) -> Object | None:
        """The Node as the API has it."""
        return self._stored

    @stored.setter
    def stored(self, object_: Object | None) -> None:
        self._stored, self._node = object_, None

    @property
    def node(self) -> Node | None:
        if self._node is None and self._stored is not None:
            self._node = nodes.read(self._stored)
        return self._node

    @property
    def addresses(self) -> tuple[str, ...]:
        return self.settings.node(self.number).addresses

    def admit(self, pod: Pod) -> Rejection | None:
        """Returns why a pod may not run beside the others; it waits for pods that are terminating."""
        others = [other for other in self.pods.values() if other.uses_resources and other.pod.uid != pod.uid]
        capacities: dict[str, int | None] = dict(self.settings.devices)
        rejection = admit(pod, [other.pod for other in others], self.node, devices=capacities)
        staying = [other.pod for other in others if not other.pod.deleting]
        if rejection is None or len(staying) == len(others):
            return rejection
        temporary = admit(pod, staying, self.node, devices=capacities) is None
        return Rejection(rejection.reason, rejection.message, temporary)

    def address(self, pod: Pod) -> tuple[str, ...]:
        """Returns the address of a pod, the same until it is released."""
        if pod.spec.host_network:
            return self.addresses
        number = self._addresses.get(pod.uid)
        if number is None:
            number = first_free(self._addresses.values(), MOST_PODS)
            if number is None:
                return ()
            self._addresses[pod.uid] = number
        return (pod_address(self.number, number),)

    def adopt_address(self, pod: Pod, address: str) -> None:
        """A pod of an earlier process keeps its address."""
        number = next((at for at in range(MOST_PODS) if pod_address(self.number, at) == address), None)
        if number is not None and number not in self._addresses.values():
            self._addresses[pod.uid] = number

    def allocate(self, pod: Pod, find_claim: FindClaim) -> None:
        """Prepares the claims of a pod and chooses its devices. Raises ClaimsNotReady, DevicesNotReady."""
        if uses_claims(pod):
            self._prepare(pod, find_claim)
        if self.settings.devices and pod.uid not in self._held:
            self._hold(pod)

    def _prepare(self, pod: Pod, find_claim: FindClaim) -> None:
        found = []
        for ref in claim_refs(pod):
            object_ = find_claim(pod.namespace, ref.name)
            if object_ is None:
                raise ClaimsNotReady(f"ResourceClaim {ref.name} not found")
            claim = claims.read(object_)
            check(pod, ref, claim)
            found.append(claim)
        if error := prepare_error(pod):
            raise ClaimsNotReady(error)
        known = self._claims = self._claims if self._claims is not None else {}
        plan = plan_prepare(ClaimUser(uid=pod.uid, name=pod.name), found, known, BOOT)
        devices = {claim.uid: claim.allocated for claim in found}
        for info in (*plan.noted, *plan.joined):
            prepared = {
                driver: tuple(
                    PreparedDevice(pool=device.pool, name=device.device, requests=(device.request,))
                    for device in devices[info.uid]
                    if device.driver == driver
                )
                for driver in info.drivers
            }
            known[info.uid] = info.with_drivers(prepared, BOOT)

    def _hold(self, pod: Pod) -> None:
        if self._pools is None:
            self._pools = {name: Pool() for name in self.settings.devices}
            for name, count in self.settings.devices.items():
                self._pools[name].update({f"device-{at}": Device(f"device-{at}") for at in range(count)})
        held: dict[str, list[str]] = {}
        for request in device_requests(pod, self.settings.devices):
            for name, count in request.counts.items():
                ids = self._pools[name].first(count, set())
                if len(ids) < count:
                    for resource, taken in held.items():
                        self._pools[resource].release(taken)
                    raise DevicesNotReady(f"requested {count} of {name}, and {len(ids)} are free")
                self._pools[name].hold(ids)
                held.setdefault(name, []).extend(ids)
        if held:
            self._held[pod.uid] = held

    def release(self, uid: str) -> None:
        """Unprepares the claims of a pod and frees its devices; its address stays until `forget`."""
        for name, ids in self._held.pop(uid, {}).items():
            if self._pools is not None:
                self._pools[name].release(ids)
        if self._claims:
            plan = plan_unprepare(uid, [info for info in self._claims.values() if info.used_by(uid)])
            for info in plan.kept:
                self._claims[info.uid] = info
            for info in plan.leaving:
                del self._claims[info.uid]

    def forget(self, uid: str) -> None:
        """Forgets a pod that is gone."""
        self.release(uid)
        self._addresses.pop(uid, None)
        self.pods.pop(uid, None)

    @property
    def held(self) -> dict[str, object]:
        """Addresses, devices and claims of its pods; all are empty when no pod is left."""
        prepared = [msgspec.structs.asdict(info) for info in (self._claims or {}).values()]
        return {"addresses": self._addresses, "devices": self._held, "claims": prepared}
