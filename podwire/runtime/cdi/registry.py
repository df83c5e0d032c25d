"""Every device that is described on this node.

A device in a later directory is taken before the same in an earlier one; two files of one directory that describe the
same device describe none.
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
from podwire.runtime.cdi.spec_files import SUFFIXES, DeviceNode, Edits, File, NetDevice, read

_log = logging.getLogger("podwire.runtime.cdi")

_Mark = tuple[int, int, int]
"""By which a file is known to be the same as before: inode, size, time of the last change."""


@dataclass(frozen=True, slots=True)
class _Described:
    file: File
    edits: Edits
    place: Path


class Registry:
    """Reads what changed whenever somebody asks for a device: files come and go while pods start."""

    def __init__(self, directories: Sequence[Path]) -> None:
        self._directories = directories
        self._files: dict[Path, tuple[_Mark, File | BadDevice]] = {}
        self._turn = threading.Lock()

    def resolve(self, names: Iterable[str]) -> Mapping[str, Any]:
        """The `containerEdits` of all these devices together, device nodes with types and numbers. Raises BadDevice."""
        found = [self._find(parse_name(each)) for each in dict.fromkeys(names)]
        files = {each.place: each.file for each in found}
        return _together([*(each.edits for each in files.values()), *(each.edits for each in found)])

    def _find(self, name: Name) -> _Described:
        described: list[_Described] = []
        with self._turn:
            for directory in self._directories:
                here = [each for path in self._listed(directory) for each in self._describing(path, name)]
                described = here or described
            broken = [f"{path}: {file}" for path, (_, file) in self._files.items() if isinstance(file, BadDevice)]
        if not described:
            why = f" ({'; '.join(broken)})" if broken else ""
            raise BadDevice(f"{name}: no file in {' or '.join(map(str, self._directories))} describes it{why}")
        if len(described) > 1:
            raise BadDevice(f"{name}: described by {' and '.join(sorted(str(each.place) for each in described))}")
        return described[0]

    def _listed(self, directory: Path) -> list[Path]:
        try:
            return sorted(each for each in directory.iterdir() if each.suffix in SUFFIXES)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _describing(self, path: Path, name: Name) -> Iterable[_Described]:
        file = self._read(path)
        if isinstance(file, File) and file.kind == name.kind:
            for each in file.devices:
                if each.name == name.device:
                    yield _Described(file, each.edits, path)

    def _read(self, path: Path) -> File | BadDevice | None:
        try:
            seen = path.stat()
            mark = (seen.st_ino, seen.st_size, seen.st_mtime_ns)
            if (known := self._files.get(path)) is None or known[0] != mark:
                self._files[path] = (mark, _read_or_why(path))
        except OSError:
            self._files.pop(path, None)
            return None
        return self._files[path][1]


def links_of(edits: Mapping[str, Any]) -> dict[str, str]:
    """The links that devices bring: their names on the host, and in the container."""
    return {each["hostInterfaceName"]: each["name"] for each in edits["netDevices"]}


def _read_or_why(path: Path) -> File | BadDevice:
    try:
        return read(path)
    except BadDevice as error:
        _log.error("a CDI file is not used", extra={"file": str(path), "why": str(error)})
        return error


def _together(edits: Sequence[Edits]) -> dict[str, Any]:
    return {
        "env": [value for each in edits for value in each.env],
        "deviceNodes": [_node(node) for each in edits for node in each.device_nodes],
        "netDevices": [_net(link) for each in edits for link in each.net_devices],
        "mounts": [msgspec.to_builtins(mount) for each in edits for mount in each.mounts],
        "hooks": [msgspec.to_builtins(hook) for each in edits for hook in each.hooks],
        "additionalGids": [group for each in edits for group in each.additional_gids if group],
    }


def _net(link: NetDevice) -> dict[str, str]:
    return {"hostInterfaceName": link.host_interface_name, "name": link.name}


def _node(node: DeviceNode) -> dict[str, Any]:
    """With the host's type and numbers where the file has none."""
    told = {key: value for key, value in msgspec.to_builtins(node).items() if value not in (None, "")}
    source = told.pop("hostPath", node.path)
    if node.type and (node.major is not None or node.type in ("p", "fifo")):
        return told
    try:
        seen = Path(source).stat()
    except OSError as error:
        raise BadDevice(f"deviceNodes: {source}: {error.strerror}") from error
    kind = "c" if stat.S_ISCHR(seen.st_mode) else "b" if stat.S_ISBLK(seen.st_mode) else ""
    if not kind or (node.type and node.type not in (kind, "u" if kind == "c" else kind)):
        raise BadDevice(f"deviceNodes: {source} is no device file of type {node.type or 'c or b'}")
    return {**told, "type": kind, "major": os.major(seen.st_rdev), "minor": os.minor(seen.st_rdev)}
