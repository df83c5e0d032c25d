"""What has changed between two values, as sets of fields. Equal parts are passed over at the price of `==`."""

from dataclasses import dataclass
from typing import Any

from podwire.apiserver.apply.fields import whole
from podwire.apiserver.apply.fieldsets import HERE, FieldSet, union
from podwire.apiserver.apply.types import BadElement, Elements, Leaf, Members, Type, elements_of, members_of


@dataclass(frozen=True, slots=True)
class Comparison:
    """No field is in more than one of the three."""

    removed: FieldSet
    modified: FieldSet
    added: FieldSet

    @property
    def same(self) -> bool:
        return not (self.removed or self.modified or self.added)

    @property
    def set_fields(self) -> FieldSet:
        """What has a new value now."""
        return union(self.modified, self.added)


def compare(of: Type, old: Any, new: Any) -> Comparison:
    """From the old object to the new one."""
    walk = _Walk()
    walk.values(of, old, new)
    return Comparison(walk.removed, walk.modified, walk.added)


class _Walk:
    """One level of both values; `values` says whether they differ as wholes."""

    __slots__ = ("added", "modified", "removed")

    def __init__(self) -> None:
        self.removed: FieldSet = {}
        self.modified: FieldSet = {}
        self.added: FieldSet = {}

    def values(self, of: Type, old: Any, new: Any) -> bool:
        """Fill the sets from what is below; True when the value is to be taken as one and is another."""
        if type(of) is Leaf:
            return True  # nobody comes here with equal values
        if not (old or new):
            return type(old) is not type(new) or old != new
        if (members := _members(of, old, new)) is not None:
            self._members(members, old or {}, new or {})
            return False
        if (elements := _elements(of, old, new)) is not None:
            self._elements(elements, old or [], new or [])
            return False
        for value, gone in ((old, True), (new, False)):  # another kind of value: its parts come or go with it
            parts = {key: each for key, each in whole(of, value).items() if key != HERE}
            if gone:
                self.removed.update(parts)
            else:
                self.added.update(parts)
        return True

    def _members(self, of: Members, old: dict[str, Any], new: dict[str, Any]) -> None:
        for name, after in new.items():
            kind = of.member(name)
            if kind is None:
                continue
            if name not in old:
                self.added[f"f:{name}"] = whole(kind, after)
            elif (before := old[name]) != after:
                self._below(f"f:{name}", kind, before, after)
        for name, before in old.items():
            if name not in new and (kind := of.member(name)) is not None:
                self.removed[f"f:{name}"] = whole(kind, before)

    def _elements(self, of: Elements, old: list[Any], new: list[Any]) -> None:
        before, after = _named(of, old), _named(of, new)
        for name, now in after.items():
            then = before.get(name)
            if then is None:
                self.added[name] = whole(of.element, now[0]) if len(now) == 1 else {}
            elif then != now:
                self._same_name(name, of, then, now)
        for name, then in before.items():
            if name not in after:
                self.removed[name] = whole(of.element, then[0]) if len(then) == 1 else {}

    def _same_name(self, name: str, of: Elements, then: list[Any], now: list[Any]) -> None:
        """Elements of one name. There should be one on each side; several are taken as one value."""
        if len(then) == len(now) == 1:
            self._below(name, of.element, then[0], now[0])
        else:
            self.modified[name] = {}

    def _below(self, key: str, of: Type, old: Any, new: Any) -> None:
        inner = _Walk()
        if inner.values(of, old, new):
            self.modified[key] = {}
        for mine, theirs in (
            (self.removed, inner.removed), (self.modified, inner.modified), (self.added, inner.added)
        ):  # fmt: skip
            if theirs:
                mine[key] = {HERE: {}, **theirs} if key in mine else theirs


def _members(of: Type, old: Any, new: Any) -> Members | None:
    """How both are compared member by member; a null stands for an object without members."""
    if (old is None or isinstance(old, dict)) and (new is None or isinstance(new, dict)):
        return members_of(of, old or new)
    return None


def _elements(of: Type, old: Any, new: Any) -> Elements | None:
    if (old is None or isinstance(old, list)) and (new is None or isinstance(new, list)):
        return elements_of(of, old or new)
    return None


def _named(of: Elements, values: list[Any]) -> dict[str, list[Any]]:
    """The elements by name. One that has none cannot be owned and is left out."""
    found: dict[str, list[Any]] = {}
    for each in values:
        try:
            found.setdefault(of.name(each), []).append(each)
        except BadElement:
            continue
    return found
