"""Compute resources: names, amounts, limits against requests, and the claims that a container uses."""

from collections.abc import Callable, Iterable, Mapping

from podwire.kinds.field_checks import Choice, Errors, Object, named, not_found
from podwire.objects import names
from podwire.objects.quantity import NANO, Quantity
from podwire.protocols.k8sapi.status import duplicate, forbidden, invalid, required

NameRule = Callable[[str, str, Errors], None]
_CONTAINER_NAMES = frozenset({"cpu", "memory", "ephemeral-storage"})
COUNTED_NAMES = frozenset(
    {
        "pods",
        "resourcequotas",
        "services",
        "replicationcontrollers",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
    }
)
_COMPUTE_NAMES = ("cpu", "memory", "ephemeral-storage", "storage")
_STANDARD_NAMES = (
    COUNTED_NAMES
    | frozenset(_COMPUTE_NAMES)
    | {f"requests.{word}" for word in _COMPUTE_NAMES}
    | {f"limits.{word}" for word in _CONTAINER_NAMES}
)
_POD_LEVEL_NAMES = Choice(("cpu", "hugepages-", "memory"))
_HUGE_PAGES = "hugepages-"

Amounts = dict[str, Quantity]


def requirements(resources: Object, claims: frozenset[str], path: str, errors: Errors) -> None:
    """The `resources` of a container."""
    amounts(resources, path, container_resource_name, errors)
    if uses := resources.get("claims"):
        _claims(uses, claims, f"{path}.claims", errors)


def amounts(resources: Object, path: str, name_rule: NameRule, errors: Errors) -> None:
    """Limits, requests, and requests against limits."""
    limits: Mapping[str, str] = resources.get("limits") or {}
    requests: Mapping[str, str] = resources.get("requests") or {}
    for name, text in limits.items():
        _amount(name, text, f"{path}.limits", name_rule, errors)
    for name, text in requests.items():
        _amount(name, text, f"{path}.requests", name_rule, errors)
        _against_limit(name, text, limits.get(name), path, errors)
    asked = limits.keys() | requests.keys()
    if "cpu" not in asked and "memory" not in asked and any(map(is_huge_pages, asked)):
        errors.append(forbidden(path, "HugePages require cpu or memory"))


def _amount(name: str, text: str, path: str, name_rule: NameRule, errors: Errors) -> None:
    if name in _CONTAINER_NAMES and text[0] != "-":
        return
    path = f"{path}[{name}]"
    name_rule(name, path, errors)
    amount(name, text, path, errors)
    if is_huge_pages(name) and not _whole_pages(name, text):
        errors.append(invalid(path, text, f"{text} is not positive integer multiple of {name}"))


def amount(name: str, text: str, path: str, errors: Errors) -> None:
    """A quantity of a resource: never negative, and whole where only whole ones exist."""
    if text.startswith("-"):  # quantities are canonical by now, so the sign is the first character
        errors.append(invalid(path, text, "must be greater than or equal to 0"))
    if (name in COUNTED_NAMES or is_extended(name)) and not text.isdigit() and not _is_whole(text):
        errors.append(invalid(path, text, "must be an integer"))


def _against_limit(name: str, text: str, limit: str | None, path: str, errors: Errors) -> None:
    if text == limit:
        return
    overcommit = is_native(name) and not is_huge_pages(name)
    if limit is None:
        if not overcommit:
            errors.append(required(f"{path}.limits", "Limit must be set for non overcommitable resources"))
        return
    asked, most = Quantity.parse(text), Quantity.parse(limit)
    if asked != most and not overcommit:
        errors.append(invalid(f"{path}.requests", text, f"must be equal to {name} limit of {limit}"))
    elif asked > most:
        errors.append(invalid(f"{path}.requests", text, f"must be less than or equal to {name} limit of {limit}"))


def _claims(uses: Iterable[Object], claims: frozenset[str], path: str, errors: Errors) -> None:
    whole: set[str] = set()
    parts: dict[str, set[str]] = {}
    for index, use in enumerate(uses):
        place = f"{path}[{index}]"
        name, request = use.get("name", ""), use.get("request", "")
        if not name:
            errors.append(required(place))
            continue
        if request:
            named(names.dns_label, request, f"{place}.request", errors)
        if name in whole or (not request and name in parts):
            errors.append(duplicate(place, name))
        elif request in parts.get(name, ()):
            errors.append(duplicate(place, f"{name}/{request}"))
        if request:
            parts.setdefault(name, set()).add(request)
        else:
            whole.add(name)
        if name not in claims:
            known = ": " + ", ".join(sorted(claims)) if claims else " which is empty"
            errors.append(not_found(place, name, f"must be one of the names in pod.spec.resourceClaims{known}"))


def container_resource_name(name: str, path: str, errors: Errors) -> None:
    if name in _CONTAINER_NAMES:
        return
    _resource_name(name, path, errors)
    if "/" not in name:
        if not is_huge_pages(name):
            errors.append(invalid(path, name, "must be a standard resource for containers"))
    elif not is_native(name) and not is_extended(name):
        errors.append(invalid(path, name, "doesn't follow extended resource name standard"))


def pod_resource_name(name: str, path: str, errors: Errors) -> None:
    before = len(errors)
    _resource_name(name, path, errors)
    if len(errors) == before and not is_huge_pages(name):
        _POD_LEVEL_NAMES.check(name, path, errors)


def _resource_name(name: str, path: str, errors: Errors) -> None:
    before = len(errors)
    named(names.qualified_name, name, path, errors)
    if len(errors) > before or "/" in name:
        return
    if name not in _STANDARD_NAMES and not name.startswith((_HUGE_PAGES, "requests.hugepages-")):
        errors.append(invalid(path, name, "must be a standard resource type or fully qualified"))


def is_huge_pages(name: str) -> bool:
    return name.startswith(_HUGE_PAGES)


def is_native(name: str) -> bool:
    """Names without a domain, or with one of Kubernetes' own."""
    return "/" not in name or "kubernetes.io/" in name


def is_extended(name: str) -> bool:
    if is_native(name) or name.startswith("requests."):
        return False
    return not names.qualified_name(f"requests.{name}")  # so that a quota can name it


def _whole_pages(name: str, text: str) -> bool:
    try:
        page = Quantity.parse(name.removeprefix(_HUGE_PAGES))
    except ValueError:
        return False
    return page.nano > 0 and page.nano % NANO == 0 and Quantity.parse(text).value() % page.value() == 0


def _is_whole(text: str) -> bool:
    return Quantity.parse(text).milli() % 1000 == 0


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
    for index, container in enumerate(spec.get("containers") or ()):
        for name, text in ((container.get("resources") or {}).get("limits") or {}).items():
            if name in limits and Quantity.parse(text) > Quantity.parse(limits[name]):
                place = f"{path}.containers[{index}][{name}].limits"
                errors.append(invalid(place, text, f"must be less than or equal to pod limits of {limits[name]}"))


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


def _aggregate(spec: Object, kind: str) -> Amounts:
    """Returns the total of all containers: running ones and sidecars, or the largest step of the initialization."""
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
    for name, quantity in more:
        total[name] = total[name] + quantity if name in total else quantity


def _raise(total: Amounts, other: Amounts) -> None:
    for name, quantity in other.items():
        if name not in total or quantity > total[name]:
            total[name] = quantity
