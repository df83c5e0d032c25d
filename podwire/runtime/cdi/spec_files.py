"""CDI specification files, decoded strictly: unknown fields are errors, because they would not be applied."""

import re
from pathlib import Path

import msgspec
import yaml

from podwire.linux.fs.regular_files import read_head
from podwire.runtime.cdi.names import BadDevice, check_device, check_kind

SUFFIXES = (".json", ".yaml")
MAX_BYTES = 4 * 1024 * 1024
NEWEST = (1, 1)
STAGES = frozenset({"prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"})


class DeviceNode(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A device node; without type and numbers it has those of the host's."""

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
    """A link of the host that moves into the container's network namespace."""

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
    """containerEdits: what a device changes in its container."""

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
    """Devices of one kind, and edits that all of them have in common."""

    version: str = msgspec.field(name="cdiVersion")
    kind: str
    devices: tuple[Device, ...]
    edits: Edits = msgspec.field(default=Edits(), name="containerEdits")
    annotations: dict[str, str] = {}


def read(path: Path) -> File:
    """Reads a file. Raises BadDevice, OSError."""
    data = read_head(path, MAX_BYTES + 1, follow=True)  # a plugin's pod may write there: not a FIFO, not without end
    if len(data) > MAX_BYTES:
        raise BadDevice(f"is longer than {MAX_BYTES} bytes")
    try:
        content = msgspec.json.decode(data) if path.suffix == ".json" else yaml.safe_load(data)
        file = msgspec.convert(content, File)
    except (msgspec.MsgspecError, yaml.YAMLError, UnicodeError, RecursionError) as error:
        raise BadDevice(str(error)) from error
    _check(file)
    return file


def _check(file: File) -> None:
    version = re.fullmatch(r"v?(\d+)\.(\d+)\.\d+", file.version)
    if version is None or (int(version[1]), int(version[2])) > NEWEST:
        raise BadDevice(f"cdiVersion: {file.version!r} is not supported (up to {NEWEST[0]}.{NEWEST[1]})")
    check_kind(file.kind)
    for device in file.devices:
        check_device(device.name)
        _check_edits(device.edits, f"devices.{device.name}.containerEdits")
    _check_edits(file.edits, "containerEdits")


def _check_edits(edits: Edits, where: str) -> None:
    for hook in edits.hooks:
        if hook.hook_name not in STAGES:
            raise BadDevice(f"{where}.hooks: {hook.hook_name!r} must be one of {', '.join(sorted(STAGES))}")
    for variable in edits.env:
        if "=" not in variable or variable.startswith("="):
            raise BadDevice(f"{where}.env: {variable!r} is not NAME=VALUE")
    paths = [node.path for node in edits.device_nodes] + [mount.container_path for mount in edits.mounts]
    for path in [*paths, *(hook.path for hook in edits.hooks)]:
        if not path.startswith("/"):
            raise BadDevice(f"{where}: {path!r} is not an absolute path")
