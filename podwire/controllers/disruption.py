"""Pods that are taken away by a controller say so in a condition, so that whoever made them knows."""

from podwire.controllers.kinds import PODS
from podwire.controllers.ports import Api
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object

TARGET = "DisruptionTarget"


def disrupted(pod: Object, reason: str, message: str, now: str) -> Object | None:
    """The pod with the condition; None if it has it already."""
    status = pod.get("status") or {}
    before = list(status.get("conditions") or ())
    found: Object = next((each for each in before if each.get("type") == TARGET), {})
    wanted = {"type": TARGET, "status": "True", "reason": reason, "message": message}
    if wanted.items() <= found.items():
        return None
    others = [each for each in before if each.get("type") != TARGET]
    return {**pod, "status": {**status, "conditions": [*others, {**wanted, "lastTransitionTime": now}]}}


async def take_away(api: Api, pod: Object, reason: str, message: str, now: str) -> bool:
    """1. Say so in the pod.   2. Delete it; its kubelet lets it end in its own time. False when it is gone already."""
    changed, meta = disrupted(pod, reason, message, now), pod["metadata"]
    try:
        if changed is not None:
            await api.replace(changed, subresource="status")
        await api.delete(PODS, meta["name"], meta["namespace"], uid=meta["uid"])
    except ApiError as error:
        if error.code != 404:
            raise
        return False
    return True
