"""Addresses of this node's claims, on disk. Synchronous: the daemon calls it in worker threads.

One file, replaced atomically, under a file lock that other instances of the driver take, too: during a rolling update
both assign addresses, and never the same. An assignment is written before it is returned. It survives every process; a
power loss may take it, and then `reconcile` restores it from the records of prepared claims, which are fsynced.
"""

import errno
import json
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from podwire.dradriver.addresses import assignments
from podwire.dradriver.addresses.assignments import Assignment, Assignments, Demand
from podwire.dradriver.addresses.keys import Key
from podwire.dradriver.addresses.pools import Pool
from podwire.dradriver.claims.allocations import Refused
from podwire.dradriver.parameters.settings import Interface
from podwire.durable.codecs import json_codec
from podwire.durable.files import Durability
from podwire.durable.locks import LockHeld, lock_file
from podwire.durable.records import NewerFormat, Records
from podwire.failpoints import declare, failpoint

_log = logging.getLogger("podwire.dradriver")

LOCK_SECONDS = 10.0
"""How long to wait for another instance that holds the lock; kubelets retry."""

CHOSEN = declare("addresses.chosen", "addresses are chosen for a claim, and not written")
WRITTEN = declare("addresses.written", "a claim's addresses are written, and not returned")

_KEY = "addresses"
_FORMAT = 2
"""1 was the same without an envelope, with "version" in it."""
_CODEC = json_codec(Assignments)


class AddressesUnavailable(Exception):
    """The assignments were damaged. To start anew while the driver works could assign an address twice; a restart of
    the driver restores them from the records."""


class AddressStore:
    def __init__(self, directory: Path | str, pools: Mapping[str, Pool], *, lock_seconds: float = LOCK_SECONDS) -> None:
        self._directory = Path(directory)
        self._records: Records[Assignments] = Records(
            self._directory, _CODEC, format=_FORMAT, migrate=_migrate, ignore=("lock",)
        )
        self._pools, self._lock_seconds = dict(pools), lock_seconds

    def reserve(
        self, key: Key, *, pool: str = "", families: Sequence[int] = (), wanted: Sequence[Interface] = ()
    ) -> tuple[Interface, ...]:
        """Returns the `wanted` addresses, then one of each range set of the pool; the same for the same key and demand.

        Raises Refused when the pool does not exist or another claim has a wanted address; Exhausted.
        """
        demand = Demand(key, self._pool(pool, families), tuple(sorted(set(families))), tuple(wanted))
        given: tuple[Interface, ...] = ()

        def decide(before: Assignments) -> Assignments:
            nonlocal given
            after, given = assignments.assign(before, demand)
            return after

        self._change(decide, self._read)
        return given

    def release(self, claim_uid: str) -> None:
        """Releases everything that a claim has, if anything."""
        self._change(lambda before: assignments.without(before, {claim_uid}), self._read)

    def reconcile(self, live: Collection[str], known: Sequence[Assignment]) -> tuple[Assignment, ...]:
        """Releases the addresses of claims that are not `live`, adds what is `known` of the others; returns what was
        released. Damaged assignments start anew.

        The caller keeps all instances from preparing claims meanwhile: a new claim would not be among the live ones.
        """
        released: tuple[Assignment, ...] = ()

        def decide(before: Assignments) -> Assignments:
            nonlocal released
            released = tuple(held for held in before.held if held.uid not in live)
            return assignments.with_known(assignments.without(before, {held.uid for held in released}), known)

        self._change(decide, lambda: self._records.get(_KEY) or Assignments())
        return released

    def held(self) -> tuple[Assignment, ...]:
        """Returns all assignments. Needs no lock: the file is replaced atomically."""
        return self._read().held

    def _pool(self, name: str, families: Sequence[int]) -> Pool | None:
        if not name:
            return None
        pool = self._pools.get(name)
        if pool is None:
            names = ", ".join(sorted(self._pools)) or "none"
            raise Refused("interface.addressPool", f"this node has no pool {name!r}; it has {names}")
        for family in families:
            if not pool.sets_of((family,)):
                raise Refused("interface.addressPool", f"pool {name} has no IPv{family} addresses")
        return pool

    def _change(self, decide: Callable[[Assignments], Assignments], read: Callable[[], Assignments]) -> None:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            lock = lock_file(self._directory / "lock", wait=self._lock_seconds, name="network-driver")
        except LockHeld as error:
            raise TimeoutError(errno.ETIMEDOUT, str(error)) from None
        with lock:
            before = read()
            after = decide(before)
            if after is not before:
                failpoint(CHOSEN)
                self._records.put(_KEY, after, Durability.PROCESS_DEATH)
                failpoint(WRITTEN)

    def _read(self) -> Assignments:
        """Raises AddressesUnavailable, NewerFormat."""
        present = self._records.get(_KEY)
        if present is not None:
            return present
        if paths := self._records.quarantined().get(_KEY):
            raise AddressesUnavailable(f"the assigned addresses were damaged (see {paths[-1]}); restart the driver")
        return Assignments()


def _migrate(_format: int, data: bytes) -> Assignments:
    version = json.loads(data)["version"]
    if isinstance(version, int) and version > 1:
        raise NewerFormat(version, 1)
    return _CODEC.decode(data)
