"""All objects as one graph: by uid, dependents by owner, by namespace and kind, some by name. Pure.

It is the one cache of all controllers. The kinds that some controller reads whole can be found by their name, too.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import TypeVar

from podwire.controllers.metadata import PartialObject, resource_of
from podwire.protocols.k8sapi.kinds import Kind

_K = TypeVar("_K")


class Graph:
    """Updated by the dispatcher, read by all controllers."""

    def __init__(self) -> None:
        self._nodes: dict[str, PartialObject] = {}
        self._dependents: defaultdict[str, set[str]] = defaultdict(set)
        self._by_place: defaultdict[tuple[str, tuple[str, str]], set[str]] = defaultdict(set)
        self._by_name: dict[tuple[tuple[str, str], str, str], str] = {}
        self._counts: Counter[tuple[str, str]] = Counter()
        self._resources: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        self.complete = False
        """Whether an object that is missing here does not exist."""

    def put(self, seen: PartialObject) -> PartialObject | None:
        """Stores an object; returns its previous version."""
        before = self._nodes.get(seen.uid)
        if before is None:
            place = (seen.namespace, seen.resource)
            self._by_place[place].add(seen.uid)
            self._counts[seen.resource] += 1
            self._resources[seen.namespace].add(seen.resource)
            if seen.json:
                self._by_name[seen.resource, seen.namespace, seen.name] = seen.uid
        else:
            self._forget_owners(before)
        self._nodes[seen.uid] = seen
        for owner in seen.owners:
            self._dependents[owner.uid].add(seen.uid)
        return before

    def drop(self, uid: str) -> PartialObject | None:
        """Removes a deleted object; returns its last version."""
        before = self._nodes.pop(uid, None)
        if before is None:
            return None
        self._forget_owners(before)
        self._counts[before.resource] -= 1
        name = (before.resource, before.namespace, before.name)
        if self._by_name.get(name) == uid:
            del self._by_name[name]
        place = (before.namespace, before.resource)
        _remove(self._by_place, place, uid)
        if place not in self._by_place:
            self._resources[before.namespace].discard(before.resource)
            if not self._resources[before.namespace]:
                del self._resources[before.namespace]
        return before

    def node(self, uid: str) -> PartialObject | None:
        return self._nodes.get(uid)

    def nodes(self) -> Iterator[PartialObject]:
        return iter(tuple(self._nodes.values()))

    def dependents(self, uid: str) -> list[PartialObject]:
        return [self._nodes[dependent] for dependent in sorted(self._dependents.get(uid, ()))]

    def find(self, kind: Kind, name: str, namespace: str = "") -> PartialObject | None:
        """Returns an object by its name; only of kinds that are followed whole."""
        return self._nodes.get(self._by_name.get((resource_of(kind), namespace, name), ""))

    def listed(self, kind: Kind, namespace: str = "") -> list[PartialObject]:
        """Returns the objects of a kind in a namespace, in no order."""
        return [self._nodes[uid] for uid in self._by_place.get((namespace, resource_of(kind)), ())]

    def everywhere(self, kind: Kind) -> list[PartialObject]:
        """Returns the objects of a kind in all namespaces, in no order."""
        resource = resource_of(kind)
        places = [(namespace, resource) for namespace, held in self._resources.items() if resource in held]
        return [self._nodes[uid] for place in places for uid in self._by_place.get(place, ())]

    def in_namespace(self, namespace: str) -> dict[tuple[str, str], int]:
        """Returns the number of objects per group and resource in a namespace."""
        return {
            resource: len(self._by_place[namespace, resource])
            for resource in sorted(self._resources.get(namespace, ()))
        }

    def has(self, kind: Kind) -> bool:
        """Returns whether any object of a kind exists, in any version."""
        return self._counts[resource_of(kind)] > 0

    def _forget_owners(self, seen: PartialObject) -> None:
        for owner in seen.owners:
            _remove(self._dependents, owner.uid, seen.uid)


def _remove(table: dict[_K, set[str]], key: _K, uid: str) -> None:
    found = table.get(key)
    if found is not None:
        found.discard(uid)
        if not found:
            del table[key]
