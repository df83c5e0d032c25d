"""Base of the memory and SQLite stores: reads, lists and watches are answered from memory.

The history is compacted by age and by size. Size is checked after every `SHRINK_EVERY` changes. Age is checked by a
timer, because a history also ages while nobody writes; it runs as long as there are changes to remove.
"""

import asyncio
from collections.abc import Sequence

from podwire.protocols.storage import (
    Change,
    Condition,
    Item,
    Page,
    StorageError,
    StoreUnavailable,
    TooLarge,
    Watch,
)
from podwire.store.broadcast import QUEUE, Broadcaster
from podwire.store.field_index import FieldIndexes
from podwire.store.history import Window
from podwire.store.versions import Versions

MAX_VALUE = 1_500_000
"""Maximum bytes of one value. etcd accepts requests of 1.5 MiB; all stores have the same limit, so that an object can
move from one to another."""

SHRINK_EVERY = 256
"""Changes between two checks whether the history exceeds its window."""

CHECKS_PER_WINDOW = 10
"""The timer fires so often in the time that changes are kept: they may live a tenth longer."""


def refuse_too_large(key: str, value: bytes) -> None:
    if len(value) > MAX_VALUE:
        raise TooLarge(key, len(value), MAX_VALUE)


class CachedStore:
    """The whole state and its recent history in memory."""

    def __init__(self, versions: Versions, *, keep: Window, queue: int = QUEUE) -> None:
        self._versions = versions
        self._broadcaster = Broadcaster(versions.history, queue=queue)
        self._indexes = FieldIndexes(versions)
        self._keep = keep
        self._until_shrink = SHRINK_EVERY
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def revision(self) -> int:
        """The newest published revision."""
        return self._versions.revision

    @property
    def failure(self) -> str:
        """Why the store accepts no writes; empty when it does."""
        return "the store is closed" if self._closed else ""

    @property
    def is_full(self) -> bool:
        return False

    async def get(self, key: str) -> Item | None:
        self._refuse_when_closed()
        return self._versions.get(key)

    async def list(self, prefix: str, *, at: int | None = None, after: str | None = None, limit: int = 0) -> Page:
        """Keys under `prefix`; raises Gone or NotYet for `at`."""
        self._refuse_when_closed()
        return self._versions.page(prefix, at=at, after=after, limit=limit)

    async def select(self, prefix: str, conditions: Sequence[Condition], *, scope: str) -> Page | None:
        """The present items under `scope` that meet all conditions, by the indexes of `prefix`."""
        self._refuse_when_closed()
        return await self._indexes.select(prefix, conditions, scope)

    def watch(self, prefix: str, *, after: int, trigger: Condition | None = None) -> Watch:
        """Changes under `prefix` (or of one key, when it does not end in '/') above `after`; raises Gone."""
        self._refuse_when_closed()
        return self._broadcaster.subscribe(prefix, after, trigger)

    def _publish(self, changes: Sequence[Change]) -> None:
        """Makes changes visible: first to readers, then to watchers."""
        for change in changes:
            self._versions.apply(change)
        self._broadcaster.publish(changes)
        self._until_shrink -= len(changes)
        self._start_timer()

    def _compact(self, revision: int) -> None:
        """Removes the history below `revision`."""
        self._versions.compact(revision)

    def _compact_after_writes(self) -> None:
        if self._until_shrink <= 0:
            self._compact_surplus()

    def _compact_surplus(self) -> None:
        self._until_shrink = SHRINK_EVERY
        revision = self._versions.history.surplus(self._keep)
        if revision > self._versions.history.floor:
            self._compact(revision)

    def _start_timer(self) -> None:
        """Arms the timer, unless it is armed or there is nothing that could grow old."""
        if self._timer is None and len(self._versions.history):
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._keep.seconds / CHECKS_PER_WINDOW, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if not self._closed:
            self._compact_surplus()
            self._start_timer()

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise StoreUnavailable("the store is closed")

    def _close_watches(self, reason: StorageError) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._broadcaster.end_all(reason)
