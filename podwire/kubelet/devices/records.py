"""What is written down of a pod's devices, and whether what is read is what was written. Pure."""

import json
from collections.abc import Iterable, Mapping

import msgspec

from podwire.kubelet.sealed import opened, seal

ANNOTATION = "podwire.dev/devices"
"""Of sandboxes and containers: which devices they have, as JSON, ids by resource."""


class AllocatedDevices(msgspec.Struct, frozen=True, kw_only=True):
    """What one container has of one resource."""

    ids: tuple[str, ...]
    allocated: str = ""
    """For which sandbox the plugin was asked to allocate; empty when it was not."""
    response: bytes = b""
    """What the plugin answered."""
    pre_start: bool = False
    """It wants to be asked before each start."""


class PodDevices(msgspec.Struct, frozen=True, kw_only=True):
    uid: str
    namespace: str
    name: str
    containers: dict[str, dict[str, AllocatedDevices]] = {}

    def ids(self) -> dict[str, set[str]]:
        """By resource, those of all containers."""
        found: dict[str, set[str]] = {}
        for held in self.containers.values():
            for resource, each in held.items():
                found.setdefault(resource, set()).update(each.ids)
        return found

    def with_held(self, container: str, resource: str, held: AllocatedDevices) -> "PodDevices":
        containers = {**self.containers, container: {**self.containers.get(container, {}), resource: held}}
        return msgspec.structs.replace(self, containers=containers)


def encode(record: object) -> bytes:
    return seal(record)


def decode(data: bytes) -> PodDevices:
    """Damaged."""
    return opened(data, PodDevices)


def decode_names(data: bytes) -> list[str]:
    """Damaged."""
    return opened(data, list[str])


def annotation(ids: Mapping[str, Iterable[str]]) -> str:
    """Empty for none."""
    return json.dumps({name: sorted(ids[name]) for name in sorted(ids)}, separators=(",", ":")) if ids else ""


def read_annotation(text: str) -> dict[str, list[str]] | None:
    """None for what is no such annotation."""
    try:
        return msgspec.json.decode(text.encode(), type=dict[str, list[str]])
    except msgspec.DecodeError:
        return None
