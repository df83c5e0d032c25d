"""Claims and devices of one pod: it has all of them before anything is made for it, and no claim when it has ended."""

from podwire.kubelet.claims import ClaimsNotReady, NotUnprepared
from podwire.kubelet.devices import DevicesNotReady, TopologyAffinityError
from podwire.kubelet.pods.dependencies import Kit
from podwire.kubelet.pods.state import DEVICE_SECONDS, PodState
from podwire.objects.pods import Pod
from podwire.protocols.k8sapi.client_side.events import WARNING


class PodAllocation:
    """Both give the time of the next try, should nothing tell earlier that it may work; None when all is well."""

    def __init__(self, kit: Kit, memory: PodState) -> None:
        self._kit = kit
        self._memory = memory

    async def take(self, pod: Pod) -> float | None:
        """Claims first: a plugin may give devices by what its driver has prepared."""
        try:
            await self._kit.claims.prepare(pod)
            await self._kit.devices.take(pod)
        except ClaimsNotReady as error:
            self._kit.recorder.tell(pod, WARNING, error.reason, error.told)
            return self._memory.claims_missing(pod, error)
        except DevicesNotReady as error:
            self._kit.recorder.tell(pod, WARNING, error.reason, str(error))
            self._memory.devices_missing(pod, error)
            return self._kit.clock.monotonic() + DEVICE_SECONDS
        except TopologyAffinityError as error:
            self._kit.recorder.tell(pod, WARNING, error.reason, str(error))
            self._memory.failure = (error.reason, f"Pod was rejected: {error}")
            return self._kit.clock.monotonic()
        self._memory.has_all()
        return None

    async def keep(self, pod: Pod) -> float | None:
        """Without a record drivers would not be told of its end: one that was lost is made anew."""
        if (until := self._memory.claims_held) > self._kit.clock.monotonic():
            return until
        try:
            if self._kit.claims.has(pod):
                return None
            await self._kit.claims.prepare(pod)
        except ClaimsNotReady as error:
            self._kit.recorder.tell(pod, WARNING, error.reason, error.told)
            self._memory.waits_for_claims = True
            return self._memory.claims_failed()
        self._memory.has_all()
        return None

    async def let_go(self, pod: Pod) -> float | None:
        try:
            await self._kit.claims.unprepare(pod.uid)
        except NotUnprepared as error:
            self._kit.recorder.tell(pod, WARNING, error.reason, error.told)
            self._memory.waits_for_claims = True
            return self._memory.claims_failed()
        return None
