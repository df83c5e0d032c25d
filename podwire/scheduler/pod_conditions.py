"""Says on the pod itself that it waits, and why: the condition PodScheduled, written when it says something new."""

import logging
from dataclasses import dataclass
from typing import Any

from podwire.interfaces import Clock
from podwire.objects.pods import Pod
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.client_side import ClientError, PatchType
from podwire.protocols.k8sapi.status import ApiError
from podwire.scheduler.kinds import PODS
from podwire.scheduler.ports import Api

log = logging.getLogger("podwire.scheduler")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a pod is not placed."""

    reason: str
    message: str


GATED = Verdict("SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates")


def condition(pod: Pod, verdict: Verdict, now: float) -> dict[str, Any] | None:
    """What the pod's condition should become; None when it says so already."""
    said = next((each for each in pod.status.conditions if each.get("type") == "PodScheduled"), {})
    if (said.get("status"), said.get("reason"), said.get("message")) == ("False", verdict.reason, verdict.message):
        return None
    since = said.get("lastTransitionTime") if said.get("status") == "False" else None
    generation = {"observedGeneration": pod.metadata.generation} if pod.metadata.generation else {}
    return {
        "type": "PodScheduled",
        "status": "False",
        "reason": verdict.reason,
        "message": verdict.message,
        "lastProbeTime": None,
        "lastTransitionTime": since or rfc3339(now),
        **generation,
    }


class Reports:
    def __init__(self, api: Api, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._sent: dict[str, tuple[str, Verdict]] = {}

    def forget(self, uid: str) -> None:
        self._sent.pop(uid, None)

    def wanted(self, pod: Pod, verdict: Verdict) -> bool:
        """Whether there is anything to write: not when the pod says so already, or the same is on its way."""
        sent = (pod.metadata.resource_version, verdict)
        return self._sent.get(pod.uid) != sent and condition(pod, verdict, 0.0) is not None

    async def write(self, pod: Pod, verdict: Verdict) -> bool:
        """False when there was no answer.

        Holds only for the pod as it was seen: if it has changed meanwhile, or was even bound by somebody else, nothing
        is written; the change comes by the watch, and who still waits is looked at again.
        """
        changed = condition(pod, verdict, self._clock.wall())
        version = pod.metadata.resource_version
        self._sent[pod.uid] = (version, verdict)
        patch = {"metadata": {"uid": pod.uid, "resourceVersion": version}, "status": {"conditions": [changed]}}
        try:
            await self._api.patch(PODS, pod.name, patch, pod.namespace, type_=PatchType.STRATEGIC, subresource="status")
        except ApiError as error:
            log.debug("condition refused", extra={"pod": pod.ref, "why": error.message})
        except ClientError as error:
            log.debug("condition not written", extra={"pod": pod.ref, "why": str(error)})
            self.forget(pod.uid)
            return False
        return True
