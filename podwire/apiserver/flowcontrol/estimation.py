"""How many seats of its priority level a request takes. The rules and numbers are those of upstream's work estimator.

| request | seats |
|---|---|
| list, or watch with its initial state | one for every 100 objects that are read |
| write | one; 5 ms longer one for every 10 watches that receive it, when there are that many |
| anything else | one |

Nobody takes more than ten, or more than 15 % of the seats of the level.
"""

from collections import Counter

from podwire.apiserver.ports import Store
from podwire.apiserver.request.call import Call, boolean_option, integer_option
from podwire.interfaces import Clock

OBJECTS_PER_SEAT = 100
WATCHES_PER_SEAT = 10
FINAL_SECONDS = 0.005
"""How long a write keeps its final seats after it was answered, while watches receive it."""
COUNT_SECONDS = 10.0
"""How long the number of objects of a kind is used again: a store may have to ask for it."""
MOST_COUNTED = 1000

Scope = tuple[str, str, str]
"""Storage prefix of the kind, namespace and name; empty for all."""
_WRITES = frozenset({"create", "update", "patch", "delete"})


class WorkEstimator:
    """Estimates the work of requests; counts the watches that a write concerns."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._counts: dict[str, tuple[float, int]] = {}
        self._watches: Counter[Scope] = Counter()

    def add_watch(self, scope: Scope) -> None:
        self._watches[scope] += 1

    def remove_watch(self, scope: Scope) -> None:
        self._watches[scope] -= 1
        if not self._watches[scope]:
            del self._watches[scope]

    async def seats(self, call: Call, name: str, widest: int) -> int:
        """Returns the seats while the request runs. `name`: the only object that it is about; empty for several."""
        reads_many = call.verb == "list" or (call.verb == "watch" and boolean_option(call.request, "sendInitialEvents"))
        if not reads_many or name:
            return 1
        count = await self.count(call.resource.scope(call.namespace))
        selects = call.request.option("labelSelector") or call.request.option("fieldSelector")
        limit = integer_option(call.request, "limit") or 0
        read = min(limit, count) if limit > 0 and not selects else count
        return max(1, min(widest, -(-read // OBJECTS_PER_SEAT)))

    def final_seats(self, call: Call, widest: int) -> int:
        """Returns the seats that a write keeps for `FINAL_SECONDS` after its answer."""
        if not self._watches or call.verb not in _WRITES:
            return 0
        prefix, namespace, name = call.resource.prefix, call.namespace, call.name
        scopes = {(prefix, "", ""), (prefix, namespace, ""), (prefix, namespace, name)}
        watches = sum(self._watches[scope] for scope in scopes)
        return min(widest, -(-watches // WATCHES_PER_SEAT)) if watches >= WATCHES_PER_SEAT else 0

    async def count(self, scope: str) -> int:
        """Returns the number of objects below a storage prefix, at most ten seconds old."""
        now = self._clock.monotonic()
        known = self._counts.get(scope)
        if known is not None and now - known[0] < COUNT_SECONDS:
            return known[1]
        page = await self._store.list(scope, limit=1)
        if len(self._counts) >= MOST_COUNTED:
            self._counts.clear()
        count = len(page.items) + page.remaining
        self._counts[scope] = now, count
        return count
