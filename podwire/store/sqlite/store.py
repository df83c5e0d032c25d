"""SqliteStore: reads and watches from memory, writes durable before they are acknowledged.

A write is admitted on the event loop: it is checked against the committed state, gets the next revision and is handed
to the writer thread. When the batch that it is part of is on disk, the loop applies the batch in order, publishes it
and lets the callers go on; so no reader and no watcher ever sees what a crash could take back.

At most one write per key is in flight. A second one that the committed state would allow waits and is judged again
when the first has settled; it is never refused because of a write that may yet fail.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from podwire.failpoints import declare, failpoint
from podwire.protocols.storage import Change, Item, StorageError, StoreUnavailable
from podwire.store.broadcast import QUEUE
from podwire.store.cached import Mirror, refuse_too_large
from podwire.store.history import Window
from podwire.store.sqlite.database import Database, Loaded
from podwire.store.sqlite.lockfile import lock, unlock
from podwire.store.sqlite.writer import Writer
from podwire.store.versions import decide

ADMITTED = declare("store.admitted", "a write has its revision and is on its way to the writer")
BEFORE_PUBLISH = declare("store.before-publish", "a batch is durable, readers and watchers do not see it yet")

_Outcome = asyncio.Future[StorageError | None]


class SqliteStore(Mirror):
    """One data directory, one process, one writer thread. Open with `SqliteStore.open`."""

    def __init__(self, held: int, database: Database, loaded: Loaded, *, keep: Window, queue: int) -> None:
        super().__init__(loaded.versions, keep=keep, queue=queue)
        self._held = held
        self._loop = asyncio.get_running_loop()
        self._writer = Writer(database, self._loop, self._settle, floor=loaded.versions.history.floor)
        self._writer.compacted(loaded.versions.history.floor, loaded.superseded)
        self._newest = loaded.versions.revision
        self._gathered: list[Change] = []
        self._in_flight: dict[str, _Outcome] = {}

    @classmethod
    async def open(cls, directory: Path, *, keep: Window | None = None, queue: int = QUEUE) -> "SqliteStore":
        """The store in an existing directory; raises CannotOpen with the path and the reason."""
        held = lock(directory)
        try:
            database, loaded = await asyncio.to_thread(_load, directory)
        except BaseException:
            unlock(held)
            raise
        return cls(held, database, loaded, keep=keep or Window(), queue=queue)

    @property
    def failure(self) -> str:
        """Why the store takes no writes; empty when it does."""
        return str(self._writer.broken) if self._writer.broken is not None else super().failure

    async def create(self, key: str, value: bytes) -> Item:
        """Durable when it returns. Raises KeyExists."""
        return _item(await self._write(key, value, None))

    async def update(self, key: str, value: bytes, *, expected: int) -> Item:
        """Durable when it returns. Raises Stale."""
        return _item(await self._write(key, value, expected))

    async def delete(self, key: str, *, expected: int) -> int:
        """The revision of the deletion, durable when it returns. Raises Stale."""
        return (await self._write(key, None, expected)).revision

    async def compact(self, revision: int) -> None:
        """Forget the past below `revision`; the file follows little by little."""
        self._refuse_when_closed()
        self._compact(revision)

    async def close(self) -> None:
        """Refuse new writes, let those in flight settle, tidy the file up, end all watches, free the directory."""
        if self._closed:
            return
        self._closed = True
        self._hand_over()
        await self._writer.stop()
        self._end(StoreUnavailable("the store is closed"))
        if self._writer.broken is None:  # else the file stays ours until the process ends
            unlock(self._held)

    async def _write(self, key: str, value: bytes | None, expected: int | None) -> Change:
        refuse_too_large(key, value or b"")
        while True:
            self._refuse_when_closed()
            if self._writer.broken is not None:
                raise StoreUnavailable(str(self._writer.broken))
            change = decide(self._versions.get(key), key, value, expected, self._newest + 1)
            if (earlier := self._in_flight.get(key)) is None:
                break
            await asyncio.wait((earlier,))
        outcome = self._admit(change)
        if (error := await asyncio.shield(outcome)) is not None:  # the write goes on when its caller is cancelled
            raise type(error)(*error.args)
        return change

    def _admit(self, change: Change) -> _Outcome:
        self._newest = change.revision
        outcome: _Outcome = self._loop.create_future()
        self._in_flight[change.key] = outcome
        if not self._gathered:
            self._loop.call_soon(self._hand_over)  # writes of the same turn of the loop go together
        self._gathered.append(change)
        failpoint(ADMITTED)
        return outcome

    def _hand_over(self) -> None:
        if self._gathered:
            self._writer.submit(self._gathered)
            self._gathered = []

    def _settle(self, batch: Sequence[Change], error: StorageError | None) -> None:
        """A batch is durable, or failed as a whole."""
        if error is None:
            failpoint(BEFORE_PUBLISH)
            self._publish(batch)
        for change in batch:
            self._in_flight.pop(change.key).set_result(error)
        if (outgrown := self._outgrown()) is not None:
            self._compact(outgrown)

    def _compact(self, revision: int) -> None:
        superseded = self._versions.compact(revision)
        self._writer.compacted(self._versions.history.floor, superseded)


def _load(directory: Path) -> tuple[Database, Loaded]:
    database = Database(directory)
    try:
        return database, database.load()
    except BaseException:
        database.close()
        raise


def _item(change: Change) -> Item:
    assert change.item is not None  # noqa: S101 - only a deletion has none
    return change.item
