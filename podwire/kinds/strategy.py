"""Strategy: everything that the API server asks of one kind, in one row.

The names follow k8s.io/apiserver/pkg/registry/rest (RESTCreateStrategy, RESTUpdateStrategy, RESTDeleteStrategy); the
order of the calls is in the docstrings of `apiserver`'s create, update and delete. A kind's module fills in what
differs from the defaults below; `strategies.py` finds it.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from podwire.kinds import object_meta
from podwire.kinds.tables import Row, column_definitions, plain_row
from podwire.objects import names
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import FieldError

Object = dict[str, Any]
Fill = Callable[[Object], None]
"""Changes an object in place."""
Create = Callable[[Mapping[str, Any]], list[FieldError]]
Update = Callable[[Mapping[str, Any], Mapping[str, Any]], list[FieldError]]
"""Checks the new object against the old one."""
Warn = Callable[[Mapping[str, Any], Mapping[str, Any] | None], list[str]]
"""Returns warnings about a valid object; the old one is None on creation."""
Parts = Mapping[str, Any]


def keep(_obj: Object) -> None:
    """Changes nothing."""


def keep_new(_new: Object, _old: Object) -> None:
    """Changes nothing."""


def accept(_obj: Mapping[str, Any]) -> list[FieldError]:
    """Checks nothing beyond the metadata."""
    return []


def accept_update(_new: Mapping[str, Any], _old: Mapping[str, Any]) -> list[FieldError]:
    """Checks nothing beyond the metadata."""
    return []


def no_warnings(_new: Mapping[str, Any], _old: Mapping[str, Any] | None) -> list[str]:
    """Warns about nothing."""
    return []


def as_on_create(validate: Create) -> Update:
    """Returns the check of a kind whose fields may all change: the new object is validated as on creation."""
    return lambda new, _old: validate(new)


def delete_at_once(_obj: Object, _requested: int | None) -> int:
    """No grace period."""
    return 0


def not_blocked(_obj: Object) -> bool:
    """Nothing but the metadata's finalizers delays the removal."""
    return False


@dataclass(frozen=True, slots=True)
class SelectableField:
    """A field that a fieldSelector may name, and how its text is read from the stored object."""

    name: str
    """The name that clients use."""
    path: tuple[str, ...]
    """The place in the stored object, which has other names where the stored version has."""
    absent: str = ""
    """The text of a field that is not set."""
    read: Callable[[Mapping[str, Any]], str] | None = None
    """Reads the text where it is not at one place."""

    def text(self, obj: Mapping[str, Any]) -> str:
        if self.read is not None:
            return self.read(obj)
        value: Any = obj
        for part in self.path:
            value = value.get(part) if isinstance(value, Mapping) else None
        return self.shown(value)

    def shown(self, value: Any) -> str:
        """Returns the text of the field's value; None is a field that is not set."""
        if value is None:
            return self.absent
        if isinstance(value, bool):
            return "true" if value else "false"
        return str(value)


def selectable(name: str, *, stored: str = "", absent: str = "") -> SelectableField:
    return SelectableField(name, tuple((stored or name).split(".")), absent)


@dataclass(frozen=True, slots=True)
class Conversion:
    """A version of a kind that is stored in the form of another version."""

    stored: Kind
    to_stored: Callable[[Object], Object]
    from_stored: Callable[[Object], Object]
    validated_as_stored: bool = False
    """Defaults and validation are those of the stored version, as are field names in errors."""


EVERY_KIND = (selectable("metadata.name"), selectable("metadata.namespace"))
"""Fields of every kind that a fieldSelector may name."""


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """The answers of one kind to the questions of the API server."""

    group: str
    kind: str

    deprecated: str = ""
    """A warning in every response about a kind that should not be used any more."""

    # Names and storage
    check_name: names.Check = names.dns_subdomain
    qualified_finalizers: bool = True
    """Finalizers in the metadata must be qualified names or the well-known ones."""
    stored_as: str = ""
    """The storage key below /registry/ where it is not the resource's name; the keys are upstream's."""
    conversions: Mapping[str, Conversion] = field(default_factory=dict)
    """By version, for versions that are not stored as they are."""

    # Defaults, on every write
    parts: Parts = field(default_factory=dict)
    """Structs and counters that are always written, if only empty (Go structs without omitempty): clients count on
    them. The Python client rejects a PodDisruptionBudget whose status lacks `expectedPods`."""
    default: Fill = keep
    default_times: Callable[[Object, Callable[[], float]], None] | None = None
    """Sets times that default to now."""

    # Create
    prepare_create: Fill = keep
    """Sets what only creation sets: a first status, and what follows from name, uid and labels."""
    status_on_create: bool = False
    """The creator may set the status: a kubelet registers its node in one request."""
    validate_create: Create = accept

    # Update
    allow_create_on_update: bool = False
    """PUT of an object that does not exist creates it."""
    allow_unconditional_update: bool = True
    """PUT may leave out the resourceVersion and overwrite the stored object."""
    counts_generation: bool = False
    """metadata.generation counts changes of the spec."""
    generation_follows_annotations: bool = False
    """Changed annotations count as a new generation, too: a Deployment copies its own to its ReplicaSets."""
    prepare_update: Callable[[Object, Object], None] = keep_new
    """Restores in the new object what an update of the object itself may not change."""
    prepare_status: Callable[[Object, Object], None] = keep_new
    """Restores in the new object what an update of the status may not remove."""
    validate_update: Update = accept_update
    validate_subresources: Mapping[str, Update] = field(default_factory=dict)
    warnings: Warn = no_warnings
    """Says what is valid and probably not meant, for creations and updates of the object itself."""

    # Delete
    returns_deleted: bool = False
    """DELETE answers with the deleted object instead of a Status."""
    grace_seconds: Callable[[Object, int | None], int] = delete_at_once
    """The grace period of an object, given the one that the request asks for."""
    prepare_delete: Fill = keep
    """Changes an object whose deletion was requested."""
    removal_blocked: Callable[[Object], bool] = not_blocked
    """Returns whether something of the kind's own, such as a namespace's spec.finalizers, delays the removal."""

    # Read
    selectable: tuple[SelectableField, ...] = ()
    """Fields for fieldSelector beyond EVERY_KIND."""
    columns: str = "Name|Created At"
    """Table columns, separated by `|`. Marks at the end: `#` integer, `?` boolean, then `*` for `-o wide` only."""
    row: Row = plain_row
    """The cells of an object, one for each column."""

    def apply_defaults(self, obj: Object, *, now: Callable[[], float] = time.time) -> None:
        """Fills in what the object leaves open."""
        if "metadata" not in obj:
            obj["metadata"] = {}
        fill(obj, self.parts)
        self.default(obj)
        if self.default_times is not None:
            self.default_times(obj, now)

    def prepare_for_create(self, kind: Kind, obj: Object) -> None:
        """Makes an object ready to be created that has its defaults, name, uid and creationTimestamp.

        A client cannot set the status of a new object: kinds with a status subresource begin with an empty one.
        """
        if not self.status_on_create and kind.subresource("status") is not None:
            obj.pop("status", None)
            fill(obj, self.parts)
        self.prepare_create(obj)

    def errors_on_create(self, kind: Kind, obj: Mapping[str, Any]) -> list[FieldError]:
        """Returns what is wrong with an object that is prepared for creation: its metadata first, then the kind's."""
        errors: list[FieldError] = []
        object_meta.create(
            kind, obj.get("metadata") or {}, self.check_name, errors, qualified=self.qualified_finalizers
        )
        return errors + self.validate_create(obj)

    def errors_on_update(
        self, new: Mapping[str, Any], old: Mapping[str, Any], subresource: str = ""
    ) -> list[FieldError]:
        """Returns what is wrong with an object that is to replace `old`, as a whole or through a subresource."""
        errors: list[FieldError] = []
        before = old.get("metadata") or {}
        object_meta.update(new.get("metadata") or {}, before, errors, qualified=self.qualified_finalizers)
        validate = self.validate_subresources.get(subresource, accept_update) if subresource else self.validate_update
        return errors + validate(new, old)

    def column_definitions(self) -> list[dict[str, Any]]:
        """Returns the TableColumnDefinitions."""
        return column_definitions(self.columns)


CUSTOM = Strategy(
    group="", kind="", qualified_finalizers=False, counts_generation=True, allow_unconditional_update=False
)
"""The strategy of all custom resources; their schema adds its rules."""


def fill(obj: Object, parts: Parts) -> None:
    """Adds to an object the parts that it lacks; dictionaries are the object's own."""
    for name, part in parts.items():
        if isinstance(part, Mapping):
            inner = obj.get(name)
            if inner is None:
                inner = obj[name] = {}
            if part:
                fill(inner, part)
        elif name not in obj:
            obj[name] = part
