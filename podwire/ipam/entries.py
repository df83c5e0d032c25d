"""The directory of a network's leases, entry by entry; `leases.py` has the rules.

    10.1.0.5 -> ~CONTAINER@eth0                         the address is leased, and its owner
    @CONTAINER@eth0 -> 10.1.0.5,fd00::5 BOOT NETNS      the owner's addresses, the boot and the namespace of the lease
    ~CONTAINER@eth0                                     the owner as the reference plugin writes it
    last_reserved_ip.0                                  the address that was leased last, of each range set
    last_reserved_ip.known                              the state of the directory at the last inspection
    lock                                                flock, held while something changes

The first two are the lease. They are symbolic links: symlink(2) creates one atomically with its content, and fails if
the name exists. So an entry is never torn, an address never has two owners, and an fsync of the directory is enough.
The reference plugin host-local follows the first one, and finds in the third what it would have written itself.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import NamedTuple

from podwire.durable.locks import LockHeld, lock_file
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.values import Address, address
from podwire.protocols.cni.verbs import is_id, is_ifname

_CURSOR = "last_reserved_ip."
_KNOWN = "last_reserved_ip.known"
_LOCK = "lock"
_TEMPORARY = "lock.new"
_LONGEST_PATH = 1024


class Owner(NamedTuple):
    container_id: str
    ifname: str
    """Empty for files of old versions of the reference plugin."""

    @property
    def file(self) -> str:
        """Sorts behind all addresses: the reference plugin removes files in that order, and reads this one by them."""
        return f"~{self.container_id}@{self.ifname}"

    @property
    def entry(self) -> str:
        """Begins like no address."""
        return f"@{self.container_id}@{self.ifname}"

    def __str__(self) -> str:
        return f"{self.container_id} {self.ifname}".rstrip()

    def is_named_by(self, other: "Owner | None") -> bool:
        return other is not None and other in (self, Owner(self.container_id, ""))


class Lease(NamedTuple):
    """The content of an owner's entry."""

    addresses: tuple[Address, ...]
    boot: str = ""
    netns: str = ""
    """Boot and namespace are empty if they are unknown."""

    @property
    def text(self) -> str:
        origin = (self.boot, self.netns) if self.boot and len(self.netns) <= _LONGEST_PATH else ()
        return " ".join((",".join(map(str, self.addresses)), *origin))


def _lease(text: str) -> Lease | None:
    addresses, _, rest = text.partition(" ")
    boot, _, netns = rest.partition(" ")
    try:
        return Lease(tuple(address(text, "") for text in addresses.split(",")), boot, netns)
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
    """The directory. Every change needs the lock."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def names(self) -> list[str]:
        return os.listdir(self.directory)

    def owners(self) -> Iterator[Owner]:
        """Yields the owners that have an entry of their own."""
        for name in self.names():
            id_, _, ifname = name[1:].partition("@")
            if name[0] == "@" and (owner := _owner(id_, ifname)) is not None:
                yield owner

    def lease(self, owner: Owner) -> Lease | None:
        text = self._link(owner.entry)
        return None if text is None else _lease(text)

    def since(self, owner: Owner) -> float:
        """Returns the time at which the owner's entry was written."""
        return os.lstat(self.path(owner.entry)).st_mtime

    def put_lease(self, owner: Owner, lease: Lease) -> None:
        self._replace(owner.entry, lease.text)

    def drop_lease(self, owner: Owner) -> None:
        self.remove(owner.entry)

    def owner(self, name: str) -> Owner | None:
        """Returns the owner of an address; None if it has none, or if its entry is damaged."""
        link = self._link(name)
        if link is not None:
            id_, at, ifname = link[1:].partition("@")
            return _owner(id_, ifname) if at and link[0] in "~@" else None
        words = self._words(name)
        return _owner(*words, *("",) * (2 - len(words))) if 0 < len(words) <= 2 else None

    def is_free(self, name: str) -> bool:
        """An empty file is free: the reference plugin leaves one when it is killed, before it returns the address."""
        try:
            status = os.lstat(self.path(name))
        except FileNotFoundError:
            return True
        return status.st_size == 0 and stat.S_ISREG(status.st_mode)

    def not_free(self) -> set[str]:
        """Returns all names that are not a free address."""
        with os.scandir(self.directory) as entries:
            return {
                entry.name
                for entry in entries
                if not (entry.is_file(follow_symlinks=False) and entry.stat().st_size == 0)
            }

    def take(self, name: str, owner: Owner) -> None:
        try:
            os.symlink(owner.file, self.path(name))
        except FileExistsError:
            if not self.is_free(name):
                raise
            self.retake(name, owner)

    def retake(self, name: str, owner: Owner) -> None:
        """Replaces the entry of an address."""
        self._replace(name, owner.file)

    def remove(self, name: str) -> None:
        try:
            os.unlink(self.path(name))
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENAMETOOLONG):
                raise

    def has_mirror(self, owner: Owner) -> bool:
        try:
            return os.lstat(self.path(owner.file)).st_size > 0
        except OSError:  # it does not exist; or its name is too long, so that it cannot
            return False

    def put_mirror(self, owner: Owner) -> None:
        """Writes the file that the reference plugin reads. After a power failure the next inspection restores it."""
        self._write(owner.file, f"{owner.container_id}\r\n{owner.ifname}")

    def cursor(self, number: int) -> Address | None:
        try:
            return address(self._content(f"{_CURSOR}{number}")[0], "")
        except (OSError, CniError):
            return None

    def put_cursor(self, number: int, ip: Address) -> None:
        """Writes a regular file: the reference plugin would follow a symbolic link, and write to its target."""
        self._write(f"{_CURSOR}{number}", str(ip))

    def _write(self, name: str, content: str) -> None:
        """Writes in place without fsync: for files that do no harm when they are lost or torn."""
        path, flags = self.path(name), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        if os.path.islink(path):
            os.unlink(path)
        file = os.open(path, flags, 0o600)
        try:
            os.ftruncate(file, os.pwrite(file, content.encode(), 0))
        finally:
            os.close(file)

    def _content(self, name: str) -> tuple[str, int]:
        """Returns a file's text and its modification time."""
        file = os.open(self.path(name), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            return os.read(file, 4096).decode("ascii", "replace").strip(), os.fstat(file).st_mtime_ns
        finally:
            os.close(file)

    def _progress(self, boot: str) -> str:
        """Returns a text that changes with every boot, and whenever the reference plugin leases an address."""
        progress = boot
        with suppress(OSError):
            for number in count():
                text, when = self._content(f"{_CURSOR}{number}")
                progress += f" {text}@{when}"
        return progress

    def known(self, boot: str) -> str | None:
        """Returns the note of the last inspection; None if the reference plugin or a boot came after it."""
        try:
            noted, bar, note = self._content(_KNOWN)[0].partition("|")
        except OSError:
            return None
        return note if bar and noted == self._progress(boot) else None

    def put_known(self, boot: str, note: str) -> None:
        self._write(_KNOWN, f"{self._progress(boot)}|{note}")

    def path(self, name: str) -> str:
        return f"{self.directory}/{name}"

    def _link(self, name: str) -> str | None:
        try:
            return os.readlink(self.path(name))
        except OSError:
            return None

    def _words(self, name: str) -> list[str]:
        """Returns the words of a file of the reference plugin: a container id, and maybe an interface."""
        try:
            with open(self.path(name), encoding="utf-8", errors="replace") as file:
                return file.read(4096).split()
        except OSError:
            return []

    def _replace(self, name: str, content: str) -> None:
        """Replaces a link atomically. One temporary name is enough, because the caller has the lock."""
        temporary = self.path(_TEMPORARY)
        os.symlink(content, temporary)
        os.rename(temporary, self.path(name))

    @contextmanager
    def lock(self, seconds: float) -> Iterator[None]:
        try:
            lock = lock_file(self.path(_LOCK), wait=seconds, name="podwire ipam")
        except LockHeld as error:
            message = f"ipam: the lock of {self.directory} was not free within {seconds:g} s"
            raise CniError(Code.TRY_AGAIN_LATER, message, f"it is held by {error.holder}") from error
        with lock:
            self.remove(_TEMPORARY)  # left by a process that was killed while it had the lock
            yield
