"""Field manager tracking: updates `metadata.managedFields` with every write, as `kinds/apply` decides."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

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


class FieldManager(msgspec.Struct, frozen=True):
    """The manager of written fields, and the subresource through which they are written."""

    name: str
    subresource: str = ""


SERVER = FieldManager("kube-apiserver")
"""The server itself, under the name by which users know it."""


def manager_name(manager: str, user_agent: str) -> str:
    """Returns the requested manager, else the program that sent the request: `kubectl/v1.36 …` is kubectl."""
    if manager:
        return manager
    program = user_agent.partition("/")[0]
    if not program.isprintable():
        program = "".join(character for character in program if character.isprintable())
    return program[:LONGEST_NAME]


@dataclass(frozen=True, slots=True)
class Tracker:
    """Tracks `metadata.managedFields`."""

    registry: Registry
    clock: Clock

    def created(self, resource: Resource, obj: Object, field_manager: FieldManager) -> None:
        """Assigns everything in a new object, including defaults, to its creator; except the status, which has its own
        subresource."""
        manager = _updater(resource.kind.api_version, field_manager)
        claimed = obj
        if resource.has_status and "status" in obj:
            claimed = {key: value for key, value in obj.items() if key != "status"}
        _put(obj, written(created(resource.version, resource.empty, claimed, manager, self._now())))

    def updated(self, resource: Resource, new: Object, old: Object, given: Any, field_manager: FieldManager) -> None:
        """Assigns the changed fields to the writer. `given` is the managedFields that the client sent.

        An object that was never tracked stays untracked until something is applied to it.
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
        """Returns the object after an apply, and its managedFields; raises Conflict. `live` None: it does not exist
        yet."""
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
        return rfc3339(self.clock.wall())

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


def _applied(
    apply: Callable[..., Applied], view: View, live: Object, field_manager: FieldManager, *, force: bool
) -> Applied:
    """Applies; conflicts over fields that kubectl applied on the client side are ignored."""
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
    """Returns the managers to start from: a client may send others, or none to reset them; invalid ones are ignored."""
    if given is None or given == entries:
        return read(entries)
    if is_reset(given):
        return {}
    try:
        return read(given, strange=True) or read(entries)
    except BadEntries:
        return read(entries)


def _put(obj: Object, entries: list[Object]) -> None:
    """Sets managedFields in a copy of the metadata, which the old object may share."""
    metadata = obj["metadata"] = {**obj["metadata"]}
    if entries:
        metadata[MANAGED_FIELDS] = entries
    else:
        metadata.pop(MANAGED_FIELDS, None)


def _converted(here: Resource, there: Resource, obj: Object) -> Object:
    """Converts an object between versions by way of its stored form."""
    stored = here.conversion.to_stored(obj) if here.conversion else obj
    if there.conversion:
        return there.conversion.from_stored(stored)
    served = {**stored, "apiVersion": there.kind.api_version}
    return there.as_read(served) if there.as_read else served


def unchanged_but_for_times(new: Object, old: Object) -> bool:
    """Returns whether two objects differ at most in the times of managedFields, which is not a change."""
    entries = [[{**entry, "time": ""} for entry in obj["metadata"].get(MANAGED_FIELDS, [])] for obj in (new, old)]
    if entries[0] != entries[1]:
        return False
    bare = [{**obj, "metadata": {**obj["metadata"], MANAGED_FIELDS: None}} for obj in (new, old)]
    return bare[0] == bare[1]
