"""A network's directory of leases, entry by entry; what they mean together is in `leases.py`.

    10.1.0.5 -> ~CONTAINER@eth0                         the address is taken, and by whom
    @CONTAINER@eth0 -> 10.1.0.5,fd00::5 BOOT NETNS      what the owner has, since which boot, for which namespace
    ~CONTAINER@eth0                                     the owner in the reference plugin's words
    last_reserved_ip.0                                  where to go on looking
    last_reserved_ip.known                              up to where this directory was looked through
    lock                                                held while something changes

The first two count. They are symbolic links: one is made in one step, with its content or not at all, and only if the
name is free. So an entry is never torn, an address never has two owners, and nothing but the directory needs to be
synced to disk. Who follows the first, as the reference plugin host-local does, finds what that would have written.
"""

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import NamedTuple

from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.values import Address, address
from podwire.protocols.cni.verbs import is_id, is_ifname

_STEP = 0.002
_CURSOR = "last_reserved_ip."
_KNOWN = "last_reserved_ip.known"
_LOCK = "lock"
_UNFINISHED = "lock.new"
_LONGEST_PATH = 1024


class Owner(NamedTuple):
    container_id: str
    ifname: str
    """Empty for old files of the reference plugin, which do not tell it."""

    @property
    def file(self) -> str:
        """Behind all addresses when names are sorted: the reference plugin removes in that order what it can read."""
        return f"~{self.container_id}@{self.ifname}"

    @property
    def entry(self) -> str:
        """No address begins like this."""
        return f"@{self.container_id}@{self.ifname}"

    def __str__(self) -> str:
        return f"{self.container_id} {self.ifname}".rstrip()

    def is_named_by(self, other: "Owner | None") -> bool:
        return other is not None and other in (self, Owner(self.container_id, ""))


class Lease(NamedTuple):
    """What an owner has, as its own entry tells."""

    addresses: tuple[Address, ...]
    boot: str = ""
    netns: str = ""
    """Both empty when nobody knows."""

    @property
    def text(self) -> str:
        told = (self.boot, self.netns) if self.boot and len(self.netns) <= _LONGEST_PATH else ()
        return " ".join((",".join(map(str, self.addresses)), *told))


def _lease(text: str) -> Lease | None:
    addresses, _, rest = text.partition(" ")
    boot, _, netns = rest.partition(" ")
    try:
        return Lease(tuple(address(each, "") for each in addresses.split(",")), boot, netns)
    except CniError:
        return None


def _owner(container_id: str, ifname: str) -> Owner | None:
    return Owner(container_id, ifname) if is_id(container_id) and (not ifname or is_ifname(ifname)) else None


def is_address(name: str) -> bool:
    try:
        return str(address(name, "")) == name
    except CniError:
        return False


class Entries:
    """The directory; whoever changes something holds the lock."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def names(self) -> list[str]:
        return os.listdir(self.directory)

    def owners(self) -> Iterator[Owner]:
        """Everybody with an entry of its own."""
        for each in self.names():
            id_, _, ifname = each[1:].partition("@")
            if each[0] == "@" and (owner := _owner(id_, ifname)) is not None:
                yield owner

    def lease(self, owner: Owner) -> Lease | None:
        text = self._link(owner.entry)
        return None if text is None else _lease(text)

    def since(self, owner: Owner) -> float:
        """When its entry was written."""
        return os.lstat(self.path(owner.entry)).st_mtime

    def put_lease(self, owner: Owner, lease: Lease) -> None:
        self._replace(owner.entry, lease.text)

    def drop_lease(self, owner: Owner) -> None:
        self.remove(owner.entry)

    def owner(self, name: str) -> Owner | None:
        """Whose an address is; None when it is nobody's, or cannot be told."""
        link = self._link(name)
        if link is not None:
            id_, at, ifname = link[1:].partition("@")
            return _owner(id_, ifname) if at and link[0] in "~@" else None
        words = self._words(name)
        return _owner(*words, *("",) * (2 - len(words))) if 0 < len(words) <= 2 else None

    def is_free(self, name: str) -> bool:
        """An empty file is what the reference plugin leaves when it dies: nobody ever got that address."""
        try:
            told = os.lstat(self.path(name))
        except FileNotFoundError:
            return True
        return told.st_size == 0 and stat.S_ISREG(told.st_mode)

    def not_free(self) -> set[str]:
        """All names that are no free address."""
        with os.scandir(self.directory) as found:
            return {
                each.name for each in found if not (each.is_file(follow_symlinks=False) and each.stat().st_size == 0)
            }

    def take(self, name: str, owner: Owner) -> None:
        try:
            os.symlink(owner.file, self.path(name))
        except FileExistsError:
            if not self.is_free(name):
                raise
            self.retake(name, owner)

    def retake(self, name: str, owner: Owner) -> None:
        """In place of whatever is there."""
        self._replace(name, owner.file)

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(self.path(name))

    def has_mirror(self, owner: Owner) -> bool:
        try:
            return os.lstat(self.path(owner.file)).st_size > 0
        except FileNotFoundError:
            return False

    def put_mirror(self, owner: Owner) -> None:
        """When a loss of power takes it, the next look through the directory brings it back."""
        self._write(owner.file, f"{owner.container_id}\r\n{owner.ifname}")

    def cursor(self, number: int) -> Address | None:
        try:
            return address(self._content(f"{_CURSOR}{number}")[0], "")
        except (OSError, CniError):
            return None

    def put_cursor(self, number: int, ip: Address) -> None:
        """A file, and not a link: the reference plugin would follow one, and write to what it names."""
        self._write(f"{_CURSOR}{number}", str(ip))

    def _write(self, name: str, content: str) -> None:
        """In place, and not synced: for what does no harm when it is lost or torn."""
        path, flags = self.path(name), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        if os.path.islink(path):
            os.unlink(path)
        file = os.open(path, flags, 0o600)
        try:
            os.ftruncate(file, os.pwrite(file, content.encode(), 0))
        finally:
            os.close(file)

    def _content(self, name: str) -> tuple[str, int]:
        """What is written there, and when that was done."""
        file = os.open(self.path(name), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            return os.read(file, 4096).decode("ascii", "replace").strip(), os.fstat(file).st_mtime_ns
        finally:
            os.close(file)

    def _progress(self, boot: str) -> str:
        """Changes with every boot, and whenever the reference plugin gives an address."""
        told = boot
        with suppress(OSError):
            for number in count():
                text, when = self._content(f"{_CURSOR}{number}")
                told += f" {text}@{when}"
        return told

    def known(self, boot: str) -> str | None:
        """What was noted when all was looked through; None when things have happened since."""
        try:
            noted, bar, rest = self._content(_KNOWN)[0].partition("|")
        except OSError:
            return None
        return rest if bar and noted == self._progress(boot) else None

    def put_known(self, boot: str, rest: str) -> None:
        self._write(_KNOWN, f"{self._progress(boot)}|{rest}")

    def path(self, name: str) -> str:
        return f"{self.directory}/{name}"

    def _link(self, name: str) -> str | None:
        try:
            return os.readlink(self.path(name))
        except OSError:
            return None

    def _words(self, name: str) -> list[str]:
        """Those of a file of the reference plugin: an id, and maybe an interface."""
        try:
            with open(self.path(name), encoding="utf-8", errors="replace") as file:
                return file.read(4096).split()
        except OSError:
            return []

    def _replace(self, name: str, content: str) -> None:
        """Under the lock, so one temporary name is enough."""
        temporary = self.path(_UNFINISHED)
        os.symlink(content, temporary)
        os.rename(temporary, self.path(name))

    @contextmanager
    def locked(self, patience: float) -> Iterator[None]:
        file = os.open(self.path(_LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            _wait(lambda: fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB), patience, self.directory)
            self.remove(_UNFINISHED)  # of somebody who died with the lock
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
