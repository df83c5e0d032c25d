"""Addresses of this node's claims, kept on disk. Synchronous: a daemon calls it in worker threads.

One file, written whole, under a lock that drivers of other processes take, too: while one is replaced by its successor
both give addresses, and never the same. What was given is written before it is told to anybody. It outlives every
process; after a loss of power, what it should say is known from the records of claims that are prepared.
"""

import errno
import fcntl
import logging
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from podwire.dradriver.addresses import assignments
from podwire.dradriver.addresses.assignments import Book, Demand, Held
from podwire.dradriver.addresses.keys import Key
from podwire.dradriver.addresses.pools import Pool
from podwire.dradriver.claims.allocations import Refused
from podwire.dradriver.parameters.settings import Interface
from podwire.durable.files import replace_file
from podwire.failpoints import declare, failpoint

_log = logging.getLogger("podwire.dradriver")

PATIENCE = 10.0
"""Seconds to wait for another driver that holds the lock; kubelets try again."""
_STEP = 0.002

CHOSEN = declare("addresses.chosen", "addresses are chosen for a claim, and not written")
WRITTEN = declare("addresses.written", "a claim's addresses are written, and nobody was told")


class Unreadable(Exception):
    """To begin a new book while the driver works could give addresses twice."""


class Damaged(Unreadable):
    """It was not written as a whole, or not by a driver."""


class Addresses:
    def __init__(self, directory: Path | str, pools: Mapping[str, Pool], *, patience: float = PATIENCE) -> None:
        self._directory = Path(directory)
        self._path = self._directory / "addresses.json"
        self._pools, self._patience = dict(pools), patience

    def reserve(
        self, key: Key, *, pool: str = "", families: Sequence[int] = (), wanted: Sequence[Interface] = ()
    ) -> tuple[Interface, ...]:
        """The addresses that were wanted, then one of each set of the pool; the same for the same key and demand.

        Refused when there is no such pool, or somebody else has a wanted address; Exhausted.
        """
        demand = Demand(key, self._pool(pool, families), tuple(sorted(set(families))), tuple(wanted))
        given: tuple[Interface, ...] = ()

        def decide(old: Book) -> Book:
            nonlocal given
            new, given = assignments.granted(old, demand)
            return new

        self._change(decide)
        return given

    def release(self, claim_uid: str) -> None:
        """Everything that a claim has; nothing happens when that is nothing."""
        self._change(lambda old: assignments.without(old, {claim_uid}))

    def settle(self, live: Collection[str], known: Sequence[Held]) -> tuple[Held, ...]:
        """Free what belongs to claims that are not among these uids, and note what is known of the others; tells what
        was freed. A damaged book is begun anew.

        Whoever asks keeps all drivers from preparing claims meanwhile: a new one is not among them yet.
        """
        freed: tuple[Held, ...] = ()

        def decide(old: Book) -> Book:
            nonlocal freed
            freed = tuple(each for each in old.held if each.uid not in live)
            return assignments.with_known(assignments.without(old, {each.uid for each in freed}), known)

        self._change(decide, self._mended)
        return freed

    def held(self) -> tuple[Held, ...]:
        """Everything that anybody has. Needs no lock: the file is replaced as a whole."""
        return self._read().held

    def _pool(self, name: str, families: Sequence[int]) -> Pool | None:
        if not name:
            return None
        pool = self._pools.get(name)
        if pool is None:
            there = ", ".join(sorted(self._pools)) or "none"
            raise Refused("interface.addressPool", f"this node has no pool {name!r}; it has {there}")
        for each in families:
            if not pool.sets_of((each,)):
                raise Refused("interface.addressPool", f"pool {name} has no IPv{each} addresses")
        return pool

    def _change(self, decide: Callable[[Book], Book], read: Callable[[], Book] | None = None) -> None:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._locked():
            old = (read or self._read)()
            new = decide(old)
            if new is not old:
                failpoint(CHOSEN)
                replace_file(self._path, msgspec.json.encode(new))
                failpoint(WRITTEN)

    def _mended(self) -> Book:
        try:
            return self._read()
        except Damaged as error:
            _log.warning("the book of addresses is damaged, and begun anew from records", extra={"why": str(error)})
            return Book()

    def _read(self) -> Book:
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return Book()
        try:
            read = msgspec.json.decode(data, type=Book)
        except msgspec.MsgspecError as error:
            raise Damaged(f"{self._path}: {error}") from error
        if read.version != assignments.VERSION:
            raise Unreadable(f"{self._path}: is of version {read.version}, this driver knows {assignments.VERSION}")
        return read

    @contextmanager
    def _locked(self) -> Iterator[None]:
        file = os.open(self._directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._wait_for(file)
            yield
        finally:
            os.close(file)

    def _wait_for(self, file: int) -> None:
        """In small steps, and not for ever: whoever has the lock may have been stopped."""
        until = time.monotonic() + self._patience
        while True:
            try:
                return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until:
                    told = f"another driver holds the lock of {self._directory} for more than {self._patience:g} s"
                    raise TimeoutError(errno.ETIMEDOUT, told) from None
            time.sleep(_STEP)
