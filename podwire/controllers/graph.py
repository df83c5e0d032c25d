"""Everything there is, as one graph: objects by uid, dependents by owner, content by namespace and by kind. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import TypeVar

from podwire.controllers.metadata import Seen, resource_of
from podwire.protocols.k8sapi.kinds import Kind

_K = TypeVar("_K")


class Graph:
    """Updated by one hand, read by all controllers."""

    def __init__(self) -> None:
        self._nodes: dict[str, Seen] = {}
        self._dependents: defaultdict[str, set[str]] = defaultdict(set)
        self._by_place: defaultdict[tuple[str, tuple[str, str]], set[str]] = defaultdict(set)
        self._counts: Counter[tuple[str, str]] = Counter()
        self._resources: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        self.complete = False
        """Whether what is not here is not there."""

    def put(self, seen: Seen) -> Seen | None:
        """Remember an object; returns what was known of it before."""
        before = self._nodes.get(seen.uid)
        if before is None:
            place = (seen.namespace, seen.resource)
            self._by_place[place].add(seen.uid)
            self._counts[seen.resource] += 1
            self._resources[seen.namespace].add(seen.resource)
        else:
            self._forget_owners(before)
        self._nodes[seen.uid] = seen
        for owner in seen.owners:
            self._dependents[owner.uid].add(seen.uid)
        return before

    def drop(self, uid: str) -> Seen | None:
        """Forget an object that is gone; returns what was known of it."""
        before = self._nodes.pop(uid, None)
        if before is None:
            return None
        self._forget_owners(before)
        self._counts[before.resource] -= 1
        place = (before.namespace, before.resource)
        _remove(self._by_place, place, uid)
        if place not in self._by_place:
            self._resources[before.namespace].discard(before.resource)
            if not self._resources[before.namespace]:
                del self._resources[before.namespace]
        return before

    def node(self, uid: str) -> Seen | None:
        return self._nodes.get(uid)

    def nodes(self) -> Iterator[Seen]:
        return iter(tuple(self._nodes.values()))

    def dependents(self, uid: str) -> list[Seen]:
        return [self._nodes[each] for each in sorted(self._dependents.get(uid, ()))]

    def in_namespace(self, namespace: str) -> dict[tuple[str, str], int]:
        """How many objects of which group and resource a namespace holds."""
        return {each: len(self._by_place[namespace, each]) for each in sorted(self._resources.get(namespace, ()))}

    def has(self, kind: Kind) -> bool:
        """Whether there is any object of a kind, in whatever version."""
        return self._counts[resource_of(kind)] > 0

    def _forget_owners(self, seen: Seen) -> None:
        for owner in seen.owners:
            _remove(self._dependents, owner.uid, seen.uid)


def _remove(table: dict[_K, set[str]], key: _K, uid: str) -> None:
    found = table.get(key)
    if found is not None:
        found.discard(uid)
        if not found:
            del table[key]
