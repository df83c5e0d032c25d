"""Containers, init containers and ephemeral containers of a pod."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from podwire.kinds.field_checks import Choice, Errors, Object, named, not_found, port_number
from podwire.kinds.podspec import env_rules, mount_rules, probe_rules
from podwire.kinds.podspec.resource_rules import requirements
from podwire.kinds.podspec.security_rules import container_security
from podwire.kinds.podspec.volume_rules import PULL_POLICIES
from podwire.objects import names
from podwire.protocols.k8sapi.status import duplicate, forbidden, invalid, required, too_many

_PROTOCOLS = Choice(("SCTP", "TCP", "UDP"))
_MESSAGE_POLICIES = Choice(("File", "FallbackToLogsOnError"))
_NOT_EPHEMERAL = "cannot be set for an Ephemeral Container"
_EPHEMERAL_FIELDS = frozenset(
    {
        "name",
        "image",
        "command",
        "args",
        "workingDir",
        "envFrom",
        "env",
        "volumeMounts",
        "volumeDevices",
        "terminationMessagePath",
        "terminationMessagePolicy",
        "imagePullPolicy",
        "securityContext",
        "stdin",
        "stdinOnce",
        "tty",
        "targetContainerName",
    }
)
_NOT_INIT = "may not be set for init containers without restartPolicy=Always"
_SIDECAR_FIELDS = ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe")

_CONTAINER_RESTART_POLICIES = Choice(("Always", "Never", "OnFailure"))
_RULE_ACTIONS = Choice(("Restart", "RestartAllContainers"))
_RULE_OPERATORS = Choice(("In", "NotIn"))
_MOST_RULES = 20
_MOST_EXIT_CODES = 255
_RESIZED = Choice(("cpu", "memory"))
_RESIZE_POLICIES = Choice(("NotRequired", "RestartContainer"))


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The parts of the pod that the rules of a container need."""

    volumes: mount_rules.Volumes
    claims: frozenset[str]
    restart_policy: str
    grace: int | None
    os: str | None
    host_users: bool
    is_pod: bool
    """False inside a template, where some things may still be decided later."""


def containers(given: Sequence[Object], pod: Surroundings, path: str, errors: Errors) -> None:
    if not given:
        errors.append(required(path))
        return
    seen: set[str] = set()
    host_ports: set[str] = set()
    conflicts: Errors = []
    for index, container in enumerate(given):
        place = f"{path}[{index}]"
        _common(container, pod, place, errors)
        name = container.get("name", "")
        if name in seen:
            errors.append(duplicate(f"{place}.name", name))
        seen.add(name)
        _hooks(container, pod, place, errors)
        restart_policy(container, place, errors)
        if ports := container.get("ports"):
            _host_ports(ports, host_ports, f"{place}.ports", conflicts)
    errors += conflicts


def init_containers(
    given: Sequence[Object], regular: Sequence[Object], pod: Surroundings, path: str, errors: Errors
) -> None:
    seen = {sibling.get("name", "") for sibling in regular}
    for index, container in enumerate(given):
        place, name = f"{path}[{index}]", container.get("name", "")
        _common(container, pod, place, errors)
        restart_policy(container, place, errors)
        if name in seen:
            errors.append(duplicate(f"{place}.name", name))
        elif name:
            seen.add(name)
        if ports := container.get("ports"):
            _host_ports(ports, set(), f"{place}.ports", errors)  # init containers run one after the other
        if container.get("restartPolicy") == "Always":
            _hooks(container, pod, place, errors)
        else:
            _no_sidecar_fields(container, place, errors)


def _no_sidecar_fields(container: Object, path: str, errors: Errors) -> None:
    for field in _SIDECAR_FIELDS:
        if field in container:
            errors.append(forbidden(f"{path}.{field}", _NOT_INIT))
    for index, policy in enumerate(container.get("resizePolicy") or ()):
        if policy.get("restartPolicy") == "RestartContainer":
            place = f"{path}.resizePolicy[{index}].restartPolicy"
            detail = "must not be set to 'RestartContainer' for non-sidecar initContainers"
            errors.append(invalid(place, "RestartContainer", detail))


def ephemeral_containers(
    given: Sequence[Object], others: Sequence[Object], pod: Surroundings, path: str, errors: Errors
) -> None:
    other_names = {other.get("name", "") for other in others}
    seen = set(other_names)
    for index, container in enumerate(given):
        place, name = f"{path}[{index}]", container.get("name", "")
        _common(container, pod, place, errors)
        if not pod.is_pod:
            _image_spaces(container, place, errors)
        if name in seen:
            errors.append(duplicate(f"{place}.name", name))
        seen.add(name)
        target = container.get("targetContainerName")
        if target and target not in other_names:
            errors.append(not_found(f"{place}.targetContainerName", target))
        _only_ephemeral_fields(container, place, errors)


def _only_ephemeral_fields(container: Object, path: str, errors: Errors) -> None:
    for field, value in container.items():
        if field not in _EPHEMERAL_FIELDS and (value or field != "resources"):
            errors.append(forbidden(f"{path}.{field}", _NOT_EPHEMERAL))
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        for field in ("subPath", "subPathExpr"):
            if mount.get(field):
                errors.append(forbidden(f"{path}.volumeMounts[{index}].{field}", _NOT_EPHEMERAL))


def _common(container: Object, pod: Surroundings, path: str, errors: Errors) -> None:
    """The rules of all three kinds."""
    if not (name := container.get("name")):
        errors.append(required(f"{path}.name"))
    else:
        named(names.dns_label, name, f"{path}.name", errors)
    if not container.get("image"):
        errors.append(required(f"{path}.image"))
    elif pod.is_pod:
        _image_spaces(container, path, errors)
    policy = container.get("terminationMessagePolicy", "")
    _MESSAGE_POLICIES.require(policy, f"{path}.terminationMessagePolicy", errors)
    PULL_POLICIES.require(container.get("imagePullPolicy", ""), f"{path}.imagePullPolicy", errors)
    for field, check in _PARTS:
        if container.get(field):
            check(container, pod, f"{path}.{field}", errors)


def _image_spaces(container: Object, path: str, errors: Errors) -> None:
    image = container.get("image", "")
    if image != image.strip():
        errors.append(invalid(f"{path}.image", image, "must not have leading or trailing whitespace"))


def _hooks(container: Object, pod: Surroundings, path: str, errors: Errors) -> None:
    if (hooks := container.get("lifecycle")) is not None:
        probe_rules.lifecycle(hooks, pod.grace, pod.os, f"{path}.lifecycle", errors)
    probe_rules.probes(container, pod.grace, path, errors)


def _ports(ports: Sequence[Object], path: str, errors: Errors) -> None:
    seen: set[str] = set()
    for index, port in enumerate(ports):
        if name := port.get("name"):
            if messages := names.port_name(name):
                errors += [invalid(f"{path}[{index}].name", name, message) for message in messages]
            elif name in seen:
                errors.append(duplicate(f"{path}[{index}].name", name))
            seen.add(name)
        number = port.get("containerPort", 0)
        if number == 0:
            errors.append(required(f"{path}[{index}].containerPort"))
        else:
            port_number(number, f"{path}[{index}].containerPort", errors)
        if host_port := port.get("hostPort"):
            port_number(host_port, f"{path}[{index}].hostPort", errors)
        _PROTOCOLS.require(port.get("protocol", ""), f"{path}[{index}].protocol", errors)


def _host_ports(ports: Sequence[Object], taken: set[str], path: str, errors: Errors) -> None:
    for index, port in enumerate(ports):
        if number := port.get("hostPort"):
            key = f"{port.get('protocol', '')}/{port.get('hostIP', '')}/{number}"
            if key in taken:
                errors.append(duplicate(f"{path}[{index}].hostPort", key))
            taken.add(key)


_PARTS: Sequence[tuple[str, Callable[[Object, Surroundings, str, Errors], None]]] = (
    ("ports", lambda it, _pod, path, errors: _ports(it["ports"], path, errors)),
    ("env", lambda it, pod, path, errors: env_rules.env(it["env"], pod.volumes, path, errors)),
    ("envFrom", lambda it, _pod, path, errors: env_rules.env_from(it["envFrom"], path, errors)),
    ("volumeMounts", lambda it, pod, path, errors: mount_rules.mounts(it, pod.volumes, path, errors)),
    ("volumeDevices", lambda it, pod, path, errors: mount_rules.devices(it, pod.volumes, path, errors)),
    ("resources", lambda it, pod, path, errors: requirements(it["resources"], pod.claims, path, errors)),
    ("resizePolicy", lambda it, pod, path, errors: resize_policy(it["resizePolicy"], pod.restart_policy, path, errors)),
    ("securityContext", lambda it, pod, path, errors: container_security(it, pod.host_users, path, errors)),
)
"""The parts that a container may have, in the order of their errors."""


def restart_policy(container: Object, path: str, errors: Errors) -> None:
    policy, rules = container.get("restartPolicy"), container.get("restartPolicyRules") or ()
    if policy is not None:
        _CONTAINER_RESTART_POLICIES.check(policy, f"{path}.restartPolicy", errors)
    elif rules:
        detail = "must specify restartPolicy when restart rules are used"
        errors.append(required(f"{path}.restartPolicy", detail))
    if len(rules) > _MOST_RULES:
        errors.append(too_many(f"{path}.restartPolicyRules", len(rules), _MOST_RULES))
    for index, rule in enumerate(rules):
        _restart_rule(rule, f"{path}.restartPolicyRules[{index}]", errors)


def _restart_rule(rule: Object, path: str, errors: Errors) -> None:
    _RULE_ACTIONS.check(rule.get("action", ""), f"{path}.action", errors)
    if (codes := rule.get("exitCodes")) is None:
        errors.append(required(f"{path}.exitCodes", "must be specified"))
        return
    _RULE_OPERATORS.check(codes.get("operator", ""), f"{path}.exitCodes.operator", errors)
    values = codes.get("values") or ()
    if len(values) > _MOST_EXIT_CODES:
        errors.append(too_many(f"{path}.exitCodes.values", len(values), _MOST_EXIT_CODES))


def resize_policy(policies: Sequence[Object], pod_restart_policy: str, path: str, errors: Errors) -> None:
    seen: set[str] = set()
    for index, given in enumerate(policies):
        resource, policy = given.get("resourceName", ""), given.get("restartPolicy", "")
        if resource in seen:
            errors.append(duplicate(f"{path}[{index}]", resource))
        seen.add(resource)
        _RESIZED.require(resource, path, errors)
        _RESIZE_POLICIES.require(policy, path, errors)
        if pod_restart_policy == "Never" and policy != "NotRequired":
            detail = "must be 'NotRequired' when pod `restartPolicy` is 'Never'"
            errors.append(invalid(path, policy, detail))
