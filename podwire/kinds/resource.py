"""One served resource: what the API server's verbs need to know of a kind, built-in or custom."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from podwire.kinds import stored
from podwire.kinds.apply.ownership import Version
from podwire.kinds.apply.types import DEDUCED, Type
from podwire.kinds.shape import Report, Shape
from podwire.kinds.stored import Object
from podwire.kinds.strategy import CUSTOM, Conversion, SelectableField, Strategy
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import FieldError
from podwire.protocols.storage import Item

PREFIX = "/registry/"


def storage_prefix(kind: Kind, strategy: Strategy) -> str:
    """Returns the prefix of the storage keys of a kind; built-in kinds leave out the group, as upstream does."""
    if strategy is CUSTOM:
        return f"{PREFIX}{kind.group}/{kind.resource}/"
    return f"{PREFIX}{strategy.stored_as or kind.resource}/"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalePaths:
    """The paths of the fields that a Scale shows; built-in kinds all have the same."""

    wanted: tuple[str, ...] = ("spec", "replicas")
    present: tuple[str, ...] = ("status", "replicas")
    selector: tuple[str, ...] = ()
    """The path of a selector in string form, which only custom kinds have; empty for none."""


@dataclass(frozen=True, kw_only=True)
class Resource:
    """One served resource: what the verbs need to know of it."""

    kind: Kind
    strategy: Strategy
    shape: Shape
    prefix: str
    stored_api_version: str = ""
    """The apiVersion of stored objects where it is not the served one but needs no conversion (CRD versions)."""
    conversion: Conversion | None = None
    default: Callable[[Object], None]
    validate: Callable[[Object], list[FieldError]]
    validate_update: Callable[[Object, Object, str], list[FieldError]]
    columns: Callable[[], list[dict[str, Any]]]
    cells: Callable[[Object, float], list[Any]]
    selectable: tuple[SelectableField, ...] = ()
    """Fields for fieldSelector beyond those of every kind."""
    scale: ScalePaths = ScalePaths()
    as_read: Callable[[Object], Object] | None = None
    """Prunes and defaults a stored object for this version's schema, where another one may have written it."""
    warning: str = ""
    """A warning in every response, such as that a version is deprecated."""
    typed: Type = DEDUCED
    """The type for field ownership."""

    @cached_property
    def custom(self) -> bool:
        return self.strategy is CUSTOM

    @cached_property
    def name(self) -> str:
        return self.kind.resource

    @cached_property
    def group(self) -> str:
        return self.kind.group

    @cached_property
    def empty(self) -> Object:
        """An empty object of this kind, for comparing only."""
        return {"metadata": {}, **self.shape.decode({}, "", Report())}

    @cached_property
    def version(self) -> Version:
        """This kind for field ownership."""
        return Version(self.kind.api_version, self.typed)

    @cached_property
    def has_status(self) -> bool:
        return self.kind.subresource("status") is not None

    @cached_property
    def stored_kind(self) -> Kind:
        return self.conversion.stored if self.conversion else self.kind

    @cached_property
    def stored_head(self) -> bytes:
        return stored.head(self.stored_api_version or self.stored_kind.api_version, self.kind.kind)

    @cached_property
    def served_head(self) -> bytes:
        return stored.head(self.kind.api_version, self.kind.kind)

    def key(self, namespace: str, name: str) -> str:
        return f"{self.prefix}{namespace}/{name}" if self.kind.namespaced else f"{self.prefix}{name}"

    def scope(self, namespace: str) -> str:
        """Returns the prefix of all objects in a namespace, or everywhere."""
        return f"{self.prefix}{namespace}/" if self.kind.namespaced and namespace else self.prefix

    def pack(self, obj: Object) -> bytes:
        """Returns the bytes to store for an object in the served version."""
        if self.conversion:
            return stored.pack(self.conversion.to_stored(obj))
        if self.stored_api_version:
            return stored.pack({**obj, "apiVersion": self.stored_api_version})
        return stored.pack(obj)

    def unpack(self, item: Item) -> Object:
        """Returns the object in the served version; a fresh copy."""
        obj = stored.unpack(item)
        if self.conversion:
            return self.conversion.from_stored(obj)
        if self.custom:
            obj["apiVersion"] = (
                self.kind.api_version
            )  # it may be stored in any version that ever was the storage version
        return self.as_read(obj) if self.as_read else obj

    def serve(self, item: Item) -> bytes:
        """Returns the object's JSON in the served version, straight from the stored bytes where it can be."""
        if self.conversion or self.as_read or (self.custom and not item.value.startswith(self.stored_head)):
            return stored.encode(self.unpack(item))
        return stored.splice(item.value, item.revision, self.stored_head, self.served_head)
