"""Rules that the kinds with a pod template share: a selector that matches the template and stays, counts in the status,
numbers and percentages."""

from collections.abc import Mapping
from typing import Any

from podwire.kinds.field_checks import Choice, Errors, Object, label_selector, named, non_negative, unchanged
from podwire.kinds.podspec import validation
from podwire.kinds.strategy import Update
from podwire.kinds.tables import Json, age_of, elements, name_of, number, part, text
from podwire.objects import names, selectors
from podwire.protocols.k8sapi.status import FieldError, forbidden, invalid, required

MISMATCH = "`selector` does not match template `labels`"
_ALWAYS = Choice(("Always",))


def validate_updated(check: Any, new: Object, old: Object) -> list[FieldError]:
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    errors: Errors = list(check(spec, before))
    unchanged(spec.get("selector"), before.get("selector"), "spec.selector", errors)
    return errors


def numbers(spec: Object, fields: tuple[str, ...], errors: Errors) -> None:
    for field in fields:
        non_negative(spec.get(field) or 0, f"spec.{field}", errors)


def workload_selector(spec: Object, kind: str, errors: Errors) -> None:
    selector = spec.get("selector")
    if selector is None:
        errors.append(required("spec.selector"))
        return
    label_selector(selector, "spec.selector", errors)
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        errors.append(invalid("spec.selector", selector, f"empty selector is invalid for {kind}"))


def workload_template(spec: Object, before: Object | None, kind: str, errors: Errors) -> None:
    template = spec.get("template") or {}
    given = (template.get("metadata") or {}).get("labels")
    if not selector_matches(spec.get("selector"), given or {}):
        errors.append(invalid("spec.template.metadata.labels", given, MISMATCH))
    template_itself(template, (before or {}).get("template"), kind, errors)


def selector_matches(selector: Mapping[str, Any] | None, given: Mapping[str, str]) -> bool:
    """Returns whether a selector matches labels; true for an invalid one, which is reported elsewhere."""
    try:
        return selectors.from_object(selector).matches(given)
    except ValueError:
        return True


def template_itself(template: Object, before: Object | None, kind: str, errors: Errors) -> None:
    if template == before:  # it was valid when it was stored
        return
    errors += validation.validate_template(template, "spec.template")
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


def amount(value: int | str) -> int:
    """Returns the number or the percentage; 0 for what is neither. A percentage of many digits is just a large one."""
    if isinstance(value, str):
        digits = value[:-1].lstrip("0") if not names.percent(value) else ""
        return int(digits[:9] or 0)
    return value


def at_most_all(value: int | str, path: str, errors: Errors) -> None:
    if isinstance(value, str) and amount(value) > 100:
        errors.append(invalid(path, value, "must not be greater than 100%"))


def status_counts(*counts: str) -> Update:
    """Returns the check that these counts are not negative and not above status.replicas."""

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


def container_cells(pod_template: Json) -> tuple[str, str]:
    """Returns the names and the images of a template's containers."""
    containers = elements(part(pod_template, "spec"), "containers")
    return ",".join(text(container, "name") for container in containers), ",".join(
        text(container, "image") for container in containers
    )


REPLICA_COLUMNS = "Name|Desired#|Current#|Ready#|Age|Containers*|Images*|Selector*"


def replica_cells(obj: Json, now: float) -> list[Any]:
    status = part(obj, "status")
    return [
        name_of(obj),
        number(part(obj, "spec"), "replicas"),
        number(status, "replicas"),
        number(status, "readyReplicas"),
        age_of(obj, now),
        *container_cells(part(obj, "spec", "template")),
    ]


REPLICA_STATUS = status_counts("fullyLabeledReplicas", "readyReplicas", "availableReplicas")
"""The status of a ReplicaSet and of a ReplicationController."""
