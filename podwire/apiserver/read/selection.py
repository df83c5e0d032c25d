"""Label, field and shard selectors of list, watch and deletecollection, as one predicate over stored bytes."""

from dataclasses import dataclass

from podwire.apiserver.read import shards
from podwire.apiserver.read.fields import field_of
from podwire.apiserver.read.shards import Shard
from podwire.kinds import stored
from podwire.kinds.resource import Resource
from podwire.kinds.strategy import EVERY_KIND
from podwire.objects.selectors import FieldSelector, LabelSelector, parse_fields, parse_labels
from podwire.protocols.k8sapi.server_side import Request
from podwire.protocols.k8sapi.status import ApiError, bad_request
from podwire.protocols.storage import Change, Condition, Item, has_texts, text_of

SELECTOR_LIMIT = 64 * 1024


@dataclass(frozen=True, slots=True)
class Selection:
    """Selects objects by labels, by fields and by shard, all read from stored bytes."""

    labels: LabelSelector | None = None
    fields: tuple[Condition, ...] = ()
    name: str = ""
    """The one requested name, so that nothing else need be read."""
    namespace: str = ""
    """The one requested namespace, of a list or watch of all."""
    shard: Shard | None = None

    @property
    def everything(self) -> bool:
        return self.labels is None and not self.fields and self.shard is None

    @property
    def trigger(self) -> Condition | None:
        """A condition that names the one text of a field which all selected objects have."""
        return next((condition for condition in self.fields if condition.equal), None)

    def picks(self, item: Item) -> bool:
        """Returns whether a stored object is selected."""
        return self.picks_beside_fields(item) and has_texts(item, self.fields)

    def picks_beside_fields(self, item: Item) -> bool:
        """Returns whether an object is selected that meets the conditions on fields."""
        if self.labels is not None and not self.labels.matches(stored.labels(item.value)):
            return False
        return self.shard is None or self.shard.accepts(self.shard.field.read(item))

    def picks_of(self, change: Change, item: Item) -> bool:
        """`picks` of an item of a change; what is read of it serves all watches."""
        if self.labels is not None and not self.labels.matches(
            change.derived((item.revision, "labels"), lambda: stored.labels(item.value))
        ):
            return False
        if self.shard is not None and not self.shard.accepts(text_of(change, item, self.shard.field)):
            return False
        return all(condition.accepts(text_of(change, item, condition.field)) for condition in self.fields)


def of(request: Request, resource: Resource) -> Selection:
    """Returns the selection of labelSelector, fieldSelector and shardSelector; 400 for invalid ones."""
    label_text, field_text = request.option("labelSelector"), request.option("fieldSelector")
    shard_text = request.option("shardSelector")
    if not label_text and not field_text and not shard_text:
        return Selection()
    if max(map(len, (label_text, field_text, shard_text))) > SELECTOR_LIMIT:
        raise bad_request(f"selector is longer than {SELECTOR_LIMIT} characters")
    selector = _parsed(field_text)
    return Selection(
        _labels(label_text) if label_text else None,
        _conditions(selector, resource),
        selector.exact("metadata.name") or "",
        (selector.exact("metadata.namespace") or "") if resource.kind.namespaced else "",
        shards.parse(shard_text, resource) if shard_text else None,
    )


def _labels(text: str) -> LabelSelector:
    try:
        return parse_labels(text)
    except ValueError as error:
        raise bad_request(str(error)) from error


def _parsed(text: str) -> FieldSelector:
    try:
        return parse_fields(text)
    except ValueError as error:
        raise bad_request(str(error)) from error


def _conditions(selector: FieldSelector, resource: Resource) -> tuple[Condition, ...]:
    selectable = {field.name: field for field in (*EVERY_KIND, *resource.selectable)}
    for requirement in selector.requirements:
        if requirement.field not in selectable:
            raise _not_selectable(requirement.field, resource)
    return tuple(
        Condition(field_of(resource, selectable[requirement.field]), requirement.value, requirement.equal)
        for requirement in selector.requirements
    )


def _not_selectable(field: str, resource: Resource) -> ApiError:
    """Returns the error of a field that is not selectable; kinds without fields of their own have other words."""
    if resource.selectable or resource.custom:
        return bad_request(f"field label not supported: {field}")
    known = '"metadata.name", "metadata.namespace"'
    return bad_request(f'"{field}" is not a known field selector: only {known}')


def exact_fields(text: str) -> tuple[tuple[str, str], ...]:
    """Returns the fields that a field selector requires to have one value; none of an invalid selector, which the
    request itself is refused for."""
    try:
        requirements = parse_fields(text).requirements
    except ValueError:
        return ()
    return tuple((requirement.field, requirement.value) for requirement in requirements if requirement.equal)


def transition(change: Change, selection: Selection) -> str:
    """Returns the event type of a change under a selection: ADDED, MODIFIED, DELETED, or '' for none."""
    now, before = _picked(change, selection, change.item), _picked(change, selection, change.previous)
    if now:
        return "MODIFIED" if before else "ADDED"
    return "DELETED" if before else ""


def _picked(change: Change, selection: Selection, item: Item | None) -> bool:
    if item is None or selection.everything:
        return item is not None
    if selection.name and not named(change.key, selection.name):
        return False
    return selection.picks_of(change, item)


def named(key: str, name: str) -> bool:
    """Returns whether a storage key has this object name."""
    return key.endswith(f"/{name}")
