"""Which devices a pod gets: all that it wants, or none. Pure; a conversation, because plugins may have a preference.

For each container in the order of their starts: 1. what an init container before it had.  2. What the plugin prefers
among those that are near to the same NUMA nodes, for all resources of the container together.  3. Any of these.
4. Any other.
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
"""NUMA nodes of which all subsets are weighed; where there are more, only single ones and pairs."""


class NotEnoughDevices(Exception):
    """There are not enough."""

    def __init__(self, resource: str, wanted: int, free: int) -> None:
        super().__init__(f"{resource}: {wanted} wanted, {free} free")
        self.resource = resource


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceQuery:
    """Which of these would the plugin give?"""

    resource: str
    available: tuple[str, ...]
    must: tuple[str, ...]
    size: int


def select_devices(
    wanted: Iterable[DeviceRequest],
    pools: Mapping[str, Pool],
    *,
    own: Mapping[str, Iterable[str]] | None = None,
    asked: Callable[[str], bool] = lambda _resource: False,
    policy: str = BEST_EFFORT,
) -> Generator[PreferenceQuery, Sequence[str], Selection]:
    """Yields questions and is sent the answers; raises Short, TopologyAffinityError.

    `own` are ids that the pod has already, taken first. `asked` tells of which resources the plugin has a preference.
    """
    course = _Course(pools, own or {}, asked, policy)
    for wish in wanted:
        yield from course.attend(wish)
    return course.chosen


class _Course:
    def __init__(
        self, pools: Mapping[str, Pool], own: Mapping[str, Iterable[str]], asked: Callable[[str], bool], policy: str
    ) -> None:
        self._pools = pools
        self._asked = asked
        self._policy = policy
        self._near: Nodes = frozenset()
        self._reusable = {name: dict.fromkeys(ids) for name, ids in own.items()}
        """By resource, ids that this pod has and that no container which runs on has; a dict keeps their order."""
        self._taken: dict[str, set[str]] = {}
        self.chosen: Selection = {}

    def attend(self, wish: DeviceRequest) -> Generator[PreferenceQuery, Sequence[str], None]:
        again = {name: self._again(name, count) for name, count in wish.counts.items()}
        fresh = {name: count - len(again[name]) for name, count in wish.counts.items()}
        self._near = self._aligned({name: count for name, count in fresh.items() if count})
        found = {}
        for name, count in wish.counts.items():
            ids = again[name]
            if fresh[name]:
                ids += yield from self._fresh(name, fresh[name], ids, count)
            found[name] = tuple(ids)
            self._note(name, ids, passes_on=wish.passes_on)
        self.chosen[wish.container] = found

    def _again(self, name: str, count: int) -> list[str]:
        return list(self._reusable.get(name, ()))[:count]

    def _note(self, name: str, ids: Iterable[str], *, passes_on: bool) -> None:
        self._taken.setdefault(name, set()).update(ids)
        reusable = self._reusable.setdefault(name, {})
        for each in ids:
            if passes_on:
                reusable[each] = None
            else:
                reusable.pop(each, None)

    def _aligned(self, fresh: Mapping[str, int]) -> Nodes:
        if self._policy == NONE:
            return frozenset()
        demands = [(self._pools[name].sizes(self._taken.get(name, ())), count) for name, count in fresh.items()]
        near = aligned(demands, self._near)
        if self._policy != BEST_EFFORT and all(sum(sizes.values()) >= count for sizes, count in demands):
            self._judge(fresh, near)
        return near

    def _judge(self, fresh: Mapping[str, int], near: Nodes) -> None:
        """There are enough; are they near enough? Who wants only what is near to no node in particular is not asked."""
        every = [(self._pools[name].all_sizes(), count) for name, count in fresh.items()]
        if any(nodes for sizes, _ in every for nodes in sizes) and not allowed(self._policy, near, aligned(every)):
            raise TopologyAffinityError

    def _fresh(
        self, name: str, count: int, must: Sequence[str], size: int
    ) -> Generator[PreferenceQuery, Sequence[str], list[str]]:
        pool, taken = self._pools[name], self._taken.get(name, set())
        without = taken.union(must)
        found: list[str] = []
        if self._asked(name):
            found = yield from self._preferred(name, count, must, size)
        if len(found) < count:
            found += pool.first(count - len(found), without.union(found), self._near)
        if len(found) < count:
            raise NotEnoughDevices(name, size, len(must) + len(found))
        return found

    def _preferred(
        self, name: str, count: int, must: Sequence[str], size: int
    ) -> Generator[PreferenceQuery, Sequence[str], list[str]]:
        """Of the answer, what may be given; a plugin that names others, or one twice, is not obeyed in that."""
        pool, without = self._pools[name], self._taken.get(name, set()).union(must)
        available = set(pool.free(self._near)) - without
        if len(available) < count:
            available = set(pool.free()) - without
        if len(available) <= count:
            return sorted(available)
        offered = (*must, *sorted(available))
        answer = yield PreferenceQuery(resource=name, available=offered, must=tuple(must), size=size)
        return list(dict.fromkeys(each for each in answer if each in available and pool.is_free(each)))[:count]


def aligned(demands: Sequence[tuple[Mapping[Nodes, int], int]], before: Nodes = frozenset()) -> Nodes:
    """The fewest NUMA nodes near to which all demands can be met, those of `before` if they do; empty when none can
    be, or when nothing is near to any node."""
    nodes = sorted(frozenset().union(*(near for sizes, _ in demands for near in sizes)))
    sizes = range(1, len(nodes) + 1) if len(nodes) <= MOST_NODES else (1, 2)
    for size in sizes:
        candidates = [frozenset(each) for each in combinations(nodes, size)]
        candidates.sort(key=lambda each: each != before)
        for each in candidates:
            if all(_near(sizes_, each) >= count for sizes_, count in demands):
                return each
    return frozenset()


def _near(sizes: Mapping[Nodes, int], near: Nodes) -> int:
    return sum(count for nodes, count in sizes.items() if fits(nodes, near))
