"""DefaultTolerationSeconds, ExtendedResourceToleration, TaintNodesByCondition."""

from podwire.apiserver.admission.chain import WRITES, AdmissionPlugin, Operation
from podwire.apiserver.identity.users import node_name
from podwire.kinds.podspec.resource_rules import is_extended
from podwire.kinds.stored import Object

TOLERATION_SECONDS = 300
FAILURE_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


class DefaultTolerations(AdmissionPlugin):
    """Adds the two tolerations with which a pod stays five minutes on a failing node, unless it has its own."""

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


class ExtendedResourceToleration(AdmissionPlugin):
    """Adds a toleration for each extended resource in the requests of containers (off by default).

    Operators taint nodes with special hardware by the name of its resource, so that only pods that need it land there.
    """

    verbs = WRITES
    resources = frozenset({("", "pods")})

    async def admit(self, operation: Operation) -> None:
        if operation.subresource:
            return
        spec = operation.obj["spec"]
        names = {
            name
            for part in ("containers", "initContainers")
            for container in spec.get(part) or ()
            for name in ((container.get("resources") or {}).get("requests") or {})
            if is_extended(name)
        }
        added = [{"key": name, "operator": "Exists", "effect": "NoSchedule"} for name in sorted(names)]
        tolerations = spec.get("tolerations") or []
        missing = [toleration for toleration in added if toleration not in tolerations]
        if missing:
            spec["tolerations"] = [*tolerations, *missing]


NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


class TaintNodesByCondition(AdmissionPlugin):
    """Adds a taint to a new node, so that no pod is placed on it before its conditions say that it is ready.

    The node lifecycle controller removes the taint then. Upstream taints every new node. By default, podwire taints
    those that a kubelet registers before it is ready: one that is ready would lose the taint at once, and one that
    somebody creates by hand (a simulated one) is usable without a controller.
    """

    def __init__(self, *, every_node: bool) -> None:
        self._every_node = every_node

    verbs = frozenset({"CREATE"})
    resources = frozenset({("", "nodes")})

    async def admit(self, operation: Operation) -> None:
        if operation.subresource:
            return
        if not self._every_node and (node_name(operation.user) is None or _is_ready(operation.obj)):
            return
        spec = operation.obj.setdefault("spec", {})
        taints = spec.get("taints") or []
        if not any(taint.get("key") == NOT_READY["key"] and taint.get("effect") == NOT_READY["effect"]
                   for taint in taints):  # fmt: skip
            spec["taints"] = [*taints, dict(NOT_READY)]


def _is_ready(node: Object) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(condition.get("type") == "Ready" and condition.get("status") == "True" for condition in conditions)
