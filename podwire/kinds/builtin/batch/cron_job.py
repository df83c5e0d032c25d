"""CronJob: a schedule, and a template whose Jobs end."""

from typing import Any

from podwire.kinds.builtin.apps.template import container_cells
from podwire.kinds.builtin.batch.job import default_failure_policy, job_spec, spec_warnings
from podwire.kinds.field_checks import Choice, Errors, Object, non_negative
from podwire.kinds.podspec.defaults import POD_TEMPLATE, default_template
from podwire.kinds.podspec.warnings import name_warnings
from podwire.kinds.strategy import Strategy
from podwire.kinds.tables import NONE, UNSET, Json, age_of, count, name_of, part, selector_text, since, text
from podwire.objects import cron
from podwire.protocols.k8sapi.status import FieldError, invalid, not_supported, required

LONGEST_CRON_NAME = 52
_CONCURRENCY = Choice(("Allow", "Forbid", "Replace"))


def validate_create(obj: Object) -> list[FieldError]:
    errors = _spec(obj.get("spec") or {}, {})
    name = (obj.get("metadata") or {}).get("name", "")
    if len(name) > LONGEST_CRON_NAME:  # its Jobs are named after it, with eleven characters more
        errors.append(invalid("metadata.name", name, f"must be no more than {LONGEST_CRON_NAME} characters"))
    return errors


def validate_update(new: Object, old: Object) -> list[FieldError]:
    return _spec(new.get("spec") or {}, old.get("spec") or {})


def _spec(spec: Object, before: Object) -> list[FieldError]:
    errors: Errors = []
    _schedule(spec, before, errors)
    for field in ("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"):
        non_negative(spec.get(field) or 0, f"spec.{field}", errors)
    zone = spec.get("timeZone")
    if zone is not None and zone != before.get("timeZone"):
        _time_zone(zone, errors)
    _CONCURRENCY.require(spec.get("concurrencyPolicy"), "spec.concurrencyPolicy", errors)
    job = (spec.get("jobTemplate") or {}).get("spec") or {}
    errors += job_spec(job, "spec.jobTemplate.spec")
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
    try:
        cron.parse(schedule)
    except ValueError as error:
        errors.append(invalid(path, schedule, str(error)))


def _time_zone(zone: str, errors: Errors) -> None:
    path = "spec.timeZone"
    if not zone:
        errors.append(invalid(path, zone, "timeZone must be nil or non-empty string"))
    elif zone.lower() == "local":
        errors.append(
            invalid(path, zone, "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones")
        )
    else:
        try:
            cron.zone_of(zone)
        except ValueError as error:
            errors.append(invalid(path, zone, str(error)))


def default(obj: dict[str, Any]) -> None:
    """The Job inside is completed when it is created, not here."""
    spec = obj["spec"]
    if not spec.get("concurrencyPolicy"):
        spec["concurrencyPolicy"] = "Allow"
    spec.setdefault("suspend", False)
    spec.setdefault("successfulJobsHistoryLimit", 3)
    spec.setdefault("failedJobsHistoryLimit", 1)
    job = spec["jobTemplate"]["spec"]
    default_failure_policy(job)
    default_template(job["template"])


def row(obj: Json, now: float) -> list[Any]:
    spec, status = part(obj, "spec"), part(obj, "status")
    template = part(spec, "jobTemplate", "spec")
    suspend = spec.get("suspend")
    return [
        name_of(obj),
        text(spec, "schedule"),
        text(spec, "timeZone", NONE),
        str(suspend) if isinstance(suspend, bool) else UNSET,
        count(status, "active"),
        since(status, "lastScheduleTime", now) if status.get("lastScheduleTime") else NONE,
        age_of(obj, now),
        *container_cells(part(template, "template")),
        selector_text(template, "selector"),
    ]


def cron_job_warnings(new: Object, old: Object | None) -> list[str]:
    named = [] if old is not None else list(name_warnings(new))
    return named + spec_warnings(new, old, ("spec", "jobTemplate", "spec"))


CRON_JOB = Strategy(
    group="batch",
    kind="CronJob",
    parts={"spec": {"jobTemplate": {"metadata": {}, "spec": POD_TEMPLATE}}, "status": {}},
    default=default,
    counts_generation=True,
    validate_create=validate_create,
    validate_update=validate_update,
    warnings=cron_job_warnings,
    columns="Name|Schedule|Timezone|Suspend?|Active#|Last Schedule|Age|Containers*|Images*|Selector*",
    row=row,
)
