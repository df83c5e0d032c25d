"""PodDisruptionBudgets: one limit, and a selector that evictions can rely on."""

from podwire.kinds.validation.pod_values import Errors, Object, label_selector, non_negative
from podwire.kinds.validation.rules import Rules
from podwire.kinds.validation.workloads import at_most_all, int_or_percent
from podwire.protocols.k8sapi.status import FieldError, invalid, not_supported

_POLICIES = ("IfHealthyBudget", "AlwaysAllow")
_COUNTS = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")


def create(obj: Object) -> list[FieldError]:
    errors: Errors = []
    spec = obj.get("spec") or {}
    if "minAvailable" in spec and "maxUnavailable" in spec:
        errors.append(invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set"))
    for field in ("minAvailable", "maxUnavailable"):
        if field in spec:
            int_or_percent(spec[field], f"spec.{field}", errors)
            at_most_all(spec[field], f"spec.{field}", errors)
    label_selector(spec.get("selector"), "spec.selector", errors)
    policy = spec.get("unhealthyPodEvictionPolicy", _POLICIES[0])
    if policy not in _POLICIES:
        errors.append(not_supported("spec.unhealthyPodEvictionPolicy", policy, _POLICIES))
    return errors


def update(new: Object, _old: Object) -> list[FieldError]:
    return create(new)


def update_status(new: Object, _old: Object) -> list[FieldError]:
    errors: Errors = []
    for field in _COUNTS:
        non_negative((new.get("status") or {}).get(field) or 0, f"status.{field}", errors)
    return errors


RULES = {("policy", "PodDisruptionBudget"): Rules(create, update, {"status": update_status})}
