"""Resizing a pod in place: cpu and memory of its containers change, nothing else does."""

from collections.abc import Sequence
from typing import Any

from podwire.kinds.defaults.qos import qos_class
from podwire.kinds.validation.pod_values import Errors, Object
from podwire.protocols.k8sapi.status import forbidden, invalid

RESIZABLE = ("cpu", "memory")


def changes(new: Object, old: Object, errors: Errors) -> None:
    """What of a resize may not be; the new pod is valid by itself."""
    spec, before = new["spec"], old["spec"]
    now, then = qos_class(new), (old.get("status") or {}).get("qosClass") or qos_class(old)
    if now != then:
        errors.append(invalid("spec", then, "Pod QOS Class may not change as a result of resizing"))
    for part in ("initContainers", "containers"):
        path = f"spec.{part}"
        if _same_order(spec.get(part) or (), before.get(part) or (), path, errors):
            _containers(spec.get(part) or (), before.get(part) or (), path, errors)


def _same_order(new: Sequence[Object], old: Sequence[Object], path: str, errors: Errors) -> bool:
    if len(new) != len(old):
        errors.append(forbidden(path, f"{path.removeprefix('spec.')} may not be added or removed on resize"))
        return False
    moved = [index for index, (one, other) in enumerate(zip(new, old, strict=True)) if one["name"] != other["name"]]
    for index in moved:
        why = f"{path.removeprefix('spec.')} may not be renamed or reordered on resize"
        errors.append(forbidden(f"{path}[{index}].name", why))
    return not moved


def _containers(new: Sequence[Object], old: Sequence[Object], path: str, errors: Errors) -> None:
    for index, (container, before) in enumerate(zip(new, old, strict=True)):
        resources, had = container.get("resources") or {}, before.get("resources") or {}
        for part in ("requests", "limits"):
            if (had.get(part) or {}).keys() - (resources.get(part) or {}).keys():
                errors.append(forbidden(f"{path}[{index}].resources.{part}", f"resource {part} cannot be removed"))
        if _fixed(resources) != _fixed(had):
            errors.append(forbidden("spec", "only cpu and memory resources are mutable"))


def _fixed(resources: Object) -> dict[str, Any]:
    """The resources without those that can be resized."""
    parts = ("requests", "limits")
    kept = {part: {name: resources[part][name] for name in resources.get(part) or {} if name not in RESIZABLE}
            for part in parts}  # fmt: skip
    return {**{part: value for part, value in resources.items() if part not in parts}, **kept}
