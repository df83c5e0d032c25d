"""Label and field selectors of list, watch and deletecollection, as one predicate over stored bytes."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from podwire.kinds import stored
from podwire.kinds.resource import Resource
from podwire.kinds.stored import Object
from podwire.kinds.strategy import EVERY_KIND, SelectableField
from podwire.objects.selectors import FieldSelector, LabelSelector, parse_fields, parse_labels
from podwire.protocols.k8sapi.server_side import Request
from podwire.protocols.k8sapi.status import bad_request
from podwire.protocols.storage import Change, Item

SELECTOR_LIMIT = 64 * 1024


class View:
    """A stored object as selectors see it, decoded lazily and once."""

    __slots__ = ("_labels", "_obj", "item")

    def __init__(self, item: Item) -> None:
        self.item = item
        self._labels: Mapping[str, str] | None = None
        self._obj: Object | None = None

    @property
    def labels(self) -> Mapping[str, str]:
        if self._labels is None:
            self._labels = stored.labels(self.item.value)
        return self._labels

    @property
    def obj(self) -> Object:
        if self._obj is None:
            self._obj = stored.unpack(self.item)
        return self._obj


@dataclass(frozen=True, slots=True)
class Selection:
    """Selects objects. `narrow` is the one requested name, so that nothing else need be read; `unpack` converts objects
    whose fields differ from their stored form."""

    labels: LabelSelector | None = None
    fields: FieldSelector | None = None
    narrow: str = ""
    unpack: Callable[[Item], Object] | None = None
    readers: Mapping[str, SelectableField] = field(default_factory=dict)
    """The fields that the resource lets clients select by, by name."""

    @property
    def everything(self) -> bool:
        return self.labels is None and self.fields is None

    def picks(self, view: View) -> bool:
        """Returns whether a stored object is selected."""
        if self.labels is not None and not self.labels.matches(view.labels):
            return False
        if self.fields is None:
            return True
        return self.fields.matches(_Values(self.unpack(view.item) if self.unpack else view.obj, self.readers))


def of(request: Request, resource: Resource) -> Selection:
    """Returns the selection of labelSelector and fieldSelector; 400 for invalid ones."""
    label_text, field_text = request.option("labelSelector"), request.option("fieldSelector")
    if not label_text and not field_text:
        return Selection()
    if len(label_text) > SELECTOR_LIMIT or len(field_text) > SELECTOR_LIMIT:
        raise bad_request(f"selector is longer than {SELECTOR_LIMIT} characters")
    readers = {reader.name: reader for reader in (*EVERY_KIND, *resource.selectable)}
    fields = _fields(field_text, readers) if field_text else None
    return Selection(
        _labels(label_text) if label_text else None,
        fields,
        (fields and fields.exact("metadata.name")) or "",
        resource.unpack if resource.as_read else None,
        readers,
    )


def _labels(text: str) -> LabelSelector:
    try:
        return parse_labels(text)
    except ValueError as error:
        raise bad_request(f"unable to parse requirement: {error}") from error


def _fields(text: str, readers: Mapping[str, SelectableField]) -> FieldSelector:
    try:
        selector = parse_fields(text)
    except ValueError as error:
        raise bad_request(str(error)) from error
    for requirement in selector.requirements:
        if requirement.field not in readers:
            raise bad_request(f"field label not supported: {requirement.field}")
    return selector


def exact_fields(text: str) -> tuple[tuple[str, str], ...]:
    """Returns the fields that a field selector requires to have one value; none of an invalid selector, which the
    request itself is refused for."""
    try:
        requirements = parse_fields(text).requirements
    except ValueError:
        return ()
    return tuple((requirement.field, requirement.value) for requirement in requirements if requirement.equal)


class _Values(Mapping[str, str]):
    """An object's fields by dotted path, as the strings that field selectors compare."""

    def __init__(self, obj: Mapping[str, Any], readers: Mapping[str, SelectableField]) -> None:
        self._obj = obj
        self._readers = readers

    def __getitem__(self, name: str) -> str:
        return self._readers[name].text(self._obj)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def transition(change: Change, selection: Selection) -> str:
    """Returns the event type of a change under a selection: ADDED, MODIFIED, DELETED, or '' for none."""
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
    """Returns whether a storage key has this object name."""
    return key.endswith(f"/{name}")
