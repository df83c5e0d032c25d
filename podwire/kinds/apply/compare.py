"""Comparison of two values: the fields that were added, modified and removed. Equal parts cost one `==`."""

from typing import Any, cast

from podwire.kinds.apply.fields import parts, whole
from podwire.kinds.apply.fieldsets import FIELD, HERE, FieldSet, union
from podwire.kinds.apply.types import BadElement, Elements, Leaf, Members, Type, elements_of, members_of


class Comparison:
    """Three sets without a common field. `given` are the fields with a new value; `lost` are those and the removed
    ones, which their previous owners do not own any more."""

    __slots__ = ("added", "given", "lost", "modified", "removed")

    def __init__(self, removed: FieldSet, modified: FieldSet, added: FieldSet) -> None:
        self.removed = removed
        self.modified = modified
        self.added = added
        self.given = union(modified, added)
        self.lost = union(self.given, removed)

    @property
    def same(self) -> bool:
        return not self.lost


def compare(of: Type, old: Any, new: Any) -> Comparison:
    """From the old object to the new one."""
    walk = _Walk()
    walk.values(of, old, new)
    return Comparison(walk.removed, walk.modified, walk.added)


def given(of: Type, old: Any, new: Any) -> FieldSet:
    """Returns the fields that have a new value, where removed ones do not matter."""
    walk = _Walk()
    walk.values(of, old, new)
    return union(walk.modified, walk.added)


class _Walk:
    """Walks one level of both values; `values` returns whether they differ as wholes."""

    __slots__ = ("added", "modified", "removed")

    def __init__(self) -> None:
        self.removed: FieldSet = {}
        self.modified: FieldSet = {}
        self.added: FieldSet = {}

    def values(self, of: Type, old: Any, new: Any) -> bool:
        """Fills the sets from the levels below; returns True for a value that is owned as a whole and has changed."""
        if type(of) is Leaf:
            return True  # callers have compared the values
        if not (old or new):
            return type(old) is not type(new) or old != new
        if (members := _members(of, old, new)) is not None:
            self._members(members, old or {}, new or {})
            return False
        if (elements := _elements(of, old, new)) is not None:
            self._elements(elements, old or [], new or [])
            return False
        for value, gone in ((old, True), (new, False)):  # another type of value: its parts are added or removed with it
            below = {key: inner for key, inner in whole(of, value).items() if key != HERE}
            if gone:
                self.removed.update(below)
            else:
                self.added.update(below)
        return True

    def _members(self, of: Members, old: dict[str, Any], new: dict[str, Any]) -> None:
        if not old:
            self.added = parts(of, new)
            return
        known, fresh = of.known, {}
        for name, after in new.items():
            if name not in old:
                fresh[name] = after
            elif (before := old[name]) is not after and before != after:
                key, kind = known[name]
                if type(kind) is Leaf:
                    self.modified[key] = FIELD
                elif kind is not None:
                    self._below(key, kind, before, after)
        if fresh:
            self.added.update(parts(of, fresh))
        if len(old) > len(new) - len(fresh):
            self.removed.update(parts(of, {name: value for name, value in old.items() if name not in new}))

    def _elements(self, of: Elements, old: list[Any], new: list[Any]) -> None:
        if len(old) == len(new) and (names := _names(of, new)) and names == _names(of, old):
            for name, then, now in zip(names, old, new, strict=True):  # the same elements in the same places
                if then is not now and then != now:
                    self._below(name, of.element, then, now)
            return
        self._moved_elements(of, _named(of, old), _named(of, new))

    def _moved_elements(self, of: Elements, before: dict[str, list[Any]], after: dict[str, list[Any]]) -> None:
        for name, now in after.items():
            then = before.get(name)
            if then is None:
                self.added[name] = whole(of.element, now[0]) if len(now) == 1 else {}
            elif then != now:
                # Compares elements with the same key. There should be one on each side; several count as one
                # value.
                if len(then) == len(now) == 1:
                    self._below(name, of.element, then[0], now[0])
                else:
                    self.modified[name] = {}
        for name, then in before.items():
            if name not in after:
                self.removed[name] = whole(of.element, then[0]) if len(then) == 1 else {}

    def _below(self, key: str, of: Type, old: Any, new: Any) -> None:
        inner = _Walk()
        if of.by_member and type(old) is dict and type(new) is dict:
            inner._members(cast("Members", of), old, new)
        elif inner.values(of, old, new):
            self.modified[key] = FIELD
        if inner.removed:
            self.removed[key] = inner.removed
        if inner.modified:
            self.modified[key] = {HERE: FIELD, **inner.modified} if key in self.modified else inner.modified
        if inner.added:
            self.added[key] = inner.added


def _members(of: Type, old: Any, new: Any) -> Members | None:
    """Returns the type by which both are compared member by member, if they are; null counts as an empty object."""
    if (old is None or isinstance(old, dict)) and (new is None or isinstance(new, dict)):
        return members_of(of, old or new)
    return None


def _elements(of: Type, old: Any, new: Any) -> Elements | None:
    if (old is None or isinstance(old, list)) and (new is None or isinstance(new, list)):
        return elements_of(of, old or new)
    return None


def _names(of: Elements, values: list[Any]) -> list[str] | None:
    """Returns the path elements of list elements; None where one has none or two have the same."""
    try:
        names = [of.name(value) for value in values]
    except BadElement:
        return None
    return names if len(set(names)) == len(names) else None


def _named(of: Elements, values: list[Any]) -> dict[str, list[Any]]:
    """Returns the list elements by path element. One without a key cannot be owned and is left out."""
    by_name: dict[str, list[Any]] = {}
    for value in values:
        try:
            by_name.setdefault(of.name(value), []).append(value)
        except BadElement:
            continue
    return by_name
