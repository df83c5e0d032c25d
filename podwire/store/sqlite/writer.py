"""The writer thread: commits batches, reports to the event loop, and maintains the file when idle.

Group commit: while one transaction waits for the disk, the next batch gathers. Batches are committed in order of
submission.

Errors are classified by SQLite's error code:

| class     | SQLite                                  | meaning                                                        |
|-----------|-----------------------------------------|----------------------------------------------------------------|
| full      | FULL                                    | commit frame incomplete: nothing written; the next may succeed |
| uncertain | IOERR_WRITE, IOERR_TRUNCATE, NOMEM, …   | this batch may survive a crash or not; the next may succeed    |
| fatal     | everything else, above all failed fsync | no more writes until the process restarts                      |

A full disk must not keep anybody from deleting: urgent writes (deletions, and updates that prepare one) and maintenance
have reserved space, and ordinary writes are refused when no more can be reserved. See reserve.py. Then a batch is no
larger than the free pages of the database: a checkpoint that has to enlarge the file would fail, and the WAL could
never begin anew. The rest is deferred until compaction has freed the pages of what was deleted.

After a failed fsync the kernel forgets which pages it could not write, so a second fsync may falsely succeed. The
connection is never closed then, because closing it would checkpoint, which fsyncs again.
"""

import asyncio
import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from podwire.protocols.storage import Change, Item, StorageError, StoreFull, StoreUnavailable
from podwire.store.sqlite.database import Database
from podwire.store.sqlite.reserve import Reserve

log = logging.getLogger(__name__)

BATCH = 1000
"""Maximum changes in one transaction."""

CHECKPOINT_BYTES = 2 << 20
"""A WAL of this size is checkpointed while all writes wait: 3 ms. Four times the size takes 10 ms and brings no more
writes per second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Seconds: without a write until the WAL is checkpointed; until failed maintenance is tried again."""

    idle: float = 2.0
    retry: float = 5.0


SPARE_SHARE = 0.4
"""Free pages that the database has on a nearly full disk: this part of the reserve, more than the largest object. With
it, what is written between two checkpoints (half of the reserve) still fits into the WAL's own blocks."""

COMPACT_SHARE = 8
"""History of this part of the reserve is compacted on a full disk."""

DEFERRED_SECONDS = 0.05
DEFERRED_TIMES = 40
"""How long, and how often, deferred writes wait for compaction. Then they are tried as they are."""

LEAST_SPARE = 32 << 10
"""Fewer bytes are not worth a table of their own, which takes some pages itself."""

REMOVE_BATCH = 500
VACUUM_PAGES = 256
_ROW_OVERHEAD = 4096

_FULL = frozenset({"SQLITE_FULL"})
_UNCERTAIN = frozenset({"SQLITE_IOERR_WRITE", "SQLITE_IOERR_TRUNCATE", "SQLITE_IOERR_NOMEM", "SQLITE_NOMEM"})

FULL = "no space left on the disk; only deletions are accepted until there is"

Urgent = Callable[[Item], bool]
"""Returns whether writing an item prepares its deletion."""

BatchDone = Callable[[list[Change], StorageError | None], None]
"""Called on the event loop when a batch has been committed or has failed; without changes when `lacks_pages`."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """Command: delete the rows of `superseded`; `revision` is the new floor."""

    revision: int
    superseded: list[int]


class _Stop:
    """Command: finish what was submitted and close."""


@dataclass(slots=True)
class _Maintenance:
    """Pending maintenance; at first the WAL of the previous run, regardless of its size."""

    compacted: int = 0
    written: int = 0
    """The floor in the file; a new floor has to be written even when no row is deleted."""
    superseded: list[int] = field(default_factory=list)
    wal_bytes: int = 1
    free_pages: bool = False
    not_before: float = 0.0

    @property
    def unwritten(self) -> bool:
        return bool(self.superseded) or self.compacted > self.written


class Writer:
    """Runs a Database in its own thread; `broken` is the error after which nothing is written any more."""

    def __init__(
        self,
        database: Database,
        loop: asyncio.AbstractEventLoop,
        batch_done: BatchDone,
        *,
        floor: int = 0,
        limits: Limits,
        reserve: Reserve,
        urgent: Urgent,
    ) -> None:
        self.broken: StoreUnavailable | None = None
        self._reserve = reserve
        self._urgent = urgent
        self._database = database
        self._limits = limits
        self._loop = loop
        self._batch_done = batch_done
        self._commands: queue.SimpleQueue[list[Change] | Compacted | _Stop] = queue.SimpleQueue()
        self._maintenance = _Maintenance(compacted=floor, written=floor)
        self._deferred: list[Change] = []
        """Urgent writes that wait for free pages, before all that were submitted later."""
        self._deferrals = 0
        self._thread = threading.Thread(target=self._run, name="podwire store writer", daemon=True)
        self._thread.start()

    def submit(self, changes: list[Change]) -> None:
        """Submits changes; `batch_done` is called afterwards."""
        self._commands.put(changes)

    def compacted(self, revision: int, superseded: list[int]) -> None:
        """Deletes rows in small batches between writes."""
        self._commands.put(Compacted(revision, superseded))

    async def stop(self) -> None:
        """Finishes what was submitted, maintains the file, closes it."""
        self._commands.put(_Stop())
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        stopping = False
        while not stopping or self._deferred:
            writes, stops = self._gather()
            stopping |= stops
            writes, self._deferred = [*self._deferred, *writes], []
            for start in range(0, len(writes), BATCH):
                batch = writes[start : start + BATCH]
                if self._deferred:  # in order of revisions
                    self._deferred += batch
                else:
                    self._commit(batch)
            self._maintain(idle=not writes)
        self._maintenance.not_before = 0.0
        while self._maintenance.unwritten and not self._maintenance.not_before and self.broken is None:
            self._maintain(idle=True)
        if self.broken is None:
            self._maintain_now(partial(self._checkpoint, truncate=True))
        if self.broken is None:
            self._reserve.keep()
            self._database.close()
            self._reserve.close()

    def _gather(self) -> tuple[list[Change], bool]:
        """Returns all waiting commands, or waits for the next one; returns nothing when maintenance is due."""
        writes: list[Change] = []
        wait = self._seconds_to_wait()
        try:
            while True:
                command = self._commands.get(timeout=wait) if wait != 0 else self._commands.get_nowait()
                wait = 0
                match command:
                    case Compacted():
                        self._maintenance.compacted = command.revision
                        self._maintenance.superseded += command.superseded
                    case _Stop():
                        return writes, True
                    case _:
                        writes += command
        except queue.Empty:
            return writes, False

    def _seconds_to_wait(self) -> float | None:
        maintenance = self._maintenance
        if self._deferred:
            return DEFERRED_SECONDS
        if self.broken is not None:
            return None
        pause = max(0.0, maintenance.not_before - time.monotonic())
        if maintenance.unwritten or maintenance.free_pages:
            return pause
        return max(pause, self._limits.idle) if maintenance.wal_bytes else None

    @property
    def compact_bytes(self) -> int:
        """On a full disk, history of this size is compacted."""
        return self._reserve.size // COMPACT_SHARE

    @property
    def lacks_pages(self) -> bool:
        """Whether writes wait for compaction."""
        return bool(self._deferred)

    @property
    def full(self) -> bool:
        """Whether ordinary writes are refused because there is no space."""
        return self._reserve.exhausted

    def _commit(self, batch: list[Change]) -> None:
        """Commits a batch; on a full disk, only its urgent writes."""
        if self._reserve.exhausted and not self._top_up():
            if self._maintenance.unwritten:
                self._maintain_now(self._remove)  # before the batch, which then needs no more pages than that freed
            if self._maintenance.wal_bytes >= self._checkpoint_bytes:
                self._maintain_now(partial(self._step, idle=False))
            batch = self._fitting(self._refuse_ordinary(batch, StoreFull(f"{self._database.path}: {FULL}")))
        error = self._append(batch)
        if isinstance(error, StoreFull):
            batch = self._refuse_ordinary(batch, error)
            self._maintain_now(partial(self._database.checkpoint, truncate=False))  # the WAL begins anew, in place
            if self._maintenance.unwritten:
                self._maintain_now(self._remove)  # into that WAL, and the batch into the pages that it frees
            batch = self._fitting(batch)
            error = self._append(batch)
        self._report(batch, error)

    def _refuse_ordinary(self, batch: list[Change], error: StoreFull) -> list[Change]:
        """Fails the writes that are not urgent; returns those that are."""
        urgent = [change for change in batch if change.item is None or self._urgent(change.item)]
        revisions = {change.revision for change in urgent}
        self._report([change for change in batch if change.revision not in revisions], error)
        return urgent

    def _fitting(self, batch: list[Change]) -> list[Change]:
        """Returns the first writes of a batch that fit into the free pages of the database; defers the others."""
        available, count = self._database.free_bytes() + max(0, self._reserve.beyond(self._database.size())), 0
        while count < len(batch) and (available := available - _wal_bytes(batch[count])) >= 0:
            count += 1
        if batch and not count:  # what was deleted before is still to be compacted
            if not self._deferrals:
                self._loop.call_soon_threadsafe(self._batch_done, [], None)
            self._deferrals += 1
            count = int(self._deferrals > DEFERRED_TIMES)
        self._deferrals = 0 if count else self._deferrals
        self._deferred = batch[count:] + self._deferred
        return batch[:count]

    def _append(self, batch: list[Change]) -> StorageError | None:
        """Returns what went wrong."""
        if self.broken is not None or not batch:
            return self.broken
        try:
            self._database.append(batch)
        except Exception as caught:  # noqa: BLE001 - any error must reach the waiting callers
            return self._classify(caught)
        self._maintenance.wal_bytes += sum(_wal_bytes(write) for write in batch)
        return None

    def _top_up(self) -> bool:
        """Reserves space again; returns whether there is enough."""
        before, enough = self._reserve.exhausted, self._reserve.top_up(self._database.free_bytes())
        if before and enough:
            log.warning("store has disk space again and accepts writes", extra={"path": self._database.path})
        elif not before and not enough:
            log.error("store has no disk space left and accepts only deletions", extra={"path": self._database.path})
        return enough

    def _checkpoint(self, *, truncate: bool) -> None:
        """Checkpoints; a WAL that is truncated on a disk that is nearly full might not get its space again."""
        self._keep_free_pages()
        self._database.checkpoint(truncate=truncate and not self._reserve.is_tight())
        self._top_up()

    def _keep_free_pages(self) -> None:
        """Before a checkpoint on a disk that is nearly full: makes free pages of the blocks that it would give up."""
        missing = int(self._reserve.size * SPARE_SHARE) - self._database.free_bytes()
        missing = min(missing, self._reserve.beyond(self._database.size()))
        while missing >= LEAST_SPARE and self._reserve.is_tight():
            try:
                self._database.add_free_pages(missing)
            except sqlite3.Error as error:
                if getattr(error, "sqlite_errorname", "") not in _FULL:
                    raise
                log.warning("cannot reserve pages in the store file", extra={"bytes": missing, "error": str(error)})
                missing //= 2  # the WAL has no space for more
            else:
                return

    def _report(self, batch: list[Change], error: StorageError | None) -> None:
        if batch:
            self._loop.call_soon_threadsafe(self._batch_done, batch, error)

    def _classify(self, error: Exception) -> StorageError:
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        reason = f"{self._database.path}: {error} ({name})"
        if name in _FULL:
            return StoreFull(reason)
        if name in _UNCERTAIN:
            return StoreUnavailable(reason)
        log.critical("store accepts no writes until it is restarted", extra={"error": reason})
        self.broken = StoreUnavailable(f"{reason}; no writes until a restart")
        self._database.abandon()
        return self.broken

    def _maintain(self, *, idle: bool) -> None:
        """Runs one small step of maintenance, so that the next write never waits for long."""
        if self.broken is None and time.monotonic() >= self._maintenance.not_before:
            self._maintain_now(partial(self._step, idle=idle))

    def _maintain_now(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as caught:  # noqa: BLE001 - maintenance must not end the thread
            failure = self._classify(caught)
            self._maintenance.not_before = time.monotonic() + self._limits.retry
            log.warning("cannot maintain the store file", extra={"error": str(failure)})

    @property
    def _checkpoint_bytes(self) -> int:
        """A WAL of this size is checkpointed. On a full disk it is smaller: the next batch must fit into its blocks."""
        return min(CHECKPOINT_BYTES, self._reserve.size // (4 if self._reserve.exhausted else 2))

    def _step(self, *, idle: bool) -> None:
        maintenance = self._maintenance
        if maintenance.wal_bytes >= self._checkpoint_bytes:
            self._checkpoint(truncate=False)
            maintenance.wal_bytes = 1  # still to be truncated when idle
        elif maintenance.unwritten and (idle or len(maintenance.superseded) >= REMOVE_BATCH):
            self._remove()
        elif idle and maintenance.free_pages:
            keep = self._reserve.size if self._reserve.is_tight() else 0
            maintenance.free_pages = self._database.vacuum(VACUUM_PAGES, keep_bytes=keep)
            maintenance.wal_bytes += VACUUM_PAGES * _ROW_OVERHEAD
        elif idle and maintenance.wal_bytes:
            self._checkpoint(truncate=True)
            maintenance.wal_bytes = 0

    def _remove(self) -> None:
        """Deletes some superseded rows. If they do not fit into the WAL of a full disk, it begins anew for fewer."""
        maintenance = self._maintenance
        batch = maintenance.superseded[:REMOVE_BATCH]
        begun_anew = False
        while True:
            try:
                self._database.remove(batch, compacted=maintenance.compacted)
                break
            except sqlite3.Error as error:
                if getattr(error, "sqlite_errorname", "") not in _FULL or begun_anew:
                    raise
            self._checkpoint(truncate=False)
            maintenance.wal_bytes = 1
            begun_anew = len(batch) <= 1
            batch = batch[: max(1, len(batch) // 2)]
        del maintenance.superseded[: len(batch)]
        maintenance.written = maintenance.compacted
        maintenance.free_pages = True
        maintenance.wal_bytes += len(batch) * _ROW_OVERHEAD


def _wal_bytes(change: Change) -> int:
    return _ROW_OVERHEAD + (len(change.item.value) if change.item else 0)
