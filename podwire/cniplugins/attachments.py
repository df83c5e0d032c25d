"""Records of attachments: what a plugin does for one interface, written before it is done.

A record is all that DEL needs besides the ids: no namespace, no `prevResult`, no configuration. Everything that belongs
to the attachment has an owner tag (`tags.py`). Without its record, which may be lost, damaged, or written by a newer
podwire, DEL, GC and a repeated ADD release an attachment by the tags (`lost_record`).

A record survives a killed process. It is not fsynced: what it names exists in the kernel, and a power failure removes
both. Leases do survive one, and are found by the ids alone.

On disk: DATA/PLUGIN/NETWORK@CONTAINER@IFNAME, a JSON object with `format`. ADD and CHECK refuse a record of a newer
format. DEL and GC end the attachment, so they release it by the tags, with a warning, and remove the record, as they
do with a damaged one.

Locking: one byte of DATA/.lock per attachment (`durable.locks.lock_byte`), chosen by the CRC of the record's path. The
same CRC names the temporary file of a write, so ADD and DEL remove the one that a killed process left without listing
the directory, which may have 60 000 records. That is why this is not a `durable.records.Records`, which in addition
would add 3 % to the imports of each plugin process, and keep damaged files, which a plugin has nobody to show to.
"""

import errno
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import NamedTuple
from zlib import crc32

from podwire.cniplugins import tags
from podwire.cniplugins.skeleton import Call, check_late, run_all
from podwire.durable.files import rename_over, why_unwritable
from podwire.durable.locks import FileLock, LockHeld, lock_byte
from podwire.ipam.deletions import Deletions
from podwire.linux import errors as linux
from podwire.linux.fs.trust import check_once
from podwire.linux.proc.namespaces import identity
from podwire.linux.proc.stopwatch import step
from podwire.protocols.cni import results
from podwire.protocols.cni.config import PluginConfig, Valid
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.values import Object, dumped, loaded_object, taken
from podwire.protocols.cni.versions import LATEST

DATA = "/var/lib/podwire/cni/attachments"
FORMAT = 1
_TEMPORARY = re.compile(r"\.[0-9a-f]{8}")


_LOST = "0" * 16
"""In place of the random digits of a token."""


class Damaged(ValueError):
    """A file is not a record."""


class NewerFormat(OSError):
    """A record was written by a newer podwire."""


class Record(NamedTuple):
    network: str
    container_id: str
    ifname: str
    token: str
    inode: int = 0
    """Inode of the pod's network namespace; 0 if the plugin does not use it."""
    link: str = ""
    """Name of the link on the host."""
    config: Object = {}  # noqa: RUF012 - never changed
    """The configuration of ADD, without `prevResult`."""
    result: Object | None = None
    """The result of ADD; None until ADD is complete."""
    netns: str = ""
    """Path of the pod's network namespace at ADD."""
    before: Object = {}  # noqa: RUF012 - never changed
    """State to restore: of the link (host-device, bandwidth), or of sysctls and attributes (tuning)."""

    @property
    def alias(self) -> str:
        """The owner tag of a link."""
        owner = f"{tags.shown_id(self.network)}/{tags.shown_id(self.container_id)}/{self.ifname}"
        return f"{tags.PREFIX}{self.token} {owner}"

    @property
    def comment(self) -> str:
        """The owner tag of an nft element."""
        return f"{self.token} {tags.shown_id(self.container_id)} {self.ifname}"

    @property
    def owner(self) -> tags.Owner:
        return self.token[len(_LOST) :], tags.shown_id(self.container_id), self.ifname

    @property
    def is_lost(self) -> bool:
        """Whether the tags are all that is known of the attachment."""
        return self.token.startswith(_LOST)

    def link_name(self, prefix: str) -> str:
        """Returns the name of the attachment's link on the host."""
        return tags.link_name(prefix, self.token[len(_LOST) :], self.container_id, self.ifname)

    def owns(self, tag: str) -> bool:
        """Whether an alias or a comment is of this attachment; its token may be of an earlier record that was lost."""
        token = tag.removeprefix(tags.PREFIX).partition(" ")[0]
        if token == self.token or token[len(_LOST) :] != self.token[len(_LOST) :]:
            return token == self.token
        parsed = tags.parse(tag)
        return parsed is not None and parsed.owner == self.owner


def lost_record(call: Call) -> Record:
    """Returns what is known of an attachment without its record: the ids, the request, the owner tags."""
    netns, inode, result = call.invocation.netns, 0, None
    with suppress(CniError):  # DEL must not fail for a prevResult that is broken
        previous = call.config.previous()
        if previous is not None:
            result = results.encode(previous, LATEST)
            netns = netns or next((link.sandbox for link in previous.interfaces if link.sandbox), "")
    with suppress(linux.LinuxError):
        inode = identity(netns) if netns else 0
    return new_record(call, inode)._replace(token=_LOST + token_suffix(call.config), result=result, netns=netns)


_OF_CALL = ("prevResult", "cni.dev/valid-attachments", "cni.dev/attachments")
"""Keys of a configuration that are of one call."""
_TYPES = (str, str, str, str, int, str, dict, dict | None, str, dict)
"""Of the fields of a record."""


def new_record(call: Call, inode: int = 0, link: str = "") -> Record:
    request = call.invocation
    config = {key: value for key, value in call.config.raw.items() if key not in _OF_CALL}
    token = os.urandom(8).hex() + token_suffix(call.config)
    return Record(
        call.config.name, request.container_id, request.ifname, token, inode, link, config, netns=request.netns
    )


def token_suffix(config: PluginConfig) -> str:
    """Returns the end of all tokens of a network with records in one directory: GC of another one ignores them."""
    return tags.network_digits(data_directory(config), config.name)


def data_directory(config: PluginConfig) -> str:
    return taken(config.raw, "dataDir", str, "") or DATA


def as_del(record: Record, call: Call) -> Call:
    """Returns the DEL of what a record names, as if its runtime had sent it: with the configuration of its ADD."""
    request = call.invocation._replace(
        command="DEL", container_id=record.container_id, ifname=record.ifname, netns=record.netns
    )
    return call._replace(invocation=request, config=call.config._replace(raw=record.config))


class Attachments:
    """The records of one plugin and one network."""

    def __init__(self, config: PluginConfig, plugin: str) -> None:
        self._data = data_directory(config)
        self._directory = os.path.join(self._data, plugin)
        self._network = config.name
        self._lock_path = os.path.join(self._data, ".lock")
        self._deletions = Deletions(os.path.join(self._data, ".deletions"))

    @contextmanager
    def lock(self, call: Call) -> Iterator[None]:
        """Serialises the calls for one attachment: a runtime may send DEL while an ADD that it gave up still runs.

        Raises code 11 ("try again later") after `limits.lock`, before the runtime itself gives up.
        """
        check_once(self._data)
        os.makedirs(self._data, mode=0o700, exist_ok=True)
        path = self._path(call.config.name, call.invocation.container_id, call.invocation.ifname)
        seconds = call.limits.lock
        try:
            lock = self._lock(path, seconds)
        except LockHeld as error:
            message = f"another call for the same interface takes more than {seconds:g} s"
            raise CniError(Code.TRY_AGAIN_LATER, message) from error
        with lock:
            if call.invocation.command == "ADD":
                check_late(call, partial(self._deletions.is_noted, path))
            _remove(self._temporary(path))
            yield

    def _lock(self, path: str, wait: float = 0.0) -> FileLock:
        """Locks the byte of a record's path. Raises LockHeld."""
        return lock_byte(self._lock_path, crc32(path.encode()), wait=wait)

    def collect(self, call: Call, valid: Valid, release: Callable[[Record], None], dead: set[tuple[str, str]]) -> None:
        """Releases every record of this network that is not of a valid attachment; goes on after a failure.

        A record that is locked, or was written after the list was read, is skipped: it is of an ADD that the runtime's
        list does not have yet. The others are added to `dead`, also those that cannot be released.
        """
        stale = [self._path(self._network, *owner) for owner in self.owners() - valid]
        versions = {path: _version(path) for path in stale}
        run_all(
            *(partial(self._collect, call, path, version, release, dead) for path, version in versions.items()),
            self._collect_temporary,
        )

    def owners(self) -> Valid:
        """Returns container ids and interfaces of this network that have a record."""
        names = [name.split("@", 2) for name in _listed(self._directory) if name.startswith(f"{self._network}@")]
        return frozenset((container_id, ifname) for _, container_id, ifname in names)

    def _collect(
        self,
        call: Call,
        path: str,
        version: tuple[int, int],
        release: Callable[[Record], None],
        dead: set[tuple[str, str]],
    ) -> None:
        with suppress(LockHeld), self._lock(path):
            if _version(path) == version:
                _, container_id, ifname = os.path.basename(path).split("@", 2)
                dead.add((container_id, ifname))
                request = call.invocation._replace(container_id=container_id, ifname=ifname)
                record = self.find(call._replace(invocation=request))
                if record is not None:
                    release(record)

    def _collect_temporary(self) -> None:
        """Removes temporary files of writers that were killed, of any network."""
        for name in _listed(self._directory):
            if _TEMPORARY.fullmatch(name):
                with suppress(LockHeld), lock_byte(self._lock_path, int(name[1:], 16)):
                    _remove(f"{self._directory}/{name}")

    def _temporary(self, path: str) -> str:
        """Returns the path that a record is written to first. Its name is the lock's byte, so GC can lock it, too."""
        return f"{self._directory}/.{crc32(path.encode()):08x}"

    def _path(self, network: str, container_id: str, ifname: str) -> str:
        return f"{self._directory}/{network}@{container_id}@{ifname}"

    def write(self, record: Record) -> None:
        os.makedirs(self._directory, mode=0o700, exist_ok=True)
        path = self._path(record.network, record.container_id, record.ifname)
        temporary = self._temporary(path)
        with step("record"), open(temporary, "wb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(dumped({"format": FORMAT, **record._asdict()}))
        rename_over(temporary, path)

    def read(self, call: Call) -> Record | None:
        """Returns None without a record. Raises NewerFormat, and Damaged."""
        return _read(self._path(call.config.name, call.invocation.container_id, call.invocation.ifname))

    def find(self, call: Call) -> Record | None:
        """Returns None without a record; for one that cannot be used, what is known without it, with a warning.

        The caller releases that, and removes the file after it has succeeded.
        """
        try:
            return self.read(call)
        except (Damaged, NewerFormat) as error:
            call.warn(f"podwire cni: released by owner tags, without the attachment record {error}")
            return lost_record(call)

    def note_deletion(self, call: Call) -> None:
        """Lets an ADD of the same attachment fail that was started before; called under the lock."""
        self._deletions.note(self._path(call.config.name, call.invocation.container_id, call.invocation.ifname))

    def remove(self, record: Record) -> None:
        _remove(self._path(record.network, record.container_id, record.ifname))

    def check_writable(self) -> None:
        """Raises CniError if records cannot be written. Changes nothing."""
        if reason := why_unwritable(self._directory):
            raise CniError(Code.UNAVAILABLE, f"dataDir: {reason}")

    def any_attached(self) -> bool:
        return any(record.network == self._network and record.result is not None for record in self.all())

    def all(self) -> Iterator[Record]:
        """Yields every valid record of the plugin."""
        return records(self._directory)

    def tokens(self) -> set[str]:
        """Returns the tokens of all plugins with records in the same data directory."""
        return {record.token for record in self._of_all_plugins()}

    def attached(self) -> set[tags.Owner]:
        """Returns the owners of the records of all plugins in the same data directory."""
        return {record.owner for record in self._of_all_plugins()}

    def _of_all_plugins(self) -> Iterator[Record]:
        for plugin in _listed(self._data):
            yield from records(f"{self._data}/{plugin}")


@contextmanager
def status_errors(attachments: Attachments) -> Iterator[None]:
    """STATUS: an error in the block is code 51 if pods are attached, which then have limited connectivity; else 50."""
    try:
        yield
    except (CniError, linux.LinuxError, OSError) as error:
        code = Code.LIMITED if attachments.any_attached() else Code.UNAVAILABLE
        raise CniError(code, str(error)) from error


def records(directory: str) -> Iterator[Record]:
    """Yields every valid record in a plugin's directory."""
    for name in _listed(directory):
        record = None if name.startswith(".") else _read_if_valid(f"{directory}/{name}")
        if record is not None:
            yield record


def _listed(directory: str) -> list[str]:
    return os.listdir(directory) if os.path.isdir(directory) else []


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except IsADirectoryError:
        os.rmdir(path)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENAMETOOLONG):
            raise


def _version(path: str) -> tuple[int, int]:
    """Returns inode and modification time, which change whenever a record is written."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return 0, 0
    return status.st_ino, status.st_mtime_ns


def _read_if_valid(path: str) -> Record | None:
    try:
        return _read(path)
    except (Damaged, NewerFormat):
        return None


def _read(path: str) -> Record | None:
    """Raises NewerFormat, and Damaged for what is not a record."""
    try:
        with step("record"), open(path, "rb") as file:
            raw = loaded_object(file.read(), path)
        written = raw.get("format", FORMAT)
        if isinstance(written, int) and written > FORMAT:
            supported = f"this one supports up to {FORMAT}"
            raise NewerFormat(f"{path}: written by a newer podwire (format {written}; {supported})")
        record = Record(**{key: value for key, value in raw.items() if key in Record._fields})
    except (CniError, TypeError) as error:
        raise Damaged(f"{path}: {error}") from error
    except IsADirectoryError as error:
        raise Damaged(f"{path}: a directory") from error
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENAMETOOLONG):
            return None
        raise
    if not all(map(isinstance, record, _TYPES)) or len(record.token) <= len(_LOST):
        raise Damaged(f"{path}: a field has a wrong type")
    return record
