"""RuntimeClass: adds its overhead and scheduling constraints to a pod; an unknown class is refused."""

from dataclasses import dataclass

from podwire.apiserver.admission.chain import Operation
from podwire.apiserver.ports import Store
from podwire.kinds.resource import PREFIX
from podwire.kinds.stored import Object, unpack
from podwire.protocols.k8sapi.status import ApiError, access_denied


@dataclass(frozen=True, slots=True)
class RuntimeClasses:
    store: Store

    async def admit(self, operation: Operation) -> None:
        if operation.verb != "CREATE" or operation.subresource or not operation.is_for("", "pods"):
            return
        spec = operation.obj["spec"]
        name = spec.get("runtimeClassName")
        if name is None:
            if spec.get("overhead"):
                raise _rejected(operation, "Pod Overhead set without corresponding RuntimeClass defined Overhead")
            return
        item = await self.store.get(f"{PREFIX}runtimeclasses/{name}")
        if item is None:
            raise _rejected(operation, f'RuntimeClass "{name}" not found')
        class_ = unpack(item)
        _set_overhead(operation, spec, (class_.get("overhead") or {}).get("podFixed") or {})
        _set_scheduling(operation, spec, class_.get("scheduling") or {})

    async def undo(self, operation: Operation) -> None:
        """Takes nothing."""


def _set_overhead(operation: Operation, spec: Object, overhead: Object) -> None:
    if spec.get("overhead", overhead) != overhead:
        raise _rejected(operation, "Pod's Overhead doesn't match RuntimeClass's defined Overhead")
    if overhead:
        spec["overhead"] = overhead


def _set_scheduling(operation: Operation, spec: Object, scheduling: Object) -> None:
    wanted, selector = scheduling.get("nodeSelector") or {}, spec.get("nodeSelector") or {}
    for key, value in wanted.items():
        if selector.get(key, value) != value:
            theirs, ours = f"runtimeClass.scheduling.nodeSelector[{key}] = {value}", f"pod.spec.nodeSelector[{key}]"
            raise _refused(operation, f"conflict: {theirs}; {ours} = {selector[key]}")
    if wanted:
        spec["nodeSelector"] = {**selector, **wanted}
    tolerations = spec.get("tolerations") or []
    if added := [toleration for toleration in scheduling.get("tolerations") or () if toleration not in tolerations]:
        spec["tolerations"] = [*tolerations, *added]


def _rejected(operation: Operation, why: str) -> ApiError:
    return _refused(operation, f"pod rejected: {why}")


def _refused(operation: Operation, why: str) -> ApiError:
    return access_denied(f'pods "{operation.name}" is forbidden: {why}', resource="pods", name=operation.name)
