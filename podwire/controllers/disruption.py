"""Pods that are taken away by a controller say so in a condition, so that whoever made them knows. Pure."""

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
