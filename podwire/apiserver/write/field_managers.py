"""Who owns which fields, after every write: what `apply/` decides, for the resources that are served here."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from podwire.apiserver.registry import Registry
from podwire.interfaces import Clock
from podwire.kinds.apply import last_applied
from podwire.kinds.apply.errors import conflict_error
from podwire.kinds.apply.fieldsets import has
from podwire.kinds.apply.managers import (
    APPLY,
    UPDATE,
    BadEntries,
    Managed,
    Manager,
    is_reset,
    read,
    written,
)
from podwire.kinds.apply.ownership import Applied, Conflicts, Version, View, applied, created, unmanaged, updated
from podwire.kinds.resource import Resource
from podwire.kinds.stored import Object
from podwire.objects.times import rfc3339

MANAGED_FIELDS = "managedFields"
LONGEST_NAME = 128


@dataclass(frozen=True, slots=True)
class FieldManager:
    """In whose name fields are written, and through which subresource."""

    name: str
    subresource: str = ""


SERVER = FieldManager("kube-apiserver")
"""The server itself, under the name by which users know it."""


def manager_name(manager: str, user_agent: str) -> str:
    """The manager that a request names, else the program that sent it: `kubectl/v1.36 …` is kubectl."""
    if manager:
        return manager
    return "".join(each for each in user_agent.partition("/")[0] if each.isprintable())[:LONGEST_NAME]


@dataclass(frozen=True, slots=True)
class Tracker:
    """Keeps `metadata.managedFields`."""

    registry: Registry
    clock: Clock

    def created(self, resource: Resource, obj: Object, field_manager: FieldManager) -> None:
        """Everything in a new object, its defaults too, belongs to whoever made it; but for a status, which has a door
        of its own, even where the object came with it."""
        manager = _updater(resource.kind.api_version, field_manager)
        claimed = obj
        if resource.has_status and "status" in obj:
            claimed = {key: value for key, value in obj.items() if key != "status"}
        _put(obj, written(created(resource.version, resource.empty, claimed, manager, self._now())))

    def updated(self, resource: Resource, new: Object, old: Object, given: Any, field_manager: FieldManager) -> None:
        """What a write changed belongs to its author. `given` is what the client would have the entries be.

        An object that nobody has tracked so far stays so until something is applied to it.
        """
        entries = old["metadata"].get(MANAGED_FIELDS) or []
        managed = _managed(entries, given if not field_manager.subresource else None)
        _put(new, entries)  # so that the two do not differ in this
        if managed:
            manager = _updater(resource.kind.api_version, field_manager)
            managed = updated(self._view(resource), old, new, managed, manager, self._now())
        if managed:
            new["metadata"][MANAGED_FIELDS] = written(managed)
        else:
            new["metadata"].pop(MANAGED_FIELDS, None)

    def applied(
        self, resource: Resource, live: Object | None, config: Object, field_manager: FieldManager, *, force: bool
    ) -> tuple[Object, list[Object]]:
        """The object after an apply and its entries; raises Conflict. None for `live`: there is none yet."""
        view, now = self._view(resource), self._now()
        identity = {"kind": resource.kind.kind, "apiVersion": resource.kind.api_version}
        present = {**resource.empty, **identity} if live is None else live
        metadata = {key: value for key, value in present["metadata"].items() if key != MANAGED_FIELDS}
        managed = read(present["metadata"].get(MANAGED_FIELDS) or [])
        present = {**present, "metadata": metadata}
        if not managed and live is not None:
            managed = unmanaged(view, {**resource.empty, **identity}, present, field_manager.subresource, now)
        manager = Manager.of(field_manager.name, APPLY, resource.kind.api_version, field_manager.subresource)
        apply = partial(applied, view, present, config, managed, manager, time=now)
        try:
            done = _applied(apply, view, present, field_manager, force=force)
        except Conflicts as conflicts:
            raise conflict_error(conflicts) from conflicts
        obj = last_applied.kept_up(done.obj, config) if field_manager.name == last_applied.MANAGER else done.obj
        return obj, written(done.managed)

    def _now(self) -> str:
        return _format_time(int(self.clock.wall()))

    def _view(self, resource: Resource) -> View:
        return View(resource.version, partial(self._other, resource), changing=resource.custom)

    def _other(self, resource: Resource, api_version: str) -> Version | None:
        group, _, version = api_version.rpartition("/")
        found = self.registry.find(group, version, resource.name)
        if found is None or found.prefix != resource.prefix:
            return None
        return Version(
            api_version, found.typed, partial(_converted, resource, found), partial(_converted, found, resource)
        )


def _updater(api_version: str, field_manager: FieldManager) -> Manager:
    return Manager.of(field_manager.name, UPDATE, api_version, field_manager.subresource)


@lru_cache(maxsize=4)
def _format_time(second: int) -> str:
    """Many writes happen in one second."""
    return rfc3339(second)


def _applied(
    apply: Callable[..., Applied], view: View, live: Object, field_manager: FieldManager, *, force: bool
) -> Applied:
    """Apply; a conflict over what kubectl itself has applied from the client's side is none."""
    try:
        return apply(force=force)
    except Conflicts as conflicts:
        if field_manager.name != last_applied.MANAGER:
            raise
        allowed = last_applied.allowed(view.version, live)
        left = [(manager, path) for manager, path in conflicts.found if not has(allowed, path)]
        if left:
            raise Conflicts(left) from conflicts
    return apply(force=True)


def _managed(entries: list[Object], given: Any) -> Managed:
    """The managers to go on from: a client may send others, or none to have them forgotten; nonsense is ignored."""
    if given is None or given == entries:
        return read(entries)
    if is_reset(given):
        return {}
    try:
        return read(given, strange=True) or read(entries)
    except BadEntries:
        return read(entries)


def _put(obj: Object, entries: list[Object]) -> None:
    """Into a copy of the metadata, which some doors share with the object as it was."""
    metadata = obj["metadata"] = {**obj["metadata"]}
    if entries:
        metadata[MANAGED_FIELDS] = entries
    else:
        metadata.pop(MANAGED_FIELDS, None)


def _converted(here: Resource, there: Resource, obj: Object) -> Object:
    """An object of one version in another one, by way of how it is stored."""
    stored = here.conversion.to_stored(obj) if here.conversion else obj
    if there.conversion:
        return there.conversion.from_stored(stored)
    served = {**stored, "apiVersion": there.kind.api_version}
    return there.as_read(served) if there.as_read else served


def unchanged_but_for_times(new: Object, old: Object) -> bool:
    """Whether two objects differ at most in when fields were last applied, which alone is no change."""
    entries = [[{**each, "time": ""} for each in obj["metadata"].get(MANAGED_FIELDS, [])] for obj in (new, old)]
    if entries[0] != entries[1]:
        return False
    bare = [{**obj, "metadata": {**obj["metadata"], MANAGED_FIELDS: None}} for obj in (new, old)]
    return bare[0] == bare[1]
