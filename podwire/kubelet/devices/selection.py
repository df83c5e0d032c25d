"""Selects the devices of a pod: all that it requests, or none. Pure: a generator that asks for plugins' preferences.

For each container in the order of their starts: 1. devices of an init container before it.  2. Devices that the plugin
prefers among those on the same NUMA nodes, for all resources of the container together.  3. Any of these.  4. Others.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from podwire.kubelet.devices.pool import Nodes, Pool, fits
from podwire.kubelet.devices.requests import DeviceRequest
from podwire.kubelet.devices.topology import BEST_EFFORT, NONE, TopologyAffinityError, allowed

Selection = dict[str, dict[str, tuple[str, ...]]]
"""Container, resource, ids in order."""

MOST_NODES = 8
"""NUMA nodes of which all subsets are considered; on larger machines only single nodes and pairs."""


class NotEnoughDevices(Exception):
    """Too few devices are free."""

    def __init__(self, resource: str, wanted: int, free: int) -> None:
        super().__init__(f"{resource}: {wanted} wanted, {free} free")
        self.resource = resource


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceQuery:
    """A request for the plugin's preference (GetPreferredAllocation)."""

    resource: str
    available: tuple[str, ...]
    must: tuple[str, ...]
    size: int


def select_devices(
    requests: Iterable[DeviceRequest],
    pools: Mapping[str, Pool],
    *,
    own: Mapping[str, Iterable[str]] | None = None,
    has_preference: Callable[[str], bool] = lambda _resource: False,
    policy: str = BEST_EFFORT,
) -> Generator[PreferenceQuery, Sequence[str], Selection]:
    """Yields queries and is sent the preferred ids; raises NotEnoughDevices, TopologyAffinityError.

    `own` are ids that the pod holds already; they are taken first. `has_preference` is true for resources whose plugin
    implements GetPreferredAllocation.
    """
    selector = _Selector(pools, own or {}, has_preference, policy)
    for request in requests:
        yield from selector.select(request)
    return selector.selection


class _Selector:
    def __init__(
        self,
        pools: Mapping[str, Pool],
        own: Mapping[str, Iterable[str]],
        has_preference: Callable[[str], bool],
        policy: str,
    ) -> None:
        self._pools = pools
        self._has_preference = has_preference
        self._policy = policy
        self._near: Nodes = frozenset()
        self._reusable = {name: dict.fromkeys(ids) for name, ids in own.items()}
        """By resource: ids that the pod holds and no container that keeps running has; a dict keeps the order."""
        self._taken: dict[str, set[str]] = {}
        self.selection: Selection = {}

    def select(self, request: DeviceRequest) -> Generator[PreferenceQuery, Sequence[str], None]:
        again = {name: list(self._reusable.get(name, ()))[:count] for name, count in request.counts.items()}
        fresh = {name: count - len(again[name]) for name, count in request.counts.items()}
        self._near = self._aligned({name: count for name, count in fresh.items() if count})
        selected = {}
        for name, count in request.counts.items():
            ids = again[name]
            if fresh[name]:
                ids += yield from self._fresh(name, fresh[name], ids, count)
            selected[name] = tuple(ids)
            self._note(name, ids, passes_on=request.passes_on)
        self.selection[request.container] = selected

    def _note(self, name: str, ids: Iterable[str], *, passes_on: bool) -> None:
        self._taken.setdefault(name, set()).update(ids)
        reusable = self._reusable.setdefault(name, {})
        for id_ in ids:
            if passes_on:
                reusable[id_] = None
            else:
                reusable.pop(id_, None)

    def _aligned(self, fresh: Mapping[str, int]) -> Nodes:
        if self._policy == NONE:
            return frozenset()
        demands = [(self._pools[name].sizes(self._taken.get(name, ())), count) for name, count in fresh.items()]
        near = aligned(demands, self._near)
        if self._policy != BEST_EFFORT and all(sum(sizes.values()) >= count for sizes, count in demands):
            self._check_policy(fresh, near)
        return near

    def _check_policy(self, fresh: Mapping[str, int], near: Nodes) -> None:
        """Enough devices are free; check their alignment, unless no requested device has NUMA nodes."""
        every = [(self._pools[name].all_sizes(), count) for name, count in fresh.items()]
        if any(nodes for sizes, _ in every for nodes in sizes) and not allowed(self._policy, near, aligned(every)):
            raise TopologyAffinityError

    def _fresh(
        self, name: str, count: int, must: Sequence[str], size: int
    ) -> Generator[PreferenceQuery, Sequence[str], list[str]]:
        pool, taken = self._pools[name], self._taken.get(name, set())
        without = taken.union(must)
        found: list[str] = []
        if self._has_preference(name):
            found = yield from self._preferred(name, count, must, size)
        if len(found) < count:
            found += pool.first(count - len(found), without.union(found), self._near)
        if len(found) < count:
            raise NotEnoughDevices(name, size, len(must) + len(found))
        return found

    def _preferred(
        self, name: str, count: int, must: Sequence[str], size: int
    ) -> Generator[PreferenceQuery, Sequence[str], list[str]]:
        """Ids of the plugin's answer that are available; others and duplicates are ignored."""
        pool, without = self._pools[name], self._taken.get(name, set()).union(must)
        available = set(pool.free(self._near)) - without
        if len(available) < count:
            available = set(pool.free()) - without
        if len(available) <= count:
            return sorted(available)
        candidates = (*must, *sorted(available))
        answer = yield PreferenceQuery(resource=name, available=candidates, must=tuple(must), size=size)
        return list(dict.fromkeys(id_ for id_ in answer if id_ in available and pool.is_free(id_)))[:count]


def aligned(demands: Sequence[tuple[Mapping[Nodes, int], int]], before: Nodes = frozenset()) -> Nodes:
    """The fewest NUMA nodes whose devices meet all demands, `before` if it is among them; empty when there are none, or
    no device has NUMA nodes."""
    nodes = sorted(frozenset().union(*(near for sizes, _ in demands for near in sizes)))
    sizes = range(1, len(nodes) + 1) if len(nodes) <= MOST_NODES else (1, 2)
    for size in sizes:
        candidates = [frozenset(subset) for subset in combinations(nodes, size)]
        candidates.sort(key=lambda candidate: candidate != before)
        for candidate in candidates:
            if all(_near(sizes_, candidate) >= count for sizes_, count in demands):
                return candidate
    return frozenset()


def _near(sizes: Mapping[Nodes, int], near: Nodes) -> int:
    return sum(count for nodes, count in sizes.items() if fits(nodes, near))
