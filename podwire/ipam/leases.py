"""Who has which address, in a directory per network.

    10.1.0.5 -> @CONTAINER@eth0          the address is taken, and by whom
    @CONTAINER@eth0 -> 10.1.0.5,fd00::5  what the owner has
    last_reserved_ip.0 -> 10.1.0.5       where to go on looking
    lock                                 held while something changes

Symbolic links that lead nowhere: one is made in one step, with its content or not at all, and only if the name is free.
So an entry is never torn, an address never has two owners, and nothing but the directory needs to be synced to disk.
What an owner has is written before its addresses are taken and removed after they are free, so a crash in between
leaves nothing that a later release would not find. No operation reads all entries.

Files that the reference plugin host-local left (an address's name, the owner as content) are respected and released.
An empty one is what it leaves when it dies: nobody ever got that address, so it is given again.
"""

import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from podwire.failpoints import declare, failpoint
from podwire.ipam import ranges
from podwire.ipam.ranges import RangeSet
from podwire.linux.files import sync_directory
from podwire.protocols.cni.config import Valid
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.values import Address, address

PATIENCE = 20.0
"""Seconds to wait for the lock: less than any runtime waits for a plugin."""
_STEP = 0.002
_CURSOR = "last_reserved_ip."
_LOCK = "lock"

NAMED = declare("ipam.named", "what an owner will have is written, its addresses are not taken yet")
TAKEN = declare("ipam.taken", "an owner's addresses are taken, and not on disk for certain")
FREED = declare("ipam.freed", "an owner's addresses are free, its own entry is still there")


class Owner(NamedTuple):
    container_id: str
    ifname: str

    @property
    def entry(self) -> str:
        """Its name in the directory; no address begins like this."""
        return f"@{self.container_id}@{self.ifname}"


class Leases:
    """The leases of one network."""

    def __init__(self, directory: str, patience: float = PATIENCE) -> None:
        self._directory = directory
        self._patience = patience

    def take(self, owner: Owner, sets: Sequence[RangeSet], wanted: Sequence[Address] = ()) -> tuple[Address, ...]:
        """One address of each set, durably; those that the owner has already, if they fit.

        Wanted addresses are given if they are free and in a set that has no other; else nothing is.
        """
        os.makedirs(self._directory, mode=0o755, exist_ok=True)
        with self._locked():
            had = self._of(owner)
            if had is not None and not (_fits(had, sets, wanted) and self._are_free_for(owner, had)):
                self._free(owner, had)
                had = None
            chosen = had if had is not None else self._chosen(sets, wanted)
            self._write(owner, chosen)
        failpoint(TAKEN)
        sync_directory(self._directory)
        return chosen

    def release(self, owner: Owner) -> tuple[Address, ...]:
        """Free what the owner has; nothing happens when that is nothing."""
        if not os.path.isdir(self._directory):
            return ()
        with self._locked():
            had = self._of(owner)
            if had is None:
                had = self._found(owner)
            self._free(owner, had)
        sync_directory(self._directory)
        return had

    def of(self, owner: Owner) -> tuple[Address, ...]:
        """What the owner has."""
        had = self._of(owner) or ()
        return tuple(each for each in had if self._owns(owner, str(each)))

    def keep_only(self, valid: Valid) -> None:
        """Free what belongs to any other owner."""
        if not os.path.isdir(self._directory):
            return
        with self._locked():
            for each in self._owners():
                if each not in valid:
                    had = self._of(each)
                    self._free(each, self._found(each) if had is None else had)
        sync_directory(self._directory)

    def check_room(self, sets: Sequence[RangeSet]) -> None:
        """An error when one of the sets has no address left, or nothing can be written."""
        try:
            os.makedirs(self._directory, mode=0o755, exist_ok=True)
            with self._locked():
                for number, each in enumerate(sets):
                    self._next(number, each)
        except (OSError, CniError) as error:
            raise CniError(Code.UNAVAILABLE, str(error)) from error

    def _owners(self) -> set[Owner]:
        """Everybody who has something, by looking at every entry."""
        found: set[Owner] = set()
        for each in os.listdir(self._directory):
            words = each.split("@")[1:] if each[:1] == "@" else []
            if _is_address(each):
                link = self._link(each)
                words = link.split("@")[1:] if link else self._legacy(each)
            if len(words) == 2:
                found.add(Owner(*words))
        return found

    def _are_free_for(self, owner: Owner, had: Sequence[Address]) -> bool:
        """What an owner's entry says may have gone to somebody else, if a crash kept the owner from taking it."""
        return all(self._owns(owner, str(each)) or self._is_free(str(each)) for each in had)

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
        for number, ip in enumerate(chosen):
            self._replace(f"{_CURSOR}{number}", str(ip))
        return tuple(chosen)

    def _check_free(self, ip: Address, set_: RangeSet) -> None:
        if ranges.found(set_, ip) is None:
            raise CniError(Code.BAD_CONFIG, f"ipam: {ip} is wanted, and is the gateway")
        if not self._is_free(str(ip)):
            raise CniError(Code.IN_USE, f"ipam: {ip} is wanted, and belongs to {self._told_owner(str(ip))}")

    def _next(self, number: int, set_: RangeSet) -> Address:
        for ip in ranges.after(set_, self._cursor(number)):
            if self._is_free(str(ip)):
                return ip
        raise CniError(
            Code.TRY_AGAIN_LATER,
            f"ipam: no address is left in {ranges.told(set_)}",
            f"{len(os.listdir(self._directory))} entries in {self._directory}",
        )

    def _cursor(self, number: int) -> Address | None:
        text = self._link(f"{_CURSOR}{number}")
        if text is None:
            with suppress(OSError), open(self._path(f"{_CURSOR}{number}"), encoding="ascii") as file:
                text = file.read().strip()  # as the reference plugin writes it
        try:
            return address(text, "")
        except CniError:
            return None

    def _is_free(self, name: str) -> bool:
        """Whether nobody has an address. An empty file is none's: it is removed."""
        try:
            told = os.lstat(self._path(name))
        except FileNotFoundError:
            return True
        if told.st_size == 0 and not _is_link(told):
            os.unlink(self._path(name))
            return True
        return False

    def _write(self, owner: Owner, chosen: Sequence[Address]) -> None:
        """Take what was chosen; what was taken already stays."""
        self._replace(owner.entry, ",".join(map(str, chosen)))
        failpoint(NAMED)
        try:
            for each in map(str, chosen):
                if not self._owns(owner, each):
                    os.symlink(owner.entry, self._path(each))
        except OSError:
            self._free(owner, chosen)
            raise

    def _free(self, owner: Owner, had: Sequence[Address]) -> None:
        for each in map(str, had):
            if self._owns(owner, each):
                os.unlink(self._path(each))
        failpoint(FREED)
        with suppress(FileNotFoundError):
            os.unlink(self._path(owner.entry))

    def _of(self, owner: Owner) -> tuple[Address, ...] | None:
        """What its own entry says, right or wrong; None without one."""
        text = self._link(owner.entry)
        try:
            return None if text is None else tuple(address(each, "") for each in text.split(","))
        except CniError:
            return None

    def _found(self, owner: Owner) -> tuple[Address, ...]:
        """By looking at every entry: for owners without one of their own."""
        names = (each for each in os.listdir(self._directory) if each[:1] not in ("@", "l"))
        return tuple(address(each, "") for each in names if _is_address(each) and self._owns(owner, each))

    def _owns(self, owner: Owner, name: str) -> bool:
        link = self._link(name)
        if link is not None:
            return link == owner.entry
        words = self._legacy(name)
        return words in ([owner.container_id], [owner.container_id, owner.ifname])

    def _legacy(self, name: str) -> list[str]:
        """The words in a file of the reference plugin: an id, and maybe an interface."""
        try:
            with open(self._path(name), encoding="utf-8", errors="replace") as file:
                return file.read(4096).split()
        except OSError:
            return []

    def _told_owner(self, name: str) -> str:
        return self._link(name) or "@".join(["", *self._legacy(name)])

    def _link(self, name: str) -> str | None:
        try:
            return os.readlink(self._path(name))
        except OSError:
            return None

    def _replace(self, name: str, content: str) -> None:
        """Under the lock, so one temporary name is enough; what a crash left there is overwritten."""
        temporary = self._path(f"{_LOCK}.new")
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        os.symlink(content, temporary)
        os.rename(temporary, self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"

    @contextmanager
    def _locked(self) -> Iterator[None]:
        file = os.open(self._path(_LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            _wait(lambda: fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB), self._patience, self._directory)
            yield
        finally:
            os.close(file)


def _wait(lock: Callable[[], None], patience: float, where: str) -> None:
    until = time.monotonic() + patience
    while True:
        try:
            return lock()
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EINTR):
                raise
        if time.monotonic() > until:
            raise CniError(Code.TRY_AGAIN_LATER, f"ipam: the lock of {where} was not free within {patience:g} s")
        time.sleep(_STEP)


def _fits(had: Sequence[Address], sets: Sequence[RangeSet], wanted: Sequence[Address]) -> bool:
    """Whether what an owner has is what it would get now."""
    if len(had) != len(sets) or not set(wanted) <= set(had):
        return False
    return all(ranges.found(each, ip) is not None for ip, each in zip(had, sets, strict=True))


def _is_link(told: os.stat_result) -> bool:
    return told.st_mode & 0o170000 == 0o120000


def _is_address(name: str) -> bool:
    try:
        address(name, "")
    except CniError:
        return False
    return True
