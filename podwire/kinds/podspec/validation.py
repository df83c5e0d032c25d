"""The spec of a pod, in a Pod or in the template of a workload."""

from collections.abc import Callable, Sequence
from typing import Any

from podwire.kinds import object_meta
from podwire.kinds.field_checks import MAX_INT32, Choice, Errors, Object, labels, named, within
from podwire.kinds.podspec import annotation_rules, container_rules, network_rules, os_rules, scheduling_rules
from podwire.kinds.podspec.affinity_rules import affinity
from podwire.kinds.podspec.resource_rules import amounts, container_resource_name, pod_level
from podwire.kinds.podspec.security_rules import pod_security
from podwire.kinds.podspec.volume_rules import volumes
from podwire.objects import names
from podwire.protocols.k8sapi.status import FieldError, forbidden, invalid, required

_RESTART_POLICIES = Choice(("Always", "OnFailure", "Never"))
_PREEMPTION_POLICIES = Choice(("PreemptLowerPriority", "Never"))

FieldCheck = Callable[[Any, str, Errors], None]


def validate_template(template: Object, path: str) -> list[FieldError]:
    """Checks a PodTemplateSpec at `path` (`spec.template`); fields that pods get later are not required."""
    errors: Errors = []
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    annotations = metadata.get("annotations") or {}
    labels(metadata.get("labels") or {}, f"{path}.labels", errors)
    object_meta.annotations(annotations, f"{path}.annotations", errors)
    annotation_rules.values(annotations, spec, f"{path}.annotations", errors)
    errors += validate(spec, f"{path}.spec")
    annotation_rules.match_fields(annotations, spec, f"{path}.spec", errors)
    if spec.get("ephemeralContainers"):
        detail = "ephemeral containers not allowed in pod template"
        errors.append(forbidden(f"{path}.spec.ephemeralContainers", detail))
    return errors


def validate(spec: Object, path: str, pod: Object | None = None) -> list[FieldError]:
    """Checks a PodSpec at `path`; `pod` is the metadata of the pod that it belongs to, None inside a template.

    1. Volumes and claims, then the containers that use them.   2. Fields that depend on each other.
    3. Fields that stand alone.
    """
    errors: Errors = []
    if "terminationGracePeriodSeconds" not in spec:
        errors.append(required(f"{path}.terminationGracePeriodSeconds"))
    _containers(spec, path, pod, errors)
    if "resources" in spec:
        pod_level(spec, path, errors)
    if spec.get("hostNetwork"):
        network_rules.host_ports(spec.get("containers") or (), pod is not None, f"{path}.containers", errors)
    _RESTART_POLICIES.require(spec.get("restartPolicy", ""), f"{path}.restartPolicy", errors)
    network_rules.dns(spec, path, errors)
    for field, check in _TOGETHER:
        if field in spec:
            check(spec, path, errors)
    for field, check_value in _ALONE:
        if (value := spec.get(field)) is not None:
            check_value(value, f"{path}.{field}", errors)
    return errors


def _containers(spec: Object, path: str, pod: Object | None, errors: Errors) -> None:
    name = pod.get("name", "") if pod else ""
    valid = volumes(spec.get("volumes") or (), name, pod is not None, f"{path}.volumes", errors)
    claims: Sequence[Object] = spec.get("resourceClaims") or ()
    if claims:
        _claims(claims, pod, f"{path}.resourceClaims", errors)
    around = container_rules.Surroundings(
        volumes=valid,
        claims=frozenset(claim.get("name", "") for claim in claims),
        restart_policy=spec.get("restartPolicy", ""),
        grace=spec.get("terminationGracePeriodSeconds"),
        os=spec["os"].get("name") if "os" in spec else None,
        host_users=spec.get("hostUsers", True),
        is_pod=pod is not None,
    )
    regular: Sequence[Object] = spec.get("containers") or ()
    container_rules.containers(regular, around, f"{path}.containers", errors)
    starters: Sequence[Object] = spec.get("initContainers") or ()
    if starters:
        container_rules.init_containers(starters, regular, around, f"{path}.initContainers", errors)
    if ephemeral := spec.get("ephemeralContainers"):
        others = [*regular, *starters]
        container_rules.ephemeral_containers(ephemeral, others, around, f"{path}.ephemeralContainers", errors)


def _claims(claims: Sequence[Object], pod: Object | None, path: str, errors: Errors) -> None:
    if pod and annotation_rules.MIRROR in (pod.get("annotations") or ()):
        errors.append(forbidden("", "static pods do not support resource claims"))
    else:
        scheduling_rules.resource_claims(claims, path, errors)


def _same_service_account(spec: Object, path: str, errors: Errors) -> None:
    """The field's old name may still be used, but not for another account."""
    name, old_name = spec.get("serviceAccountName", ""), spec["serviceAccount"]
    if old_name and old_name != name:
        detail = f'must be the same as serviceAccountName: "{name}"'
        errors.append(invalid(f"{path}.deprecatedServiceAccount", old_name, detail))


def _name(check: names.Check) -> FieldCheck:
    """Returns the check of a name that may be empty."""

    def checked(text: str, path: str, errors: Errors) -> None:
        if text:
            named(check, text, path, errors)

    return checked


def _runtime_class(name: str, path: str, errors: Errors) -> None:
    named(names.dns_subdomain, name, path, errors)


def _deadline(seconds: int, path: str, errors: Errors) -> None:
    within(seconds, 1, MAX_INT32, path, errors)


def _overhead(overhead: Object, path: str, errors: Errors) -> None:
    amounts({"limits": overhead}, path, container_resource_name, errors)


_TOGETHER: Sequence[tuple[str, Callable[[Object, str, Errors], None]]] = (
    ("securityContext", pod_security),
    ("shareProcessNamespace", os_rules.shared_processes),
    ("hostUsers", os_rules.own_users),
    ("hostnameOverride", network_rules.hostname_override),
    ("serviceAccount", _same_service_account),
    ("os", os_rules.operating_system),
)
"""Fields whose rules look at other fields too."""

_ALONE: Sequence[tuple[str, FieldCheck]] = (
    ("nodeSelector", labels),
    ("affinity", affinity),
    ("readinessGates", scheduling_rules.readiness_gates),
    ("schedulingGates", scheduling_rules.scheduling_gates),
    ("topologySpreadConstraints", scheduling_rules.topology_spread),
    ("serviceAccountName", _name(names.dns_subdomain)),
    ("nodeName", _name(names.dns_subdomain)),
    ("activeDeadlineSeconds", _deadline),
    ("hostname", _name(names.dns_label)),
    ("subdomain", _name(names.dns_label)),
    ("tolerations", scheduling_rules.tolerations),
    ("hostAliases", network_rules.host_aliases),
    ("priorityClassName", _name(names.dns_subdomain)),
    ("runtimeClassName", _runtime_class),
    ("preemptionPolicy", _PREEMPTION_POLICIES.require),
    ("overhead", _overhead),
)
