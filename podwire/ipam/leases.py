"""Who has which address of a network, whatever happens.

What an owner has is written before its addresses are taken and removed after they are free, so a crash in between
leaves nothing that a later release would not find.

No operation reads all entries but for three: GC; a pool in which there is hardly a free address; and the first look of
each boot, which is repeated when the reference plugin host-local has given addresses meanwhile. That one takes over its
files, and frees what died with an earlier boot: the namespace of such a lease is gone, and it was never given back.

An entry that nobody understands keeps its address from being given. GC puts it right, or away.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from typing import NamedTuple

from podwire.durable.files import fsync_directory, why_unwritable
from podwire.failpoints import declare, failpoint
from podwire.ipam import ranges
from podwire.ipam.entries import Entries, Lease, Owner, is_address
from podwire.ipam.ranges import RangeSet
from podwire.linux import errors as linux
from podwire.linux.proc.namespaces import identity
from podwire.protocols.cni.config import Valid
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.values import Address, address

PATIENCE = 20.0
"""Seconds to wait for the lock: less than any runtime waits for a plugin."""
_PROBES = 64
"""Addresses that are tried one by one, before all entries are read at once."""
_NAMELESS = "nameless"
"""Noted when there are files of the reference plugin that do not tell an interface."""

NAMED = declare("ipam.named", "what an owner will have is written, its addresses are not taken yet")
TAKEN = declare("ipam.taken", "an owner's addresses are taken, and nobody was told")
FREED = declare("ipam.freed", "an owner's addresses are free, its own entry is still there")


@cache
def boot_id() -> str:
    """Of this boot; short, and long enough to tell one from the other."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().replace("-", "")[:16]


def is_gone(netns: str) -> bool:
    """Whether a path names no network namespace any more. In doubt it does."""
    try:
        identity(netns)
    except (linux.NoSuchNamespace, linux.WrongKind):
        return True
    except linux.LinuxError:
        return False
    return False


class Held(NamedTuple):
    """A lease, for people."""

    owner: Owner
    addresses: tuple[Address, ...]
    since: float
    alive: bool


class Leases:
    """The leases of one network."""

    def __init__(
        self,
        directory: str,
        patience: float = PATIENCE,
        *,
        mirror: bool = True,
        boot: str = "",
        tell: Callable[[str], None] = lambda _line: None,
    ) -> None:
        self._entries = Entries(directory)
        self._patience, self._mirror, self._tell = patience, mirror, tell
        self._boot = boot or boot_id()

    def take(
        self, owner: Owner, sets: Sequence[RangeSet], wanted: Sequence[Address] = (), netns: str = ""
    ) -> tuple[Address, ...]:
        """One address of each set; those that the owner has already, if they fit.

        Wanted addresses are given if they are free and in a set that has no other; else nothing is. A lease that a loss
        of power takes was a pod's that is gone, too, so nobody waits for the disk; unless it is not known whose it is.
        """
        os.makedirs(self._entries.directory, mode=0o755, exist_ok=True)
        with self._entries.locked(self._patience):
            rest = self._look_through()
            had = self._of(owner)
            if had is not None and not (_fits(had, sets, wanted) and self._are_free_for(owner, had)):
                self._free(owner, had)
                had = None
            chosen = had if had is not None else self._chosen(sets, wanted)
            self._write(owner, Lease(chosen, self._boot, netns))
            if had is None:
                for number, ip in enumerate(chosen):
                    self._entries.put_cursor(number, ip)
                self._entries.put_known(self._boot, rest)
        failpoint(TAKEN)
        if not netns:
            fsync_directory(self._entries.directory)
        return chosen

    def release(self, owner: Owner) -> tuple[Address, ...]:
        """Free what the owner has; nothing happens when that is nothing.

        A lease that a loss of power brings back is freed after the boot, so nobody waits for the disk; unless nothing
        would tell by then that it is dead.
        """
        if not os.path.isdir(self._entries.directory):
            return ()
        with self._entries.locked(self._patience):
            lease = self._entries.lease(owner)
            had = None if lease is None else lease.addresses
            if had is None:
                nameless = self._look_through() == _NAMELESS
                had = self._of(owner)
                if had is None and not nameless and not self._entries.has_mirror(owner):
                    return ()
                had = self._found(owner) if had is None else had
            self._free(owner, had)
        if lease is None or not lease.netns:
            fsync_directory(self._entries.directory)
        return had

    def of(self, owner: Owner) -> tuple[Address, ...]:
        """What the owner has."""
        had = self._of(owner)
        return self._found(owner) if had is None else tuple(each for each in had if self._owns(owner, str(each)))

    def keep_only(self, valid: Valid, others: Callable[[], Valid] = frozenset) -> None:
        """Free what belongs to any other owner, and put right what is damaged; go on whatever fails.

        `others` tells who stays, too. It is asked when all leases are known: whoever has one by then is in its answer,
        if it wrote down somewhere that it would ask for one.
        """
        if not os.path.isdir(self._entries.directory):
            return
        failed: list[str] = []
        with self._entries.locked(self._patience):
            self._look_through()
            everybody = self._everybody()
            valid |= others()
            spared = {*valid, *((id_, "") for id_, _ in valid)}
            for owner, had in everybody.items():
                if owner not in spared:
                    _try(failed, str(owner), partial(self._free, owner, had))
            for name in self._damaged():
                _try(failed, name, partial(self._repair, name, valid))
        fsync_directory(self._entries.directory)
        if failed:
            raise CniError(Code.IO_FAILURE, f"ipam: {failed[0]}", "; ".join(failed[1:]))

    def check_room(self, sets: Sequence[RangeSet]) -> None:
        """An error when one of the sets has no address left, or nothing can be written. Changes nothing."""
        if why := why_unwritable(self._entries.directory):
            raise CniError(Code.UNAVAILABLE, f"ipam: {why}")
        for number, each in enumerate(sets):
            if os.path.isdir(self._entries.directory) and not self._has_room(number, each):
                raise CniError(Code.UNAVAILABLE, *self._exhausted(each))

    def _has_room(self, number: int, set_: RangeSet) -> bool:
        if self._seek(number, set_) is not None:
            return True
        stale = [ip for owner in self._stale() for ip in self._of(owner) or ()]
        return any(ranges.found(set_, each) is not None for each in stale)

    def held(self) -> list[Held]:
        """Everything that is leased; whoever is not known to be gone is alive."""
        if not os.path.isdir(self._entries.directory):
            return []
        told = []
        for owner in self._entries.owners():
            lease = self._entries.lease(owner)
            if lease is not None:
                alive = not (lease.netns and is_gone(lease.netns))
                told.append(Held(owner, lease.addresses, self._entries.since(owner), alive))
        return sorted(told, key=lambda each: each.since)

    def used(self) -> list[Address]:
        """Every address that is not given to anybody else, damaged ones, too."""
        if not os.path.isdir(self._entries.directory):
            return []
        return [address(each, "") for each in self._addresses() if not self._entries.is_free(each)]

    def _look_through(self) -> str:
        """Once per boot, and when the reference plugin gave addresses: take over, free, tell of damage."""
        known = self._entries.known(self._boot)
        if known is not None:
            return known
        self._free_stale()
        rest = self._take_over()
        for name in self._damaged():
            self._tell(f"{self._entries.path(name)} cannot be read; the address is not given until GC knows better")
        self._entries.put_known(self._boot, rest)
        return rest

    def _take_over(self) -> str:
        """Make owners' own entries, and those for the reference plugin, agree with the addresses; returns what is to be
        noted."""
        everybody = self._everybody()
        for owner, had in everybody.items():
            if not owner.ifname:
                continue
            if not had:
                self._entries.drop_lease(owner)  # it was not given them, or the reference plugin gave them back
            elif not set(had) <= set(self._of(owner) or ()):
                ordered = sorted(had, key=lambda each: (each.version, int(each)))
                self._entries.put_lease(owner, Lease(tuple(ordered)))
            if had and self._mirror and not self._entries.has_mirror(owner):
                self._entries.put_mirror(owner)
        return "" if all(each.ifname for each in everybody) else _NAMELESS

    def _stale(self) -> Iterator[Owner]:
        """Owners that an earlier boot knew, and whose namespace is gone."""
        for owner in self._entries.owners():
            lease = self._entries.lease(owner)
            if lease is not None and lease.netns and lease.boot != self._boot and is_gone(lease.netns):
                yield owner

    def _free_stale(self) -> bool:
        stale = list(self._stale())
        for owner in stale:
            self._tell(f"ipam: {owner} did not outlive the last boot, its addresses are free")
            self._free(owner, self._of(owner) or ())
        return bool(stale)

    def _chosen(self, sets: Sequence[RangeSet], wanted: Sequence[Address]) -> tuple[Address, ...]:
        left = list(wanted)
        chosen: list[Address] = []
        for number, each in enumerate(sets):
            asked = next((ip for ip in left if any(part.has(ip) for part in each)), None)
            if asked is not None:
                left.remove(asked)
                self._check_free(asked, each)
                chosen.append(asked)
            else:
                chosen.append(self._next(number, each))
        if left:
            raise CniError(Code.BAD_CONFIG, f"ipam: {', '.join(map(str, left))} wanted, and in no range")
        return tuple(chosen)

    def _check_free(self, ip: Address, set_: RangeSet) -> None:
        if ranges.found(set_, ip) is None:
            raise CniError(Code.BAD_CONFIG, f"ipam: {ip} is wanted, and is the gateway")
        if not self._entries.is_free(str(ip)):
            owner = self._entries.owner(str(ip))
            told = f"belongs to {owner}" if owner else "its entry is damaged"
            raise CniError(Code.IN_USE, f"ipam: {ip} is wanted, and {told}")

    def _next(self, number: int, set_: RangeSet) -> Address:
        found = self._seek(number, set_)
        if found is None and self._free_stale():
            found = self._seek(number, set_)
        if found is None:
            raise CniError(Code.TRY_AGAIN_LATER, *self._exhausted(set_))
        return found

    def _seek(self, number: int, set_: RangeSet) -> Address | None:
        """The first free address behind the one that was given last. After a few that are taken, all are read at once:
        that bounds what a crowded pool costs."""
        taken: set[str] | None = None
        for tried, ip in enumerate(ranges.after(set_, self._entries.cursor(number))):
            if tried == _PROBES:
                taken = self._entries.not_free()
            name = str(ip)
            if self._entries.is_free(name) if taken is None else name not in taken:
                return ip
        return None

    def _exhausted(self, set_: RangeSet) -> tuple[str, str]:
        used = sum(ranges.found(set_, ip) is not None for ip in self.used())
        told = f"ipam: no address is left in {ranges.told(set_)}"
        return told, f"{used} of {ranges.size(set_)} are leased in {self._entries.directory}"

    def _write(self, owner: Owner, lease: Lease) -> None:
        """Take what was chosen; what was taken already stays."""
        self._entries.put_lease(owner, lease)
        failpoint(NAMED)
        try:
            if self._mirror:
                self._entries.put_mirror(owner)
            for each in map(str, lease.addresses):
                if not self._owns(owner, each):
                    self._entries.take(each, owner)
        except OSError:
            self._free(owner, lease.addresses)
            raise

    def _free(self, owner: Owner, had: Iterable[Address]) -> None:
        for each in self._found_among(owner, had):
            self._entries.remove(str(each))
        self._entries.remove(owner.file)
        failpoint(FREED)
        self._entries.drop_lease(owner)

    def _of(self, owner: Owner) -> tuple[Address, ...] | None:
        """What its own entry says, right or wrong; None without one."""
        lease = self._entries.lease(owner)
        return None if lease is None else lease.addresses

    def _owns(self, owner: Owner, name: str) -> bool:
        return owner.is_named_by(self._entries.owner(name))

    def _are_free_for(self, owner: Owner, had: Sequence[Address]) -> bool:
        """What an owner's entry says may have gone to somebody else, if a crash kept the owner from taking it."""
        return all(self._owns(owner, str(each)) or self._entries.is_free(str(each)) for each in had)

    def _found_among(self, owner: Owner, addresses: Iterable[Address]) -> tuple[Address, ...]:
        return tuple(each for each in addresses if self._owns(owner, str(each)))

    def _found(self, owner: Owner) -> tuple[Address, ...]:
        """By looking at every entry."""
        if not os.path.isdir(self._entries.directory):
            return ()
        return self._found_among(owner, [address(each, "") for each in self._addresses()])

    def _addresses(self) -> list[str]:
        return [each for each in self._entries.names() if each[0] not in "@l~" and is_address(each)]

    def _everybody(self) -> dict[Owner, list[Address]]:
        """All owners, with what they have and not only say that they have."""
        found: dict[Owner, list[Address]] = {each: [] for each in self._entries.owners()}
        for name in self._addresses():
            if (owner := self._entries.owner(name)) is not None:
                found.setdefault(owner, []).append(address(name, ""))
        return found

    def _damaged(self) -> list[str]:
        return [
            each for each in self._addresses() if self._entries.owner(each) is None and not self._entries.is_free(each)
        ]

    def _repair(self, name: str, valid: Valid) -> None:
        """A damaged entry is its owner's, whose own entry tells so; or nobody's, when all who may be have theirs."""
        has = {Owner(*each): self._of(Owner(*each)) for each in valid}
        claiming = next((owner for owner, had in has.items() if address(name, "") in (had or ())), None)
        if claiming is not None:
            self._clear(name)
            self._entries.retake(name, claiming)
        elif None not in has.values():
            self._clear(name)

    def _clear(self, name: str) -> None:
        try:
            self._entries.remove(name)
        except IsADirectoryError:
            os.rmdir(self._entries.path(name))


def _try(failed: list[str], what: str, work: Callable[[], None]) -> None:
    try:
        work()
    except OSError as error:
        failed.append(f"{what}: {error.strerror}")


def _fits(had: Sequence[Address], sets: Sequence[RangeSet], wanted: Sequence[Address]) -> bool:
    """Whether what an owner has is what it would get now."""
    if len(had) != len(sets) or not set(wanted) <= set(had):
        return False
    return all(ranges.found(each, ip) is not None for ip, each in zip(had, sets, strict=True))
