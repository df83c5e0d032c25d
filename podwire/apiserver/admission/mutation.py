"""Shared by mutating webhooks and policies: taking over a changed object, and the second round.

Upstream runs all mutating plugins once more when one of these has changed the object, so that those before it see the
change. In the second round only those are called that asked for it and whose input has changed since.
"""

from dataclasses import dataclass, field
from typing import Any

import msgspec

from podwire.apiserver.admission.chain import Operation
from podwire.apiserver.request import bodies
from podwire.apiserver.request.bodies import Body
from podwire.kinds import stored
from podwire.kinds.resource import Resource
from podwire.kinds.stored import Object
from podwire.protocols.storage import Item

_KEPT = ("namespace", "uid", "creationTimestamp", "generation", "resourceVersion", "managedFields", "deletionTimestamp")
"""Metadata that is not theirs to change."""


def take_over(operation: Operation, seen_as: Resource, changed: Any) -> bool:
    """Makes a changed object that of the operation: in normal form, in the request's own version, with defaults.

    Returns whether it differs from the one before. Raises ApiError for what is not an object of its kind.
    """
    own, before = operation.resource, operation.obj
    if before.get("kind") != own.kind.kind:  # a Binding, Eviction or Scale is not an object of the resource
        operation.obj = changed
        return bool(changed != before)
    obj = bodies.shaped(Body(changed), seen_as, "Ignore")
    if seen_as is not own:
        obj = own.unpack(Item("", seen_as.pack(obj), 0, 0))
    metadata = obj["metadata"] = {**obj["metadata"]}
    for word in _KEPT:
        if word in before["metadata"]:
            metadata[word] = before["metadata"][word]
        else:
            metadata.pop(word, None)
    own.default(obj)
    if operation.restrict is not None:
        obj = operation.restrict(obj)
    operation.obj = obj
    return obj != before


@dataclass(slots=True)
class Reinvocation:
    """The second round of one plugin: who was called before, and who is called again."""

    previous: set[str] = field(default_factory=set)
    """Those that were called and may be called again."""
    due: set[str] = field(default_factory=set)
    output: bytes = b""
    """The object as this plugin left it."""

    @classmethod
    def of(cls, operation: Operation, plugin: str) -> "Reinvocation":
        if operation.reinvocations is None:
            operation.reinvocations = {}
        state: Reinvocation = operation.reinvocations.setdefault(plugin, cls())
        if operation.round and state.output != _snapshot(operation.obj):
            state.due |= state.previous
        return state

    def skips(self, operation: Operation, id_: str) -> bool:
        return bool(operation.round) and id_ not in self.due

    def called(self, operation: Operation, id_: str, *, changed: bool, reinvoked: bool) -> None:
        if changed:
            self.due |= self.previous
            operation.reinvoke = True
        if reinvoked:
            self.previous.add(id_)

    def ended(self, operation: Operation) -> None:
        self.output = _snapshot(operation.obj)


def _snapshot(obj: Object) -> bytes:
    return stored.encode(obj)


def json_text(value: Any) -> str:
    return msgspec.json.encode(value).decode()
