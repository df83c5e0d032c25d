"""Addresses of this node's claims, on disk. Synchronous: the daemon calls it in worker threads.

One file, replaced atomically, under a file lock that other instances of the driver take, too: during a rolling update
both assign addresses, and never the same. An assignment is written before it is returned. It survives every process; a
power loss or damage may take it, and then it is restored from the records of prepared claims, which are fsynced.
"""

import errno
import json
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
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
from podwire.linux.errors import OutOfResources

_log = logging.getLogger("podwire.dradriver")


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressLimits:
    lock: float = 10.0
    """Seconds to wait for another instance that holds the lock; kubelets retry."""


CHOSEN = declare("addresses.chosen", "addresses are chosen for a claim, and not written")
WRITTEN = declare("addresses.written", "a claim's addresses are written, and not returned")

_KEY = "addresses"
_FORMAT = 2
"""1 was the same without an envelope, with "version" in it."""
_CODEC = json_codec(Assignments)


class AddressStore:
    def __init__(
        self,
        directory: Path | str,
        pools: Mapping[str, Pool],
        *,
        recorded: Callable[[], Sequence[Assignment]] = tuple,
        limits: AddressLimits | None = None,
    ) -> None:
        """`recorded` returns the addresses that records of prepared claims have: damaged assignments are made anew from
        these, and from what this instance assigned. Another instance has no call in flight meanwhile, see instances.
        """
        self._directory = Path(directory)
        self._records: Records[Assignments] = Records(
            self._directory, _CODEC, format=_FORMAT, migrate=_migrate, ignore=("lock",)
        )
        self._pools, self._recorded, self._limits = dict(pools), recorded, limits or AddressLimits()
        self._assigned: dict[Key, Assignment] = {}
        """By this instance, and not released."""
        self._unreleased: set[str] = set()
        """Claims whose release could not be written, because the disk was full; it is part of the next change."""

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

        self._unreleased.discard(key.claim.uid)
        after = self._change(decide)
        assigned = assignments.found(after, key)
        if assigned is not None:
            self._assigned[key] = assigned
        return given

    def release(self, claim_uid: str) -> None:
        """Releases everything that a claim has, if anything. A full disk does not keep a claim from being unprepared:
        the release is written with the next change, or by `reconcile` after a restart."""
        self._assigned = {key: assigned for key, assigned in self._assigned.items() if key.claim.uid != claim_uid}
        self._unreleased.add(claim_uid)
        try:
            self._change(lambda before: before)
        except OutOfResources as error:
            _log.warning("cannot write released addresses yet", extra={"error": str(error)})

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

        self._change(decide)
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

    def _change(self, decide: Callable[[Assignments], Assignments]) -> Assignments:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            lock = lock_file(self._directory / "lock", wait=self._limits.lock, name="network-driver")
        except LockHeld as error:
            raise TimeoutError(errno.ETIMEDOUT, str(error)) from None
        with lock:
            before, released = self._read(), frozenset(self._unreleased)
            after = decide(assignments.without(before, released))
            if after is not before:
                failpoint(CHOSEN)
                self._records.put(_KEY, after, Durability.PROCESS_DEATH)
                failpoint(WRITTEN)
            self._unreleased -= released
        return after

    def _read(self) -> Assignments:
        """Returns the assignments; damaged ones are made anew. Raises NewerFormat."""
        present = self._records.get(_KEY)
        if present is not None:
            return present
        restored = assignments.with_known(Assignments(), [*self._recorded(), *self._assigned.values()])
        if restored.held:
            _log.warning("restored missing assignments of addresses", extra={"addresses": len(restored.held)})
        return restored


def _migrate(_format: int, data: bytes) -> Assignments:
    version = json.loads(data)["version"]
    if isinstance(version, int) and version > 1:
        raise NewerFormat(version, 1)
    return _CODEC.decode(data)
