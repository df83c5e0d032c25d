"""Reports what happened to the devices of claims: in the claims' `status.devices`, and as Events of claims and pods."""

from collections.abc import Iterable, Mapping, Sequence

from podwire.dradriver.addresses.keys import Key
from podwire.dradriver.attach.attachments import Attached
from podwire.dradriver.attach.records import Record
from podwire.dradriver.claims.allocations import Allocation, ClaimRef, PodRef, by_claim
from podwire.dradriver.claims.damaged_records import DamagedRecord
from podwire.dradriver.names import COMPONENT
from podwire.dradriver.publish.claim_status import Condition, DeviceState, Network, Statuses
from podwire.interfaces import Clock
from podwire.protocols.k8sapi.client_side import Client, recorder
from podwire.protocols.k8sapi.client_side.events import NORMAL, WARNING, Reference

UNHEALTHY, HEALTHY = "NetworkDeviceUnhealthy", "NetworkDeviceHealthy"
RECORD_DAMAGED, LINK_RECOVERED = "NetworkDeviceRecordDamaged", "NetworkDeviceRecovered"
PREPARE_FAILED, ATTACH_FAILED = "ClaimPrepareFailed", "NetworkDeviceAttachFailed"
IS_ATTACHED, DETACH_FAILED = "NetworkDeviceAttached", "NetworkDeviceDetachFailed"
LEASE_LOST, LEASE_REGAINED = "DHCPLeaseLost", "DHCPLeaseRegained"


class Recorder:
    def __init__(self, client: Client, clock: Clock, node: str) -> None:
        self._recorder = recorder.Recorder(client, clock, component=COMPONENT, host=node)
        self._node = node
        self.run, self.idle = self._recorder.run, self._recorder.idle

    def report(self, objects: Iterable[ClaimRef | PodRef], type_: str, reason: str, message: str) -> None:
        """Sends the same event for each object, in the background."""
        for object_ in dict.fromkeys(objects):
            self._recorder.tell(_reference(object_), type_, reason, message)

    def report_node(self, type_: str, reason: str, message: str) -> None:
        """Of the node itself, which events name by its name in place of a uid, as kubelets do."""
        self._recorder.tell(Reference("Node", self._node, "", self._node), type_, reason, message)


def _reference(object_: ClaimRef | PodRef) -> Reference:
    if isinstance(object_, ClaimRef):
        return Reference("ResourceClaim", object_.name, object_.namespace, object_.uid, "resource.k8s.io/v1")
    return Reference("Pod", object_.name, object_.namespace, object_.uid)


Networks = Mapping[tuple[str, str], Network]
"""By device and share: the interface in the pod."""


class ClaimReports:
    def __init__(self, statuses: Statuses, events: Recorder) -> None:
        self.statuses, self.events = statuses, events
        self._unhealthy: Mapping[str, str] = {}
        """Messages by device."""
        self.recovered = 0
        """Links that were recovered although their records were lost."""

    def prepare_failed(self, claim: ClaimRef, devices: Sequence[tuple[str, str, str]], error: str) -> None:
        """`devices` are pool, name and share of each; none when the status already says that a pod has them.

        The event is the claim's only: the pod's comes from the kubelet, with the driver's answer.
        """
        self.events.report([claim], WARNING, PREPARE_FAILED, error)
        if devices:
            states = [
                DeviceState(pool=pool, device=device, share_id=share, reason="PrepareFailed", message=error)
                for pool, device, share in devices
            ]
            self.statuses.put(claim, states)

    def waits_for_others(self, claim: ClaimRef, allocations: Sequence[Allocation], failed: int) -> None:
        """The claim is prepared, and its pod waits for other claims, whose failures are reported there."""
        message = f"prepared; the pod waits for {failed} other claim{'s' if failed > 1 else ''}"
        self.statuses.put(claim, [_state(allocation, "Prepared", message) for allocation in allocations])

    def attach_failed(self, pod: PodRef, allocations: Sequence[Allocation], error: str) -> None:
        self.events.report([pod, *by_claim(allocations)], WARNING, ATTACH_FAILED, error)
        self._put_all(allocations, "AttachFailed", error)

    def detach_failed(self, pod: PodRef, allocations: Sequence[Allocation], error: str) -> None:
        self.events.report([pod, *by_claim(allocations)], WARNING, DETACH_FAILED, error)
        self._put_all(allocations, "DetachFailed", error)

    def detached(self, pod: PodRef, allocations: Sequence[Allocation]) -> None:
        self._put_all(allocations, "Detached", f"not in pod {pod.name}, whose sandbox has ended")

    def attached(
        self, pod: PodRef, allocations: Sequence[Allocation], attached: Sequence[Attached], *, is_new: bool
    ) -> None:
        """Statuses are written again after a restart, in case they were not; events only for what `is_new`."""
        networks = networks_of(attached)
        for claim, of_claim in by_claim(allocations).items():
            self.network_changed(pod, claim, of_claim, attached)
            if is_new:
                sentences = (
                    _sentence(allocation, networks.get((allocation.device.name, allocation.share_id)))
                    for allocation in of_claim
                )
                self.events.report([claim, pod], NORMAL, IS_ATTACHED, "; ".join(sentences))

    def network_changed(
        self, pod: PodRef, claim: ClaimRef, allocations: Sequence[Allocation], attached: Sequence[Attached]
    ) -> None:
        """The status of a claim whose devices are in the pod, by their addresses, leases and health."""
        networks = networks_of(attached)
        failures = {(device.device, device.share_id): self._network_failure(device) for device in attached}
        states = []
        for allocation in allocations:
            key = allocation.device.name, allocation.share_id
            state = _state(allocation, "Attached", f"in pod {pod.name}", networks.get(key), failures.get(key))
            states.append(state)
        self.statuses.put(claim, states)

    def _network_failure(self, attached: Attached) -> Condition | None:
        if message := self._unhealthy.get(attached.device):
            return Condition(reason="Unhealthy", message=message)
        if not attached.lapse:
            return None
        return Condition(reason="LeaseNotApplied" if attached.ips else "LeaseLost", message=attached.lapse)

    def lease_changed(self, key: Key, record: Record) -> None:
        type_, reason = (WARNING, LEASE_LOST) if record.lapse else (NORMAL, LEASE_REGAINED)
        message = record.lapse or f"{', '.join(map(str, record.addresses or ()))} is leased"
        self.events.report([key.claim, record.allocation.pod], type_, reason, f"{key.device}: {message}")

    def set_unhealthy(self, unhealthy: Mapping[str, str]) -> set[str]:
        """Takes the messages of all unhealthy devices; returns the devices whose health changed."""
        before, self._unhealthy = self._unhealthy, unhealthy
        return {device for device in before.keys() | unhealthy.keys() if before.get(device) != unhealthy.get(device)}

    def health_changed(self, allocation: Allocation) -> None:
        device = allocation.device.name
        if message := self._unhealthy.get(device):
            text = message if message.startswith(device) else f"{device}: {message}"
            self.events.report([allocation.claim, allocation.pod], WARNING, UNHEALTHY, text)
        else:
            self.events.report([allocation.claim, allocation.pod], NORMAL, HEALTHY, f"{device} is well again")

    def link_recovered(self, device: str) -> None:
        """Its claim is known by nothing but a uid, so the event is the node's."""
        self.recovered += 1
        message = f"the record of device {device} was lost; its link is on the host again, without its other settings"
        self.events.report_node(WARNING, LINK_RECOVERED, message)

    def record_damaged(self, damaged: DamagedRecord, claim: ClaimRef | None) -> None:
        """`claim` is known by its metadata, if the record does not name it any more."""
        objects = damaged.references() or ([claim] if claim is not None else [])
        self.events.report(objects, WARNING, RECORD_DAMAGED, damaged.message)

    def _put_all(self, allocations: Sequence[Allocation], reason: str, message: str) -> None:
        for claim, of_claim in by_claim(allocations).items():
            self.statuses.put(claim, [_state(allocation, reason, message) for allocation in of_claim])


def networks_of(attached: Sequence[Attached]) -> Networks:
    return {
        (device.device, device.share_id): Network(
            interface=device.interface, mac=device.mac, ips=tuple(str(address) for address in device.ips)
        )
        for device in attached
    }


def _state(
    allocation: Allocation,
    reason: str,
    message: str,
    network: Network | None = None,
    network_failure: Condition | None = None,
) -> DeviceState:
    return DeviceState(
        pool=allocation.pool,
        device=allocation.device.name,
        share_id=allocation.share_id,
        reason=reason,
        message=message,
        network=network,
        network_failure=network_failure,
    )


def _sentence(allocation: Allocation, network: Network | None) -> str:
    interface = network.interface if network is not None else allocation.settings.name
    ips = f" with {', '.join(network.ips)}" if network is not None and network.ips else ""
    return f"{allocation.device.name} is {interface}{ips}"
