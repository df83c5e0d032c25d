"""Claims and devices of a pod: all of them before anything is made for it, no claim any more when it has ended.

Fail-closed. A pod is held back, with an event and a waiting reason for its containers, as long as

    a claim does not exist, is not allocated or not reserved for the pod     WaitingForDynamicResources / Failed…
    a driver is not registered, does not answer or fails to prepare          FailedPrepareDynamicResources
    what was prepared cannot be recorded on disk                             FailedPrepareDynamicResources
    a device plugin is not registered, or has not listed its devices         WaitingForDevices
    not enough healthy devices are free                                      WaitingForDevices
    who holds devices is unknown because a checkpoint is damaged             WaitingForDevices

and fails for good when the topology policy of the node forbids the devices that are free (TopologyAffinityError).
No timeout lets a pod start without them.
"""

from podwire.interfaces import Clock
from podwire.kubelet.claims import ClaimManager, ClaimsNotReady, NotUnprepared
from podwire.kubelet.devices import DeviceManager, DevicesNotReady, TopologyAffinityError
from podwire.kubelet.pods.state import PodState
from podwire.objects.pods import Pod
from podwire.protocols.k8sapi.client_side.events import WARNING
from podwire.protocols.k8sapi.client_side.recorder import Recorder


class PodAllocation:
    """Every method returns the time of the next attempt unless an event allows one earlier; None when all is well."""

    def __init__(self, clock: Clock, recorder: Recorder, devices: DeviceManager, claims: ClaimManager) -> None:
        self._clock = clock
        self._recorder = recorder
        self._devices = devices
        self._claims = claims

    async def allocate(self, pod: Pod, state: PodState) -> float | None:
        """Claims first: a device plugin may allocate by what a driver has prepared."""
        try:
            await self._claims.prepare(pod)
            await self._devices.take(pod)
        except ClaimsNotReady as error:
            self._recorder.tell(pod, WARNING, error.reason, error.event_message)
            return state.claims_missing(pod, error)
        except DevicesNotReady as error:
            self._recorder.tell(pod, WARNING, error.reason, str(error))
            return state.devices_missing(pod, error)
        except TopologyAffinityError as error:
            self._recorder.tell(pod, WARNING, error.reason, str(error))
            state.failure = (error.reason, f"Pod was rejected: {error}")
            return self._clock.monotonic()
        state.allocated()
        return None

    async def keep_claims(self, pod: Pod, state: PodState) -> float | None:
        """Prepare the claims of a running pod again if their record was lost: without it, no driver would be asked to
        unprepare them."""
        if (until := state.allocation.claims.not_before) > self._clock.monotonic():
            return until
        try:
            if self._claims.has(pod):
                return None
            await self._claims.prepare(pod)
        except ClaimsNotReady as error:
            return self._failed(pod, state, error)
        state.allocated()
        return None

    async def unprepare_claims(self, pod: Pod, state: PodState) -> float | None:
        try:
            await self._claims.unprepare(pod.uid)
        except NotUnprepared as error:
            return self._failed(pod, state, error)
        return None

    def _failed(self, pod: Pod, state: PodState, error: ClaimsNotReady | NotUnprepared) -> float:
        self._recorder.tell(pod, WARNING, error.reason, error.event_message)
        state.allocation.waits_for_claims = True
        return state.allocation.claims.failed()

    def device_statuses(self, pod: Pod, state: PodState) -> dict[str, list[dict[str, object]]]:
        return state.allocation.statuses(self._devices.statuses(pod.uid), self._claims.statuses(pod))
