"""The files of configMap, secret, downwardAPI and projected volumes, as values. Pure."""

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from podwire.kubelet.config.fields import BadReference, NodeFacts, field_value, resource_value
from podwire.kubelet.volumes.errors import VolumeError
from podwire.objects.pods import Pod
from podwire.objects.volumes import DownwardFile, KeyToPath
from podwire.protocols.k8sapi.watch import Object

DEFAULT_MODE = 0o644
LONGEST_PATH = 4096


@dataclass(frozen=True, slots=True)
class File:
    data: bytes
    mode: int
    owner: int | None = None
    """A user other than root."""


Contents = Mapping[str, File]
"""Files by path relative to the volume."""


def config_map_data(object_: Object | None) -> dict[str, bytes]:
    object_ = object_ or {}
    texts = {key: value.encode() for key, value in (object_.get("data") or {}).items()}
    return texts | _decoded(object_.get("binaryData"))


def secret_data(object_: Object | None) -> dict[str, bytes]:
    return _decoded((object_ or {}).get("data"))


def _decoded(data: Mapping[str, Any] | None) -> dict[str, bytes]:
    try:
        return {key: base64.b64decode(value or "", validate=True) for key, value in (data or {}).items()}
    except (binascii.Error, ValueError) as error:
        raise VolumeError(f"illegal base64 data: {error}") from error


def selected(
    data: Mapping[str, bytes], items: Iterable[KeyToPath], mode: int, *, optional: bool, word: str
) -> Contents:
    """The files of a source: all keys, or those of `items`. `word` is config or secret, for the error."""
    items = tuple(items)
    if not items:
        return {checked(key): File(value, mode) for key, value in data.items()}
    files: dict[str, File] = {}
    for item in items:
        if item.key in data:
            files[checked(item.path)] = File(data[item.key], mode if item.mode is None else item.mode)
        elif not optional:
            raise VolumeError(f"references non-existent {word} key: {item.key}")
    return files


def downward(pod: Pod, items: Iterable[DownwardFile], mode: int, node: NodeFacts) -> Contents:
    """Fields of the pod as files. Its addresses are not among them: the volume is set up before the network."""
    files: dict[str, File] = {}
    for item in items:
        try:
            text = _value(pod, item, node)
        except BadReference as error:
            raise VolumeError(str(error)) from error
        files[checked(item.path)] = File(text.encode(), mode if item.mode is None else item.mode)
    return files


def _value(pod: Pod, item: DownwardFile, node: NodeFacts) -> str:
    if item.field_ref is not None:
        return field_value(pod, item.field_ref.field_path, node=node)
    if item.resource_field_ref is not None:
        return resource_value(pod, None, item.resource_field_ref, node)
    raise VolumeError(f"{item.path}: neither fieldRef nor resourceFieldRef")


def token_file(pod: Pod, token: str, mode: int) -> File:
    """A token is readable by everybody, unless all containers run as one user or the pod has an fsGroup."""
    user = sole_user(pod)
    if user is not None or pod.spec.security_context.fs_group is not None:
        mode = 0o600
    return File(token.encode(), mode, user)


def sole_user(pod: Pod) -> int | None:
    """The user of all containers, if they are all configured with the same one."""
    given = pod.spec.security_context.run_as_user
    users = {
        given if container.security_context.run_as_user is None else container.security_context.run_as_user
        for container in (*pod.spec.init_containers, *pod.spec.containers)
    }
    return users.pop() if len(users) == 1 else None


def checked(path: str) -> str:
    """Checks that a path stays inside the volume and does not use names of the atomic writer. Raises VolumeError."""
    if not path or len(path) > LONGEST_PATH or "\0" in path:
        raise VolumeError(f"invalid path: must not be empty or longer than {LONGEST_PATH}: {path[:80]!r}")
    if path.startswith("/"):
        raise VolumeError(f"invalid path: must be relative path: {path}")
    steps = [step for step in path.split("/") if step not in ("", ".")]
    if ".." in steps or not steps:
        raise VolumeError(f"invalid path: must not contain '..' and must name a file: {path}")
    if steps[0].startswith(".."):
        raise VolumeError(f"invalid path: filename must not start with '..': {path}")
    return "/".join(steps)
