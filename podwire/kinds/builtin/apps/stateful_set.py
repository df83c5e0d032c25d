"""StatefulSet: numbered pods, each with claims of its own."""

from typing import Any

from podwire.kinds.builtin.apps.template import (
    amount,
    at_most_all,
    container_cells,
    int_or_percent,
    numbers,
    status_counts,
    validate_updated,
    workload_selector,
    workload_template,
)
from podwire.kinds.field_checks import Choice, Errors, Object, named, non_negative, unchanged
from podwire.kinds.podspec.defaults import POD_TEMPLATE, default_template
from podwire.kinds.podspec.volume_defaults import default_claim_spec
from podwire.kinds.podspec.warnings import claim_warnings, template_warnings
from podwire.kinds.strategy import Strategy
from podwire.kinds.tables import Json, age_of, name_of, number, part
from podwire.objects import names
from podwire.protocols.k8sapi.status import FieldError, invalid, required

_RETENTIONS = Choice(("Retain", "Delete"))


def validate_create(obj: Object) -> list[FieldError]:
    return _spec(obj.get("spec") or {}, None)


def validate_update(new: Object, old: Object) -> list[FieldError]:
    errors = validate_updated(_spec, new, old)
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    for field in ("volumeClaimTemplates", "serviceName", "podManagementPolicy"):
        unchanged(spec.get(field), before.get(field), f"spec.{field}", errors)
    return errors


def _spec(spec: Object, before: Object | None) -> list[FieldError]:
    errors: Errors = []
    policy = spec.get("podManagementPolicy")
    if not policy:
        errors.append(required("spec.podManagementPolicy"))
    elif policy not in ("OrderedReady", "Parallel"):
        errors.append(invalid("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'"))
    _update_strategy(spec.get("updateStrategy") or {}, errors)
    for field, value in (spec.get("persistentVolumeClaimRetentionPolicy") or {}).items():
        _RETENTIONS.check(value, f"spec.persistentVolumeClaimRetentionPolicy.{field}", errors)
    numbers(spec, ("replicas", "minReadySeconds"), errors)
    if name := spec.get("serviceName"):
        named(names.dns_label, name, "spec.serviceName", errors)
    workload_selector(spec, "statefulset", errors)
    workload_template(_with_claims(spec), _with_claims(before) if before else None, "StatefulSet", errors)
    return errors


def _update_strategy(strategy: Object, errors: Errors) -> None:
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
            if amount(unavailable) == 0:
                errors.append(invalid(f"{place}.maxUnavailable", unavailable, "cannot be 0"))
            at_most_all(unavailable, f"{place}.maxUnavailable", errors)
    else:
        errors.append(invalid(path, strategy, "must be 'RollingUpdate' or 'OnDelete'"))


def _with_claims(spec: Object) -> Object:
    """Returns the template as its pods will be: with a volume for each claim template."""
    claims = [(claim.get("metadata") or {}).get("name", "") for claim in spec.get("volumeClaimTemplates") or ()]
    if not claims:
        return spec
    template = spec.get("template") or {}
    pod = template.get("spec") or {}
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]
    volumes += [volume for volume in pod.get("volumes") or () if volume.get("name") not in claims]
    return {**spec, "template": {**template, "spec": {**pod, "volumes": volumes}}}


def default(obj: dict[str, Any]) -> None:
    spec = obj["spec"]
    if not spec.get("podManagementPolicy"):
        spec["podManagementPolicy"] = "OrderedReady"
    strategy = spec["updateStrategy"]
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
        strategy.setdefault("rollingUpdate", {})
    if strategy["type"] == "RollingUpdate" and (rolling := strategy.get("rollingUpdate")) is not None:
        rolling.setdefault("partition", 0)
    retention = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
    for name in ("whenDeleted", "whenScaled"):
        if not retention.get(name):
            retention[name] = "Retain"
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    for claim in spec.get("volumeClaimTemplates") or ():
        claim.setdefault("apiVersion", "v1")
        claim.setdefault("kind", "PersistentVolumeClaim")
        default_claim_spec(claim.setdefault("spec", {}))
        claim.setdefault("status", {}).setdefault("phase", "Pending")
    default_template(spec["template"])


def row(obj: Json, now: float) -> list[Any]:
    spec, status = part(obj, "spec"), part(obj, "status")
    return [
        name_of(obj),
        f"{number(status, 'readyReplicas')}/{number(spec, 'replicas')}",
        age_of(obj, now),
        *container_cells(part(spec, "template")),
    ]


def set_warnings(new: Object, old: Object | None) -> list[str]:
    warnings = template_warnings(new, old)
    for index, claim in enumerate(new["spec"].get("volumeClaimTemplates") or ()):
        warnings += claim_warnings(claim.get("spec") or {}, f"spec.volumeClaimTemplates[{index}]")
    if (new["spec"].get("revisionHistoryLimit") or 0) < 0:
        warnings.append(
            "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended"
        )
    return warnings


STATEFUL_SET = Strategy(
    group="apps",
    kind="StatefulSet",
    check_name=names.dns_label,
    parts={"spec": {**POD_TEMPLATE, "updateStrategy": {}}, "status": {"replicas": 0, "availableReplicas": 0}},
    default=default,
    counts_generation=True,
    validate_create=validate_create,
    validate_update=validate_update,
    warnings=set_warnings,
    validate_subresources={
        "scale": validate_update,
        "status": status_counts("readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"),
    },
    columns="Name|Ready|Age|Containers*|Images*",
    row=row,
)
