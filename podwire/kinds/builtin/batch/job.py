"""Job: how many pods run to their end, and how often they are tried."""

from typing import Any

from podwire.kinds.builtin.apps.template import MISMATCH, container_cells, selector_matches
from podwire.kinds.builtin.batch.job_policies import failure_policy, success_policy
from podwire.kinds.field_checks import (
    Choice,
    Errors,
    Object,
    domain_prefixed_path,
    label_selector,
    non_negative,
    unchanged,
)
from podwire.kinds.podspec import validation
from podwire.kinds.podspec.defaults import POD_TEMPLATE, default_template
from podwire.kinds.podspec.warnings import name_warnings, template_warnings
from podwire.kinds.strategy import Strategy, selectable
from podwire.kinds.tables import Json, age_of, condition, is_deleted, moment, name_of, number, part, selector_text
from podwire.objects import names
from podwire.objects.times import human_duration
from podwire.protocols.k8sapi.status import FieldError, invalid, required, too_long

MOST_PARALLEL_INDEXES = 100_000
_COMPLETION_MODES = Choice(("NonIndexed", "Indexed"))
_ENDING = Choice(("OnFailure", "Never"))
_REPLACEMENTS, _ONLY_FAILED = Choice(("Failed", "TerminatingOrFailed")), Choice(("Failed",))
LONGEST_MANAGER = 63
MOST_COMPLETIONS, MOST_PARALLEL, MOST_FAILED = 100_000, 10_000, 10_000
"""Above so many completions, a back-off limit per index allows less parallelism and fewer failed indexes."""
_COUNTS = (
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
)
_KEPT = (
    "selector",
    "template",
    "completionMode",
    "podFailurePolicy",
    "backoffLimitPerIndex",
    "managedBy",
    "successPolicy",
)

ENDLESS = 2**31 - 1


def validate_create(obj: Object) -> list[FieldError]:
    errors = _validate(obj)
    name, spec = (obj.get("metadata") or {}).get("name", ""), obj.get("spec") or {}
    if spec.get("completionMode") == "Indexed" and (spec.get("completions") or 0) > 0:
        hostname = f"{name}-{spec['completions'] - 1}"
        if names.dns_label(hostname):
            detail = f"will not able to create pod with invalid DNS label: {hostname}"
            errors.append(invalid("metadata.name", name, detail))
    return errors


def _validate(obj: Object) -> list[FieldError]:
    spec = obj.get("spec") or {}
    errors = job_spec(spec, "spec")
    selector = spec.get("selector")
    if selector is None:
        errors.append(required("spec.selector"))
    label_selector(selector, "spec.selector", errors)
    given = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    if not selector_matches(selector, given or {}):
        errors.append(invalid("spec.template.metadata.labels", given, MISMATCH))
    return errors


def validate_update(new: Object, old: Object) -> list[FieldError]:
    """Rejects changes of the pods that a Job runs; scheduling fields may change while it is suspended and not
    started."""
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    if spec == before:
        return []
    errors = _validate(new)
    indexed = spec.get("completionMode") == "Indexed"
    resized = indexed and spec.get("completions") == spec.get("parallelism")
    if not resized:
        unchanged(spec.get("completions"), before.get("completions"), "spec.completions", errors)
    movable = before.get("suspend") and not (old.get("status") or {}).get("startTime")
    for field in _KEPT:
        if field == "template" and movable:
            unchanged(_unmoved(spec), _unmoved(before), "spec.template", errors)
        else:
            unchanged(spec.get(field), before.get(field), f"spec.{field}", errors)
    return errors


def _unmoved(spec: Object) -> Object:
    """Returns the template without what may change before the Job starts."""
    template = spec.get("template") or {}
    pod = dict(template.get("spec") or {})
    for field in ("nodeSelector", "affinity", "tolerations", "schedulingGates", "topologySpreadConstraints"):
        pod.pop(field, None)
    return {"spec": pod}


def job_spec(spec: Object, path: str) -> list[FieldError]:
    errors: Errors = []
    for field in _COUNTS:
        non_negative(spec.get(field) or 0, f"{path}.{field}", errors)
    if (mode := spec.get("completionMode")) is not None:
        _COMPLETION_MODES.check(mode, f"{path}.completionMode", errors)
    _indexes(spec, path, errors)
    _managed_by(spec.get("managedBy"), f"{path}.managedBy", errors)
    if spec.get("podFailurePolicy") is not None:
        failure_policy(spec, f"{path}.podFailurePolicy", errors)
    if spec.get("successPolicy") is not None and spec.get("completionMode") == "Indexed":
        success_policy(spec, f"{path}.successPolicy", errors)
    if (policy := spec.get("podReplacementPolicy")) is not None:
        allowed = _REPLACEMENTS if spec.get("podFailurePolicy") is None else _ONLY_FAILED
        allowed.check(policy, f"{path}.podReplacementPolicy", errors)
    template = spec.get("template") or {}
    errors += validation.validate_template(template, f"{path}.template")
    _restart_policy(spec, (template.get("spec") or {}).get("restartPolicy"), path, errors)
    return errors


def _indexes(spec: Object, path: str, errors: Errors) -> None:
    if spec.get("completionMode") == "Indexed":
        if spec.get("completions") is None:
            errors.append(required(f"{path}.completions", "when completion mode is Indexed"))
        if (spec.get("parallelism") or 0) > MOST_PARALLEL_INDEXES:
            detail = f"must be less than or equal to {MOST_PARALLEL_INDEXES} when completion mode is Indexed"
            errors.append(invalid(f"{path}.parallelism", spec["parallelism"], detail))
        _index_limits(spec, path, errors)
    else:
        for field in ("backoffLimitPerIndex", "maxFailedIndexes", "successPolicy"):
            if spec.get(field) is not None:
                errors.append(invalid(f"{path}.{field}", spec[field], "requires indexed completion mode"))
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        errors.append(required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified"))


def _index_limits(spec: Object, path: str, errors: Errors) -> None:
    """Limits what `completedIndexes` and `failedIndexes` can grow to."""
    completions, most = spec.get("completions"), spec.get("maxFailedIndexes")
    place = f"{path}.maxFailedIndexes"
    if completions is not None and most is not None and most > completions:
        errors.append(invalid(place, most, "must be less than or equal to completions"))
    if most is not None and most > MOST_PARALLEL_INDEXES:
        errors.append(invalid(place, most, f"must be less than or equal to {MOST_PARALLEL_INDEXES}"))
    if (completions or 0) <= MOST_COMPLETIONS or spec.get("backoffLimitPerIndex") is None:
        return
    high = f"when completions are above {MOST_COMPLETIONS} and used with backoff limit per index"
    if most is None:
        errors.append(required(place, f"must be specified when completions is above {MOST_COMPLETIONS}"))
    elif most > MOST_FAILED:
        errors.append(invalid(place, most, f"must be less than or equal to {MOST_FAILED} {high}"))
    if (parallelism := spec.get("parallelism") or 0) > MOST_PARALLEL:
        detail = f"must be less than or equal to {MOST_PARALLEL} {high}"
        errors.append(invalid(f"{path}.parallelism", parallelism, detail))


def _managed_by(manager: str | None, path: str, errors: Errors) -> None:
    if manager is None:
        return
    domain_prefixed_path(manager, path, errors)
    if len(manager) > LONGEST_MANAGER:
        errors.append(too_long(path, LONGEST_MANAGER))


def _restart_policy(spec: Object, policy: str | None, path: str, errors: Errors) -> None:
    place = f"{path}.template.spec.restartPolicy"
    if policy in (None, "", "Always"):
        errors.append(required(place, 'valid values: "OnFailure", "Never"'))
    elif spec.get("podFailurePolicy") and policy == "OnFailure":
        detail = 'only "Never" is supported when podFailurePolicy is specified'
        errors.append(invalid(place, policy, detail))
    else:
        _ENDING.check(policy, place, errors)


def default(obj: dict[str, Any]) -> None:
    spec = obj["spec"]
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", ENDLESS if spec.get("backoffLimitPerIndex") is not None else 6)
    labels = spec["template"]["metadata"].get("labels")
    if labels and not obj["metadata"].get("labels"):
        obj["metadata"]["labels"] = dict(labels)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("podReplacementPolicy", "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed")
    spec.setdefault("manualSelector", False)
    default_failure_policy(spec)
    default_template(spec["template"])


def default_failure_policy(spec: dict[str, Any]) -> None:
    for rule in (spec.get("podFailurePolicy") or {}).get("rules") or ():
        for pattern in rule.get("onPodConditions") or ():
            if not pattern.get("status"):
                pattern["status"] = "True"


def prepare_create(obj: dict[str, Any]) -> None:
    """Gives a Job a selector by its uid, unless manualSelector is set."""
    spec, metadata = obj["spec"], obj["metadata"]
    if spec.get("manualSelector"):
        return
    labels = spec["template"]["metadata"].setdefault("labels", {})
    for prefix in ("", "batch.kubernetes.io/"):
        labels.setdefault(f"{prefix}job-name", metadata.get("name", ""))
        labels.setdefault(f"{prefix}controller-uid", metadata.get("uid", ""))
    matched = spec.setdefault("selector", {}).setdefault("matchLabels", {})
    matched.setdefault("batch.kubernetes.io/controller-uid", metadata.get("uid", ""))


def row(obj: Json, now: float) -> list[Any]:
    spec = part(obj, "spec")
    return [
        name_of(obj),
        _job_status(obj),
        _completions(obj),
        _job_duration(part(obj, "status"), now),
        age_of(obj, now),
        *container_cells(part(spec, "template")),
        selector_text(spec, "selector"),
    ]


def _job_status(obj: Json) -> str:
    def holds(kind: str) -> bool:
        return condition(part(obj, "status"), kind).get("status") == "True"

    for kind in ("Complete", "Failed"):
        if holds(kind):
            return kind
    if is_deleted(obj):
        return "Terminating"
    if holds("Suspended"):
        return "Suspended"
    return "FailureTarget" if holds("FailureTarget") else "Running"


def _completions(obj: Json) -> str:
    spec, succeeded = part(obj, "spec"), number(part(obj, "status"), "succeeded")
    if "completions" in spec:
        return f"{succeeded}/{number(spec, 'completions')}"
    parallelism = number(spec, "parallelism")
    return f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"


def _job_duration(status: Json, now: float) -> str:
    started = moment(status, "startTime")
    if started is None:
        return ""
    ended = moment(status, "completionTime")
    return human_duration((now if ended is None else ended) - started)


COMPLETIONS_SOFT_LIMIT, PARALLELISM_SOFT_LIMIT = 100_000, 10_000
"""Above both of them, the indexes that failed may not fit into the status."""


def spec_warnings(new: Object, old: Object | None, path: tuple[str, ...]) -> list[str]:
    """Returns the warnings about the Job spec at a path, which is that of a Job or of a CronJob's template."""
    if old is not None and old["metadata"].get("generation") == new["metadata"].get("generation"):
        return []
    spec: Any = new
    for name in path:
        spec = spec.get(name) or {}
    warnings = []
    if (
        spec.get("completionMode") == "Indexed"
        and (spec.get("completions") or 0) > COMPLETIONS_SOFT_LIMIT
        and (spec.get("parallelism") or 0) > PARALLELISM_SOFT_LIMIT
    ):
        warnings.append(
            f"{'.'.join(path)}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher "
            "than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
        )
    return warnings + template_warnings(new, old, (*path, "template"))


def job_warnings(new: Object, old: Object | None) -> list[str]:
    named = [] if old is not None else list(name_warnings(new))
    return named + spec_warnings(new, old, ("spec",))


JOB = Strategy(
    group="batch",
    kind="Job",
    parts={"spec": POD_TEMPLATE, "status": {}},
    default=default,
    prepare_create=prepare_create,
    counts_generation=True,
    validate_create=validate_create,
    validate_update=validate_update,
    warnings=job_warnings,
    selectable=(selectable("status.successful", stored="status.succeeded", absent="0"),),
    columns="Name|Status|Completions|Duration|Age|Containers*|Images*|Selector*",
    row=row,
)
