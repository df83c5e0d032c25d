"""Types and small worlds for server-side apply: a custom schema with every kind of list and map, and its managers."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from podwire.kinds.apply.builtin import OBJECT_META, builtin_types
from podwire.kinds.apply.custom import custom_type
from podwire.kinds.apply.managers import APPLY, UPDATE, Managed, Manager
from podwire.kinds.apply.ownership import Version, View, applied, updated

VERSION = "example.com/v1"

STRING = {"type": "string"}
ITEM = {"type": "object", "properties": {"name": STRING, "value": STRING, "size": {"type": "integer"}}}
PORT = {"type": "object", "properties": {"port": {"type": "integer"}, "protocol": {**STRING, "default": "TCP"}}}
SPEC = {
    "type": "object",
    "properties": {
        "text": STRING,
        "count": {"type": "integer"},
        "either": {"x-kubernetes-int-or-string": True},
        "struct": {"type": "object", "properties": {"a": STRING, "b": STRING}},
        "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": STRING, "b": STRING}},
        "map": {"type": "object", "additionalProperties": STRING},
        "maps": {"type": "object", "additionalProperties": {"type": "object", "properties": {"a": STRING}}},
        "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "list": {"type": "array", "items": STRING},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": STRING},
        "items": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                  "items": ITEM},
        "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"],
                  "items": PORT},
    },
}  # fmt: skip
SCHEMA = {"type": "object", "properties": {"spec": SPEC, "status": {"type": "object", "properties": {"text": STRING}}}}


def custom(schema: dict[str, Any] = SCHEMA) -> Version:
    return Version(VERSION, custom_type(schema, builtin_types().definition(OBJECT_META)))


def widget(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": VERSION, "kind": "Widget", "metadata": {"name": "w"}, "spec": spec}


@dataclass
class World:
    """One object and those who write it."""

    view: View
    obj: dict[str, Any] = field(default_factory=lambda: {"metadata": {}})
    managed: Managed = field(default_factory=dict)
    now: int = 0

    def apply(self, who: str, config: dict[str, Any], *, force: bool = False) -> dict[str, Any]:
        """Apply; the object afterwards."""
        manager = Manager.of(who, APPLY, self.view.version.api_version)
        done = applied(self.view, self.obj, config, self.managed, manager, force=force, time=self._tick())
        self.obj, self.managed = done.obj, done.managed
        return self.obj

    def update(self, who: str, new: dict[str, Any], subresource: str = "") -> dict[str, Any]:
        """Write the whole object in another way than by apply."""
        manager = Manager.of(who, UPDATE, self.view.version.api_version, subresource)
        self.managed = updated(self.view, self.obj, new, self.managed, manager, self._tick())
        self.obj = new
        return new

    def fields(self, who: str) -> dict[str, Any]:
        """Fields that a manager owns, whatever write gave them to it."""
        found = [owned.fields for manager, owned in self.managed.items() if manager.name == who]
        assert len(found) <= 1, f"{who} has several entries"
        return found[0] if found else {}

    def _tick(self) -> str:
        self.now += 1
        return f"2027-01-15T08:00:{self.now % 60:02}Z"


@pytest.fixture
def world() -> World:
    return World(View(custom(), lambda _version: None))


@pytest.fixture
def version() -> Callable[..., Version]:
    return custom


@pytest.fixture
def builtin() -> Callable[[str, str], World]:
    """A world of a built-in kind."""

    def make(api_version: str, kind: str) -> World:
        return World(View(Version(api_version, builtin_types().kind(api_version, kind)), lambda _version: None))

    return make
