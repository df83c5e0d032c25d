"""Writes the condition PodScheduled=False of a pending pod when its reason changes."""

import logging
from dataclasses import dataclass
from typing import Any

from podwire.interfaces import Clock
from podwire.objects.pods import Pod
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.client_side import Client, ClientError, PatchType
from podwire.protocols.k8sapi.status import ApiError
from podwire.scheduler.kinds import PODS

log = logging.getLogger("podwire.scheduler")


@dataclass(frozen=True, slots=True)
class PendingReason:
    """Why a pod is pending: the condition's reason and message."""

    reason: str
    message: str


GATED = PendingReason("SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates")


def condition(pod: Pod, pending_reason: PendingReason, now: float) -> dict[str, Any] | None:
    """Returns the new condition; None when the pod already has it."""
    said = next((condition for condition in pod.status.conditions if condition.get("type") == "PodScheduled"), {})
    if (said.get("status"), said.get("reason"), said.get("message")) == (
        "False",
        pending_reason.reason,
        pending_reason.message,
    ):
        return None
    since = said.get("lastTransitionTime") if said.get("status") == "False" else None
    generation = {"observedGeneration": pod.metadata.generation} if pod.metadata.generation else {}
    return {
        "type": "PodScheduled",
        "status": "False",
        "reason": pending_reason.reason,
        "message": pending_reason.message,
        "lastProbeTime": None,
        "lastTransitionTime": since or rfc3339(now),
        **generation,
    }


class PodConditions:
    def __init__(self, api: Client, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._sent: dict[str, tuple[str, PendingReason]] = {}

    def forget(self, uid: str) -> None:
        self._sent.pop(uid, None)

    def needs_write(self, pod: Pod, pending_reason: PendingReason) -> bool:
        """Returns whether a write is needed: not when the pod already says so or the same write is in flight."""
        sent = (pod.metadata.resource_version, pending_reason)
        return self._sent.get(pod.uid) != sent and condition(pod, pending_reason, 0.0) is not None

    async def write(self, pod: Pod, pending_reason: PendingReason) -> bool:
        """Writes the condition; returns False when there was no answer.

        The patch names the resourceVersion that the decision was made on. If the pod has changed or was bound
        meanwhile, nothing is written; the change arrives by the watch and a pending pod is looked at again.
        """
        changed = condition(pod, pending_reason, self._clock.wall())
        version = pod.metadata.resource_version
        self._sent[pod.uid] = (version, pending_reason)
        patch = {"metadata": {"uid": pod.uid, "resourceVersion": version}, "status": {"conditions": [changed]}}
        try:
            await self._api.patch(PODS, pod.name, patch, pod.namespace, type_=PatchType.STRATEGIC, subresource="status")
        except ApiError as error:
            log.debug("pod condition was refused", extra={"pod": pod.ref, "error": error.message})
        except ClientError as error:
            log.debug("cannot write pod condition", extra={"pod": pod.ref, "error": str(error)})
            self.forget(pod.uid)
            return False
        return True
