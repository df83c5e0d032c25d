"""TaintNodesByCondition: a new node is not ready until its conditions say so, so that no pod is placed on it before."""

from podwire.apiserver.admission.chain import AdmissionPlugin, Operation

NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


class TaintNodesByCondition(AdmissionPlugin):
    """Adds the taint that the node lifecycle controller removes when the node is ready."""

    verbs = frozenset({"CREATE"})
    resources = frozenset({("", "nodes")})

    async def admit(self, operation: Operation) -> None:
        if operation.subresource:
            return
        spec = operation.obj.setdefault("spec", {})
        taints = spec.get("taints") or []
        if not any(taint.get("key") == NOT_READY["key"] and taint.get("effect") == NOT_READY["effect"]
                   for taint in taints):  # fmt: skip
            spec["taints"] = [*taints, dict(NOT_READY)]
