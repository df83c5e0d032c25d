"""All CDI devices of this node.

A device in a later directory takes precedence over the same in an earlier one; two files of one directory with the same
device are a conflict, and the device cannot be used.
"""

import logging
import os
import stat
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from podwire.runtime.cdi.names import BadDevice, Name, parse_name
from podwire.runtime.cdi.spec_files import SUFFIXES, DeviceNode, Edits, File, read

_log = logging.getLogger("podwire.runtime.cdi")

_Signature = tuple[int, int, int]
"""Inode, size and modification time: they change when the file does."""


@dataclass(frozen=True, slots=True)
class _Device:
    file: File
    edits: Edits
    path: Path


class Registry:
    """Reads files that changed whenever a device is resolved: files come and go while pods start."""

    def __init__(self, directories: Sequence[Path]) -> None:
        self._directories = directories
        self._files: dict[Path, tuple[_Signature, File | BadDevice]] = {}
        self._lock = threading.Lock()

    def resolve(self, names: Iterable[str]) -> Mapping[str, Any]:
        """Returns the merged `containerEdits` of devices, device nodes with types and numbers. Raises BadDevice."""
        devices = [self._find(parse_name(name)) for name in dict.fromkeys(names)]
        files = {device.path: device.file for device in devices}
        return _merge([*(file.edits for file in files.values()), *(device.edits for device in devices)])

    def _find(self, name: Name) -> _Device:
        matching: list[_Device] = []
        with self._lock:
            for directory in self._directories:
                here = [device for path in self._list(directory) for device in self._devices(path, name)]
                matching = here or matching
            invalid = [f"{path}: {file}" for path, (_, file) in self._files.items() if isinstance(file, BadDevice)]
        if not matching:
            hint = f" ({'; '.join(invalid)})" if invalid else ""
            raise BadDevice(f"{name}: no file in {' or '.join(map(str, self._directories))} describes it{hint}")
        if len(matching) > 1:
            raise BadDevice(f"{name}: described by {' and '.join(sorted(str(device.path) for device in matching))}")
        return matching[0]

    def _list(self, directory: Path) -> list[Path]:
        try:
            return sorted(path for path in directory.iterdir() if path.suffix in SUFFIXES)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _devices(self, path: Path, name: Name) -> Iterable[_Device]:
        file = self._read(path)
        if isinstance(file, File) and file.kind == name.kind:
            for device in file.devices:
                if device.name == name.device:
                    yield _Device(file, device.edits, path)

    def _read(self, path: Path) -> File | BadDevice | None:
        try:
            state = path.stat()
            signature = (state.st_ino, state.st_size, state.st_mtime_ns)
            if (known := self._files.get(path)) is None or known[0] != signature:
                self._files[path] = (signature, _read_or_error(path))
        except OSError:
            self._files.pop(path, None)
            return None
        return self._files[path][1]


def links_of(edits: Mapping[str, Any]) -> dict[str, str]:
    """Returns the net devices: their names on the host, and in the container."""
    return {device["hostInterfaceName"]: device["name"] for device in edits["netDevices"]}


def _read_or_error(path: Path) -> File | BadDevice:
    try:
        return read(path)
    except BadDevice as error:
        _log.error("invalid CDI file is ignored", extra={"path": str(path), "error": str(error)})
        return error


def _merge(all_edits: Sequence[Edits]) -> dict[str, Any]:
    return {
        "env": [variable for edits in all_edits for variable in edits.env],
        "deviceNodes": [_node(node) for edits in all_edits for node in edits.device_nodes],
        "netDevices": [
            {"hostInterfaceName": link.host_interface_name, "name": link.name}
            for edits in all_edits
            for link in edits.net_devices
        ],
        "mounts": [msgspec.to_builtins(mount) for edits in all_edits for mount in edits.mounts],
        "hooks": [msgspec.to_builtins(hook) for edits in all_edits for hook in edits.hooks],
        "additionalGids": [group for edits in all_edits for group in edits.additional_gids if group],
    }


def _node(node: DeviceNode) -> dict[str, Any]:
    """Returns a device node with the host's type and numbers where the file has none."""
    fields = {key: value for key, value in msgspec.to_builtins(node).items() if value not in (None, "")}
    source = fields.pop("hostPath", node.path)
    if node.type and (node.major is not None or node.type in ("p", "fifo")):
        return fields
    try:
        state = Path(source).stat()
    except OSError as error:
        raise BadDevice(f"deviceNodes: {source}: {error.strerror}") from error
    kind = "c" if stat.S_ISCHR(state.st_mode) else "b" if stat.S_ISBLK(state.st_mode) else ""
    if not kind or (node.type and node.type not in (kind, "u" if kind == "c" else kind)):
        raise BadDevice(f"deviceNodes: {source} is not a device node of type {node.type or 'c or b'}")
    return {**fields, "type": kind, "major": os.major(state.st_rdev), "minor": os.minor(state.st_rdev)}
