"""The one thread that writes: it commits what has gathered, tells the event loop, and tidies up when idle.

Group commit: while one transaction waits for the disk, the next batch gathers. Order is that of submission.

A failure is judged by SQLite's own code:
    full    SQLITE_FULL: the commit frame was never complete, so nothing happened; the next batch may succeed
    shaky   a write to the file failed otherwise: this batch may or may not survive a crash; the next may succeed
    fatal   everything else, above all a failed fsync. The kernel forgets which pages it could not write, so a second
            fsync may lie; nothing is written any more until the process is restarted, and the connection is never
            closed, since closing it would checkpoint, which means to sync again
"""

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from podwire.protocols.storage import Change, StorageError, StoreFull, StoreUnavailable
from podwire.store.sqlite.database import Database

log = logging.getLogger(__name__)

BATCH = 1000
"""Changes in one transaction at most."""

IDLE_SECONDS = 2.0
"""Without a write for so long, the WAL is folded into the database."""

RETRY_SECONDS = 5.0
"""Upkeep that failed for lack of space is tried again after so long."""

CHECKPOINT_BYTES = 2 << 20
"""A WAL of this size is folded into the database, while all writes wait: 3 ms. Four times the size takes 10 ms and
brings no more writes a second."""

REMOVE_BATCH = 500
VACUUM_PAGES = 256
_ROW_OVERHEAD = 4096

_FULL = frozenset({"SQLITE_FULL"})
_SHAKY = frozenset({"SQLITE_IOERR_WRITE", "SQLITE_IOERR_TRUNCATE", "SQLITE_IOERR_NOMEM", "SQLITE_NOMEM"})

Settled = Callable[[list[Change], StorageError | None], None]
"""Told on the event loop how a batch ended."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """An order: rows of `superseded` go, `revision` is the floor now."""

    revision: int
    superseded: list[int]


class _Stop:
    """An order: finish what was submitted and close."""


@dataclass(slots=True)
class _Upkeep:
    """What is left to tidy; at first the WAL of the time before, whatever its size."""

    compacted: int = 0
    written: int = 0
    """The floor that the file knows; it must learn of a new one also when no row goes with it."""
    superseded: list[int] = field(default_factory=list)
    wal_bytes: int = 1
    free_pages: bool = False
    not_before: float = 0.0

    @property
    def unwritten(self) -> bool:
        return bool(self.superseded) or self.compacted > self.written


class Writer:
    """Runs a Database in its own thread; `broken` says why nothing is written any more."""

    def __init__(
        self, database: Database, loop: asyncio.AbstractEventLoop, settled: Settled, *, floor: int = 0
    ) -> None:
        self.broken: StoreUnavailable | None = None
        self._database = database
        self._loop = loop
        self._settled = settled
        self._orders: queue.SimpleQueue[list[Change] | Compacted | _Stop] = queue.SimpleQueue()
        self._upkeep = _Upkeep(compacted=floor, written=floor)
        self._thread = threading.Thread(target=self._run, name="podwire store writer", daemon=True)
        self._thread.start()

    def submit(self, changes: list[Change]) -> None:
        """Commit changes; `settled` is told."""
        self._orders.put(changes)

    def compacted(self, revision: int, superseded: list[int]) -> None:
        """Delete rows little by little, between writes."""
        self._orders.put(Compacted(revision, superseded))

    async def stop(self) -> None:
        """Finish what was submitted, tidy up, close the file."""
        self._orders.put(_Stop())
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        stopping = False
        while not stopping:
            writes, stopping = self._gather()
            for start in range(0, len(writes), BATCH):
                self._commit(writes[start : start + BATCH])
            self._tidy(idle=not writes)
        self._finish()

    def _gather(self) -> tuple[list[Change], bool]:
        """All orders that are waiting, else the next one; nothing when it is time to tidy up."""
        writes: list[Change] = []
        wait = self._patience()
        try:
            while True:
                order = self._orders.get(timeout=wait) if wait != 0 else self._orders.get_nowait()
                wait = 0
                match order:
                    case Compacted():
                        self._upkeep.compacted = order.revision
                        self._upkeep.superseded += order.superseded
                    case _Stop():
                        return writes, True
                    case _:
                        writes += order
        except queue.Empty:
            return writes, False

    def _patience(self) -> float | None:
        upkeep = self._upkeep
        if self.broken is not None:
            return None
        pause = max(0.0, upkeep.not_before - time.monotonic())
        if upkeep.unwritten or upkeep.free_pages:
            return pause
        return max(pause, IDLE_SECONDS) if upkeep.wal_bytes else None

    def _commit(self, batch: list[Change]) -> None:
        error: StorageError | None = self.broken
        if error is None:
            try:
                self._database.append(batch)
            except Exception as caught:  # noqa: BLE001 - whatever it is, those who wait must hear of it
                error = self._judge(caught)
            else:
                self._upkeep.wal_bytes += sum(_weight(each) for each in batch)
        self._loop.call_soon_threadsafe(self._settled, batch, error)

    def _judge(self, error: Exception) -> StorageError:
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        reason = f"{self._database.path}: {error} ({name})"
        if name in _FULL:
            return StoreFull(reason)
        if name in _SHAKY:
            return StoreUnavailable(reason)
        log.critical("the store takes no writes until it is restarted", extra={"reason": reason})
        self.broken = StoreUnavailable(f"{reason}; no writes until a restart")
        self._database.abandon()
        return self.broken

    def _tidy(self, *, idle: bool) -> None:
        """One small step of upkeep, so that the next write never waits for long."""
        if self.broken is None and time.monotonic() >= self._upkeep.not_before:
            self._tidy_now(partial(self._step, idle=idle))

    def _tidy_now(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as caught:  # noqa: BLE001 - upkeep must not end the thread
            verdict = self._judge(caught)
            self._upkeep.not_before = time.monotonic() + RETRY_SECONDS
            log.warning("the store could not be tidied up", extra={"reason": str(verdict)})

    def _step(self, *, idle: bool) -> None:
        upkeep = self._upkeep
        if upkeep.wal_bytes >= CHECKPOINT_BYTES:
            self._database.checkpoint(truncate=False)
            upkeep.wal_bytes = 1  # still to be truncated when idle
        elif upkeep.unwritten and (idle or len(upkeep.superseded) >= REMOVE_BATCH):
            self._remove()
        elif idle and upkeep.free_pages:
            upkeep.free_pages = self._database.give_back(VACUUM_PAGES)
            upkeep.wal_bytes += VACUUM_PAGES * _ROW_OVERHEAD
        elif idle and upkeep.wal_bytes:
            self._database.checkpoint(truncate=True)
            upkeep.wal_bytes = 0

    def _remove(self) -> None:
        upkeep = self._upkeep
        batch = upkeep.superseded[:REMOVE_BATCH]
        self._database.remove(batch, compacted=upkeep.compacted)
        del upkeep.superseded[:REMOVE_BATCH]
        upkeep.written = upkeep.compacted
        upkeep.free_pages = True
        upkeep.wal_bytes += len(batch) * _ROW_OVERHEAD

    def _finish(self) -> None:
        self._upkeep.not_before = 0.0
        while self._upkeep.unwritten and not self._upkeep.not_before and self.broken is None:
            self._tidy(idle=True)
        if self.broken is None:
            self._tidy_now(partial(self._database.checkpoint, truncate=True))
        if self.broken is None:
            self._database.close()


def _weight(change: Change) -> int:
    return _ROW_OVERHEAD + (len(change.item.value) if change.item else 0)
