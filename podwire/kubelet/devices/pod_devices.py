"""The devices of a pod as the checkpoint has them, and as annotations of its sandbox and containers. Pure."""

import json
from collections.abc import Iterable, Mapping

import msgspec

ANNOTATION = "podwire.dev/devices"
"""Annotation of sandboxes and containers: device ids by resource, as JSON."""


class AllocatedDevices(msgspec.Struct, frozen=True, kw_only=True):
    """Devices of one resource that one container has."""

    ids: tuple[str, ...]
    allocated: str = ""
    """The sandbox for which the plugin has allocated; empty when it has not."""
    response: bytes = b""
    """The plugin's response to Allocate."""
    pre_start: bool = False
    """The plugin requires PreStartContainer."""


class PodDevices(msgspec.Struct, frozen=True, kw_only=True):
    uid: str
    namespace: str
    name: str
    containers: dict[str, dict[str, AllocatedDevices]] = {}

    def ids(self) -> dict[str, set[str]]:
        """By resource: the ids of all containers."""
        ids: dict[str, set[str]] = {}
        for by_resource in self.containers.values():
            for resource, devices in by_resource.items():
                ids.setdefault(resource, set()).update(devices.ids)
        return ids

    def with_devices(self, container: str, resource: str, devices: AllocatedDevices) -> "PodDevices":
        containers = {**self.containers, container: {**self.containers.get(container, {}), resource: devices}}
        return msgspec.structs.replace(self, containers=containers)


def annotation(ids: Mapping[str, Iterable[str]]) -> str:
    """Empty for no devices."""
    return json.dumps({name: sorted(ids[name]) for name in sorted(ids)}, separators=(",", ":")) if ids else ""


def read_annotation(text: str) -> dict[str, list[str]] | None:
    """None if it is not such an annotation."""
    try:
        return msgspec.json.decode(text.encode(), type=dict[str, list[str]])
    except msgspec.DecodeError:
        return None
