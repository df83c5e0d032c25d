"""Base of the memory and SQLite stores: reads, lists and watches are answered from memory."""

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

    def _compaction_due(self) -> int | None:
        """Returns the revision to compact to, if a compaction is due. Work is proportional to writes; no timer is
        needed."""
        if self._until_shrink > 0:
            return None
        self._until_shrink = SHRINK_EVERY
        revision = self._versions.history.surplus(self._keep)
        return revision if revision > self._versions.history.floor else None

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise StoreUnavailable("the store is closed")

    def _close_watches(self, reason: StorageError) -> None:
        self._closed = True
        self._broadcaster.end_all(reason)
