"""ExtendedResourceToleration (off by default): a pod tolerates the taint of the devices that it requests.

Operators taint nodes with special hardware by the name of its resource, so that only pods that need it land there.
"""

from podwire.apiserver.admission.chain import WRITES, AdmissionPlugin, Operation
from podwire.kinds.podspec.resource_rules import is_extended


class ExtendedResourceToleration(AdmissionPlugin):
    """Adds a toleration for each extended resource in the requests of containers."""

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
