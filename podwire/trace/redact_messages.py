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

_Hide = Callable[[Any, Any, bool], bool]
"""Returns whether a message has something to hide in a field with this value; hides it, too, if the last argument is
true."""


_secretive: set[type[Message]] = set()
"""Types whose last message had a secret: the next one is copied without a search before."""


def redacted(message: M) -> M:
    """Returns the message itself if nothing in it is secret, else a copy without its secrets."""
    kind = type(message)
    if kind not in _secretive and not _walk(message, False):
        return message
    copy = kind()
    copy.CopyFrom(message)
    if _walk(copy, True):
        _secretive.add(kind)
        return copy
    _secretive.discard(kind)
    return message


def _walk(message: Any, hide: bool) -> bool:
    """Applies the steps of a message to its fields that are set; without `hide` only up to the first secret."""
    steps, hidden = _steps(message.DESCRIPTOR), False
    if not steps:
        return False
    for field, value in message.ListFields():
        step = steps.get(field.number)
        if step is not None and step(message, value, hide):
            if not hide:
                return True
            hidden = True
    return hidden


@cache
def _steps(descriptor: Descriptor) -> dict[int, _Hide]:
    """Returns a step for each field that is a position or contains one, by its number."""
    owner = descriptor.full_name
    return {field.number: _step(owner, field) for field in descriptor.fields if _reaches(owner, field, frozenset())}


def _reaches(owner: str, field: FieldDescriptor, above: frozenset[str]) -> bool:
    """Whether a field is a position, or contains one."""
    if field.name in FIELDS.get(owner, ()) or field.name == "annotations":
        return True
    inner = field.message_type
    if inner is None or inner.full_name in above:
        return False
    return any(_reaches(inner.full_name, part, above | {inner.full_name}) for part in inner.fields)


def _step(owner: str, field: FieldDescriptor) -> _Hide:
    name, inner = field.name, field.message_type
    is_map = inner is not None and inner.GetOptions().map_entry
    if name == "annotations" and is_map:
        return _hide_annotations
    if name in FIELDS.get(owner, ()) or inner is None:
        if is_map:
            return _hide_values
        if field.is_repeated:
            return _hide_assignments if (owner, name) in _ASSIGNMENTS else _hide_words
        return _scalar_step(field)
    if is_map:
        return lambda _message, value, hide: _any_walk(value.values(), hide)
    if not field.is_repeated:
        return lambda _message, value, hide: _walk(value, hide)
    parts = [part for part in inner.fields if _reaches(inner.full_name, part, frozenset())]
    if len(parts) == 1 and inner.full_name in FIELDS and parts[0].message_type is None and not parts[0].is_repeated:
        return _list_step(parts[0])
    return lambda _message, value, hide: _any_walk(value, hide)


def _any_walk(messages: Any, hide: bool) -> bool:
    hidden = False
    for message in messages:
        if _walk(message, hide):
            if not hide:
                return True
            hidden = True
    return hidden


def _shown_instead(field: FieldDescriptor) -> str | bytes:
    return b"" if field.type == FieldDescriptor.TYPE_BYTES else HIDDEN


def _scalar_step(field: FieldDescriptor) -> _Hide:
    name, instead = field.name, _shown_instead(field)

    def step(message: Any, value: Any, hide: bool) -> bool:
        if value and hide:
            setattr(message, name, instead)
        return bool(value)

    return step


def _list_step(field: FieldDescriptor) -> _Hide:
    """A step for a list of messages with one secret each: of environment variables there are many."""
    name, instead = field.name, _shown_instead(field)

    def step(_message: Any, messages: Any, hide: bool) -> bool:
        if not hide:
            return any(getattr(message, name) for message in messages)
        for message in messages:
            if not instead or getattr(message, name):  # bytes become empty, whatever they were
                setattr(message, name, instead)
        return True

    return step


def _hide_words(_message: Any, words: Any, hide: bool) -> bool:
    if hide:
        words[:] = [HIDDEN] * len(words)
    return bool(words)


def _hide_assignments(_message: Any, words: Any, hide: bool) -> bool:
    if hide:
        words[:] = [f"{word.partition('=')[0]}={HIDDEN}" for word in words]
    return bool(words)


def _hide_values(_message: Any, values: Any, hide: bool) -> bool:
    if hide:
        for key in values:
            values[key] = HIDDEN
    return bool(values)


def _hide_annotations(_message: Any, annotations: Any, hide: bool) -> bool:
    if LAST_APPLIED not in annotations:
        return False
    if hide:
        annotations[LAST_APPLIED] = HIDDEN
    return True
