"""Events of pods and claims."""

from collections.abc import Iterable

from podwire.dradriver.claims.allocations import ClaimRef, PodRef
from podwire.dradriver.names import COMPONENT
from podwire.interfaces import Clock
from podwire.protocols.k8sapi.client_side import Client, recorder
from podwire.protocols.k8sapi.client_side.events import Reference

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
