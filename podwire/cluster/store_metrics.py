"""Counts the writes of the API server's store, with the names that upstream has for etcd."""

import time

from podwire.kinds.resource import PREFIX
from podwire.protocols.prometheus import Metrics
from podwire.protocols.storage import Item, KeyExists, Stale, StorageError
from podwire.store import AnyStore

BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)


class MeteredStore:
    """A store whose writes are timed, with the names that upstream has for its store. Reads are handed through: they
    come from memory."""

    def __init__(self, store: AnyStore, metrics: Metrics) -> None:
        self._store = store
        labels = ("operation", "resource")
        self._requests = metrics.counter("etcd_requests_total", "Writes of the store", *labels)
        self._errors = metrics.counter("etcd_request_errors_total", "Writes of the store that failed", *labels)
        self._seconds = metrics.histograms(
            "etcd_request_duration_seconds", "Time until a write is on the disk", *labels, bounds=BOUNDS
        )
        self.get = store.get
        self.list = store.list
        self.select = store.select
        self.watch = store.watch
        self.compact = store.compact
        self.close = store.close

    @property
    def revision(self) -> int:
        return self._store.revision

    @property
    def failure(self) -> str:
        return self._store.failure

    @property
    def is_full(self) -> bool:
        return self._store.is_full

    async def create(self, key: str, value: bytes) -> Item:
        with _Write(self, "create", key):
            return await self._store.create(key, value)

    async def update(self, key: str, value: bytes, *, expected: int) -> Item:
        with _Write(self, "update", key):
            return await self._store.update(key, value, expected=expected)

    async def delete(self, key: str, *, expected: int) -> int:
        with _Write(self, "delete", key):
            return await self._store.delete(key, expected=expected)

    def count(self, operation: str, key: str, seconds: float, error: type[BaseException] | None) -> None:
        resource = key.removeprefix(PREFIX).partition("/")[0]
        self._requests.inc(operation, resource)
        self._seconds.observe(seconds, operation, resource)
        if error is not None and issubclass(error, StorageError) and not issubclass(error, KeyExists | Stale):
            self._errors.inc(operation, resource)


class _Write:
    __slots__ = ("_began", "_key", "_operation", "_store")

    def __init__(self, store: MeteredStore, operation: str, key: str) -> None:
        self._store = store
        self._operation = operation
        self._key = key

    def __enter__(self) -> None:
        self._began = time.monotonic()

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self._store.count(self._operation, self._key, time.monotonic() - self._began, error)
