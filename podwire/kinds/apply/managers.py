"""Field managers: `metadata.managedFields` read, bundled where there are too many, and written."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from podwire.kinds.apply.fieldsets import FieldSet, in_order, tidy, union

APPLY, UPDATE = "Apply", "Update"
MOST_UPDATERS = 10
"""Managers that update; when there are more, those that wrote first are bundled."""
BUNDLE = "ancient-changes"
UNKNOWN = "unknown"
"""The name of a manager that has none."""


class Manager(NamedTuple):
    """The identity of an entry. An applier has one entry, whichever version it applies in: its version is left out."""

    name: str
    operation: str
    api_version: str = ""
    subresource: str = ""

    @classmethod
    def of(cls, name: str, operation: str, api_version: str, subresource: str = "") -> "Manager":
        return cls(name or UNKNOWN, operation, api_version if operation == UPDATE else "", subresource)

    def __str__(self) -> str:
        """As a conflict names it."""
        text = _quoted(self.name)
        if self.subresource:
            text += f" with subresource {_quoted(self.subresource)}"
        return f"{text} using {self.api_version}" if self.operation == UPDATE else text


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


@dataclass(slots=True)
class Owned:
    """The fields that a manager has, by their names in one version of the kind; never changed once it is made.

    `entry` is where it was read from.
    """

    fields: FieldSet
    api_version: str
    time: str = ""
    entry: dict[str, Any] | None = field(default=None, compare=False)


Managed = dict[Manager, Owned]


class BadEntries(ValueError):
    """managedFields that a client has sent cannot be read."""


def read(entries: Iterable[dict[str, Any]], *, strange: bool = False) -> Managed:
    """Returns the managers of an object. `strange`: a client sent them, so they are checked; raises BadEntries."""
    managed: Managed = {}
    for entry in entries:
        operation, api_version = entry.get("operation", ""), entry.get("apiVersion", "")
        fields = entry.get("fieldsV1") or {}
        if strange:
            if entry.get("operation") not in (APPLY, UPDATE):
                raise BadEntries("operation must be `Apply` or `Update`")
            if not entry.get("apiVersion"):
                raise BadEntries("apiVersion must not be empty")
            if entry.get("fieldsType") != "FieldsV1":
                raise BadEntries("fieldsType must be FieldsV1")
            try:
                fields = tidy(fields)
            except ValueError as error:
                raise BadEntries(str(error)) from error
        # an entry without a manager keeps its empty name: only who writes now must have one
        manager = Manager(
            entry.get("manager", ""),
            operation,
            api_version if operation == UPDATE else "",
            entry.get("subresource", ""),
        )
        managed[manager] = Owned(fields, api_version, entry.get("time", ""), None if strange else entry)
    return managed


def is_reset(entries: Any) -> bool:
    """Returns whether a client asks to reset the managers: an empty list, or one with an empty entry."""
    return isinstance(entries, list) and entries in ([], [{}])


def written(managed: Managed) -> list[dict[str, Any]]:
    """Returns the entries, appliers first, then by time."""
    ordered = list(managed.items())
    if len(ordered) > 1:
        ordered.sort(key=_order)
    return [owned.entry or _entry(manager, owned) for manager, owned in ordered]


def _order(each: tuple[Manager, Owned]) -> tuple[str, ...]:
    (name, operation, api_version, subresource), owned = each
    return (operation, owned.time, name, api_version, subresource)


def _entry(manager: Manager, owned: Owned) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "manager": manager.name,
        "operation": manager.operation,
        "apiVersion": owned.api_version,
        "time": owned.time,
        "fieldsType": "FieldsV1",
        "fieldsV1": in_order(owned.fields),
    }
    if manager.subresource:
        entry["subresource"] = manager.subresource
    if not owned.time:
        del entry["time"]
    return entry


def bundled(managed: Managed) -> Managed:
    """With at most so many updaters, as far as their versions allow: the oldest of a version become one."""
    if len(managed) <= MOST_UPDATERS:
        return managed
    updaters = [manager for manager in managed if manager.operation == UPDATE]
    surplus = len(updaters) - MOST_UPDATERS
    kept = dict(managed)
    first: dict[str, Manager] = {}
    for updater in sorted(updaters, key=lambda manager: (managed[manager].time, manager)):
        if surplus <= 0:
            break
        owned = kept[updater]
        eldest = first.setdefault(owned.api_version, updater)
        if eldest is updater:
            continue
        bundle = Manager(BUNDLE, UPDATE, owned.api_version)
        before = kept[bundle] if bundle in kept else kept.pop(eldest)
        del kept[updater]
        kept[bundle] = Owned(union(owned.fields, before.fields), owned.api_version, owned.time)
        surplus -= 1
    return kept
