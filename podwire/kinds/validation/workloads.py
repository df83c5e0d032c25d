"""Kinds that keep pods from a template running: a selector that matches the template and stays, and a way to roll."""

from collections.abc import Mapping
from typing import Any

from podwire.kinds.validation import pod_spec
from podwire.kinds.validation.pod_values import Choice, Errors, Object, label_selector, named, non_negative
from podwire.kinds.validation.rules import Rules, Update, nothing, unchanged
from podwire.objects import names, selectors
from podwire.protocols.k8sapi.status import FieldError, Problem, forbidden, invalid, required

MISMATCH = "`selector` does not match template `labels`"

_ALWAYS = Choice(("Always",))
_DEPLOYMENT_STRATEGIES = Choice(("Recreate", "RollingUpdate"))
_DAEMON_STRATEGIES = Choice(("RollingUpdate", "OnDelete"))
_RETENTIONS = Choice(("Retain", "Delete"))


def create_deployment(obj: Object) -> list[FieldError]:
    return _deployment(obj.get("spec") or {}, None)


def update_deployment(new: Object, old: Object) -> list[FieldError]:
    return _updated(_deployment, new, old)


def _deployment(spec: Object, before: Object | None) -> list[FieldError]:
    errors: Errors = []
    _numbers(spec, ("replicas",), errors)
    _selector(spec, "deployment", errors)
    _template(spec, before, "ReplicaSet", errors)
    _deployment_strategy(spec.get("strategy") or {}, errors)
    _numbers(spec, ("minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"), errors)
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None and deadline <= (spec.get("minReadySeconds") or 0):
        errors.append(invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds"))
    return errors


def _deployment_strategy(strategy: Object, errors: Errors) -> None:
    kind, rolling, path = strategy.get("type"), strategy.get("rollingUpdate"), "spec.strategy"
    if kind == "Recreate":
        if rolling is not None:
            detail = "may not be specified when strategy `type` is 'Recreate'"
            errors.append(forbidden(f"{path}.rollingUpdate", detail))
    elif kind == "RollingUpdate":
        rolling, place = rolling or {}, f"{path}.rollingUpdate"
        unavailable, surge = rolling.get("maxUnavailable", 0), rolling.get("maxSurge", 0)
        int_or_percent(unavailable, f"{place}.maxUnavailable", errors)
        int_or_percent(surge, f"{place}.maxSurge", errors)
        if _amount(unavailable) == 0 and _amount(surge) == 0:
            errors.append(invalid(f"{place}.maxUnavailable", unavailable, "may not be 0 when `maxSurge` is 0"))
        at_most_all(unavailable, f"{place}.maxUnavailable", errors)
    else:
        errors.append(FieldError(Problem.NOT_SUPPORTED, path, strategy, _DEPLOYMENT_STRATEGIES.detail))


def create_replica_set(obj: Object) -> list[FieldError]:
    return _replica_set(obj.get("spec") or {}, None)


def update_replica_set(new: Object, old: Object) -> list[FieldError]:
    return _updated(_replica_set, new, old)


def _replica_set(spec: Object, before: Object | None) -> list[FieldError]:
    errors: Errors = []
    _numbers(spec, ("replicas", "minReadySeconds"), errors)
    _selector(spec, "deployment", errors)  # the word that upstream uses for both
    _template(spec, before, "ReplicaSet", errors)
    return errors


def create_daemon_set(obj: Object) -> list[FieldError]:
    return _daemon_set(obj.get("spec") or {}, None)


def update_daemon_set(new: Object, old: Object) -> list[FieldError]:
    return _updated(_daemon_set, new, old)


def _daemon_set(spec: Object, before: Object | None) -> list[FieldError]:
    errors: Errors = []
    _selector(spec, "daemonset", errors)
    _template(spec, before, "DaemonSet", errors)
    _numbers(spec, ("minReadySeconds", "revisionHistoryLimit"), errors)
    strategy = spec.get("updateStrategy") or {}
    if strategy.get("type") == "RollingUpdate":
        _daemon_rolling(strategy.get("rollingUpdate") or {}, errors)
    elif strategy.get("type") != "OnDelete":
        errors.append(FieldError(Problem.NOT_SUPPORTED, "spec.updateStrategy", strategy, _DAEMON_STRATEGIES.detail))
    return errors


def _daemon_rolling(rolling: Object, errors: Errors) -> None:
    path = "spec.updateStrategy.rollingUpdate"
    unavailable, surge = rolling.get("maxUnavailable", 0), rolling.get("maxSurge", 0)
    for value, field in ((unavailable, "maxUnavailable"), (surge, "maxSurge")):
        int_or_percent(value, f"{path}.{field}", errors)
        at_most_all(value, f"{path}.{field}", errors)
    if _amount(unavailable) and _amount(surge):
        errors.append(invalid(f"{path}.maxSurge", surge, "may not be set when maxUnavailable is non-zero"))
    elif not _amount(unavailable) and not _amount(surge):
        errors.append(required(f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0"))


def create_stateful_set(obj: Object) -> list[FieldError]:
    return _stateful_set(obj.get("spec") or {}, None)


def update_stateful_set(new: Object, old: Object) -> list[FieldError]:
    errors = _updated(_stateful_set, new, old)
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    for field in ("volumeClaimTemplates", "serviceName", "podManagementPolicy"):
        unchanged(spec.get(field), before.get(field), f"spec.{field}", errors)
    return errors


def _stateful_set(spec: Object, before: Object | None) -> list[FieldError]:
    errors: Errors = []
    policy = spec.get("podManagementPolicy")
    if not policy:
        errors.append(required("spec.podManagementPolicy"))
    elif policy not in ("OrderedReady", "Parallel"):
        errors.append(invalid("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'"))
    _stateful_strategy(spec.get("updateStrategy") or {}, errors)
    for field, value in (spec.get("persistentVolumeClaimRetentionPolicy") or {}).items():
        _RETENTIONS.check(value, f"spec.persistentVolumeClaimRetentionPolicy.{field}", errors)
    _numbers(spec, ("replicas", "minReadySeconds"), errors)
    if name := spec.get("serviceName"):
        named(names.dns_label, name, "spec.serviceName", errors)
    _selector(spec, "statefulset", errors)
    _template(_with_claims(spec), _with_claims(before) if before else None, "StatefulSet", errors)
    return errors


def _stateful_strategy(strategy: Object, errors: Errors) -> None:
    kind, rolling, path = strategy.get("type"), strategy.get("rollingUpdate"), "spec.updateStrategy"
    if not kind:
        errors.append(required(path))
    elif kind == "OnDelete":
        if rolling is not None:
            detail = "only allowed for updateStrategy 'RollingUpdate'"
            errors.append(invalid(f"{path}.rollingUpdate", rolling, detail))
    elif kind == "RollingUpdate":
        place = f"{path}.rollingUpdate"
        non_negative((rolling or {}).get("partition") or 0, f"{place}.partition", errors)
        if (unavailable := (rolling or {}).get("maxUnavailable")) is not None:
            int_or_percent(unavailable, f"{place}.maxUnavailable", errors)
            if _amount(unavailable) == 0:
                errors.append(invalid(f"{place}.maxUnavailable", unavailable, "cannot be 0"))
            at_most_all(unavailable, f"{place}.maxUnavailable", errors)
    else:
        errors.append(invalid(path, strategy, "must be 'RollingUpdate' or 'OnDelete'"))


def _with_claims(spec: Object) -> Object:
    """The template as its pods will be: with a volume for each claim template."""
    claims = [(each.get("metadata") or {}).get("name", "") for each in spec.get("volumeClaimTemplates") or ()]
    if not claims:
        return spec
    template = spec.get("template") or {}
    pod = template.get("spec") or {}
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]
    volumes += [each for each in pod.get("volumes") or () if each.get("name") not in claims]
    return {**spec, "template": {**template, "spec": {**pod, "volumes": volumes}}}


def create_replication_controller(obj: Object) -> list[FieldError]:
    return _replication_controller(obj.get("spec") or {}, None)


def update_replication_controller(new: Object, old: Object) -> list[FieldError]:
    return _replication_controller(new.get("spec") or {}, old.get("spec") or {})


def _replication_controller(spec: Object, before: Object | None) -> list[FieldError]:
    errors: Errors = []
    _numbers(spec, ("minReadySeconds", "replicas"), errors)
    wanted, template = spec.get("selector") or {}, spec.get("template")
    if not wanted:
        errors.append(required("spec.selector"))
    if template is None:
        errors.append(required("spec.template"))
        return errors
    given = (template.get("metadata") or {}).get("labels")
    if wanted and not wanted.items() <= (given or {}).items():
        errors.append(invalid("spec.template.metadata.labels", given, MISMATCH))
    _template_itself(template, (before or {}).get("template"), "ReplicationController", errors)
    return errors


def create_pod_template(obj: Object) -> list[FieldError]:
    return pod_spec.validate_template(obj.get("template") or {}, "template")


def _updated(check: Any, new: Object, old: Object) -> list[FieldError]:
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    errors: Errors = list(check(spec, before))
    unchanged(spec.get("selector"), before.get("selector"), "spec.selector", errors)
    return errors


def _numbers(spec: Object, fields: tuple[str, ...], errors: Errors) -> None:
    for field in fields:
        non_negative(spec.get(field) or 0, f"spec.{field}", errors)


def _selector(spec: Object, kind: str, errors: Errors) -> None:
    selector = spec.get("selector")
    if selector is None:
        errors.append(required("spec.selector"))
        return
    label_selector(selector, "spec.selector", errors)
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        errors.append(invalid("spec.selector", selector, f"empty selector is invalid for {kind}"))


def _template(spec: Object, before: Object | None, kind: str, errors: Errors) -> None:
    template = spec.get("template") or {}
    given = (template.get("metadata") or {}).get("labels")
    if not selector_matches(spec.get("selector"), given or {}):
        errors.append(invalid("spec.template.metadata.labels", given, MISMATCH))
    _template_itself(template, (before or {}).get("template"), kind, errors)


def selector_matches(selector: Mapping[str, Any] | None, given: Mapping[str, str]) -> bool:
    """Also true for a selector about which others have complained."""
    try:
        return selectors.from_object(selector).matches(given)
    except ValueError:
        return True


def _template_itself(template: Object, before: Object | None, kind: str, errors: Errors) -> None:
    if template == before:  # it was valid when it was stored
        return
    errors += pod_spec.validate_template(template, "spec.template")
    spec = template.get("spec") or {}
    _ALWAYS.check(spec.get("restartPolicy"), "spec.template.spec.restartPolicy", errors)
    if spec.get("activeDeadlineSeconds") is not None:
        detail = f"activeDeadlineSeconds in {kind} is not Supported"
        errors.append(forbidden("spec.template.spec.activeDeadlineSeconds", detail))


def int_or_percent(value: int | str, path: str, errors: Errors) -> None:
    if isinstance(value, str):
        named(names.percent, value, path, errors)
    else:
        non_negative(value, path, errors)


def _amount(value: int | str) -> int:
    """The number or the percentage; 0 for what is neither. A percentage of many digits is just a large one."""
    if isinstance(value, str):
        digits = value[:-1].lstrip("0") if not names.percent(value) else ""
        return int(digits[:9] or 0)
    return value


def at_most_all(value: int | str, path: str, errors: Errors) -> None:
    if isinstance(value, str) and _amount(value) > 100:
        errors.append(invalid(path, value, "must not be greater than 100%"))


def status_counts(*counts: str) -> Update:
    """None of these counts of replicas is above the number of replicas, and none negative."""

    def update_status(new: Object, _old: Object) -> list[FieldError]:
        errors: Errors = []
        status = new.get("status") or {}
        replicas = status.get("replicas") or 0
        for field in ("replicas", *counts, "observedGeneration"):
            non_negative(status.get(field) or 0, f"status.{field}", errors)
        for field in counts:
            if (count := status.get(field) or 0) > replicas:
                errors.append(invalid(f"status.{field}", count, "cannot be greater than status.replicas"))
        available, ready = status.get("availableReplicas") or 0, status.get("readyReplicas") or 0
        if available > ready:
            errors.append(invalid("status.availableReplicas", available, "cannot be greater than readyReplicas"))
        return errors

    return update_status


_OF_SET = status_counts("fullyLabeledReplicas", "readyReplicas", "availableReplicas")
_OF_DEPLOYMENT = status_counts("updatedReplicas", "readyReplicas", "availableReplicas")
_OF_STATEFUL = status_counts("readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas")

RULES = {
    ("", "PodTemplate"): Rules(create_pod_template, nothing),
    ("", "ReplicationController"): Rules(
        create_replication_controller,
        update_replication_controller,
        {"scale": update_replication_controller, "status": _OF_SET},
    ),
    ("apps", "DaemonSet"): Rules(create_daemon_set, update_daemon_set),
    ("apps", "Deployment"): Rules(
        create_deployment, update_deployment, {"scale": update_deployment, "status": _OF_DEPLOYMENT}
    ),
    ("apps", "ReplicaSet"): Rules(
        create_replica_set, update_replica_set, {"scale": update_replica_set, "status": _OF_SET}
    ),
    ("apps", "StatefulSet"): Rules(
        create_stateful_set, update_stateful_set, {"scale": update_stateful_set, "status": _OF_STATEFUL}
    ),
}
