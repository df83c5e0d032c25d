"""A store that lives as long as its process: for tests, experiments and short-lived clusters."""

from podwire.protocols.storage import Change, Item, StoreUnavailable
from podwire.store.broadcast import QUEUE
from podwire.store.cached import CachedStore, refuse_too_large
from podwire.store.history import Window
from podwire.store.versions import Versions, decide


class MemoryStore(CachedStore):
    """All in memory; `keep` limits the history."""

    def __init__(self, *, keep: Window | None = None, queue: int = QUEUE) -> None:
        super().__init__(Versions(), keep=keep or Window(), queue=queue)

    async def create(self, key: str, value: bytes) -> Item:
        """Raises KeyExists."""
        return _item(self._write(key, value, None))

    async def update(self, key: str, value: bytes, *, expected: int) -> Item:
        """Raises Stale."""
        return _item(self._write(key, value, expected))

    async def delete(self, key: str, *, expected: int) -> int:
        """Raises Stale."""
        return self._write(key, None, expected).revision

    async def compact(self, revision: int) -> None:
        """Removes the history below `revision`."""
        self._compact(revision)

    async def close(self) -> None:
        """Ends all watches."""
        self._close_watches(StoreUnavailable("the store is closed"))

    def _write(self, key: str, value: bytes | None, expected: int | None) -> Change:
        self._refuse_when_closed()
        refuse_too_large(key, value or b"")
        change = decide(self._versions.get(key), key, value, expected, self._versions.revision + 1)
        self._publish((change,))
        self._compact_after_writes()
        return change


def _item(change: Change) -> Item:
    assert change.item is not None  # noqa: S101 - only a deletion has none
    return change.item
