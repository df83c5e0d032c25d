"""Tap point between the API server and its store: records writes."""

from collections.abc import Sequence

from podwire.interfaces import Tap
from podwire.protocols.storage import Condition, Item, Page, Watch
from podwire.store import AnyStore
from podwire.trace.participants import API_SERVER, of_store
from podwire.transports.tapped import Stored, Tapped


def tapped_store(store: AnyStore, tap: Tap | None, url: str) -> AnyStore:
    """Returns the store itself without a tap, else a store that records its writes; its URL says what it is called."""
    return store if tap is None else _TappedStore(store, Tapped(tap, caller=API_SERVER, callee=of_store(url)))


class _TappedStore:
    """Reads and watches are not recorded."""

    def __init__(self, store: AnyStore, tapped: Tapped) -> None:
        self._store = store
        self._tapped = tapped

    @property
    def revision(self) -> int:
        return self._store.revision

    @property
    def failure(self) -> str:
        return self._store.failure

    @property
    def is_full(self) -> bool:
        return self._store.is_full

    async def get(self, key: str) -> Item | None:
        return await self._store.get(key)

    async def list(self, prefix: str, *, at: int | None = None, after: str | None = None, limit: int = 0) -> Page:
        return await self._store.list(prefix, at=at, after=after, limit=limit)

    async def create(self, key: str, value: bytes) -> Item:
        with self._tapped.call(f"create {key}", Stored(value)):
            return await self._store.create(key, value)

    async def update(self, key: str, value: bytes, *, expected: int) -> Item:
        with self._tapped.call(f"update {key}", Stored(value)):
            return await self._store.update(key, value, expected=expected)

    async def delete(self, key: str, *, expected: int) -> int:
        with self._tapped.call(f"delete {key}", Stored()):
            return await self._store.delete(key, expected=expected)

    async def select(self, prefix: str, conditions: Sequence[Condition], *, scope: str) -> Page | None:
        return await self._store.select(prefix, conditions, scope=scope)

    def watch(self, prefix: str, *, after: int, trigger: Condition | None = None) -> Watch:
        return self._store.watch(prefix, after=after, trigger=trigger)

    async def compact(self, revision: int) -> None:
        await self._store.compact(revision)

    async def close(self) -> None:
        await self._store.close()
