"""Files that describe devices, read strictly: what this runtime would not do is not read as if it were not there."""

import re
from pathlib import Path
from typing import Any

import msgspec
import yaml

from podwire.runtime.cdi.names import BadDevice, check_device, check_kind

SUFFIXES = (".json", ".yaml")
MOST_BYTES = 4 * 1024 * 1024
NEWEST = (1, 1)
STAGES = frozenset({"prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"})


class DeviceNode(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A device file; type and numbers are the host's when they are not told."""

    path: str
    host_path: str = ""
    type: str = ""
    major: int | None = None
    minor: int | None = None
    file_mode: int | None = None
    permissions: str = ""
    uid: int | None = None
    gid: int | None = None


class NetDevice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A link of the host that moves into the container's network."""

    host_interface_name: str
    name: str


class Mount(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    host_path: str
    container_path: str
    options: tuple[str, ...] = ()
    type: str = ""


class Hook(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    hook_name: str
    path: str
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    timeout: int | None = None


class Edits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a device brings to its container."""

    env: tuple[str, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = msgspec.field(default=(), name="deviceNodes")
    net_devices: tuple[NetDevice, ...] = msgspec.field(default=(), name="netDevices")
    mounts: tuple[Mount, ...] = ()
    hooks: tuple[Hook, ...] = ()
    additional_gids: tuple[int, ...] = msgspec.field(default=(), name="additionalGids")


class Device(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    edits: Edits = msgspec.field(default=Edits(), name="containerEdits")
    annotations: dict[str, str] = {}


class File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Devices of one kind, and what each of them brings beside its own."""

    version: str = msgspec.field(name="cdiVersion")
    kind: str
    devices: tuple[Device, ...]
    edits: Edits = msgspec.field(default=Edits(), name="containerEdits")
    annotations: dict[str, str] = {}


def read(path: Path) -> File:
    """Raises BadDevice, OSError."""
    if (size := path.stat().st_size) > MOST_BYTES:
        raise BadDevice(f"{size} bytes; at most {MOST_BYTES} are read")
    try:
        file = msgspec.convert(_parsed(path), File)
    except (msgspec.MsgspecError, yaml.YAMLError, UnicodeError, RecursionError) as error:
        raise BadDevice(str(error)) from error
    _check(file)
    return file


def _parsed(path: Path) -> Any:
    data = path.read_bytes()
    return msgspec.json.decode(data) if path.suffix == ".json" else yaml.safe_load(data)


def _check(file: File) -> None:
    found = re.fullmatch(r"v?(\d+)\.(\d+)\.\d+", file.version)
    if found is None or (int(found[1]), int(found[2])) > NEWEST:
        raise BadDevice(f"cdiVersion: {file.version!r} is not known here")
    check_kind(file.kind)
    for each in file.devices:
        check_device(each.name)
        _check_edits(each.edits, f"devices.{each.name}.containerEdits")
    _check_edits(file.edits, "containerEdits")


def _check_edits(edits: Edits, where: str) -> None:
    for hook in edits.hooks:
        if hook.hook_name not in STAGES:
            raise BadDevice(f"{where}.hooks: {hook.hook_name!r} is no stage")
    for each in edits.env:
        if "=" not in each or each.startswith("="):
            raise BadDevice(f"{where}.env: {each!r} is no NAME=VALUE")
    paths = [each.path for each in edits.device_nodes] + [each.container_path for each in edits.mounts]
    for path in [*paths, *(each.path for each in edits.hooks)]:
        if not path.startswith("/"):
            raise BadDevice(f"{where}: {path!r} is no absolute path")
