"""Device nodes of the host that a container gets, in the form of the OCI specification."""

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import InvalidArgument, NotFound
from podwire.runtime.spec.devices import default_rules, device_rule
from podwire.runtime.spec.mounts import clean_path

HOST_DEVICES = Path("/dev")
SKIPPED = frozenset({"pts", "shm", "mqueue", "console", "fd", "stdin", "stdout", "stderr", "ptmx", "log"})
"""Names that are not devices, or that the container has of its own."""


def requested_devices(
    requested: Iterable[pb.Device], *, privileged: bool
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Returns the nodes of the devices that CRI names (all of the host's for a privileged container), and the rules
    that allow their use."""
    nodes = {node["path"]: node for node in _host_devices()} if privileged else {}
    rules = default_rules(privileged=privileged)
    for number, device in enumerate(requested):
        path = clean_path(device.container_path or device.host_path, f"devices[{number}].container_path")
        if not set(device.permissions) <= set("rwm"):
            raise InvalidArgument(f"devices[{number}].permissions: {device.permissions!r} may hold r, w and m only")
        node = _node(Path(device.host_path), path)
        if node is None:
            raise NotFound(f"devices[{number}].host_path: {device.host_path!r} is not a device of this host")
        nodes[path] = node
        rules.append(device_rule(node["type"], node["major"], node["minor"], device.permissions or "rwm"))
    return list(nodes.values()), rules


def _host_devices() -> Iterator[dict[str, Any]]:
    for directory, names, files in os.walk(HOST_DEVICES):
        names[:] = [name for name in names if name not in SKIPPED]
        for name in files:
            path = Path(directory) / name
            if name not in SKIPPED and (node := _node(path, str(path))) is not None:
                yield node


def _node(source: Path, path: str) -> dict[str, Any] | None:
    try:
        state = source.stat()
    except OSError:
        return None
    kind = "c" if stat.S_ISCHR(state.st_mode) else "b" if stat.S_ISBLK(state.st_mode) else ""
    if not kind:
        return None
    return {
        "path": path,
        "type": kind,
        "major": os.major(state.st_rdev),
        "minor": os.minor(state.st_rdev),
        "fileMode": stat.S_IMODE(state.st_mode),
        "uid": state.st_uid,
        "gid": state.st_gid,
    }
