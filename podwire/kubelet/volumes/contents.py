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
"""By path relative to the volume."""


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


def chosen(data: Mapping[str, bytes], items: Iterable[KeyToPath], mode: int, *, optional: bool, word: str) -> Contents:
    """What a source shows of its keys: all of them, or those that `items` name. `word` is config or secret."""
    items = tuple(items)
    if not items:
        return {checked(key): File(value, mode) for key, value in data.items()}
    files: dict[str, File] = {}
    for each in items:
        if each.key in data:
            files[checked(each.path)] = File(data[each.key], mode if each.mode is None else each.mode)
        elif not optional:
            raise VolumeError(f"references non-existent {word} key: {each.key}")
    return files


def downward(pod: Pod, items: Iterable[DownwardFile], mode: int, node: NodeFacts) -> Contents:
    """Facts of the pod as files. Its addresses are not among them: the volume is there before the network."""
    files: dict[str, File] = {}
    for each in items:
        try:
            text = _fact(pod, each, node)
        except BadReference as error:
            raise VolumeError(str(error)) from error
        files[checked(each.path)] = File(text.encode(), mode if each.mode is None else each.mode)
    return files


def _fact(pod: Pod, item: DownwardFile, node: NodeFacts) -> str:
    if item.field_ref is not None:
        return field_value(pod, item.field_ref.field_path, node=node)
    if item.resource_field_ref is not None:
        return resource_value(pod, None, item.resource_field_ref, node)
    raise VolumeError(f"{item.path}: neither fieldRef nor resourceFieldRef")


def token_file(pod: Pod, token: str, mode: int) -> File:
    """Who may read a token: everybody, unless we know as whom the pod runs; its group is added like everyone's."""
    user = sole_user(pod)
    if user is not None or pod.spec.security_context.fs_group is not None:
        mode = 0o600
    return File(token.encode(), mode, user)


def sole_user(pod: Pod) -> int | None:
    """The user that all containers run as, if they are told to and all the same."""
    given = pod.spec.security_context.run_as_user
    users = {
        given if each.security_context.run_as_user is None else each.security_context.run_as_user
        for each in (*pod.spec.init_containers, *pod.spec.containers)
    }
    return users.pop() if len(users) == 1 else None


def checked(path: str) -> str:
    """A path that stays inside the volume and clear of the names that the swap of contents uses."""
    if not path or len(path) > LONGEST_PATH or "\0" in path:
        raise VolumeError(f"invalid path: must not be empty or longer than {LONGEST_PATH}: {path[:80]!r}")
    if path.startswith("/"):
        raise VolumeError(f"invalid path: must be relative path: {path}")
    steps = [each for each in path.split("/") if each not in ("", ".")]
    if ".." in steps or not steps:
        raise VolumeError(f"invalid path: must not contain '..' and must name a file: {path}")
    if steps[0].startswith(".."):
        raise VolumeError(f"invalid path: filename must not start with '..': {path}")
    return "/".join(steps)
