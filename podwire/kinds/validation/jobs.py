"""Jobs and CronJobs: how many pods, how often, and a template whose pods end."""

import re
import zoneinfo

from podwire.kinds.validation import pod_spec
from podwire.kinds.validation.pod_values import Choice, Errors, Object, label_selector, non_negative
from podwire.kinds.validation.rules import Rules, unchanged
from podwire.kinds.validation.workloads import MISMATCH, selector_matches
from podwire.protocols.k8sapi.status import FieldError, invalid, not_supported, required

MOST_PARALLEL_INDEXES = 100_000
LONGEST_CRON_NAME = 52

_COMPLETION_MODES = Choice(("NonIndexed", "Indexed"))
_ENDING = Choice(("OnFailure", "Never"))
_CONCURRENCY = Choice(("Allow", "Forbid", "Replace"))
_REPLACEMENTS = Choice(("Failed", "TerminatingOrFailed"))
_CRON_MACRO = re.compile(r"@(yearly|annually|monthly|weekly|daily|midnight|hourly|every [0-9a-z.µ]+)")
_CRON_FIELD = re.compile(r"[0-9A-Za-z*?/,-]+")
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


def create_job(obj: Object) -> list[FieldError]:
    spec = obj.get("spec") or {}
    errors = _job(spec, "spec")
    _job_selector(spec, errors)
    return errors


def update_job(new: Object, old: Object) -> list[FieldError]:
    """What a Job runs stays; while it is suspended and has not started, where its pods may run can still change."""
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    if spec == before:
        return []
    errors = create_job(new)
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
    """The template without what may change before the Job starts."""
    template = spec.get("template") or {}
    pod = dict(template.get("spec") or {})
    for field in ("nodeSelector", "affinity", "tolerations", "schedulingGates", "topologySpreadConstraints"):
        pod.pop(field, None)
    return {"spec": pod}


def _job(spec: Object, path: str) -> list[FieldError]:
    errors: Errors = []
    for field in _COUNTS:
        non_negative(spec.get(field) or 0, f"{path}.{field}", errors)
    if (mode := spec.get("completionMode")) is not None:
        _COMPLETION_MODES.check(mode, f"{path}.completionMode", errors)
    _indexes(spec, path, errors)
    if (policy := spec.get("podReplacementPolicy")) is not None:
        _REPLACEMENTS.check(policy, f"{path}.podReplacementPolicy", errors)
    template = spec.get("template") or {}
    errors += pod_spec.validate_template(template, f"{path}.template")
    _restart_policy(spec, (template.get("spec") or {}).get("restartPolicy"), path, errors)
    return errors


def _indexes(spec: Object, path: str, errors: Errors) -> None:
    if spec.get("completionMode") == "Indexed":
        if spec.get("completions") is None:
            errors.append(required(f"{path}.completions", "when completion mode is Indexed"))
        if (spec.get("parallelism") or 0) > MOST_PARALLEL_INDEXES:
            detail = f"must be less than or equal to {MOST_PARALLEL_INDEXES} when completion mode is Indexed"
            errors.append(invalid(f"{path}.parallelism", spec["parallelism"], detail))
    else:
        for field in ("backoffLimitPerIndex", "maxFailedIndexes", "successPolicy"):
            if spec.get(field) is not None:
                errors.append(invalid(f"{path}.{field}", spec[field], "requires indexed completion mode"))
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        errors.append(required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified"))


def _restart_policy(spec: Object, policy: str | None, path: str, errors: Errors) -> None:
    place = f"{path}.template.spec.restartPolicy"
    if policy in (None, "", "Always"):
        errors.append(required(place, 'valid values: "OnFailure", "Never"'))
    elif spec.get("podFailurePolicy") and policy == "OnFailure":
        detail = 'only "Never" is supported when podFailurePolicy is specified'
        errors.append(invalid(place, policy, detail))
    else:
        _ENDING.check(policy, place, errors)


def _job_selector(spec: Object, errors: Errors) -> None:
    selector = spec.get("selector")
    if selector is None:
        errors.append(required("spec.selector"))
    label_selector(selector, "spec.selector", errors)
    given = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    if not selector_matches(selector, given or {}):
        errors.append(invalid("spec.template.metadata.labels", given, MISMATCH))


def create_cron_job(obj: Object) -> list[FieldError]:
    errors = _cron_job(obj.get("spec") or {}, {})
    name = (obj.get("metadata") or {}).get("name", "")
    if len(name) > LONGEST_CRON_NAME:  # its Jobs are named after it, with eleven characters more
        errors.append(invalid("metadata.name", name, f"must be no more than {LONGEST_CRON_NAME} characters"))
    return errors


def update_cron_job(new: Object, old: Object) -> list[FieldError]:
    return _cron_job(new.get("spec") or {}, old.get("spec") or {})


def _cron_job(spec: Object, before: Object) -> list[FieldError]:
    errors: Errors = []
    _schedule(spec, before, errors)
    for field in ("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"):
        non_negative(spec.get(field) or 0, f"spec.{field}", errors)
    zone = spec.get("timeZone")
    if zone is not None and zone != before.get("timeZone"):
        _time_zone(zone, errors)
    _CONCURRENCY.require(spec.get("concurrencyPolicy"), "spec.concurrencyPolicy", errors)
    job = (spec.get("jobTemplate") or {}).get("spec") or {}
    errors += _job(job, "spec.jobTemplate.spec")
    if job.get("selector") is not None:
        path = "spec.jobTemplate.spec.selector"
        errors.append(invalid(path, job["selector"], "`selector` will be auto-generated"))
    if job.get("manualSelector"):
        errors.append(not_supported("spec.jobTemplate.spec.manualSelector", True, ("nil", "false")))
    return errors


def _schedule(spec: Object, before: Object, errors: Errors) -> None:
    schedule, path = spec.get("schedule") or "", "spec.schedule"
    if not schedule:
        errors.append(required(path))
        return
    if "TZ" in schedule and "TZ" not in (before.get("schedule") or ""):
        detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        errors.append(invalid(path, schedule, detail))
        return
    fields = schedule.split()
    if schedule.startswith("@"):
        if not _CRON_MACRO.fullmatch(schedule):
            errors.append(invalid(path, schedule, f"unrecognized descriptor: {schedule}"))
    elif len(fields) != 5:
        detail = f"expected exactly 5 fields, found {len(fields)}: [{' '.join(fields)}]"
        errors.append(invalid(path, schedule, detail))
    else:
        bad = [each for each in fields if not _CRON_FIELD.fullmatch(each)]
        errors += [invalid(path, schedule, f"failed to parse int from {each}") for each in bad]


def _time_zone(zone: str, errors: Errors) -> None:
    path = "spec.timeZone"
    if not zone:
        errors.append(invalid(path, zone, "timeZone must be nil or non-empty string"))
    elif zone.lower() == "local":
        errors.append(
            invalid(path, zone, "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones")
        )
    elif not _known(zone):
        errors.append(invalid(path, zone, f"unknown time zone {zone}"))


def _known(zone: str) -> bool:
    try:
        zoneinfo.ZoneInfo(zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


RULES = {
    ("batch", "CronJob"): Rules(create_cron_job, update_cron_job),
    ("batch", "Job"): Rules(create_job, update_job),
}
