"""Validation of HorizontalPodAutoscalers, with upstream's messages."""

from collections.abc import Mapping
from typing import Any

from podwire.kinds.field_checks import Errors, Object, named, non_negative
from podwire.objects import names
from podwire.objects.quantity import parse
from podwire.protocols.k8sapi.status import FieldError, forbidden, invalid, not_supported, required

MAX_PERIOD, MAX_WINDOW = 1800, 3600
SELECTIONS, POLICIES = ("Disabled", "Max", "Min"), ("Percent", "Pods")
SOURCES = {
    "Object": "object",
    "External": "external",
    "Pods": "pods",
    "Resource": "resource",
    "ContainerResource": "containerResource",
}
"""The field of each type, in upstream's order."""
TARGETS = ("Utilization", "Value", "AverageValue")


def validate_autoscaler(obj: Object) -> list[FieldError]:
    errors: Errors = []
    spec = obj.get("spec") or {}
    lowest, highest = spec.get("minReplicas"), spec.get("maxReplicas") or 0
    if lowest is not None and lowest < 1:
        errors.append(invalid("spec.minReplicas", lowest, "must be greater than or equal to 1"))
    if highest == 0:
        errors.append(required("spec.maxReplicas", "must be set and greater than 0"))
    elif highest < 0:
        errors.append(invalid("spec.maxReplicas", highest, "must be greater than or equal to 1"))
    if lowest is not None and highest < lowest:
        errors.append(invalid("spec.maxReplicas", highest, "must be greater than or equal to `minReplicas`"))
    _reference(spec.get("scaleTargetRef") or {}, "spec.scaleTargetRef", errors)
    for index, metric in enumerate(spec.get("metrics") or ()):
        _metric(metric, f"spec.metrics[{index}]", errors)
    for direction in ("scaleUp", "scaleDown"):
        if (rules := (spec.get("behavior") or {}).get(direction)) is not None:
            _rules(rules, f"spec.behavior.{direction}", errors)
    return errors


def validate_status(new: Object, _old: Object) -> list[FieldError]:
    errors: Errors = []
    for field in ("currentReplicas", "desiredReplicas"):
        non_negative((new.get("status") or {}).get(field) or 0, f"status.{field}", errors)
    return errors


def _reference(reference: Object, path: str, errors: Errors) -> None:
    for field in ("kind", "name"):
        if value := reference.get(field):
            named(names.path_segment, value, f"{path}.{field}", errors)
        else:
            errors.append(required(f"{path}.{field}"))
    version = reference.get("apiVersion") or ""
    if version.count("/") > 1:
        errors.append(invalid(f"{path}.apiVersion", version, f"unexpected GroupVersion string: {version}"))


def _metric(metric: Object, path: str, errors: Errors) -> None:
    type_ = metric.get("type") or ""
    if not type_:
        errors.append(required(f"{path}.type", "must specify a metric source type"))
    if type_ not in SOURCES:
        errors.append(not_supported(f"{path}.type", type_, sorted(SOURCES)))
    present = [field for field in SOURCES.values() if metric.get(field) is not None]
    if present:
        _SOURCE_CHECKS[present[0]](metric[present[0]], f"{path}.{present[0]}", errors)
    expected = SOURCES.get(type_, "")
    if expected and expected not in present:
        errors.append(required(f"{path}.{expected}", "must populate information for the given metric source"))
    if len(present) != 1:
        others = (field for field in present if field != expected)
        errors += (forbidden(f"{path}.{field}", "must populate the given metric source only") for field in others)


def _object(source: Object, path: str, errors: Errors) -> None:
    _reference(source.get("describedObject") or {}, f"{path}.describedObject", errors)
    _identifier(source, path, errors)
    target = _target(source, path, errors)
    if target.get("value") is None and target.get("averageValue") is None:
        errors.append(required(f"{path}.target.averageValue", "must set either a target value or averageValue"))


def _external(source: Object, path: str, errors: Errors) -> None:
    _identifier(source, path, errors)
    target = _target(source, path, errors)
    value, average = target.get("value"), target.get("averageValue")
    if value is None and average is None:
        message = "must set either a target value for metric or a per-pod target"
        errors.append(required(f"{path}.target.averageValue", message))
    elif value is not None and average is not None:
        message = "may not set both a target value for metric and a per-pod target"
        errors.append(forbidden(f"{path}.target.value", message))


def _pods(source: Object, path: str, errors: Errors) -> None:
    _identifier(source, path, errors)
    if _target(source, path, errors).get("averageValue") is None:
        errors.append(required(f"{path}.target.averageValue", "must specify a positive target averageValue"))


def _resource(source: Object, path: str, errors: Errors) -> None:
    if not source.get("name"):
        errors.append(required(f"{path}.name", "must specify a resource name"))
    _usage(source, path, errors)


def _container(source: Object, path: str, errors: Errors) -> None:
    if not source.get("name"):
        errors.append(required(f"{path}.name", "must specify a resource name"))
    if container := source.get("container"):
        named(names.dns_label, container, f"{path}.container", errors)
    else:
        errors.append(required(f"{path}.container", "must specify a container"))
    _usage(source, path, errors)


def _usage(source: Object, path: str, errors: Errors) -> None:
    target = _target(source, path, errors)
    utilization, average = target.get("averageUtilization"), target.get("averageValue")
    if utilization is None and average is None:
        message = "must set either a target raw value or a target utilization"
        errors.append(required(f"{path}.target.averageUtilization", message))
    elif utilization is not None and average is not None:
        message = "may not set both a target raw value and a target utilization"
        errors.append(forbidden(f"{path}.target.averageValue", message))


_SOURCE_CHECKS = {
    "object": _object,
    "external": _external,
    "pods": _pods,
    "resource": _resource,
    "containerResource": _container,
}


def _identifier(source: Object, path: str, errors: Errors) -> None:
    if name := (source.get("metric") or {}).get("name"):
        named(names.path_segment, name, f"{path}.metric.name", errors)
    else:
        errors.append(required(f"{path}.metric.name", "must specify a metric name"))


def _target(source: Object, path: str, errors: Errors) -> Mapping[str, Any]:
    """Checks the target of a source, and returns it."""
    target: Mapping[str, Any] = source.get("target") or {}
    path = f"{path}.target"
    type_ = target.get("type") or ""
    if not type_:
        errors.append(required(f"{path}.type", "must specify a metric target type"))
    if type_ not in TARGETS:
        errors.append(invalid(f"{path}.type", type_, "must be either Utilization, Value, or AverageValue"))
    for field in ("value", "averageValue"):
        if (value := target.get(field)) is not None and parse(str(value)).nano <= 0:
            errors.append(invalid(f"{path}.{field}", value, "must be positive"))
    if (percent := target.get("averageUtilization")) is not None and percent < 1:
        errors.append(invalid(f"{path}.averageUtilization", percent, "must be greater than 0"))
    return target


def _rules(rules: Object, path: str, errors: Errors) -> None:
    window = rules.get("stabilizationWindowSeconds")
    if window is not None and window < 0:
        errors.append(invalid(f"{path}.stabilizationWindowSeconds", window, "must be greater than or equal to zero"))
    if window is not None and window > MAX_WINDOW:
        message = f"must be less than or equal to {MAX_WINDOW}"
        errors.append(invalid(f"{path}.stabilizationWindowSeconds", window, message))
    if (select := rules.get("selectPolicy")) is not None and select not in SELECTIONS:
        errors.append(not_supported(f"{path}.selectPolicy", select, SELECTIONS))
    policies = rules.get("policies") or ()
    if not policies:
        errors.append(required(f"{path}.policies", "must specify at least one Policy"))
    for index, policy in enumerate(policies):
        _policy(policy, f"{path}.policies[{index}]", errors)
    if (tolerance := rules.get("tolerance")) is not None and parse(str(tolerance)).nano < 0:
        errors.append(invalid(f"{path}.tolerance", tolerance, "must be greater than or equal to 0"))


def _policy(policy: Object, path: str, errors: Errors) -> None:
    if policy.get("type") not in POLICIES:
        errors.append(not_supported(f"{path}.type", policy.get("type") or "", POLICIES))
    for field in ("value", "periodSeconds"):
        if (policy.get(field) or 0) <= 0:
            errors.append(invalid(f"{path}.{field}", policy.get(field) or 0, "must be greater than zero"))
    if (period := policy.get("periodSeconds") or 0) > MAX_PERIOD:
        errors.append(invalid(f"{path}.periodSeconds", period, f"must be less than or equal to {MAX_PERIOD}"))
