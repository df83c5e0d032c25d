"""Decides about a terminating namespace: what to delete next, its conditions, when to finalize it. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from podwire.controllers.metadata import PartialObject, resource_of
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.watch import Object

FINALIZER = "kubernetes"
"""In spec.finalizers: the namespace stays until its content is gone."""


def ending(namespace: Object) -> bool:
    """Returns whether the namespace still has to be emptied."""
    deleting = bool(namespace["metadata"].get("deletionTimestamp"))
    return deleting and FINALIZER in namespace.get("spec", {}).get("finalizers", ())


def finalized(namespace: Object) -> Object:
    """Returns the namespace without our finalizer, for its finalize subresource."""
    kept = [finalizer for finalizer in namespace["spec"]["finalizers"] if finalizer != FINALIZER]
    return {**namespace, "spec": {**namespace["spec"], "finalizers": kept}}


def next_kinds(held: Iterable[tuple[Kind, int]]) -> list[Kind]:
    """Returns the kinds to delete next. Pods come first and alone: policies that protect them and objects that they
    need must outlive them."""
    kinds = [kind for kind, count in held if count]
    pods = [kind for kind in kinds if (kind.group, kind.resource) == ("", "pods")]
    return pods or kinds


def overlooked(left: Iterable[PartialObject], asked: Sequence[Kind]) -> bool:
    """Returns whether an object remains that was not deleted although it was due, so that no event will trigger a
    retry."""
    resources = {resource_of(kind) for kind in asked}
    return any(not item.deleting and (item.resource in resources or not resources) for item in left)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionProgress:
    """The progress of a namespace's deletion."""

    remaining: Mapping[str, int] = field(default_factory=dict)
    """Instances by `resource.group`."""
    finalizers: Mapping[str, int] = field(default_factory=dict)
    """Instances by the finalizer that they wait for."""
    failures: Sequence[str] = ()


def progress(left: Iterable[PartialObject], failures: Sequence[str] = ()) -> DeletionProgress:
    remaining: dict[str, int] = {}
    finalizers: dict[str, int] = {}
    for item in left:
        name = f"{item.kind.resource}.{item.kind.group}"
        remaining[name] = remaining.get(name, 0) + 1
        for finalizer in item.metadata.finalizers:
            finalizers[finalizer] = finalizers.get(finalizer, 0) + 1
    return DeletionProgress(remaining=remaining, finalizers=finalizers, failures=failures)


def conditions(progress: DeletionProgress) -> list[dict[str, str]]:
    """Returns the five conditions of a terminating namespace, without times."""
    rows = [
        ("NamespaceDeletionDiscoveryFailure", "", "ResourcesDiscovered", "All resources successfully discovered"),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            "",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        (
            "NamespaceDeletionContentFailure",
            "; ".join(progress.failures),
            "ContentDeletionFailed" if progress.failures else "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ),
        (
            "NamespaceContentRemaining",
            _counted("Some resources are remaining: ", "{} has {} resource instances", progress.remaining),
            "SomeResourcesRemain" if progress.remaining else "ContentRemoved",
            "All content successfully removed",
        ),
        (
            "NamespaceFinalizersRemaining",
            _counted(
                "Some content in the namespace has finalizers remaining: ",
                "{} in {} resource instances",
                progress.finalizers,
            ),
            "SomeFinalizersRemain" if progress.finalizers else "ContentHasNoFinalizers",
            "All content-preserving finalizers finished",
        ),
    ]
    return [
        {"type": type_, "status": "True" if trouble else "False", "reason": reason, "message": trouble or well}
        for type_, trouble, reason, well in rows
    ]


def _counted(intro: str, row: str, counts: Mapping[str, int]) -> str:
    return intro + ", ".join(row.format(*count) for count in sorted(counts.items())) if counts else ""


def with_conditions(namespace: Object, progress: DeletionProgress, now: str) -> Object | None:
    """Returns the namespace with updated conditions; None when they are current."""
    status = namespace.get("status", {})
    before = {condition["type"]: condition for condition in status.get("conditions", ())}
    after, changed = dict(before), False
    for condition in conditions(progress):
        old = before.get(condition["type"], {})
        if any(old.get(name) != value for name, value in condition.items()):
            since = old.get("lastTransitionTime", now) if old.get("status") == condition["status"] else now
            after[condition["type"]], changed = {**condition, "lastTransitionTime": since}, True
    return {**namespace, "status": {**status, "conditions": list(after.values())}} if changed else None
