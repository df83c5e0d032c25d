"""Updates of a running Pod: very little of the spec may change, ephemeral containers are added, resources resized."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from podwire.kinds.builtin.core.pod.qos import qos_class
from podwire.kinds.field_checks import Errors, Object
from podwire.protocols.k8sapi.status import forbidden, invalid

_CHANGEABLE = (
    "`spec.containers[*].image`",
    "`spec.initContainers[*].image`",
    "`spec.activeDeadlineSeconds`",
    "`spec.tolerations` (only additions to existing tolerations)",
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
)
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_MOST_DIFFERENCES = 10
_LONGEST_VALUE = 80
_ZERO_IS_ABSENT = frozenset(
    {
        "hostNetwork",
        "hostPID",
        "hostIPC",
        "nodeName",
        "hostname",
        "subdomain",
        "schedulerName",
        "priorityClassName",
        "serviceAccountName",
        "serviceAccount",
        "stdin",
        "stdinOnce",
        "tty",
        "workingDir",
        "terminationMessagePath",
        "image",
        "value",
        "hostPort",
        "hostIP",
        "readOnly",
        "subPath",
        "subPathExpr",
        "host",
        "initialDelaySeconds",
        "medium",
        "fsType",
        "divisor",
        "resources",
        "nodeSelector",
        "overhead",
        "limits",
        "requests",
        "matchLabels",
        "options",
        "volumeAttributes",
        "labels",
        "annotations",
        "metadata",
        "operator",
        "key",
        "effect",
        "prefix",
        "request",
        "containerName",
        "targetContainerName",
    }
)
"""Fields whose zero value and absence are the same: clients that re-encode an object leave the zeros out. All other
scalars are optional ones, where `runAsUser: 0` is not the same as none."""

_ABSENT: Any = object()

RESIZABLE = ("cpu", "memory")


def spec_changes(new: Object, old: Object, errors: Errors) -> None:
    """Checks each field that may change, then that nothing else did; `new` was validated as a pod already."""
    for kind in ("containers", "initContainers"):
        if len(new.get(kind) or ()) != len(old.get(kind) or ()):
            errors.append(forbidden(f"spec.{kind}", "pod updates may not add or remove containers"))
            return
    _deadline(new.get("activeDeadlineSeconds"), old.get("activeDeadlineSeconds"), errors)
    _tolerations(new.get("tolerations") or (), old.get("tolerations") or (), errors)
    _gates(new.get("schedulingGates") or (), old.get("schedulingGates") or (), errors)
    leftover = _with_allowed_undone(new, old)
    if old.get("schedulingGates"):
        _tightened(leftover, old, errors)
    if differences := list(_differences(leftover, old, "spec", _MOST_DIFFERENCES)):
        detail = "\n".join(["pod updates may not change fields other than " + ",".join(_CHANGEABLE), *differences])
        errors.append(forbidden("spec", detail))


def _deadline(new: int | None, old: int | None, errors: Errors) -> None:
    """Checks that a deadline is only set or shortened."""
    path = "spec.activeDeadlineSeconds"
    if old is None:
        return
    if new is None:
        errors.append(invalid(path, None, "must not update from a positive integer to nil value"))
    elif new > old:
        errors.append(invalid(path, new, "must be less than or equal to previous value"))


def _tolerations(new: Sequence[Object], old: Sequence[Object], errors: Errors) -> None:
    """Checks that tolerations are only added, or their seconds changed."""
    kept = {_toleration_key(toleration) for toleration in new}
    if any(_toleration_key(toleration) not in kept for toleration in old):
        detail = "existing toleration can not be modified except its tolerationSeconds"
        errors.append(forbidden("spec.tolerations", detail))


def _toleration_key(toleration: Object) -> tuple[str, ...]:
    return tuple(toleration.get(field, "") for field in ("key", "operator", "value", "effect"))


def _gates(new: Sequence[Object], old: Sequence[Object], errors: Errors) -> None:
    known = {before.get("name", "") for before in old}
    for index, gate in enumerate(new):
        name = gate.get("name", "")
        if name not in known:
            detail = f"only deletion is allowed, but found new scheduling gate '{name}'"
            errors.append(forbidden(f"spec.schedulingGates[{index}].name", detail))


def _with_allowed_undone(new: Object, old: Object) -> dict[str, Any]:
    """Returns the new spec with the old value wherever a change is allowed; what still differs is a fault."""
    undone = dict(new)
    for field in ("activeDeadlineSeconds", "schedulingGates", "tolerations"):
        _put_back(undone, old, field)
    for kind in ("containers", "initContainers"):
        if kind in undone:
            pairs = zip(undone[kind], old.get(kind) or (), strict=True)
            undone[kind] = [{**pair, "image": before.get("image", "")} for pair, before in pairs]
    if old.get("terminationGracePeriodSeconds", 0) < 0 and new.get("terminationGracePeriodSeconds") == 1:
        _put_back(undone, old, "terminationGracePeriodSeconds")
    return undone


def _put_back(spec: dict[str, Any], old: Object, field: str) -> None:
    if field in old:
        spec[field] = old[field]
    else:
        spec.pop(field, None)


def _tightened(spec: dict[str, Any], old: Object, errors: Errors) -> None:
    """While a pod is gated, where it may run can be narrowed; what was narrowed is put back in `spec`."""
    selector, before = spec.get("nodeSelector") or {}, old.get("nodeSelector") or {}
    if any(selector.get(key) != value for key, value in before.items()):
        detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        errors.append(invalid("spec.nodeSelector", selector, detail))
    _put_back(spec, old, "nodeSelector")
    affinity, old_affinity = spec.get("affinity") or {}, old.get("affinity") or {}
    node, old_node = affinity.get("nodeAffinity") or {}, old_affinity.get("nodeAffinity") or {}
    if node == old_node:
        return
    _narrower(node, old_node, errors)
    restored = dict(affinity)
    _put_back(restored, old_affinity, "nodeAffinity")
    if restored or "affinity" in old:
        spec["affinity"] = restored
    else:
        spec.pop("affinity", None)


def _narrower(new: Object, old: Object, errors: Errors) -> None:
    terms = (new.get(_REQUIRED) or {}).get("nodeSelectorTerms") or []
    old_terms = (old.get(_REQUIRED) or {}).get("nodeSelectorTerms") or []
    path = f"spec.affinity.nodeAffinity.{_REQUIRED}.nodeSelectorTerms"
    if not old_terms:
        return
    if len(terms) != len(old_terms):
        detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        errors.append(invalid(path, terms, detail))
        return
    for index, (term, old_term) in enumerate(zip(terms, old_terms, strict=True)):
        if not _only_added(term, old_term):
            errors.append(invalid(f"{path}[{index}]", term, "only additions are allowed (no mutations or deletions)"))


def _only_added(new: Object, old: Object) -> bool:
    kinds = ("matchExpressions", "matchFields")
    if not any(old.get(kind) for kind in kinds):  # an empty term matches no node; a filled one would widen it
        return not any(new.get(kind) for kind in kinds)
    return all((new.get(kind) or [])[: len(old.get(kind) or [])] == (old.get(kind) or []) for kind in kinds)


def ephemeral_changes(new: Object, old: Object, errors: Errors) -> None:
    by_name = {container.get("name", ""): container for container in new.get("ephemeralContainers") or ()}
    path = "spec.ephemeralContainers"
    for before in old.get("ephemeralContainers") or ():
        name = before.get("name", "")
        if name not in by_name:
            errors.append(forbidden(path, f'existing ephemeral containers "{name}" may not be removed\n'))
        elif differences := list(_differences(by_name[name], before, name, _MOST_DIFFERENCES)):
            detail = "\n".join([f'existing ephemeral containers "{name}" may not be changed', *differences])
            errors.append(forbidden(path, detail))


def _differences(new: Any, old: Any, path: str, most: int) -> Iterator[str]:
    """Yields the differences of two values, one line each, up to `most`."""
    for index, (place, before, after) in enumerate(_compared(new, old, path)):
        if index == most:
            yield "  and more"
            return
        yield f"  {place}: {_shown(before)} would become {_shown(after)}"


def _compared(new: Any, old: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if new == old:
        return
    if isinstance(new, Mapping) and isinstance(old, Mapping):
        for key in dict.fromkeys([*old, *new]):
            before, after = old.get(key, _ABSENT), new.get(key, _ABSENT)
            if not _same_nothing(key, before, after):
                yield from _compared(after, before, f"{path}.{key}")
    elif isinstance(new, list) and isinstance(old, list) and len(new) == len(old):
        for index, (after, before) in enumerate(zip(new, old, strict=True)):
            yield from _compared(after, before, f"{path}[{index}]")
    else:
        yield path, old, new


def _same_nothing(key: str, before: Any, after: Any) -> bool:
    """Returns whether one side is absent and the other has the zero value."""
    if before is not _ABSENT and after is not _ABSENT:
        return False
    present = after if before is _ABSENT else before
    return present == [] or (key in _ZERO_IS_ABSENT and (not present or (key == "divisor" and present == "0")))


def _shown(value: Any) -> str:
    if value is _ABSENT:
        return "nothing"
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def resize_changes(new: Object, old: Object, errors: Errors) -> None:
    """Checks the changes of a resize; the new pod has been validated by itself."""
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
        policies = container.get("resizePolicy") or [], before.get("resizePolicy") or []
        if _fixed(resources) != _fixed(had) or policies[0] != policies[1]:
            errors.append(forbidden("spec", "only cpu and memory resources are mutable"))


def _fixed(resources: Object) -> dict[str, Any]:
    """Returns the resources without those that can be resized."""
    parts = ("requests", "limits")
    kept = {part: {name: resources[part][name] for name in resources.get(part) or {} if name not in RESIZABLE}
            for part in parts}  # fmt: skip
    return {**{part: value for part, value in resources.items() if part not in parts}, **kept}
