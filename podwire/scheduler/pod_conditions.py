"""Writes the condition PodScheduled=False and the nominated node of a pending pod when one of them changes."""

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
    nominated_node: str | None = None
    """The value of status.nominatedNodeName; None leaves it as it is."""


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


def _changes(pod: Pod, pending_reason: PendingReason, now: float) -> dict[str, Any]:
    """Returns the fields of the status that have to be written."""
    changed = condition(pod, pending_reason, now)
    fields: dict[str, Any] = {"conditions": [changed]} if changed else {}
    if pending_reason.nominated_node not in (None, pod.status.nominated_node_name):
        fields["nominatedNodeName"] = pending_reason.nominated_node or None
    return fields


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
        return self._sent.get(pod.uid) != sent and bool(_changes(pod, pending_reason, 0.0))

    async def write(self, pod: Pod, pending_reason: PendingReason) -> bool:
        """Writes what has changed; returns False when there was no answer.

        The patch names the resourceVersion that the decision was made on. If the pod has changed or was bound
        meanwhile, nothing is written; the change arrives by the watch and a pending pod is looked at again.
        """
        version = pod.metadata.resource_version
        self._sent[pod.uid] = (version, pending_reason)
        status = _changes(pod, pending_reason, self._clock.wall())
        patch = {"metadata": {"uid": pod.uid, "resourceVersion": version}, "status": status}
        try:
            await self._api.patch(PODS, pod.name, patch, pod.namespace, type_=PatchType.STRATEGIC, subresource="status")
        except ApiError as error:
            log.debug("pod condition was refused", extra={"pod": pod.ref, "error": error.message})
        except ClientError as error:
            log.debug("cannot write pod condition", extra={"pod": pod.ref, "error": str(error)})
            self.forget(pod.uid)
            return False
        return True
