"""Label and field selectors of list, watch and deletecollection, compiled to one predicate over stored bytes."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from podwire.kinds import stored
from podwire.kinds.resource import Resource
from podwire.kinds.stored import Object
from podwire.objects.selectors import FieldRequirement, FieldSelector, LabelSelector, parse_fields, parse_labels
from podwire.protocols.k8sapi.server_side import Request
from podwire.protocols.k8sapi.status import bad_request
from podwire.protocols.storage import Change, Item

SELECTOR_LIMIT = 64 * 1024

_INVOLVED = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")

FIELDS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("", "pods"): (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.podIPs",
        "status.nominatedNodeName",
    ),
    ("", "nodes"): ("spec.unschedulable",),
    ("", "events"): (
        *(f"involvedObject.{each}" for each in _INVOLVED),
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
    ("events.k8s.io", "events"): (
        *(f"regarding.{each}" for each in _INVOLVED),
        "reason",
        "reportingController",
        "type",
    ),
    ("", "namespaces"): ("status.phase",),
    ("", "secrets"): ("type",),
    ("", "services"): ("spec.clusterIP", "spec.type"),
    ("", "replicationcontrollers"): ("status.replicas",),
    ("apps", "replicasets"): ("status.replicas",),
    ("batch", "jobs"): ("status.successful",),
    ("certificates.k8s.io", "certificatesigningrequests"): ("spec.signerName",),
    ("resource.k8s.io", "resourceslices"): ("spec.nodeName", "spec.driver", "spec.pool.name"),
}
"""Fields that can be selected on, besides metadata.name and metadata.namespace."""

_STORED = {
    "status.successful": "status.succeeded",
    "reportingController": "reportingComponent",
    **{f"regarding.{each}": f"involvedObject.{each}" for each in _INVOLVED},
}
"""What a field of a built-in kind is called where it is stored, where that is not its own name."""

_ZERO = {"spec.unschedulable": "false", "spec.hostNetwork": "false", "status.replicas": "0", "status.succeeded": "0"}
"""What an absent field counts as, where that is not the empty string."""


class View:
    """A stored object as selectors see it, decoded as far as they ask, once."""

    __slots__ = ("_labels", "_values", "item")

    def __init__(self, item: Item) -> None:
        self.item = item
        self._labels: Mapping[str, str] | None = None
        self._values: Mapping[str, str] | None = None

    @property
    def labels(self) -> Mapping[str, str]:
        if self._labels is None:
            self._labels = stored.labels(self.item.value)
        return self._labels

    @property
    def values(self) -> Mapping[str, str]:
        if self._values is None:
            self._values = _Values(stored.unpack(self.item))
        return self._values


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects a client wants. `narrow` is the one name asked for, so that nothing else need be looked at;
    `unpack` is how fields are seen where that is not how they are stored."""

    labels: LabelSelector | None = None
    fields: FieldSelector | None = None
    narrow: str = ""
    unpack: Callable[[Item], Object] | None = None

    @property
    def everything(self) -> bool:
        return self.labels is None and self.fields is None

    def picks(self, view: View) -> bool:
        """Whether a stored object is wanted."""
        if self.labels is not None and not self.labels.matches(view.labels):
            return False
        if self.fields is None:
            return True
        return self.fields.matches(_Values(self.unpack(view.item)) if self.unpack else view.values)


def of(request: Request, resource: Resource) -> Selection:
    """The selection that a request's labelSelector and fieldSelector describe; 400 for what cannot be read."""
    label_text, field_text = request.option("labelSelector"), request.option("fieldSelector")
    if not label_text and not field_text:
        return Selection()
    if len(label_text) > SELECTOR_LIMIT or len(field_text) > SELECTOR_LIMIT:
        raise bad_request(f"selector is longer than {SELECTOR_LIMIT} characters")
    fields = _fields(field_text, resource) if field_text else None
    return Selection(
        _labels(label_text) if label_text else None,
        fields,
        (fields and fields.exact("metadata.name")) or "",
        resource.unpack if resource.as_read else None,
    )


def _labels(text: str) -> LabelSelector:
    try:
        return parse_labels(text)
    except ValueError as error:
        raise bad_request(f"unable to parse requirement: {error}") from error


def _fields(text: str, resource: Resource) -> FieldSelector:
    try:
        selector = parse_fields(text)
    except ValueError as error:
        raise bad_request(str(error)) from error
    known = {"metadata.name", "metadata.namespace", *resource.selectable}
    known.update(FIELDS.get((resource.group, resource.name), ()))
    for requirement in selector.requirements:
        if requirement.field not in known:
            raise bad_request(f"field label not supported: {requirement.field}")
    return selector if resource.custom else FieldSelector(tuple(map(_as_stored, selector.requirements)))


def _as_stored(requirement: FieldRequirement) -> FieldRequirement:
    return replace(requirement, field=_STORED.get(requirement.field, requirement.field))


class _Values(Mapping[str, str]):
    """An object's fields by dotted path, as the strings that field selectors compare."""

    def __init__(self, obj: Mapping[str, Any]) -> None:
        self._obj = obj

    def __getitem__(self, path: str) -> str:
        if path == "source" and "involvedObject" in self._obj:
            return str((self._obj.get("source") or {}).get("component") or self._obj.get("reportingComponent") or "")
        value: Any = self._obj
        for part in path.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return _text(path, value)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def _text(path: str, value: Any) -> str:
    if value is None:
        return _ZERO.get(path, "")
    if isinstance(value, bool):
        return "true" if value else "false"
    if path == "status.podIPs":
        return ",".join(each.get("ip", "") for each in value)
    return str(value)


def transition(change: Change, selection: Selection) -> str:
    """What a change is to somebody with this selection: ADDED, MODIFIED, DELETED, or '' when it is none of theirs."""
    now, before = _picked(change, selection, change.item), _picked(change, selection, change.previous)
    if now:
        return "MODIFIED" if before else "ADDED"
    return "DELETED" if before else ""


def _picked(change: Change, selection: Selection, item: Item | None) -> bool:
    if item is None or selection.everything:
        return item is not None
    if selection.narrow and not named(change.key, selection.narrow):
        return False
    view = change.notes.get(item.revision)
    if view is None:
        view = change.notes[item.revision] = View(item)
    return selection.picks(view)


def named(key: str, name: str) -> bool:
    """Whether a storage key is that of an object with this name."""
    return key.endswith(f"/{name}")
