"""Caches search results per node until a pool or an allocation there changes.

Similar pods ask the same query again, and between two of them one node in hundreds has other devices free.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence

from podwire.objects.claims import DeviceConstraint
from podwire.objects.nodes import Node
from podwire.scheduler.claims.allocated_devices import AllocatedDevices
from podwire.scheduler.claims.allocator import Budget, Picks, SearchContext, search
from podwire.scheduler.claims.claim_requests import ClaimRequests, Request
from podwire.scheduler.claims.devices import Pool

MAX_QUERIES = 32

Query = tuple[tuple[tuple[Request, ...], tuple[DeviceConstraint, ...]], ...]
Stamp = tuple[int, ...]
Found = tuple[Picks, ...] | None


class NodeResults:
    """The results of one query by node."""

    def __init__(self, to_allocate: Sequence[ClaimRequests]) -> None:
        self.to_allocate = to_allocate
        self._known: dict[str, tuple[Stamp, Found]] = {}

    def on(self, node: Node, pools: Sequence[Pool], allocated_devices: AllocatedDevices, budget: Budget) -> Found:
        """Returns cached or new results. Errors of the search are raised and not cached."""
        if not self.to_allocate:
            return ()
        name = node.metadata.name
        stamp = _stamp(pools, allocated_devices.changes)
        known = self._known.get(name)
        if known is not None and known[0] == stamp:
            return known[1]
        found = search(self.to_allocate, SearchContext(node, pools, allocated_devices, budget))
        if stamp is not None:
            self._known[name] = (stamp, found)
        return found


def _stamp(pools: Sequence[Pool], changes: Mapping[tuple[str, str], int]) -> Stamp | None:
    """Returns a value that changes when a pool near the node is written or one of its devices is allocated or released.

    None where that is not sufficient: devices of more than one node depend on the node's labels too.
    """
    parts: list[int] = []
    for pool in pools:
        if not pool.node:
            return None
        parts += (pool.serial, changes.get(pool.key, 0))
    return tuple(parts)


class SearchCache:
    """The most recent queries."""

    def __init__(self) -> None:
        self._queries: OrderedDict[Query, NodeResults] = OrderedDict()

    def to(self, to_allocate: Sequence[ClaimRequests]) -> NodeResults:
        query = tuple((claim.requests, claim.constraints) for claim in to_allocate)
        node_results = self._queries.pop(query, None) or NodeResults(to_allocate)
        self._queries[query] = node_results
        if len(self._queries) > MAX_QUERIES:
            self._queries.popitem(last=False)
        return node_results
