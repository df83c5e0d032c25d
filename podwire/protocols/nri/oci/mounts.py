"""Mounts of a config.json, in the order in which they can be made."""

from collections.abc import Sequence
from typing import Any

from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.fields import clean_path
from podwire.protocols.nri.oci.shapes import mount_to
from podwire.protocols.nri.owners import REMOVED


def adjust_mounts(spec: dict[str, Any], mounts: Sequence[pb.Mount]) -> None:
    for mount in mounts:
        if mount.destination.startswith(REMOVED):
            _drop(spec, mount.destination.removeprefix(REMOVED))
        else:
            put_mount(spec, mount_to(mount))


def put_mount(spec: dict[str, Any], mount: dict[str, Any]) -> None:
    """In the place of what is mounted there; sorted so that it does not hide a deeper one."""
    _drop(spec, mount["destination"])
    mounts = spec.setdefault("mounts", [])
    mounts.append(mount)
    mounts.sort(key=_place)
    # Nothing passes through a root that is private.
    options = mount["options"]
    linux = spec.setdefault("linux", {})
    now = linux.get("rootfsPropagation")
    if "rshared" in options:
        linux["rootfsPropagation"] = "rshared"
    elif "rslave" in options and now not in ("rshared", "rslave"):
        linux["rootfsPropagation"] = "rslave"


def _drop(spec: dict[str, Any], destination: str) -> None:
    if mounts := spec.get("mounts"):
        mounts[:] = [mount for mount in mounts if clean_path(mount["destination"]) != clean_path(destination)]


def _place(mount: dict[str, Any]) -> tuple[int, str]:
    """Shallow ones first."""
    path = clean_path(mount["destination"])
    return path.rstrip("/").count("/"), path
