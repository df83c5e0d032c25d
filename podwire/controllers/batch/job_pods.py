"""The pods of a Job: its template with the finalizer and, in an Indexed Job, the index in four places. Pure."""

from typing import Any

from podwire.controllers.batch.job_decision import is_indexed
from podwire.controllers.batch.job_failures import (
    COMPLETION_INDEX,
    FAILURE_COUNT,
    FINALIZER,
    IGNORED_FAILURE_COUNT,
    failure_counts,
    policy_verdict,
)
from podwire.protocols.k8sapi.watch import Object

INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
LONGEST_GENERATED = 58
"""Longest `generateName`: the server adds five characters."""


def owner_reference(job: Object) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def generated_name(job: str, index: int | None) -> str:
    """Returns the start of a pod's name; a long Job's name is cut, its index is not."""
    end = "-" if index is None else f"-{index}-"
    return job[: LONGEST_GENERATED - len(end)] + end


def new_pod(job: Object, index: int | None, replaced: Object | None = None) -> Object:
    """Returns a pod of the Job. `replaced` is the failed pod of the same index, whose failures it goes on counting."""
    spec, name = job["spec"], job["metadata"]["name"]
    template = spec["template"]
    given = template.get("metadata") or {}
    labels, annotations = dict(given.get("labels") or {}), dict(given.get("annotations") or {})
    finalizers = list(given.get("finalizers") or ())
    pod_spec = dict(template["spec"])
    if is_indexed(spec):
        for part in ("initContainers", "containers"):
            if part in pod_spec:
                pod_spec[part] = [_with_index_variable(container) for container in pod_spec[part]]
    if index is not None:
        labels[COMPLETION_INDEX] = annotations[COMPLETION_INDEX] = str(index)
        pod_spec["hostname"] = f"{name}-{index}"
        if spec.get("backoffLimitPerIndex") is not None:
            counted, ignored = _counts_after(job, replaced)
            annotations[FAILURE_COUNT] = str(counted)
            if ignored:
                annotations[IGNORED_FAILURE_COUNT] = str(ignored)
    metadata: dict[str, Any] = {
        "generateName": generated_name(name, index),
        "namespace": job["metadata"]["namespace"],
        "labels": labels,
        "finalizers": finalizers if FINALIZER in finalizers else [*finalizers, FINALIZER],
        "ownerReferences": [owner_reference(job)],
    }
    if annotations:
        metadata["annotations"] = annotations
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec}


def _with_index_variable(container: dict[str, Any]) -> dict[str, Any]:
    given = container.get("env") or []
    if any(variable.get("name") == INDEX_VARIABLE for variable in given):
        return container
    reference = {"fieldRef": {"fieldPath": f"metadata.labels['{COMPLETION_INDEX}']"}}
    return {**container, "env": [*given, {"name": INDEX_VARIABLE, "valueFrom": reference}]}


def _counts_after(job: Object, replaced: Object | None) -> tuple[int, int]:
    if replaced is None:
        return 0, 0
    counted, ignored = failure_counts(replaced)
    if policy_verdict(job["spec"].get("podFailurePolicy"), replaced).counts:
        return counted + 1, ignored
    return counted, ignored + 1
