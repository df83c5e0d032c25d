"""A device of ListAndWatch, what a container gets of it, and which devices to prefer. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from podwire.deviceplugin.config import DOMAIN


class Device(NamedTuple):
    """One device of ListAndWatch."""

    id: str
    why: str = ""
    """Why it cannot be used; empty when it can."""
    numa: int | None = None

    @property
    def healthy(self) -> bool:
        return not self.why


@dataclass(frozen=True, slots=True, kw_only=True)
class Handed:
    """The part of a container's configuration that one device adds."""

    value: str
    """Its part of the pool's environment variable."""
    info: Mapping[str, Any]
    files: tuple[str, ...] = ()
    permissions: str = "rw"
    link: str = ""
    """The link's name on the host, and in the pod unless a CNI plugin renames it."""
    on_host: bool = True
    """Whether the link is on the host, so that a runtime can move it."""


def preferred(available: Sequence[str], needed: Sequence[str], size: int, numa: Mapping[str, int | None]) -> list[str]:
    """`size` devices with the fewest NUMA nodes among them: those that must be, then whole nodes, the fullest first.

    Devices of one node are taken in the order of ListAndWatch, so that the result is stable.
    """
    chosen = list(dict.fromkeys(needed))[:size]
    rest = [device for device in available if device not in set(chosen)]
    by_node: dict[int | None, list[str]] = {}
    for device in rest:
        by_node.setdefault(numa.get(device), []).append(device)
    begun = {numa.get(device) for device in chosen}

    def rank(node: int | None) -> tuple[bool, bool, int, int]:
        enough = len(by_node[node]) >= size - len(chosen)
        return node not in begun, not enough, 0 if enough else -len(by_node[node]), -1 if node is None else node

    for node in sorted(by_node, key=rank):
        chosen += by_node[node][: size - len(chosen)]
    return chosen


def cdi_kind(pool: str) -> str:
    """A CDI class has no dots, and a resource's name may have some."""
    return f"{DOMAIN}/{pool.replace('.', '_') if pool[0].isalpha() else 'pool-' + pool.replace('.', '_')}"


def reasons(devices: Iterable[Device]) -> dict[str, str]:
    """Returns the reasons of unusable devices, by id."""
    return {device.id: device.why for device in devices if device.why}
