"""Hides secrets in protobuf messages: of CRI, NRI and device plugins. Pure.

`FIELDS` has the positions: a message type and its fields. A type is searched only if it is in the table or contains
such a type, which is found out once for each type; a message is copied only if there is something to hide in it.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from podwire.trace.redact import HIDDEN, LAST_APPLIED

M = TypeVar("M", bound=Message)

_CRI, _NRI = "runtime.v1.", "nri.pkg.api.v1alpha1."
_KUBELET = "v1beta1."

FIELDS: dict[str, tuple[str, ...]] = {
    _CRI + "AuthConfig": ("username", "password", "auth", "identity_token", "registry_token"),
    _CRI + "KeyValue": ("value",),  # an environment variable
    _CRI + "ContainerConfig": (
        "command",
        "args",
    ),  # with variables expanded; the pod's specification has them as written
    _CRI + "ExecSyncRequest": ("cmd",),
    _CRI + "ExecSyncResponse": ("stdout", "stderr"),
    _CRI + "ExecRequest": ("cmd",),
    _CRI + "ExecResponse": ("url",),  # it authorizes its user
    _CRI + "AttachResponse": ("url",),
    _CRI + "PortForwardResponse": ("url",),
    _CRI + "ContainerStatusResponse": ("info",),  # verbose: the OCI specification, with its environment
    _CRI + "PodSandboxStatusResponse": ("info",),
    _CRI + "ImageStatusResponse": ("info",),
    _CRI + "StatusResponse": ("info",),
    _NRI + "ConfigureRequest": ("config",),
    _NRI + "Container": ("env", "args"),
    _NRI + "ContainerAdjustment": ("args",),
    _NRI + "KeyValue": ("value",),
    _NRI + "Hook": ("env", "args"),
    _KUBELET + "ContainerAllocateResponse": ("envs",),
}
_ASSIGNMENTS = frozenset({(_NRI + "Container", "env"), (_NRI + "Hook", "env")})
"""Lists of NAME=VALUE."""

_Hide = Callable[[Any, bool], bool]
"""Returns whether a message has something to hide in one field; hides it, too, if the second argument is true."""


def redacted(message: M) -> M:
    """Returns the message itself if nothing in it is secret, else a copy without its secrets."""
    steps = _steps(message.DESCRIPTOR)
    if not any(step(message, False) for step in steps):
        return message
    copy = type(message)()
    copy.CopyFrom(message)
    for step in steps:
        step(copy, True)
    return copy


@cache
def _steps(descriptor: Descriptor) -> tuple[_Hide, ...]:
    owner = descriptor.full_name
    return tuple(_step(owner, field) for field in descriptor.fields if _reaches(owner, field, frozenset()))


def _reaches(owner: str, field: FieldDescriptor, above: frozenset[str]) -> bool:
    """Whether a field is a position, or contains one."""
    if field.name in FIELDS.get(owner, ()) or field.name == "annotations":
        return True
    inner = field.message_type
    if inner is None or inner.full_name in above:
        return False
    return any(_reaches(inner.full_name, part, above | {inner.full_name}) for part in inner.fields)


def _step(owner: str, field: FieldDescriptor) -> _Hide:
    name = field.name
    is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
    if name == "annotations" and is_map:
        return lambda message, hide: _annotations(getattr(message, name), hide)
    if name in FIELDS.get(owner, ()):
        if is_map:
            return lambda message, hide: _values(getattr(message, name), hide)
        if field.is_repeated:
            are_assignments = (owner, name) in _ASSIGNMENTS
            return lambda message, hide: _words(getattr(message, name), are_assignments, hide)
        empty: str | bytes = b"" if field.type == FieldDescriptor.TYPE_BYTES else HIDDEN
        return lambda message, hide: _scalar(message, name, empty, hide)
    if is_map:
        return lambda message, hide: _inner(getattr(message, name).values(), hide)
    if field.is_repeated:
        return lambda message, hide: _inner(getattr(message, name), hide)
    return lambda message, hide: message.HasField(name) and _inner((getattr(message, name),), hide)


def _inner(messages: Any, hide: bool) -> bool:
    """Applies the steps of the messages of one type inside another one; without `hide` only up to the first secret."""
    hidden = False
    for index, message in enumerate(messages):
        if not index:
            steps = _steps(message.DESCRIPTOR)
        for step in steps:
            hidden |= step(message, hide)
        if hidden and not hide:
            return True
    return hidden


def _scalar(message: Any, name: str, instead: str | bytes, hide: bool) -> bool:
    if not getattr(message, name):
        return False
    if hide:
        setattr(message, name, instead)
    return True


def _words(words: Any, are_assignments: bool, hide: bool) -> bool:
    if hide:
        words[:] = [f"{word.partition('=')[0]}={HIDDEN}" if are_assignments else HIDDEN for word in words]
    return bool(words)


def _values(values: Any, hide: bool) -> bool:
    if hide:
        for key in values:
            values[key] = HIDDEN
    return bool(values)


def _annotations(annotations: Any, hide: bool) -> bool:
    if LAST_APPLIED not in annotations:
        return False
    if hide:
        annotations[LAST_APPLIED] = HIDDEN
    return True
