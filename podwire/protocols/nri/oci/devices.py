"""Device nodes of a config.json, and the right to use them."""

from collections.abc import Iterable
from typing import Any

from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.fields import clean_path
from podwire.protocols.nri.oci.shapes import device_to
from podwire.protocols.nri.owners import REMOVED


def adjust_devices(spec: dict[str, Any], devices: Iterable[pb.LinuxDevice]) -> None:
    """A device rule allows read and write; containerd also allows mknod of block devices."""
    for device in devices:
        if device.path.startswith(REMOVED):
            _drop(spec, device.path.removeprefix(REMOVED))
        else:
            put_device(spec, device_to(device), access="rwm" if device.type == "b" else "rw")


def put_device(spec: dict[str, Any], device: dict[str, Any], *, access: str) -> None:
    _drop(spec, device["path"])
    linux = spec.setdefault("linux", {})
    linux.setdefault("devices", []).append(device)
    if device["type"] == "p":  # the device cgroup knows no pipes
        return
    kind = "c" if device["type"] == "u" else device["type"]
    rule = {"allow": True, "type": kind, "major": device["major"], "minor": device["minor"], "access": access}
    linux.setdefault("resources", {}).setdefault("devices", []).append(rule)


def _drop(spec: dict[str, Any], path: str) -> None:
    devices = spec.get("linux", {}).get("devices")
    if devices:
        devices[:] = [device for device in devices if clean_path(device["path"]) != clean_path(path)]
