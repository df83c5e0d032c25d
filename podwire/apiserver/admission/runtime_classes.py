"""RuntimeClass: adds its overhead and scheduling constraints to a pod; an unknown class is refused."""

from collections.abc import Sequence
from dataclasses import dataclass

from podwire.apiserver.admission.chain import AdmissionPlugin, Operation
from podwire.apiserver.ports import Store
from podwire.kinds.resource import PREFIX
from podwire.kinds.stored import Object, unpack

UNEXPECTED_OVERHEAD = "Pod Overhead set without corresponding RuntimeClass defined Overhead"


@dataclass(frozen=True, slots=True)
class RuntimeClasses(AdmissionPlugin):
    """Completes pods from their class."""

    store: Store

    verbs = frozenset({"CREATE"})
    resources = frozenset({("", "pods")})

    async def admit(self, operation: Operation) -> None:
        if operation.subresource:
            return
        spec = operation.obj["spec"]
        name = spec.get("runtimeClassName")
        if name is None:
            if spec.get("overhead"):
                raise operation.forbidden(f"pod rejected: {UNEXPECTED_OVERHEAD}")
            return
        item = await self.store.get(f"{PREFIX}runtimeclasses/{name}")
        if item is None:
            raise operation.forbidden(f'pod rejected: RuntimeClass "{name}" not found')
        class_ = unpack(item)
        _set_overhead(operation, spec, class_.get("overhead"))
        scheduling = class_.get("scheduling") or {}
        required, selector = scheduling.get("nodeSelector") or {}, spec.get("nodeSelector") or {}
        for key, value in required.items():
            if selector.get(key, value) != value:
                theirs, ours = f"runtimeClass.scheduling.nodeSelector[{key}] = {value}", f"pod.spec.nodeSelector[{key}]"
                raise operation.forbidden(f"conflict: {theirs}; {ours} = {selector[key]}")
        if required:
            spec["nodeSelector"] = {**selector, **required}
        if added := scheduling.get("tolerations"):
            spec["tolerations"] = merge_tolerations([*(spec.get("tolerations") or ()), *added])


def _set_overhead(operation: Operation, spec: Object, defined: Object | None) -> None:
    if defined is None:
        if spec.get("overhead"):
            raise operation.forbidden(f"pod rejected: {UNEXPECTED_OVERHEAD}")
        return
    overhead = defined.get("podFixed") or {}
    if spec.get("overhead") and spec["overhead"] != overhead:
        raise operation.forbidden("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
    if overhead:
        spec["overhead"] = overhead


def merge_tolerations(tolerations: Sequence[Object]) -> list[Object]:
    """Leaves out tolerations that another one includes; of equal ones the first stays."""
    merged: list[Object] = []
    for index, toleration in enumerate(tolerations):
        later = [other for other in tolerations[index + 1 :] if other != toleration]
        if not any(_includes(other, toleration) for other in (*merged, *later)):
            merged.append(toleration)
    return merged


def _includes(wider: Object, toleration: Object) -> bool:
    """Returns whether whatever the second tolerates, the first tolerates for as long."""
    if wider == toleration:
        return True
    if wider.get("effect") and wider["effect"] != toleration.get("effect"):
        return False
    longest, seconds = wider.get("tolerationSeconds"), toleration.get("tolerationSeconds")
    if longest is not None and (seconds is None or seconds > longest):
        return False
    operator = wider.get("operator") or "Equal"
    if not wider.get("key"):
        return operator == "Exists"
    if wider["key"] != toleration.get("key"):
        return False
    same = (toleration.get("operator") or "Equal") == "Equal" and wider.get("value", "") == toleration.get("value", "")
    return operator == "Exists" or same
