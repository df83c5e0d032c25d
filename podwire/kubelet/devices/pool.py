"""The devices of one resource: which exist, which are healthy, which are free. No I/O."""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

Nodes = frozenset[int]
"""NUMA nodes of a device; empty if it has none."""


class Device(NamedTuple):
    id: str
    healthy: bool = True
    nodes: Nodes = frozenset()


class _Free:
    """Free devices on the same NUMA nodes, as a heap by name; stale entries are skipped."""

    __slots__ = ("_heap", "members")

    def __init__(self) -> None:
        self.members: set[str] = set()
        self._heap: list[str] = []

    def add(self, id_: str) -> None:
        self.members.add(id_)
        heapq.heappush(self._heap, id_)
        if len(self._heap) > 2 * len(self.members) + 64:
            self._heap = sorted(self.members)

    def first(self, count: int, without: set[str]) -> list[str]:
        ids: list[str] = []
        popped: list[str] = []
        before = ""
        while self._heap and len(ids) < count:
            id_ = heapq.heappop(self._heap)
            if id_ == before or id_ not in self.members:
                continue
            before = id_
            popped.append(id_)
            if id_ not in without:
                ids.append(id_)
        for id_ in popped:
            heapq.heappush(self._heap, id_)
        return ids


class Pool:
    """Finding and holding a free device takes O(log n)."""

    def __init__(self) -> None:
        self._devices: dict[str, Device] = {}
        self._held: set[str] = set()
        self._free: dict[Nodes, _Free] = {}
        self._healthy = 0

    @property
    def capacity(self) -> int:
        return len(self._devices)

    @property
    def allocatable(self) -> int:
        """Healthy devices, held or not."""
        return self._healthy

    @property
    def devices(self) -> Iterable[Device]:
        return self._devices.values()

    def get(self, id_: str) -> Device | None:
        return self._devices.get(id_)

    def update(self, devices: Mapping[str, Device]) -> set[str]:
        """Replace all devices; returns the ids of those that were added, removed or changed."""
        before = self._devices
        changed = {id_ for id_, device in devices.items() if before.get(id_) != device}
        changed |= before.keys() - devices.keys()
        for id_ in changed:
            self._remove_free(id_)
        self._devices = dict(devices)
        for id_ in changed:
            self._add_free(id_)
        self._healthy = sum(device.healthy for device in devices.values())
        return changed

    def lose(self) -> set[str]:
        """The plugin is gone: no device counts as healthy."""
        return self.update({id_: device._replace(healthy=False) for id_, device in self._devices.items()})

    def hold(self, ids: Iterable[str]) -> None:
        """A pod holds these devices, whether they exist now or not."""
        for id_ in ids:
            self._remove_free(id_)
            self._held.add(id_)

    def release(self, ids: Iterable[str]) -> None:
        for id_ in ids:
            self._held.discard(id_)
            self._add_free(id_)

    def is_free(self, id_: str) -> bool:
        device = self._devices.get(id_)
        return device is not None and device.healthy and id_ not in self._held

    def is_usable(self, id_: str) -> bool:
        """Whether the pod that holds it can use it."""
        device = self._devices.get(id_)
        return device is not None and device.healthy

    def sizes(self, without: Iterable[str] = ()) -> dict[Nodes, int]:
        """Numbers of free devices by NUMA nodes."""
        sizes = {nodes: len(free.members) for nodes, free in self._free.items()}
        for id_ in without:
            if self.is_free(id_):
                sizes[self._devices[id_].nodes] -= 1
        return sizes

    def all_sizes(self) -> dict[Nodes, int]:
        """Numbers of healthy devices, held or not, by NUMA nodes. O(n)."""
        return Counter(device.nodes for device in self._devices.values() if device.healthy)

    def free(self, near: Nodes = frozenset()) -> Iterator[str]:
        """Free devices, on any of these NUMA nodes if some are given. O(n)."""
        for nodes, free in self._free.items():
            if fits(nodes, near):
                yield from free.members

    def first(self, count: int, without: set[str], near: Nodes = frozenset()) -> list[str]:
        """At most `count` free devices: those on the given NUMA nodes first, then any others."""
        ids: list[str] = []
        order = sorted(self._free, key=lambda nodes: (not fits(nodes, near), not nodes, sorted(nodes)))
        for nodes in order:
            ids += self._free[nodes].first(count - len(ids), without)
        return ids

    def _add_free(self, id_: str) -> None:
        if self.is_free(id_):
            free = self._free.setdefault(self._devices[id_].nodes, _Free())
            if id_ not in free.members:
                free.add(id_)

    def _remove_free(self, id_: str) -> None:
        device = self._devices.get(id_)
        if device is not None and (free := self._free.get(device.nodes)) is not None:
            free.members.discard(id_)


def fits(nodes: Nodes, near: Nodes) -> bool:
    """Whether a device on these NUMA nodes is aligned with the nodes `near`."""
    return not near or not nodes or bool(nodes & near)
