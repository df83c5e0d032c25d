"""Rows of what makes pods: replica sets, deployments, jobs and their kin."""

from typing import Any

from podwire.kinds.tables.pods import container_cells
from podwire.kinds.tables.selectors import selector
from podwire.kinds.tables.values import (
    INVALID,
    NONE,
    UNSET,
    Json,
    Rows,
    age,
    condition,
    count,
    deleted,
    elements,
    labels,
    moment,
    name,
    number,
    part,
    shown,
    since,
    text,
)
from podwire.objects.times import human_duration


def _replicas(obj: Json, now: float) -> list[Any]:
    status = part(obj, "status")
    return [
        name(obj),
        number(part(obj, "spec"), "replicas"),
        number(status, "replicas"),
        number(status, "readyReplicas"),
        age(obj, now),
        *container_cells(part(obj, "spec", "template")),
    ]


def replication_controller(obj: Json, now: float) -> list[Any]:
    return [*_replicas(obj, now), labels(part(obj, "spec"), "selector")]


def replica_set(obj: Json, now: float) -> list[Any]:
    return [*_replicas(obj, now), selector(part(obj, "spec"), "selector")]


def deployment(obj: Json, now: float) -> list[Any]:
    spec, status = part(obj, "spec"), part(obj, "status")
    return [
        name(obj),
        f"{number(status, 'readyReplicas')}/{number(spec, 'replicas')}",
        number(status, "updatedReplicas"),
        number(status, "availableReplicas"),
        age(obj, now),
        *container_cells(part(spec, "template")),
        selector(spec, "selector", empty="", broken=INVALID),
    ]


def stateful_set(obj: Json, now: float) -> list[Any]:
    spec, status = part(obj, "spec"), part(obj, "status")
    return [
        name(obj),
        f"{number(status, 'readyReplicas')}/{number(spec, 'replicas')}",
        age(obj, now),
        *container_cells(part(spec, "template")),
    ]


def daemon_set(obj: Json, now: float) -> list[Any]:
    spec, status = part(obj, "spec"), part(obj, "status")
    return [
        name(obj),
        number(status, "desiredNumberScheduled"),
        number(status, "currentNumberScheduled"),
        number(status, "numberReady"),
        number(status, "updatedNumberScheduled"),
        number(status, "numberAvailable"),
        labels(part(spec, "template", "spec"), "nodeSelector"),
        age(obj, now),
        *container_cells(part(spec, "template")),
        selector(spec, "selector"),
    ]


def controller_revision(obj: Json, now: float) -> list[Any]:
    return [name(obj), _controller(obj), number(obj, "revision"), age(obj, now)]


def _controller(obj: Json) -> str:
    for owner in elements(part(obj, "metadata"), "ownerReferences"):
        if owner.get("controller") is True:
            group = text(owner, "apiVersion").rpartition("/")[0]
            kind = ".".join(filter(None, (text(owner, "kind"), group)))
            return f"{kind.lower()}/{text(owner, 'name')}"
    return NONE


def job(obj: Json, now: float) -> list[Any]:
    spec = part(obj, "spec")
    return [
        name(obj),
        _job_status(obj),
        _completions(obj),
        _job_duration(part(obj, "status"), now),
        age(obj, now),
        *container_cells(part(spec, "template")),
        selector(spec, "selector"),
    ]


def _job_status(obj: Json) -> str:
    def holds(kind: str) -> bool:
        return condition(part(obj, "status"), kind).get("status") == "True"

    for kind in ("Complete", "Failed"):
        if holds(kind):
            return kind
    if deleted(obj):
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


def cron_job(obj: Json, now: float) -> list[Any]:
    spec, status = part(obj, "spec"), part(obj, "status")
    template = part(spec, "jobTemplate", "spec")
    suspend = spec.get("suspend")
    return [
        name(obj),
        text(spec, "schedule"),
        text(spec, "timeZone", NONE),
        str(suspend) if isinstance(suspend, bool) else UNSET,
        count(status, "active"),
        since(status, "lastScheduleTime", now) if status.get("lastScheduleTime") else NONE,
        age(obj, now),
        *container_cells(part(template, "template")),
        selector(template, "selector"),
    ]


def disruption_budget(obj: Json, now: float) -> list[Any]:
    spec = part(obj, "spec")
    return [
        name(obj),
        shown(spec, "minAvailable", "N/A"),
        shown(spec, "maxUnavailable", "N/A"),
        number(part(obj, "status"), "disruptionsAllowed"),
        age(obj, now),
    ]


def priority_class(obj: Json, now: float) -> list[Any]:
    return [
        name(obj),
        number(obj, "value"),
        obj.get("globalDefault") is True,
        age(obj, now),
        text(obj, "preemptionPolicy"),
    ]


ROWS: Rows = {
    ("", "replicationcontrollers"): replication_controller,
    ("apps", "controllerrevisions"): controller_revision,
    ("apps", "daemonsets"): daemon_set,
    ("apps", "deployments"): deployment,
    ("apps", "replicasets"): replica_set,
    ("apps", "statefulsets"): stateful_set,
    ("batch", "cronjobs"): cron_job,
    ("batch", "jobs"): job,
    ("policy", "poddisruptionbudgets"): disruption_budget,
    ("scheduling.k8s.io", "priorityclasses"): priority_class,
}
