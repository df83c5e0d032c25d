"""Evicts the victims of preemption: condition DisruptionTarget, then a graceful deletion, then an Event."""

import logging
from collections.abc import Mapping

from podwire.interfaces import Clock
from podwire.objects.pods import Pod
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.client_side import Client, PatchType
from podwire.protocols.k8sapi.client_side.events import NORMAL, Reference
from podwire.protocols.k8sapi.client_side.recorder import Recorder
from podwire.protocols.k8sapi.status import ApiError
from podwire.scheduler.kinds import PODS
from podwire.scheduler.preemption.candidates import BY_SCHEDULER, DISRUPTION_TARGET, Candidate

log = logging.getLogger("podwire.scheduler")


class Evictor:
    def __init__(self, api: Client, clock: Clock, recorders: Mapping[str, Recorder]) -> None:
        """`recorders` are by scheduler name."""
        self._api = api
        self._clock = clock
        self._recorders = recorders

    async def evict(self, preemptor: Pod, candidate: Candidate) -> None:
        """Evicts all victims that are not being deleted yet. Raises ApiError, ClientError; can be repeated."""
        for info in candidate.victims:
            if not info.pod.deleting:
                await self._evict(preemptor, info.pod, candidate.node)

    async def _evict(self, preemptor: Pod, victim: Pod, node: str) -> None:
        generation = {"observedGeneration": victim.metadata.generation} if victim.metadata.generation else {}
        condition = {
            "type": DISRUPTION_TARGET,
            "status": "True",
            "reason": BY_SCHEDULER,
            "message": f"{preemptor.spec.scheduler_name}: preempting to accommodate a higher priority pod",
            "lastProbeTime": None,
            "lastTransitionTime": rfc3339(self._clock.wall()),
            **generation,
        }
        patch = {"metadata": {"uid": victim.uid}, "status": {"conditions": [condition]}}
        try:
            await self._api.patch(
                PODS, victim.name, patch, victim.namespace, type_=PatchType.STRATEGIC, subresource="status"
            )
            await self._api.delete(PODS, victim.name, victim.namespace, uid=victim.uid)
        except ApiError as error:
            if error.code not in (404, 409):
                raise
            # Another pod has the name now, or none.
            log.debug("victim is already deleted", extra={"pod": victim.ref, "error": error.message})
            return
        log.info("pod was preempted", extra={"pod": victim.ref, "node": node, "preemptor": preemptor.ref})
        text = f"Preempted by pod {preemptor.uid} on node {node}"
        related = Reference.to(preemptor)
        recorder = self._recorders[preemptor.spec.scheduler_name]
        recorder.tell(victim, NORMAL, "Preempted", text, action="Preempting", related=related)
