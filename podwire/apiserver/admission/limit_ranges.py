"""LimitRanger: default requests and limits of containers; minimum, maximum and ratio of containers, pods and claims."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from podwire.apiserver.admission.chain import WRITES, AdmissionPlugin, Operation
from podwire.apiserver.admission.informers import ObjectInformer
from podwire.apiserver.request import offload
from podwire.kinds.podspec.resource_totals import Amounts, amounts, pod_limits, pod_requests
from podwire.kinds.stored import Object
from podwire.objects.quantity import Quantity

ANNOTATION = "kubernetes.io/limit-ranger"


@dataclass(frozen=True, slots=True)
class LimitRanger(AdmissionPlugin):
    """Applies all limit ranges of a namespace, by name."""

    ranges: ObjectInformer

    verbs = WRITES
    resources = frozenset({("", "pods"), ("", "persistentvolumeclaims")})

    async def admit(self, operation: Operation) -> None:
        if operation.is_for("", "pods") and _concerned(operation):
            for limit_range in await self.ranges.all(operation.namespace):
                await offload.run(set_defaults, operation.obj, limit_range)

    async def validate(self, operation: Operation) -> None:
        if not _concerned(operation):
            return
        for limit_range in await self.ranges.all(operation.namespace):
            check = _pod_violations if operation.is_for("", "pods") else _claim_violations
            violations = await offload.run(_distinct, check, limit_range, operation.obj)
            if violations:
                raise operation.forbidden(violations[0] if len(violations) == 1 else f"[{', '.join(violations)}]")


def _distinct(check: Callable[[Object, Object], Iterator[str]], limit_range: Object, obj: Object) -> list[str]:
    return [*dict.fromkeys(check(limit_range, obj))]


def _concerned(operation: Operation) -> bool:
    """Returns whether limits apply: to new pods, to resized ones, and to claims; not to what is being deleted."""
    if operation.old is not None and operation.old["metadata"].get("deletionTimestamp"):
        return False
    if operation.is_for("", "pods"):
        return (operation.verb, operation.subresource) in (("CREATE", ""), ("UPDATE", "resize"))
    return not operation.subresource


def set_defaults(pod: Object, limit_range: Object) -> None:
    """Fills in what containers leave out, and records that in an annotation. Changes `pod`."""
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}
    for limit in _limits(limit_range, "Container"):
        requests.update(limit.get("defaultRequest") or {})
        limits.update(limit.get("default") or {})
    set_for: list[str] = []
    for part, what in (("containers", "container"), ("initContainers", "init container")):
        for container in pod["spec"].get(part) or ():
            resources = container.get("resources") or {}
            for field, word, defaults in (("requests", "request", requests), ("limits", "limit", limits)):
                given = resources.get(field) or {}
                missing = sorted(defaults.keys() - given.keys())
                if missing:
                    container["resources"] = resources = {**resources, field: {**defaults, **given}}
                    set_for.append(f"{', '.join(missing)} {word} for {what} {container['name']}")
    if set_for:
        annotations = pod["metadata"].get("annotations") or {}
        pod["metadata"]["annotations"] = {**annotations, ANNOTATION: f"LimitRanger plugin set: {'; '.join(set_for)}"}


def _limits(limit_range: Object, kind: str) -> Iterator[Object]:
    for limit in (limit_range.get("spec") or {}).get("limits") or ():
        if limit.get("type") == kind:
            yield limit


def _pod_violations(limit_range: Object, pod: Object) -> Iterator[str]:
    spec = pod["spec"]
    for limit in (limit_range.get("spec") or {}).get("limits") or ():
        kind = limit.get("type")
        if kind == "Container":
            for part in ("containers", "initContainers"):
                for container in spec.get(part) or ():
                    resources = container.get("resources") or {}
                    requests, limits = amounts(resources.get("requests")), amounts(resources.get("limits"))
                    yield from _violations(kind, limit, requests, limits)
        elif kind == "Pod":
            yield from _violations(kind, limit, pod_requests(spec), pod_limits(spec))


def _violations(kind: str, limit: Object, requests: Amounts, limits: Amounts) -> Iterator[str]:
    for name, enforced in _sorted(limit, "min"):
        yield from below_minimum(kind, name, enforced, requests.get(name), limits.get(name))
    for name, enforced in _sorted(limit, "max"):
        yield from above_maximum(kind, name, enforced, requests.get(name), limits.get(name))
    for name, enforced in _sorted(limit, "maxLimitRequestRatio"):
        yield from above_ratio(kind, name, enforced, requests.get(name), limits.get(name))


def _claim_violations(limit_range: Object, claim: Object) -> Iterator[str]:
    requests = amounts((claim["spec"].get("resources") or {}).get("requests"))
    kind = "PersistentVolumeClaim"
    for limit in _limits(limit_range, kind):
        for name, enforced in _sorted(limit, "min"):
            yield from below_minimum(kind, name, enforced, requests.get(name), None)
        for name, enforced in _sorted(limit, "max"):
            given, limited = requests.get(name), f"maximum {name} usage per {kind} is {enforced}"
            if given is None:
                yield f"{limited}.  No request is specified"
            elif given > enforced:
                yield f"{limited}, but request is {given}"


def _sorted(limit: Object, field: str) -> Iterator[tuple[str, Quantity]]:
    given: Mapping[str, str] = limit.get(field) or {}
    parsed = amounts(given)
    yield from ((name, parsed[name]) for name in sorted(parsed))


def below_minimum(
    kind: str, name: str, enforced: Quantity, request: Quantity | None, limit: Quantity | None
) -> Iterator[str]:
    minimum = f"minimum {name} usage per {kind} is {enforced}"
    if request is None:
        yield f"{minimum}.  No request is specified"
    elif request < enforced:
        yield f"{minimum}, but request is {request}"
    elif limit is not None and limit < enforced:
        yield f"{minimum}, but limit is {limit}"


def above_maximum(
    kind: str, name: str, enforced: Quantity, request: Quantity | None, limit: Quantity | None
) -> Iterator[str]:
    maximum = f"maximum {name} usage per {kind} is {enforced}"
    if limit is None:
        yield f"{maximum}.  No limit is specified"
    elif limit > enforced:
        yield f"{maximum}, but limit is {limit}"
    elif request is not None and request > enforced:
        yield f"{maximum}, but request is {request}"


def above_ratio(
    kind: str, name: str, enforced: Quantity, request: Quantity | None, limit: Quantity | None
) -> Iterator[str]:
    ratio = f"{name} max limit to request ratio per {kind} is {enforced}"
    if not request:
        yield f"{ratio}, but no request is specified or request is 0"
    elif not limit:
        yield f"{ratio}, but no limit is specified or limit is 0"
    elif limit.nano * 10**9 > enforced.nano * request.nano:
        yield f"{ratio}, but provided ratio is {limit.nano / request.nano:f}"
