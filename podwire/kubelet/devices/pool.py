"""The devices of one resource: which there are, how they are, which are free. No I/O."""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

Nodes = frozenset[int]
"""NUMA nodes; of a device that is near to none in particular, empty."""


class Device(NamedTuple):
    id: str
    healthy: bool = True
    nodes: Nodes = frozenset()


class _Free:
    """Free devices that are near to the same nodes, the first by name first; entries of others are skipped."""

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
        found: list[str] = []
        popped: list[str] = []
        before = ""
        while self._heap and len(found) < count:
            id_ = heapq.heappop(self._heap)
            if id_ == before or id_ not in self.members:
                continue
            before = id_
            popped.append(id_)
            if id_ not in without:
                found.append(id_)
        for each in popped:
            heapq.heappush(self._heap, each)
        return found


class Pool:
    """Finding a free device and taking it costs the logarithm of how many there are."""

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
        """Those that are healthy, held or not."""
        return self._healthy

    @property
    def devices(self) -> Iterable[Device]:
        return self._devices.values()

    def get(self, id_: str) -> Device | None:
        return self._devices.get(id_)

    def update(self, devices: Mapping[str, Device]) -> set[str]:
        """These are all there are now; the ids of those that came, went or are not as they were."""
        before = self._devices
        changed = {id_ for id_, each in devices.items() if before.get(id_) != each}
        changed |= before.keys() - devices.keys()
        for id_ in changed:
            self._leave(id_)
        self._devices = dict(devices)
        for id_ in changed:
            self._enter(id_)
        self._healthy = sum(each.healthy for each in devices.values())
        return changed

    def lose(self) -> set[str]:
        """Nobody speaks for them any more: none is known to be healthy."""
        return self.update({id_: each._replace(healthy=False) for id_, each in self._devices.items()})

    def hold(self, ids: Iterable[str]) -> None:
        """They belong to somebody, whether they are here now or not."""
        for id_ in ids:
            self._leave(id_)
            self._held.add(id_)

    def release(self, ids: Iterable[str]) -> None:
        for id_ in ids:
            self._held.discard(id_)
            self._enter(id_)

    def is_free(self, id_: str) -> bool:
        device = self._devices.get(id_)
        return device is not None and device.healthy and id_ not in self._held

    def is_usable(self, id_: str) -> bool:
        """By whoever holds it."""
        device = self._devices.get(id_)
        return device is not None and device.healthy

    def sizes(self, without: Iterable[str] = ()) -> dict[Nodes, int]:
        """How many are free near to the same nodes."""
        sizes = {nodes: len(each.members) for nodes, each in self._free.items()}
        for id_ in without:
            if self.is_free(id_):
                sizes[self._devices[id_].nodes] -= 1
        return sizes

    def all_sizes(self) -> dict[Nodes, int]:
        """How many healthy ones, held or not, are near to the same nodes. As many steps as there are."""
        return Counter(each.nodes for each in self._devices.values() if each.healthy)

    def free(self, near: Nodes = frozenset()) -> Iterator[str]:
        """All that are free, near to any of these nodes if some are named. As many steps as there are."""
        for nodes, each in self._free.items():
            if fits(nodes, near):
                yield from each.members

    def first(self, count: int, without: set[str], near: Nodes = frozenset()) -> list[str]:
        """So many free ones at most, near to these nodes first, then wherever they are."""
        found: list[str] = []
        order = sorted(self._free, key=lambda nodes: (not fits(nodes, near), not nodes, sorted(nodes)))
        for nodes in order:
            found += self._free[nodes].first(count - len(found), without)
        return found

    def _enter(self, id_: str) -> None:
        if self.is_free(id_):
            place = self._free.setdefault(self._devices[id_].nodes, _Free())
            if id_ not in place.members:
                place.add(id_)

    def _leave(self, id_: str) -> None:
        device = self._devices.get(id_)
        if device is not None and (place := self._free.get(device.nodes)) is not None:
            place.members.discard(id_)


def fits(nodes: Nodes, near: Nodes) -> bool:
    """Whether a device of these nodes is near enough."""
    return not near or not nodes or bool(nodes & near)
