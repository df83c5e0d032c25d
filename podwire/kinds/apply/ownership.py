"""Field ownership and server-side apply (KEP-555, kubernetes.io/docs/reference/using-api/server-side-apply), pure.

Every write has a field manager (`managers.py`); an object's managedFields list for each manager the set of fields that
it owns (`fieldsets.py`), in the version in which it wrote them. How far a value can be owned in parts is its type's
matter (`types.py`: list-type and map-type of the schema).

    write                       fields with a new value    removed fields            fields of the same value
    create, update, patch       owned by the writer,       owned by nobody           owned as before
                                taken from all others
    apply (config)              owned by the applier; a    those that the applier    shared: the applier owns them
                                conflict if another owns   owned and left out, if    together with the others
                                them, unless forced        nobody else owns them

An apply goes through these steps (structured-merge-diff's `merge.Updater.Apply`):

    1. claimed    the fields of the configuration, without those that identify the object
    2. merge      the configuration's values into the live object, by list type (`merge.py`)
    3. prune      remove fields that the applier's last apply claimed, this one does not, and nobody else owns; in the
                  version of that last apply, and with added back what others own below a removed field
    4. compare    live with the result: changed fields that others own are conflicts
    5. managers   others lose what was changed or removed; the applier owns exactly what it claimed"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from podwire.kinds.apply.compare import Comparison, compare, given
from podwire.kinds.apply.fields import claimed
from podwire.kinds.apply.fieldsets import FIELD, HERE, FieldSet, difference, intersection, paths, union
from podwire.kinds.apply.managers import UPDATE, Managed, Manager, Owned, bundled
from podwire.kinds.apply.merge import merge
from podwire.kinds.apply.remove import remove, with_named
from podwire.kinds.apply.types import Deduced, Leaf, ListMap, SetList, Type

Object = dict[str, Any]
BEFORE_FIRST_APPLY = "before-first-apply"
"""The manager of all fields of an object that had no managedFields before its first apply."""

_IDENTITY = frozenset({"apiVersion", "kind"})
_IDENTITY_META = frozenset({"name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation",
                            "managedFields", "resourceVersion"})  # fmt: skip
_NOBODYS: FieldSet = {
    **{f"f:{name}": {} for name in _IDENTITY},
    "f:metadata": {".": {}, **{f"f:{name}": {} for name in _IDENTITY_META}},
}
"""Fields that identify the object; nobody owns them."""


def _same(obj: Object) -> Object:
    return obj


@dataclass(slots=True)
class Version:
    """A kind in one of its versions, and the ways from and to the version of the write."""

    api_version: str
    type: Type
    there: Callable[[Object], Object] = _same
    back: Callable[[Object], Object] = _same


@dataclass(slots=True)
class View:
    """An object's kind as one write sees it. `others` gives the kind in another version, None when it has none."""

    version: Version
    others: Callable[[str], Version | None]
    changing: bool = False
    """The schema may have changed since fields were first owned, as that of a custom resource can."""

    def at(self, api_version: str) -> Version | None:
        return self.version if api_version == self.version.api_version else self.others(api_version)


class Conflicts(Exception):
    """Fields that others own and that would get another value."""

    def __init__(self, found: list[tuple[Manager, tuple[str, ...]]]) -> None:
        super().__init__(f"{len(found)} conflicts")
        self.found = found


def created(version: Version, empty: Object, new: Object, manager: Manager, time: str) -> Managed:
    """Returns the managers of a new object: one that has everything that is not in the empty one."""
    claims = {name: value for name, value in new.items() if name not in _IDENTITY}
    claims["metadata"] = {name: value for name, value in new["metadata"].items() if name not in _IDENTITY_META}
    gained = given(version.type, empty, claims)
    return {manager: Owned(gained, version.api_version, time)} if gained else {}


def updated(view: View, old: Object, new: Object, managed: Managed, manager: Manager, time: str) -> Managed:
    """Returns the managers after a write other than apply; the very same ones when it changes no field."""
    change = compare(view.version.type, old, new)
    if change.same:
        return managed
    known = _with_current_types(view, managed)
    mine = known.pop(manager, None)
    left = _without_lost(known, _Changes(view, old, new, change))
    gained = difference(change.given, _NOBODYS)
    kept = difference(mine.fields, change.removed) if mine else FIELD
    if gained:
        left[manager] = Owned(union(kept, gained), view.version.api_version, time)
    elif mine and kept:
        left[manager] = mine if kept is mine.fields else Owned(kept, mine.api_version, mine.time)
    return bundled(left)


class _Changes:
    """A change as the versions of the kind see it."""

    def __init__(self, view: View, old: Object, new: Object, change: Comparison) -> None:
        self._view = view
        self._old, self._new = old, new
        self._known: dict[str, Comparison | None] = {view.version.api_version: change}

    def at(self, api_version: str) -> Comparison | None:
        """None for a version that is not served any more."""
        if api_version not in self._known:
            version = self._view.others(api_version)
            self._known[api_version] = (
                compare(version.type, version.there(self._old), version.there(self._new)) if version else None
            )
        return self._known[api_version]


def _without_lost(managed: Managed, changes: _Changes, spared: Manager | None = None) -> Managed:
    """Returns the managers without changed and removed fields; one that owns nothing any more is left out."""
    left: Managed = {}
    for manager, owned in managed.items():
        if manager == spared:
            left[manager] = owned
            continue
        change = changes.at(owned.api_version)
        if change is None:
            continue
        fields = difference(owned.fields, change.lost)
        if fields is owned.fields:
            left[manager] = owned
        elif fields:
            left[manager] = Owned(fields, owned.api_version, owned.time)
    return left


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of an apply: the object as it should be, and its managers."""

    obj: Object
    managed: Managed


def applied(
    view: View, live: Object, config: Object, managed: Managed, manager: Manager, *, force: bool, time: str
) -> Applied:
    """Apply a configuration; raises Conflicts."""
    version = view.version
    known = _with_current_types(view, managed)
    last = known.get(manager)
    fields = difference(claimed(version.type, config), _NOBODYS)
    others = {**known, manager: Owned(fields, version.api_version, last.time if last else time)}
    merged = merge(version.type, live, config)
    new = _pruned(view, merged, others, last)
    changes = _Changes(view, live, new, compare(version.type, live, new))
    if not force and (conflicts := _conflicts(others, changes, manager)):
        raise Conflicts(conflicts)
    left = _without_lost(others, changes, spared=manager)
    if not fields:
        left.pop(manager, None)
    elif new != live:
        left[manager] = Owned(fields, version.api_version, time)
    return Applied(new, left)


def _with_current_types(view: View, managed: Managed) -> Managed:
    """Returns the managers with their fields as the schema has them by now."""
    if not view.changing:
        return dict(managed)
    current: Managed = {}
    for manager, owned in managed.items():
        version = view.at(owned.api_version)
        if version is not None:
            fields = _fitted(version.type, owned.fields)
            current[manager] = owned if fields == owned.fields else Owned(fields, owned.api_version, owned.time)
    return current


def unmanaged(view: View, empty: Object, live: Object, subresource: str, time: str) -> Managed:
    """Managers for an object that has none: everything was there before."""
    manager = Manager.of(BEFORE_FIRST_APPLY, UPDATE, view.version.api_version, subresource)
    return created(view.version, empty, live, manager, time)


def _conflicts(managed: Managed, changes: _Changes, manager: Manager) -> list[tuple[Manager, tuple[str, ...]]]:
    conflicts = []
    for other, owned in sorted(managed.items()):
        change = changes.at(owned.api_version)
        if other != manager and change is not None:
            conflicts += [(other, path) for path in paths(intersection(change.given, owned.fields))]
    return conflicts


def _pruned(view: View, merged: Object, managed: Managed, last: Owned | None) -> Object:
    """Returns the merged object without what the applier claimed the last time and nobody claims now."""
    version = view.at(last.api_version) if last and last.fields else None
    if version is None or last is None:
        return merged
    whole = version.there(merged)
    ours = with_named(version.type, last.fields)
    pruned = remove(version.type, whole, ours) or {}
    for api_version in sorted(
        {owned.api_version for owned in managed.values()}, key=lambda name: name != last.api_version
    ):
        pruned = _with_owned(view, version, whole, pruned, api_version, managed)
    gone = intersection(difference(_named(version, whole), _named(version, pruned)), ours)
    return version.back(remove(version.type, whole, gone) or {})


def _with_owned(view: View, of: Version, whole: Object, pruned: Object, api_version: str, managed: Managed) -> Object:
    """Returns the pruned object with everything back in it that is owned in a version."""
    version = view.at(api_version)
    if version is None:
        return pruned
    same = version is of
    all_there = whole if same else version.there(of.back(whole))
    few_there = pruned if same else version.there(of.back(pruned))
    owned: FieldSet = {}
    for other in managed.values():
        if other.api_version == api_version:
            owned = union(owned, other.fields)
    kept = union(_named(version, few_there), with_named(version.type, owned))
    left = remove(version.type, all_there, difference(_named(version, all_there), kept)) or {}
    return left if same else of.there(version.back(left))


def _named(version: Version, obj: Object) -> FieldSet:
    return with_named(version.type, claimed(version.type, obj))


def _fitted(of: Type, fields: FieldSet) -> FieldSet:
    """Returns a set in which a field that has become atomic is owned as a whole by all who owned part of it."""
    fitted: FieldSet = {}
    for key, below in fields.items():
        if key == HERE or not below:
            fitted[key] = below
            continue
        inner = _below(of, key)
        if isinstance(inner, Leaf):
            fitted[key] = {}
        else:
            fitted[key] = below if inner is None or isinstance(inner, Deduced) else _fitted(inner, below)
    return fitted


def _below(of: Type, key: str) -> Type | None:
    if isinstance(of, ListMap | SetList):
        return of.element
    return None if isinstance(of, Leaf) or not key.startswith("f:") else of.member(key[2:])
