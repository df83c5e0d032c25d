"""The state of a store in memory, now and at every revision since compaction. No I/O, no event loop.

The present is a dict plus its sorted keys; the past is the present with the later changes undone (see history.py).
Common reads are as cheap as they can be, and `remaining` is exact at any revision without counting keys.
"""

import heapq
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from itertools import islice

from podwire.protocols.storage import Change, Item, KeyExists, NotYet, Page, Stale
from podwire.store.history import History


def decide(current: Item | None, key: str, value: bytes | None, expected: int | None, revision: int) -> Change:
    """Returns the change of a write. `expected` None: the key must be absent; `value` None: a deletion.

    Raises KeyExists or Stale.
    """
    if expected is None:
        if current is not None:
            raise KeyExists(key)
    elif current is None or current.revision != expected:
        raise Stale(key, current)
    if value is None:
        return Change(revision, key, None, current)
    return Change(revision, key, Item(key, value, revision, current.created if current else revision), current)


class Versions:
    """Keys and their items at `revision`, and at every revision from `history.floor` on."""

    def __init__(self, items: Iterable[Item] = (), history: History | None = None, revision: int = 0) -> None:
        """Takes the present items with the history that led to them; `revision` may be ahead of the last change."""
        self.history = history if history is not None else History()
        self.revision = max(revision, self.history.revision)
        self._items = {item.key: item for item in items}
        self._keys = sorted(self._items)

    def get(self, key: str) -> Item | None:
        return self._items.get(key)

    def apply(self, change: Change) -> None:
        """Applies the next change of the log."""
        if change.item is None:
            del self._items[change.key]
            del self._keys[bisect_left(self._keys, change.key)]
        else:
            if change.key not in self._items:
                insort(self._keys, change.key)
            self._items[change.key] = change.item
        self.history.append(change)
        self.revision = change.revision

    def page(self, prefix: str, *, at: int | None = None, after: str | None = None, limit: int = 0) -> Page:
        """Returns the keys under `prefix` in order, now or at revision `at`; raises Gone or NotYet."""
        if not prefix.endswith("/"):
            raise ValueError(f"a list is of a prefix that ends in '/', not of {prefix!r}")
        if at is not None and at > self.revision:
            raise NotYet(at, self.revision)
        start = bisect_left(self._keys, prefix) if after is None else bisect_right(self._keys, max(after, prefix))
        stop = max(start, bisect_left(self._keys, prefix[:-1] + "0"))  # '0' follows '/'
        undone = {} if at is None else self._undone(prefix, at, after)
        if undone:
            items, total = self._past(start, stop, undone, limit)
        else:
            last = min(stop, start + limit) if limit else stop
            items = [self._items[key] for key in self._keys[start:last]]
            total = stop - start
        remaining = total - len(items)
        return Page(tuple(items), self.revision if at is None else at, remaining > 0, remaining)

    def compact(self, revision: int) -> list[int]:
        """Removes the history below `revision`; returns the revisions whose values can no longer be read."""
        revision = min(revision, self.revision)
        superseded = []
        for change in self.history.forget(revision):
            if change.previous is not None:
                superseded.append(change.previous.revision)
            if change.item is None:
                superseded.append(change.revision)
        return superseded

    def _undone(self, prefix: str, at: int, after: str | None) -> dict[str, Item | None]:
        """Returns the items that keys changed since `at` had then."""
        undone: dict[str, Item | None] = {}
        for change in self.history.after(at, prefix):
            if after is None or change.key > after:
                undone.setdefault(change.key, change.previous)
        return undone

    def _past(self, start: int, stop: int, undone: dict[str, Item | None], limit: int) -> tuple[list[Item], int]:
        since_deleted = sorted(key for key, item in undone.items() if item is not None and key not in self._items)
        since_created = sum(1 for key, item in undone.items() if item is None and key in self._items)

        def then() -> Iterator[Item]:
            for key in heapq.merge(islice(self._keys, start, stop), since_deleted):
                item = undone[key] if key in undone else self._items[key]
                if item is not None:
                    yield item

        items = list(islice(then(), limit or None))
        return items, stop - start + len(since_deleted) - since_created
