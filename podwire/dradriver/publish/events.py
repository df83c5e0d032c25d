"""Tells people what was done for a pod and its claims, or was not, as Events."""

from collections.abc import Iterable

from podwire.dradriver.claims.allocations import ClaimRef, PodRef
from podwire.dradriver.names import COMPONENT
from podwire.dradriver.ports import Api
from podwire.interfaces import Clock
from podwire.protocols.k8sapi.client_side import recorder
from podwire.protocols.k8sapi.client_side.events import Reference

UNHEALTHY, HEALTHY = "NetworkDeviceUnhealthy", "NetworkDeviceHealthy"
RECORD_DAMAGED = "NetworkDeviceRecordDamaged"
PREPARE_FAILED, ATTACH_FAILED = "ClaimPrepareFailed", "NetworkDeviceAttachFailed"
IS_ATTACHED, DETACH_FAILED = "NetworkDeviceAttached", "NetworkDeviceDetachFailed"
LEASE_LOST, LEASE_REGAINED = "DHCPLeaseLost", "DHCPLeaseRegained"


class Recorder:
    def __init__(self, api: Api, clock: Clock, node: str) -> None:
        self._recorder = recorder.Recorder(api, clock, component=COMPONENT, host=node)
        self.run, self.idle = self._recorder.run, self._recorder.idle

    def tell(self, about: Iterable[ClaimRef | PodRef], type_: str, reason: str, message: str) -> None:
        for each in dict.fromkeys(about):
            self._recorder.tell(_reference(each), type_, reason, message)


def _reference(about: ClaimRef | PodRef) -> Reference:
    if isinstance(about, ClaimRef):
        return Reference("ResourceClaim", about.name, about.namespace, about.uid, "resource.k8s.io/v1")
    return Reference("Pod", about.name, about.namespace, about.uid)
