"""Leases of addresses: the owner of each address of a network.

Crash order. A lease has two entries: the owner's (which addresses it has) and the address's (who owns it).

| operation | order | a crash in between leaves |
|---|---|---|
| take | owner's entry, then addresses | an owner's entry with free addresses: `take` completes it, `release` removes |
| release | addresses, then owner's entry | the same |

The address's entry decides: an address belongs to the owner that it names, and to nobody if it does not exist.

Only three operations read all entries: GC; a pool that is nearly full; and the first operation after a boot, or after
the reference plugin host-local has leased addresses in the same directory. This inspection takes over the reference
plugin's files, and releases the leases of earlier boots whose network namespace no longer exists.

A damaged entry keeps its address from being leased. It is restored for the only owner whose own entry has the address:
by the inspection, and before each take and release of this owner, so that DEL releases it. Without such an owner, or
with two after a crash, only GC knows the valid owners, and restores or removes it.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from podwire.durable.files import fsync_directory, why_unwritable
from podwire.failpoints import declare, failpoint
from podwire.ipam import ranges
from podwire.ipam.deletions import Deletions, boot_id
from podwire.ipam.entries import Entries, Lease, Owner, is_address
from podwire.ipam.ranges import RangeSet
from podwire.linux import errors as linux
from podwire.linux.fs.trust import check_once
from podwire.linux.proc.namespaces import identity
from podwire.protocols.cni.config import LONGEST_FILE_NAME, Valid
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.values import Address, address

LOCK_SECONDS = 20.0
"""How long to wait for the lock: less than any runtime waits for a plugin."""
_PROBES = 64
"""Addresses that are probed one by one, before all entries are read at once."""
_NAMELESS = "nameless"
"""Noted when there are files of the reference plugin without an interface."""

DELETIONS = "last_reserved_ip.deletions"
"""A name that the reference plugin does not take for an address."""

CheckLate = Callable[[Callable[[int], bool]], None]
"""Raises for an ADD that comes too late. It is handed a function that says whether a DEL ended after a time."""

NAMED = declare("ipam.named", "the owner's entry is written, its addresses are not taken yet")
TAKEN = declare("ipam.taken", "the owner's addresses are taken, the caller has no answer")
FREED = declare("ipam.freed", "the owner's addresses are free, its own entry still exists")


def is_gone(netns: str) -> bool:
    """Whether a path certainly does not lead to a network namespace any more."""
    try:
        identity(netns)
    except (linux.NoSuchNamespace, linux.WrongKind):
        return True
    except linux.LinuxError:
        return False
    return False


class LeaseInfo(NamedTuple):
    """A lease, for listings."""

    owner: Owner
    addresses: tuple[Address, ...]
    since: float
    alive: bool


class Leases:
    """The leases of one network."""

    def __init__(
        self,
        directory: str,
        lock_seconds: float = LOCK_SECONDS,
        *,
        mirror: bool = True,
        boot: str = "",
        warn: Callable[[str], None] = lambda _line: None,
    ) -> None:
        """With `mirror` the reference plugin host-local can read and release the leases."""
        self._entries = Entries(directory)
        self._lock_seconds, self._mirror, self._warn = lock_seconds, mirror, warn
        self._boot = boot or boot_id()

    def take(
        self,
        owner: Owner,
        sets: Sequence[RangeSet],
        requested: Sequence[Address] = (),
        netns: str = "",
        check_late: CheckLate = lambda _is_deleted: None,
    ) -> tuple[Address, ...]:
        """Leases one address of each set; returns the owner's present ones if they fit. Idempotent.

        Requested addresses must be free, each in a set of its own; otherwise nothing is leased. The directory is
        fsynced only for a lease without a namespace: any other one is worthless after a power failure, like its pod.
        """
        check_once(self._entries.directory)
        os.makedirs(self._entries.directory, mode=0o755, exist_ok=True)
        with self._entries.lock(self._lock_seconds):
            check_late(partial(self._is_deleted, owner, netns))
            note = self._inspect()
            had = self._of(owner)
            self._restore_damaged(had or ())
            if had is not None and not (_fits(had, sets, requested) and self._are_free_for(owner, had)):
                self._free(owner, had)
                had = None
            chosen = had if had is not None else self._choose(sets, requested)
            self._write(owner, Lease(chosen, self._boot, netns))
            if had is None:
                for number, ip in enumerate(chosen):
                    self._entries.put_cursor(number, ip)
                self._entries.put_known(self._boot, note)
        failpoint(TAKEN)
        if not netns:
            fsync_directory(self._entries.directory)
        return chosen

    def _is_deleted(self, owner: Owner, netns: str, since: int) -> bool:
        """Whether the owner's DEL ended after a time; or before, if its namespace ended, too.

        The second is of an ADD whose calling plugin hung, and calls us after its DEL.
        """
        deletions = Deletions(self._entries.path(DELETIONS))
        return deletions.is_noted(owner.entry, since) or (
            bool(netns) and not os.path.exists(netns) and deletions.is_noted(owner.entry)
        )

    def release(self, owner: Owner, *, note: bool = False) -> tuple[Address, ...]:
        """Releases the owner's addresses; returns them. Idempotent. With `note`, an ADD that was started before fails.

        The directory is fsynced only for a lease without a namespace: any other one that a power failure brings back
        is released by the first inspection after the boot.
        """
        if note and len(os.path.basename(self._entries.directory)) <= LONGEST_FILE_NAME:
            check_once(self._entries.directory)  # made before the first ADD, too: it may be the one that hangs
            os.makedirs(self._entries.directory, mode=0o755, exist_ok=True)
        if not os.path.isdir(self._entries.directory):
            return ()
        with self._entries.lock(self._lock_seconds):
            if note:
                Deletions(self._entries.path(DELETIONS)).note(owner.entry)
            lease = self._entries.lease(owner)
            had = None if lease is None else lease.addresses
            if had is None:
                try:
                    nameless = self._inspect() == _NAMELESS
                except OSError:  # a full disk takes no notes, and must not prevent a release: all entries are searched
                    nameless = True
                had = self._of(owner)
                if had is None and not nameless and not self._entries.has_mirror(owner):
                    return ()
                had = self._search(owner) if had is None else had
            self._restore_damaged(had)
            self._free(owner, had)
        if lease is None or not lease.netns:
            fsync_directory(self._entries.directory)
        return had

    def of(self, owner: Owner) -> tuple[Address, ...]:
        """Returns the owner's addresses."""
        had = self._of(owner)
        return self._search(owner) if had is None else tuple(ip for ip in had if self._owns(owner, str(ip)))

    def hand_over(self, owner: Owner) -> None:
        """Leaves the owner's addresses to the reference plugin: its DEL releases them, as does `release`."""
        if os.path.isdir(self._entries.directory):
            with self._entries.lock(self._lock_seconds):
                if self._of(owner) is not None:
                    self._entries.put_mirror(owner)
                    self._entries.drop_lease(owner)

    def release_others(self, valid: Valid, also_valid: Callable[[], Valid] = frozenset) -> None:
        """Releases the addresses of owners that are not valid, and repairs damaged entries; goes on after a failure.

        `also_valid` is called after all leases have been listed. A plugin writes its record before it leases, so the
        owner of each listed lease that is still being added is in its answer.
        """
        if not os.path.isdir(self._entries.directory):
            return
        failures: list[str] = []
        with self._entries.lock(self._lock_seconds):
            self._inspect()
            owners = self._list_owners()
            valid |= also_valid()
            kept = {*valid, *((id_, "") for id_, _ in valid)}
            for owner, had in owners.items():
                if owner not in kept:
                    _try(failures, str(owner), partial(self._free, owner, had))
            for name in self._list_damaged():
                _try(failures, name, partial(self._repair, name, valid))
        fsync_directory(self._entries.directory)
        if failures:
            raise CniError(Code.IO_FAILURE, f"ipam: {failures[0]}", "; ".join(failures[1:]))

    def check_capacity(self, sets: Sequence[RangeSet]) -> None:
        """Raises CniError if a set has no free address, or if nothing can be written. Changes nothing."""
        if reason := why_unwritable(self._entries.directory):
            raise CniError(Code.UNAVAILABLE, f"ipam: {reason}")
        for number, set_ in enumerate(sets):
            if os.path.isdir(self._entries.directory) and not self._has_capacity(number, set_):
                raise _refusal(Code.UNAVAILABLE, number, *self._exhausted(set_))

    def _has_capacity(self, number: int, set_: RangeSet) -> bool:
        if self._find_free(number, set_) is not None:
            return True
        stale = [ip for owner in self._list_stale() for ip in self._of(owner) or ()]
        return any(ranges.find_range(set_, ip) is not None for ip in stale)

    def all(self) -> list[LeaseInfo]:
        """Lists all leases, the oldest first; one whose namespace is not known to be gone is alive."""
        if not os.path.isdir(self._entries.directory):
            return []
        leases = []
        for owner in self._entries.owners():
            lease = self._entries.lease(owner)
            if lease is not None:
                alive = not (lease.netns and is_gone(lease.netns))
                leases.append(LeaseInfo(owner, lease.addresses, self._entries.since(owner), alive))
        return sorted(leases, key=lambda lease: lease.since)

    def used(self) -> list[Address]:
        """Returns every address that cannot be leased, damaged entries included."""
        if not os.path.isdir(self._entries.directory):
            return []
        return [address(name, "") for name in self._address_names() if not self._entries.is_free(name)]

    def _inspect(self) -> str:
        """Inspects all entries, once per boot and after the reference plugin has leased addresses; returns the note.

        Releases stale leases, takes over files of the reference plugin, restores damaged entries, and warns of others.
        """
        known = self._entries.known(self._boot)
        if known is not None:
            return known
        self._restore_damaged(self.used())  # first: the others take an owner without addresses for one of a crash
        self._free_stale()
        note = self._take_over()
        for name in self._list_damaged():
            self._warn(
                f"podwire ipam: {self._entries.path(name)} is damaged; its address is not leased until GC repairs it"
            )
        self._entries.put_known(self._boot, note)
        return note

    def _take_over(self) -> str:
        """Makes owners' entries, and those for the reference plugin, agree with the addresses'; returns the note."""
        owners = self._list_owners()
        for owner, had in owners.items():
            if not owner.ifname:
                continue
            if not had:
                self._entries.drop_lease(owner)  # a crash before it took them, or the reference plugin released them
            elif not set(had) <= set(self._of(owner) or ()):
                ordered = sorted(had, key=lambda ip: (ip.version, int(ip)))
                self._entries.put_lease(owner, Lease(tuple(ordered)))
            if had and self._mirror and not self._entries.has_mirror(owner):
                self._entries.put_mirror(owner)
        return "" if all(owner.ifname for owner in owners) else _NAMELESS

    def _list_stale(self) -> Iterator[Owner]:
        """Yields owners of an earlier boot whose namespace no longer exists."""
        for owner in self._entries.owners():
            lease = self._entries.lease(owner)
            if lease is not None and lease.netns and lease.boot != self._boot and is_gone(lease.netns):
                yield owner

    def _free_stale(self) -> bool:
        stale = [*self._list_stale()]
        for owner in stale:
            self._warn(f"podwire ipam: released the addresses of {owner}, whose namespace ended with an earlier boot")
            self._free(owner, self._of(owner) or ())
        return bool(stale)

    def _choose(self, sets: Sequence[RangeSet], requested: Sequence[Address]) -> tuple[Address, ...]:
        left = [*requested]
        chosen: list[Address] = []
        for number, set_ in enumerate(sets):
            ip = next((ip for ip in left if any(part.has(ip) for part in set_)), None)
            if ip is not None:
                left.remove(ip)
                self._check_free(ip, number, set_)
                chosen.append(ip)
            else:
                chosen.append(self._next(number, set_))
        if left:
            message = f"failed to allocate all requested IPs: {', '.join(map(str, left))}"
            raise CniError(Code.BAD_CONFIG, message, "ipam: no range has them")
        return tuple(chosen)

    def _check_free(self, ip: Address, number: int, set_: RangeSet) -> None:
        if ranges.find_range(set_, ip) is None:
            raise _refusal(
                Code.BAD_CONFIG, number, f"requested ip {ip} is subnet's gateway", f"ipam: {ip} is the gateway"
            )
        if not self._entries.is_free(str(ip)):
            owner = self._entries.owner(str(ip))
            reason = f"belongs to {owner}" if owner else "has a damaged entry"
            message = f"requested IP address {ip} is not available in range set {ranges.words(set_)}"
            raise _refusal(Code.IN_USE, number, message, f"ipam: requested {ip} {reason}")

    def _next(self, number: int, set_: RangeSet) -> Address:
        free = self._find_free(number, set_)
        if free is None and self._free_stale():
            free = self._find_free(number, set_)
        if free is None:
            raise _refusal(Code.TRY_AGAIN_LATER, number, *self._exhausted(set_))
        return free

    def _find_free(self, number: int, set_: RangeSet) -> Address | None:
        """Returns the first free address behind the one that was leased last.

        After some addresses that are taken it reads all entries at once, which bounds the cost of a nearly full pool.
        """
        taken: set[str] | None = None
        for tried, ip in enumerate(ranges.after(set_, self._entries.cursor(number))):
            if tried == _PROBES:
                taken = self._entries.not_free()
            name = str(ip)
            if self._entries.is_free(name) if taken is None else name not in taken:
                return ip
        return None

    def _exhausted(self, set_: RangeSet) -> tuple[str, str]:
        used = sum(ranges.find_range(set_, ip) is not None for ip in self.used())
        message = f"no IP addresses available in range set: {ranges.words(set_)}"
        return message, f"ipam: {used} of {ranges.size(set_)} are leased in {self._entries.directory}"

    def _write(self, owner: Owner, lease: Lease) -> None:
        """Writes a lease; addresses that the owner has already taken stay. A failure releases it."""
        self._entries.put_lease(owner, lease)
        failpoint(NAMED)
        try:
            if self._mirror:
                self._entries.put_mirror(owner)
            for name in map(str, lease.addresses):
                if not self._owns(owner, name):
                    self._entries.take(name, owner)
        except OSError:
            self._free(owner, lease.addresses)
            raise

    def _free(self, owner: Owner, had: Iterable[Address]) -> None:
        for ip in self._owned_among(owner, had):
            self._entries.remove(str(ip))
        self._entries.remove(owner.file)
        failpoint(FREED)
        self._entries.drop_lease(owner)

    def _of(self, owner: Owner) -> tuple[Address, ...] | None:
        """Returns the addresses in the owner's entry, which may be wrong; None without an entry."""
        lease = self._entries.lease(owner)
        return None if lease is None else lease.addresses

    def _owns(self, owner: Owner, name: str) -> bool:
        return owner.is_named_by(self._entries.owner(name))

    def _are_free_for(self, owner: Owner, had: Sequence[Address]) -> bool:
        """Whether no other owner got an address between the owner's entry and a crash before it was taken."""
        return all(self._owns(owner, str(ip)) or self._entries.is_free(str(ip)) for ip in had)

    def _owned_among(self, owner: Owner, addresses: Iterable[Address]) -> tuple[Address, ...]:
        return tuple(ip for ip in addresses if self._owns(owner, str(ip)))

    def _search(self, owner: Owner) -> tuple[Address, ...]:
        """Finds an owner's addresses by reading every entry."""
        if not os.path.isdir(self._entries.directory):
            return ()
        return self._owned_among(owner, [address(name, "") for name in self._address_names()])

    def _address_names(self) -> list[str]:
        return [name for name in self._entries.names() if name[0] not in "@l~" and is_address(name)]

    def _list_owners(self) -> dict[Owner, list[Address]]:
        """Returns all owners with the addresses whose entries name them."""
        owners: dict[Owner, list[Address]] = {owner: [] for owner in self._entries.owners()}
        for name in self._address_names():
            if (owner := self._entries.owner(name)) is not None:
                owners.setdefault(owner, []).append(address(name, ""))
        return owners

    def _list_damaged(self) -> list[str]:
        return [*filter(self._is_damaged, self._address_names())]

    def _is_damaged(self, name: str) -> bool:
        return self._entries.owner(name) is None and not self._entries.is_free(name)

    def _restore_damaged(self, addresses: Iterable[Address]) -> None:
        """Restores damaged entries of addresses that exactly one owner's entry has."""
        for ip in addresses:
            if not self._is_damaged(str(ip)):
                continue
            claimants = [owner for owner in self._entries.owners() if ip in (self._of(owner) or ())]
            if len(claimants) != 1:
                continue
            with suppress(OSError):  # a directory with content, or a full disk: GC reports it
                self._reassign(str(ip), claimants[0])
                self._warn(f"podwire ipam: restored the damaged entry of {ip}, which belongs to {claimants[0]}")

    def _repair(self, name: str, valid: Valid) -> None:
        """Restores a damaged entry for the valid owner whose own entry has the address.

        It is removed if every valid owner has an entry and none has the address; otherwise it may be of any of them.
        """
        leases = {Owner(*ids): self._of(Owner(*ids)) for ids in valid}
        claimant = next((owner for owner, had in leases.items() if address(name, "") in (had or ())), None)
        if claimant is not None:
            self._reassign(name, claimant)
        elif None not in leases.values():
            self._clear(name)

    def _reassign(self, name: str, owner: Owner) -> None:
        self._clear(name)
        self._entries.retake(name, owner)

    def _clear(self, name: str) -> None:
        try:
            self._entries.remove(name)
        except IsADirectoryError:
            os.rmdir(self._entries.path(name))


def _try(failures: list[str], subject: str, work: Callable[[], None]) -> None:
    try:
        work()
    except OSError as error:
        failures.append(f"{subject}: {error.strerror}")


def _fits(had: Sequence[Address], sets: Sequence[RangeSet], requested: Sequence[Address]) -> bool:
    """Whether an owner's addresses satisfy the request."""
    if len(had) != len(sets) or not set(requested) <= set(had):
        return False
    return all(ranges.find_range(set_, ip) is not None for ip, set_ in zip(had, sets, strict=True))


def _refusal(code: Code, number: int, words: str, details: str) -> CniError:
    """An error in the words of the reference plugin."""
    return CniError(code, f"failed to allocate for range {number}: {words}", details)
