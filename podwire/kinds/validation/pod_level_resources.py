"""`spec.resources`: what a pod asks for as a whole, against what its containers ask for one by one."""

from collections.abc import Iterable

from podwire.kinds.validation.pod_resources import amounts, is_huge_pages, pod_resource_name
from podwire.kinds.validation.pod_values import Errors, Object
from podwire.objects.quantity import Quantity
from podwire.protocols.k8sapi.status import forbidden, invalid

Amounts = dict[str, Quantity]


def pod_level(spec: Object, path: str, errors: Errors) -> None:
    """The pod's own resources, which `spec` has."""
    resources: Object = spec["resources"]
    path = f"{path}.resources"
    if (spec.get("os") or {}).get("name") == "windows":
        errors.append(forbidden(path, "may not be set for a windows pod"))
        return
    if "claims" in resources:
        errors.append(forbidden(f"{path}.claims", "claims may not be set for Resources at pod-level"))
    amounts(resources, path, pod_resource_name, errors)
    _enough_requested(spec, resources.get("requests") or {}, f"{path}.requests", errors)
    limits = resources.get("limits") or {}
    _enough_huge_pages(spec, limits, f"{path}.limits", errors)
    _no_container_above(spec, limits, path, errors)


def _enough_requested(spec: Object, requests: Object, path: str, errors: Errors) -> None:
    for name, needed in _aggregate(spec, "requests").items():
        if name in requests and needed > Quantity.parse(requests[name]):
            detail = f"must be greater than or equal to aggregate container requests of {needed}"
            errors.append(invalid(f"{path}[{name}]", requests[name], detail))


def _enough_huge_pages(spec: Object, limits: Object, path: str, errors: Errors) -> None:
    if not any(map(is_huge_pages, limits)):
        return
    for name, needed in _aggregate(spec, "limits").items():
        if is_huge_pages(name) and name in limits and needed > Quantity.parse(limits[name]):
            detail = f"must be greater than or equal to aggregate container limits of {needed}"
            errors.append(invalid(f"{path}[{name}]", limits[name], detail))


def _no_container_above(spec: Object, limits: Object, path: str, errors: Errors) -> None:
    for index, container in enumerate(spec.get("containers") or ()):
        for name, text in ((container.get("resources") or {}).get("limits") or {}).items():
            if name in limits and Quantity.parse(text) > Quantity.parse(limits[name]):
                place = f"{path}.containers[{index}][{name}].limits"
                errors.append(invalid(place, text, f"must be less than or equal to pod limits of {limits[name]}"))


def _aggregate(spec: Object, kind: str) -> Amounts:
    """What all containers need together: the running ones and the sidecars, or the largest step of the start."""
    total: Amounts = {}
    sidecars: Amounts = {}
    largest: Amounts = {}
    for container in spec.get("containers") or ():
        _add(total, _asked(container, kind))
    for container in spec.get("initContainers") or ():
        step = dict(sidecars)
        _add(step, _asked(container, kind))
        if container.get("restartPolicy") == "Always":
            _add(total, _asked(container, kind))
            sidecars = step
        _raise(largest, step)
    _raise(total, largest)
    return total


def _asked(container: Object, kind: str) -> Iterable[tuple[str, Quantity]]:
    asked = (container.get("resources") or {}).get(kind) or {}
    return [(name, Quantity.parse(text)) for name, text in asked.items()]


def _add(total: Amounts, more: Iterable[tuple[str, Quantity]]) -> None:
    for name, each in more:
        total[name] = total[name] + each if name in total else each


def _raise(total: Amounts, other: Amounts) -> None:
    for name, each in other.items():
        if name not in total or each > total[name]:
            total[name] = each
