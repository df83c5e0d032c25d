"""DefaultTolerationSeconds: a pod stays five minutes on a failing node unless it has tolerations of its own."""

from podwire.apiserver.admission.chain import WRITES, AdmissionPlugin, Operation
from podwire.kinds.stored import Object

TOLERATION_SECONDS = 300
FAILURE_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


class DefaultTolerations(AdmissionPlugin):
    """Adds the two tolerations that are missing."""

    verbs = WRITES
    resources = frozenset({("", "pods")})

    async def admit(self, operation: Operation) -> None:
        if operation.subresource:
            return
        spec = operation.obj["spec"]
        tolerations = spec.get("tolerations", [])
        added = [
            _toleration(key)
            for key in FAILURE_TAINTS
            if not any(_tolerates(toleration, key) for toleration in tolerations)
        ]
        if added:
            spec["tolerations"] = [*tolerations, *added]


def _tolerates(toleration: Object, key: str) -> bool:
    same_key = toleration.get("key", "") in ("", key)
    return same_key and toleration.get("effect", "") in ("", "NoExecute")


def _toleration(key: str) -> Object:
    return {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATION_SECONDS}
