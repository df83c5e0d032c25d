"""The condition DisruptionTarget, set before a controller deletes a pod, so that its owner knows why."""

from podwire.controllers.kinds import PODS
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object

TARGET = "DisruptionTarget"


def with_disruption_target(pod: Object, reason: str, message: str, now: str) -> Object | None:
    """Returns the pod with the condition; None if it has it already."""
    status = pod.get("status") or {}
    before = list(status.get("conditions") or ())
    found: Object = next((condition for condition in before if condition.get("type") == TARGET), {})
    wanted = {"type": TARGET, "status": "True", "reason": reason, "message": message}
    if wanted.items() <= found.items():
        return None
    others = [condition for condition in before if condition.get("type") != TARGET]
    if generation := pod["metadata"].get("generation"):
        wanted["observedGeneration"] = generation
    return {**pod, "status": {**status, "conditions": [*others, {**wanted, "lastTransitionTime": now}]}}


async def disrupt(api: Client, pod: Object, reason: str, message: str, now: str) -> bool:
    """Disrupts a pod. Returns False when it is already gone.

    1. Set the condition.  2. Delete it; its kubelet terminates it gracefully.
    """
    changed, meta = with_disruption_target(pod, reason, message, now), pod["metadata"]
    try:
        if changed is not None:
            await api.replace(changed, subresource="status")
        await api.delete(PODS, meta["name"], meta["namespace"], uid=meta["uid"])
    except ApiError as error:
        if error.code != 404:
            raise
        return False
    return True
