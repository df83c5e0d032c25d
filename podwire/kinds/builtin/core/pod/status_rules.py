"""Validation of the status that a node reports for a pod: conditions, addresses, container states, devices, claims."""

from collections.abc import Mapping, Sequence

from podwire.kinds.field_checks import (
    MAX_INT32,
    Choice,
    Errors,
    Object,
    ip,
    named,
    non_negative,
    one_per_family,
    within,
)
from podwire.objects import names
from podwire.protocols.k8sapi.status import duplicate, forbidden, invalid, required, too_long

_PHASES = Choice(("Failed", "Pending", "Running", "Succeeded", "Unknown"))
_SYSTEM_CONDITIONS = frozenset({"PodScheduled", "Ready", "Initialized"})
_HEALTH = Choice(("Healthy", "Unhealthy", "Unknown"))
_STATUS_KINDS = {
    "containerStatuses": "containers",
    "initContainerStatuses": "initContainers",
    "ephemeralContainerStatuses": "ephemeralContainers",
}
_LONGEST_HEALTH_MESSAGE = 1024
_MAX_UINT32 = 2**32 - 1
_EMPTY: Object = {}


def changes(new: Object, old: Object, errors: Errors) -> None:
    """The status of `new` after that of `old`; their specs are the same by now, but for what is checked here."""
    spec, old_spec = new.get("spec") or _EMPTY, old.get("spec") or _EMPTY
    status, before = new.get("status") or _EMPTY, old.get("status") or _EMPTY
    _conditions(status.get("conditions") or (), errors)
    if spec.get("nodeName", "") != old_spec.get("nodeName", ""):
        errors.append(forbidden("status.nodeName", "may not be changed directly"))
    _scalars(status, before, old_spec, errors)
    _states(status, before, old_spec, errors)
    if claims := status.get("resourceClaimStatuses"):
        _claim_statuses(claims, spec.get("resourceClaims") or (), errors)
    if extended := status.get("extendedResourceClaimStatus"):
        _extended_claim(extended, spec, errors)
    _pod_ips(status, before, errors)
    _host_ips(status, before, errors)
    for kind, containers in _STATUS_KINDS.items():
        known = _by_name(spec.get(containers) or ())
        for index, container_status in enumerate(status.get(kind) or ()):
            _container_status(container_status, known, f"status.{kind}[{index}]", errors)


def _conditions(conditions: Sequence[Object], errors: Errors) -> None:
    for index, condition in enumerate(conditions):
        if (generation := condition.get("observedGeneration", 0)) < 0:
            place = f"status.conditions[{index}].observedGeneration"
            errors.append(invalid(place, generation, "must be a non-negative integer"))
        if (kind := condition.get("type", "")) not in _SYSTEM_CONDITIONS:
            named(names.qualified_name, kind, f"status.conditions[{index}].Type", errors)


def _scalars(status: Object, before: Object, old_spec: Object, errors: Errors) -> None:
    if phase := status.get("phase"):
        _PHASES.check(phase, "status.phase", errors)
    nominated = status.get("nominatedNodeName", "")
    if nominated and nominated != before.get("nominatedNodeName", ""):
        named(names.dns_subdomain, nominated, "status.nominatedNodeName", errors)
        if old_spec.get("nodeName"):
            detail = "may not be set on pods that are already bound to a node"
            errors.append(forbidden("status.nominatedNodeName", detail))
    if (generation := status.get("observedGeneration", 0)) < 0:
        errors.append(invalid("status.observedGeneration", generation, "must be a non-negative integer"))
    quality = status.get("qosClass")
    if quality and quality != before.get("qosClass", quality):
        errors.append(invalid("status.qosClass", quality, "field is immutable"))


def _states(status: Object, before: Object, spec: Object, errors: Errors) -> None:
    """A container that ended stays so, unless its policy lets it be restarted."""
    if _all_may_restart(spec):
        return
    for kind, containers in _STATUS_KINDS.items():
        reported, known = _by_name(status.get(kind) or ()), _by_name(spec.get(containers) or ())
        for index, old in enumerate(before.get(kind) or ()):
            name = old.get("name", "")
            ended, new = (old.get("state") or _EMPTY).get("terminated"), reported.get(name)
            if ended is None or new is None or "terminated" in (new.get("state") or _EMPTY):
                continue
            ephemeral = containers == "ephemeralContainers"
            if ephemeral or not _may_restart(known.get(name), ended.get("exitCode", 0), spec):
                detail = "may not be transitioned to non-terminated state"
                errors.append(forbidden(f"status.{kind}[{index}].state", detail))


def _by_name(given: Sequence[Object]) -> dict[str, Object]:
    return {rule.get("name", ""): rule for rule in given}


def _all_may_restart(spec: Object) -> bool:
    return any(
        rule.get("action") == "RestartAllContainers"
        for kind in ("containers", "initContainers")
        for container in spec.get(kind) or ()
        for rule in container.get("restartPolicyRules") or ()
    )


def _may_restart(container: Object | None, exit_code: int, spec: Object) -> bool:
    if container is None:
        return False
    if any(_rule_matches(rule, exit_code) for rule in container.get("restartPolicyRules") or ()):
        return True
    policy = container.get("restartPolicy") or spec.get("restartPolicy")
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def _rule_matches(rule: Object, exit_code: int) -> bool:
    codes = rule.get("exitCodes") or _EMPTY
    listed = exit_code in (codes.get("values") or ())
    return listed if codes.get("operator") == "In" else not listed


def _claim_statuses(statuses: Sequence[Object], claims: Sequence[Object], errors: Errors) -> None:
    known = {pod_claim.get("name", "") for pod_claim in claims}
    seen: set[str] = set()
    for index, status in enumerate(statuses):
        name, place = status.get("name", ""), f"status.resourceClaimStatuses[{index}]"
        if name not in known:
            detail = "must match the name of an entry in `spec.resourceClaims`"
            errors.append(invalid(f"{place}.name", name, detail))
        if name in seen:
            errors.append(duplicate(f"{place}.name", name))
        seen.add(name)
        if (claim := status.get("resourceClaimName")) is not None:
            named(names.dns_subdomain, claim, f"{place}.resourceClaimName", errors)


def _extended_claim(status: Object, spec: Object, errors: Errors) -> None:
    path = "status.extendedResourceClaimStatus"
    containers = _by_name([*(spec.get("initContainers") or ()), *(spec.get("containers") or ())])
    mappings = status.get("requestMappings") or ()
    if not mappings:
        errors.append(required(f"{path}.requestMappings", "at least one request mapping is required"))
    for index, mapping in enumerate(mappings):
        _request_mapping(mapping, containers, f"{path}.requestMappings[{index}]", errors)
        named(names.dns_label, mapping.get("requestName", ""), f"{path}.requestName", errors)
    if not (claim := status.get("resourceClaimName")):
        errors.append(required(f"{path}.resourceClaimName"))
    else:
        named(names.dns_subdomain, claim, f"{path}.resourceClaimName", errors)


def _request_mapping(mapping: Object, containers: Mapping[str, Object], path: str, errors: Errors) -> None:
    name, resource = mapping.get("containerName", ""), mapping.get("resourceName", "")
    if (container := containers.get(name)) is None:
        detail = "must match the name of an entry in spec.initContainers.name or spec.containers.name"
        errors.append(invalid(f"{path}.containerName", name, detail))
    elif resource not in ((container.get("resources") or _EMPTY).get("requests") or ()):
        detail = (
            "must match the extended resource name of an entry in "
            "spec.initContainers.resources.requests or spec.containers.resources.requests"
        )
        errors.append(invalid(f"{path}.resourceName", resource, detail))


def _pod_ips(status: Object, before: Object, errors: Errors) -> None:
    first, path = status.get("podIP", ""), "status.podIPs"
    ips = [address.get("ip", "") for address in status.get("podIPs") or ()]
    if not ips and not first:
        return
    _addresses(ips, before, "podIPs", errors)
    if bool(first) != bool(ips):
        detail = "podIP and podIPs must either both be set or both be unset"
        errors.append(invalid(path, status.get("podIPs") or [], detail))
    elif ips[0] != first:
        errors.append(invalid(f"{path}[0].ip", ips[0], "must be equal to `podIP`"))


def _host_ips(status: Object, before: Object, errors: Errors) -> None:
    ips = [address.get("ip", "") for address in status.get("hostIPs") or ()]
    if not ips:
        return
    if ips[0] != status.get("hostIP", ""):
        errors.append(invalid("status.hostIPs[0].ip", ips[0], "must be equal to `hostIP`"))
    _addresses(ips, before, "hostIPs", errors)


def _addresses(ips: Sequence[str], before: Object, field: str, errors: Errors) -> None:
    known = {address.get("ip", "") for address in before.get(field) or ()}
    for index, address in enumerate(ips):
        ip(address, f"status.{field}[{index}]", errors, known=known)
    if len(ips) > 1 and not one_per_family(ips):
        shown = [{"ip": address} for address in ips]
        errors.append(invalid(f"status.{field}", shown, "may specify no more than one IP for each IP family"))


def _container_status(status: Object, containers: Mapping[str, Object], path: str, errors: Errors) -> None:
    if (restarts := status.get("restartCount", 0)) < 0:
        non_negative(restarts, f"{path}.restartCount", errors)
    if (user := status.get("user")) is not None:
        _user(user.get("linux") or _EMPTY, f"{path}.user.linux", errors)
    if not (resources := status.get("allocatedResourcesStatus")):
        return
    path = f"{path}.allocatedResourcesStatus"
    if path.startswith("status.ephemeral"):
        errors.append(forbidden(path, "must not be specified in container status"))
        return
    container = containers.get(status.get("name", ""))
    for position, resource in enumerate(resources):
        if container is not None:
            _resource_name(resource.get("name", ""), container, f"{path}[{position}].name", errors)
        _health(resource.get("resources") or (), f"{path}[{position}].resources", errors)


def _user(user: Object, path: str, errors: Errors) -> None:
    within(user.get("uid", 0), 0, _MAX_UINT32, f"{path}.uid", errors)
    within(user.get("gid", 0), 0, MAX_INT32, f"{path}.gid", errors)
    for index, group in enumerate(user.get("supplementalGroups") or ()):
        within(group, 0, MAX_INT32, f"{path}.supplementalGroups[{index}]", errors)


def _resource_name(name: str, container: Object, path: str, errors: Errors) -> None:
    resources = container.get("resources") or _EMPTY
    if not name.startswith("claim:"):
        if name not in (resources.get("requests") or ()):
            errors.append(invalid(path, name, "must match one of the container's resource requests"))
        return
    claims = {
        f"claim:{claim.get('name', '')}" + (f"/{claim['request']}" if claim.get("request") else "")
        for claim in resources.get("claims") or ()
    }
    if name not in claims:
        detail = (
            "must match one of the container's resource claims in a format "
            "'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty"
        )
        errors.append(invalid(path, name, detail))


def _health(resources: Sequence[Object], path: str, errors: Errors) -> None:
    seen: set[str] = set()
    for index, resource in enumerate(resources):
        _HEALTH.check(resource.get("health", ""), f"{path}[{index}].health", errors)
        message = resource.get("message")
        if message == "":
            errors.append(required(f"{path}[{index}].message", "must be non-empty if specified"))
        elif message is not None and len(message) > _LONGEST_HEALTH_MESSAGE:
            errors.append(too_long(f"{path}[{index}].message", _LONGEST_HEALTH_MESSAGE))
        device = resource.get("resourceID", "")
        if device in seen:
            errors.append(duplicate(f"{path}[{index}].resourceID", device))
        seen.add(device)
