"""Priority: resolves a pod's priority class to the number that schedulers compare."""

from collections.abc import Iterable
from dataclasses import dataclass

from podwire.apiserver.admission.chain import WRITES, AdmissionPlugin, Operation
from podwire.apiserver.admission.informers import ObjectInformer
from podwire.kinds.stored import Object

GROUP = "scheduling.k8s.io"
SYSTEM_PRIORITIES = {"system-node-critical": 2000001000, "system-cluster-critical": 2000000000}


@dataclass(frozen=True, slots=True)
class Priorities(AdmissionPlugin):
    """Sets priority and preemption policy of pods; allows one default class."""

    classes: ObjectInformer

    verbs = WRITES
    resources = frozenset({("", "pods"), (GROUP, "priorityclasses")})

    async def admit(self, operation: Operation) -> None:
        if operation.subresource or not operation.is_for("", "pods"):
            return
        spec = operation.obj["spec"]
        if operation.old is not None:
            for part in ("priority", "preemptionPolicy"):
                if part in operation.old["spec"]:
                    spec.setdefault(part, operation.old["spec"][part])
            return
        name = spec.get("priorityClassName", "")
        chosen = await self._named(operation, name) if name else default_class(await self.classes.all())
        value = chosen["value"] if chosen else 0
        policy = (chosen or {}).get("preemptionPolicy", "PreemptLowerPriority")
        for what, part, computed in (
            ("integer value of priority", "priority", value),
            ("string value of PreemptionPolicy", "preemptionPolicy", policy),
        ):
            if spec.setdefault(part, computed) != computed:
                why = f"the {what} ({spec[part]}) must not be provided in pod spec; priority admission controller "
                raise operation.forbidden(f"{why}computed {computed} from the given PriorityClass name")
        if chosen and not name:
            spec["priorityClassName"] = chosen["metadata"]["name"]

    async def validate(self, operation: Operation) -> None:
        """Refuses a second default class."""
        if not operation.is_for(GROUP, "priorityclasses"):
            return
        default = default_class(await self.classes.all()) if operation.obj.get("globalDefault") else None
        if default is not None and (operation.old is None or default["metadata"]["name"] != operation.name):
            taken = default["metadata"]["name"]
            raise operation.forbidden(f"PriorityClass {taken} is already marked as default. Only one default can exist")

    async def _named(self, operation: Operation, name: str) -> Object:
        known = await self.classes.get(name)
        if known is None:
            raise operation.forbidden(f"no PriorityClass with name {name} was found")
        return known


def default_class(classes: Iterable[Object]) -> Object | None:
    """Returns the class for pods that name none; of several defaults the one with the lowest value."""
    defaults = (class_ for class_ in classes if class_.get("globalDefault"))
    return min(defaults, key=lambda class_: int(class_["value"]), default=None)
