"""SqliteStore: reads and watches are answered from memory, writes are durable before they are acknowledged.

The path of a write:

| state     | where                    | entered by                             | after a crash here      |
|-----------|--------------------------|----------------------------------------|-------------------------|
| admitted  | event loop, `_gathered`  | `_write`: checked, gets its revision   | never happened          |
| pending   | writer, one transaction  | `_submit_gathered`, once per iteration | rolled back             |
| committed | SQLite's WAL, fsynced    | `Database.append`                      | loaded at the next start |
| published | `_versions`, watches     | `_complete`, in order of revisions     | loaded at the next start |

A write is checked against the published state. It becomes visible by being published: first to readers, then to
watchers, then its caller returns.
So readers and watchers never see what a crash could take back, and an acknowledged write is never lost.

When a batch fails, all of its writes fail together and their revisions stay unused:

| failure | callers get | afterwards |
|---|---|---|
| disk full | StoreFull: certainly not written | the next may succeed; reads and deletions go on (see reserve.py) |
| other write error | StoreUnavailable: may appear after a restart | the next batch may succeed |
| fsync failed | StoreUnavailable | no writes until a restart (see writer.py); reads go on |
| caller cancelled | nothing | the write goes on and is published as usual |

At most one write per key is between admission and publication. A second write to the key waits for the first and is
then checked again, so that it is never refused because of a write that may still fail.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from podwire.durable.locks import FileLock, LockHeld, holder_pid, lock_file
from podwire.failpoints import declare, failpoint
from podwire.protocols.storage import Change, Item, StorageError, StoreFull, StoreUnavailable
from podwire.store.broadcast import QUEUE
from podwire.store.cached import CachedStore, refuse_too_large
from podwire.store.encryption import PLAIN, Encryption
from podwire.store.errors import CannotOpen
from podwire.store.history import Window
from podwire.store.sqlite.database import Database, Loaded
from podwire.store.sqlite.reserve import Reserve
from podwire.store.sqlite.writer import FULL, Limits, Urgent, Writer
from podwire.store.versions import decide

log = logging.getLogger(__name__)

ADMITTED = declare("store.admitted", "a write has its revision and is on its way to the writer")
BEFORE_PUBLISH = declare("store.before-publish", "a batch is durable, readers and watchers do not see it yet")

LOCK = "lock"
"""The lock file in the data directory."""

_Outcome = asyncio.Future[StorageError | None]


class SqliteStore(CachedStore):
    """One data directory, one process, one writer thread. Open with `SqliteStore.open`."""

    def __init__(
        self,
        lock: FileLock,
        database: Database,
        loaded: Loaded,
        *,
        keep: Window,
        queue: int,
        limits: Limits,
        reserve: Reserve,
        urgent: Urgent,
    ) -> None:
        super().__init__(loaded.versions, keep=keep, queue=queue)
        self._lock = lock
        self._loop = asyncio.get_running_loop()
        floor = loaded.versions.history.floor
        self._writer = Writer(
            database, self._loop, self._complete, floor=floor, limits=limits, reserve=reserve, urgent=urgent
        )
        self._compacted_for_space = False
        self._superseded_bytes = 0
        self._writer.compacted(floor, loaded.superseded)
        self._newest = loaded.versions.revision
        self._gathered: list[Change] = []
        self._in_flight: dict[str, _Outcome] = {}
        self._start_timer()

    @classmethod
    async def open(
        cls,
        directory: Path,
        *,
        keep: Window | None = None,
        queue: int = QUEUE,
        limits: Limits | None = None,
        encryption: Encryption = PLAIN,
        urgent: Urgent | None = None,
    ) -> "SqliteStore":
        """Opens the store in an existing directory; raises CannotOpen with the path and the cause.

        `urgent(item)` says which updates are accepted on a full disk, beside deletions: those that prepare one.
        """
        with ExitStack() as undo:
            lock = undo.enter_context(lock_directory(directory))
            database, loaded, reserve = await asyncio.to_thread(_load, directory, encryption)
            store = cls(
                lock,
                database,
                loaded,
                keep=keep or Window(),
                queue=queue,
                limits=limits or Limits(),
                reserve=reserve,
                urgent=urgent or _none_is_urgent,
            )
            undo.pop_all()
        return store

    @property
    def failure(self) -> str:
        """Why the store accepts no writes; empty when it does."""
        if self._writer.broken is not None:
            return str(self._writer.broken)
        return FULL if self._writer.full else super().failure

    @property
    def is_full(self) -> bool:
        """Whether only deletions are accepted, until there is space."""
        return self._writer.broken is None and self._writer.full

    async def create(self, key: str, value: bytes) -> Item:
        """Durable when it returns. Raises KeyExists."""
        return _item(await self._write(key, value, None))

    async def update(self, key: str, value: bytes, *, expected: int) -> Item:
        """Durable when it returns. Raises Stale."""
        return _item(await self._write(key, value, expected))

    async def delete(self, key: str, *, expected: int) -> int:
        """Returns the revision of the deletion; durable when it returns. Raises Stale."""
        return (await self._write(key, None, expected)).revision

    async def compact(self, revision: int) -> None:
        """Removes the history below `revision`; the file follows in small steps."""
        self._refuse_when_closed()
        self._compact(revision)

    async def close(self) -> None:
        """Refuses new writes, finishes those in flight, maintains the file, ends all watches, unlocks the directory."""
        if self._closed:
            return
        self._closed = True
        self._submit_gathered()
        await self._writer.stop()
        self._close_watches(StoreUnavailable("the store is closed"))
        if self._writer.broken is None:  # otherwise the file stays locked until the process ends
            self._lock.close()

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
        self._newest = change.revision
        outcome: _Outcome = self._loop.create_future()
        self._in_flight[key] = outcome
        if not self._gathered:
            self._loop.call_soon(self._submit_gathered)  # writes of one loop iteration share a transaction
        self._gathered.append(change)
        failpoint(ADMITTED)
        done = self._loop.create_future()
        outcome.add_done_callback(partial(_wake, done))
        await done  # and not `outcome`: the write goes on when its caller is cancelled
        if (error := outcome.result()) is not None:
            raise type(error)(*error.args)
        return change

    def _submit_gathered(self) -> None:
        if self._gathered:
            self._writer.submit(self._gathered)
            self._gathered = []

    def _complete(self, batch: Sequence[Change], error: StorageError | None) -> None:
        """Publishes a batch that is durable, or fails it as a whole."""
        if error is None:
            failpoint(BEFORE_PUBLISH)
            self._publish(batch)
        for change in batch:
            self._in_flight.pop(change.key).set_result(error)
        if self._past_takes_space(batch, error):
            self._compact(self._versions.revision)  # watches that resume from the past get 410 and list
        else:
            self._compact_after_writes()

    def _past_takes_space(self, batch: Sequence[Change], error: StorageError | None) -> bool:
        """Whether the whole history is to be compacted for its space: on a full disk, at first, and then whenever the
        deletions have superseded so much that the reserve would run out."""
        if error is None and not self._writer.full:
            self._compacted_for_space, self._superseded_bytes = False, 0
            return False
        if error is None:
            self._superseded_bytes += sum(len(change.previous.value) for change in batch if change.previous)
        first = isinstance(error, StoreFull) and not self._compacted_for_space
        enough = self._superseded_bytes >= self._writer.compact_bytes
        due = first or enough or (self._writer.lacks_pages and self._superseded_bytes > 0)
        if due:
            self._compacted_for_space, self._superseded_bytes = True, 0
        return due

    def _compact(self, revision: int) -> None:
        """Removes the history below `revision`; the file follows."""
        superseded = self._versions.compact(revision)
        self._writer.compacted(self._versions.history.floor, superseded)


def _wake(done: "asyncio.Future[None]", _outcome: _Outcome) -> None:
    if not done.done():
        done.set_result(None)


def lock_directory(directory: Path) -> FileLock:
    """Locks the directory for this process; raises CannotOpen at once if another process has it."""
    path = directory / LOCK
    try:
        return lock_file(path)
    except LockHeld as error:
        raise CannotOpen(f"{directory}: in use by another process (pid {holder_pid(path) or 'unknown'})") from error
    except OSError as error:
        raise CannotOpen(f"{directory}: cannot lock it: {error.strerror}") from error


def _load(directory: Path, encryption: Encryption) -> tuple[Database, Loaded, Reserve]:
    with ExitStack() as undo:
        database = Database(directory, encryption)
        undo.callback(database.close)
        loaded = database.load()
        try:
            reserve = Reserve(database.path)
        except OSError as error:
            raise CannotOpen(f"{database.path}: {error.strerror}") from error
        undo.pop_all()
    if reserve.exhausted:
        log.error("store is opened on a full disk and accepts only deletions", extra={"path": str(directory)})
    return database, loaded, reserve


def _none_is_urgent(_item: Item) -> bool:
    return False


def _item(change: Change) -> Item:
    assert change.item is not None  # noqa: S101 - only a deletion has none
    return change.item
