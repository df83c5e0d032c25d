"""Device nodes of the host that a container gets, in the OCI specification's own form."""

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import InvalidArgument, NotFound
from podwire.runtime.spec.mounts import clean_path

HOST_DEVICES = Path("/dev")
SKIPPED = frozenset({"pts", "shm", "mqueue", "console", "fd", "stdin", "stdout", "stderr", "ptmx", "log"})
"""What is not a device, or is the container's own."""


def asked_devices(asked: Iterable[pb.Device], *, privileged: bool) -> list[dict[str, Any]]:
    """The devices that CRI names; all of the host's for a privileged container."""
    found = {each["path"]: each for each in _all()} if privileged else {}
    for number, device in enumerate(asked):
        path = clean_path(device.container_path or device.host_path, f"devices[{number}].container_path")
        if not set(device.permissions) <= set("rwm"):
            raise InvalidArgument(f"devices[{number}].permissions: {device.permissions!r} may hold r, w and m only")
        node = _node(Path(device.host_path), path)
        if node is None:
            raise NotFound(f"devices[{number}].host_path: {device.host_path!r} is no device of this host")
        found[path] = node
    return list(found.values())


def _all() -> Iterator[dict[str, Any]]:
    for directory, names, files in os.walk(HOST_DEVICES):
        names[:] = [each for each in names if each not in SKIPPED]
        for name in files:
            path = Path(directory) / name
            if name not in SKIPPED and (node := _node(path, str(path))) is not None:
                yield node


def _node(source: Path, path: str) -> dict[str, Any] | None:
    try:
        found = source.stat()
    except OSError:
        return None
    kind = "c" if stat.S_ISCHR(found.st_mode) else "b" if stat.S_ISBLK(found.st_mode) else ""
    if not kind:
        return None
    return {
        "path": path,
        "type": kind,
        "major": os.major(found.st_rdev),
        "minor": os.minor(found.st_rdev),
        "fileMode": stat.S_IMODE(found.st_mode),
        "uid": found.st_uid,
        "gid": found.st_gid,
    }
