"""Common parts of PodRoute and PodMesh: identity, the pods that they select, failure policy.

A resource selects a pod of its own namespace when its selector matches the pod's labels, or when the pod names it in an
annotation. An invalid resource selects pods all the same, so that it can fail closed.
"""

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from podwire.linux.values import IP
from podwire.objects import selectors
from podwire.objects.selectors import NOTHING, LabelSelector
from podwire.protocols.k8sapi.status import FieldError

GROUP = "net.podwire.dev"
VERSION = "v1"
ROUTES = f"{GROUP}/routes"
MESH = f"{GROUP}/mesh"
"""Annotations by which a pod names resources: `name[,name]`."""
FAIL, IGNORE = "Fail", "Ignore"


class Pod(NamedTuple):
    """A pod as the planners see it."""

    namespace: str
    name: str
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    ips: tuple[IP, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The identity of a resource, without its spec."""

    kind: str
    namespace: str
    name: str
    uid: str = ""
    created: str = ""
    selector: LabelSelector = NOTHING
    fails: bool = True
    """Whether a pod to which it cannot be applied must not run (`failurePolicy: Fail`)."""

    @property
    def seniority(self) -> tuple[str, str]:
        """The precedence of conflicting resources: the older one wins, then the first by name."""
        return self.created, self.name

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class Resource(Protocol):
    @property
    def head(self) -> Head: ...


@dataclass(frozen=True, slots=True)
class Broken:
    """An invalid resource."""

    head: Head
    errors: tuple[FieldError, ...]


class Why(enum.StrEnum):
    BROKEN = "Broken"
    """The resource is invalid."""
    MISSING = "Missing"
    """The pod names one that does not exist."""
    CONFLICT = "Conflict"
    """An older resource conflicts with it."""
    FAILED = "Failed"
    """The kernel rejected it."""


class Problem(NamedTuple):
    """Why a resource is not applied to a pod, or not completely."""

    resource: Head
    why: Why
    field: str
    reason: str

    @property
    def fatal(self) -> bool:
        """Whether the pod must not run. A conflict with an older resource is not fatal."""
        return self.resource.fails and self.why is not Why.CONFLICT

    def __str__(self) -> str:
        return f"{self.resource}: {self.field}: {self.reason}" if self.field else f"{self.resource}: {self.reason}"


R = TypeVar("R", bound=Resource)


def head_of(object_: Mapping[str, Any]) -> Head:
    """The identity of an object, as far as it can be read; an invalid selector selects nothing."""
    metadata, spec = _mapping(object_.get("metadata")), _mapping(object_.get("spec"))
    selector = spec.get("podSelector")
    try:
        selected = selectors.from_object(selector) if isinstance(selector, Mapping) else NOTHING
    except (ValueError, AttributeError, TypeError):
        selected = NOTHING
    return Head(
        kind=str(object_.get("kind", "")),
        namespace=str(metadata.get("namespace", "")),
        name=str(metadata.get("name", "")),
        uid=str(metadata.get("uid", "")),
        created=str(metadata.get("creationTimestamp") or ""),
        selector=selected,
        fails=spec.get("failurePolicy", FAIL) != IGNORE,
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def named(pod: Pod, annotation: str) -> list[str]:
    """The names in a pod's annotation."""
    listed = [part.strip() for part in pod.annotations.get(annotation, "").split(",")]
    return list(dict.fromkeys(name for name in listed if name))


def concerning(pod: Pod, resources: Iterable[R], annotation: str) -> list[R]:
    """The resources that the pod names or that select it, the oldest first."""
    asked = set(named(pod, annotation))
    matching = [
        resource
        for resource in resources
        if resource.head.namespace == pod.namespace
        and (resource.head.name in asked or resource.head.selector.matches(pod.labels))
    ]
    return sorted(matching, key=lambda item: item.head.seniority)


def missing(pod: Pod, resources: Sequence[Resource], annotation: str, kind: str) -> list[Problem]:
    """Problems for the names that do not exist."""
    existing = {resource.head.name for resource in resources}
    gone = [name for name in named(pod, annotation) if name not in existing]
    reason = "the pod names it, and it does not exist"
    return [Problem(Head(kind=kind, namespace=pod.namespace, name=name), Why.MISSING, "", reason) for name in gone]


def broken(resource: Broken) -> list[Problem]:
    return [Problem(resource.head, Why.BROKEN, error.field, error.body) for error in resource.errors]
