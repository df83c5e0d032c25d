"""What a plugin has done for an interface, written down before it does it.

A record is all that DEL needs besides the ids: no namespace, no `prevResult`, no configuration. Its token marks
everything that belongs to the attachment, in the kernel's own tables, so that nobody's things are taken for another's.

A record survives a killed process. It is not synced to disk: what it names is in the kernel, and a loss of power takes
that away, too. Leases do survive one, and are found by the ids alone.
"""

import fcntl
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from struct import Struct
from time import monotonic, sleep
from typing import NamedTuple
from zlib import crc32

from podwire.cniplugins.skeleton import Call, all_of
from podwire.durable.files import rename_over, why_unwritable
from podwire.linux import errors as linux
from podwire.linux.proc.stopwatch import step
from podwire.protocols.cni.config import PluginConfig, Valid
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.values import Object, dumped, loaded_object, taken

DATA = "/var/lib/podwire/cni/attachments"
FORMAT = 1
MARK = "podwire:"
"""How the aliases of our links begin."""
LONGEST_ALIAS = 255
PATIENCE = 40.0
"""Seconds to wait for one's turn: less than runtimes wait for a plugin, and than our programs wait for the daemon."""
_SHORTEST, _LONGEST = 0.001, 0.02
_LOCK = ".lock"
_UNFINISHED = re.compile(r"\.[0-9a-f]{8}")
_RANGE = Struct("@hhqqi0q")  # struct flock: kind, whence, start, length, pid


class Record(NamedTuple):
    network: str
    container_id: str
    ifname: str
    token: str
    inode: int = 0
    """The identity of the pod's namespace."""
    link: str = ""
    """The name of the host's end."""
    config: Object = {}  # noqa: RUF012 - never changed
    """As ADD got it."""
    result: Object | None = None
    """As ADD printed it; None until it has."""
    netns: str = ""
    """Where the pod's namespace was pinned."""
    before: Object = {}  # noqa: RUF012 - never changed
    """How a device was that goes back to the host."""

    @property
    def alias(self) -> str:
        """How a link is marked."""
        told = f"{MARK}{self.token} {self.network}/{self.container_id}/{self.ifname}"
        return told[:LONGEST_ALIAS]

    @property
    def comment(self) -> str:
        """How an nft element is marked."""
        return f"{self.token} {self.container_id[:64]} {self.ifname}"

    def marks(self, text: str) -> bool:
        """Whether an alias or a comment is of this attachment."""
        return text.removeprefix(MARK).partition(" ")[0] == self.token


def new_record(call: Call, inode: int = 0, link: str = "") -> Record:
    asked = call.invocation
    config = {key: value for key, value in call.config.raw.items() if key != "prevResult"}
    token = os.urandom(8).hex() + household(call.config)
    return Record(call.config.name, asked.container_id, asked.ifname, token, inode, link, config, netns=asked.netns)


def household(config: PluginConfig) -> str:
    """How all tokens of a network end whose records are in the same place."""
    return f"{crc32(f'{data_directory(config)} {config.name}'.encode()):08x}"


def data_directory(config: PluginConfig) -> str:
    return taken(config.raw, "dataDir", str, "") or DATA


def as_del(record: Record, call: Call) -> Call:
    """The DEL of what a record names, as if its runtime asked for it: with the configuration of its ADD."""
    asked = call.invocation._replace(
        command="DEL", container_id=record.container_id, ifname=record.ifname, netns=record.netns
    )
    return call._replace(invocation=asked, config=call.config._replace(raw=record.config))


class Attachments:
    """The records of one plugin."""

    def __init__(self, config: PluginConfig, plugin: str) -> None:
        self._data = data_directory(config)
        self._directory = os.path.join(self._data, plugin)
        self._network = config.name

    @contextmanager
    def turn(self, call: Call) -> Iterator[None]:
        """One after the other per attachment: DEL may come while the ADD that its runtime gave up goes on elsewhere.

        Code 11 when that takes too long, so that nobody waits longer than the one who asks.
        """
        os.makedirs(self._data, mode=0o700, exist_ok=True)
        path = self._path(call.config.name, call.invocation.container_id, call.invocation.ifname)
        with self._locked(crc32(path.encode()), PATIENCE):
            if call.invocation.command == "ADD" and call.gone():
                raise CniError(Code.TRY_AGAIN_LATER, "whoever asked has gone")  # its DEL may have had its turn already
            _remove(self._unfinished(path))
            yield

    @contextmanager
    def _locked(self, byte: int, patience: float = 0.0) -> Iterator[None]:
        """A byte of one file, which one follows from a record's path; the kernel unlocks it for whoever dies.

        Without patience, BlockingIOError when somebody has it.
        """
        file = os.open(os.path.join(self._data, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            _lock(file, byte, patience)
            yield
        finally:
            os.close(file)

    def collect(self, valid: Valid, release: Callable[[Record], None], dead: set[tuple[str, str]]) -> None:
        """Release every record of this network that is of nobody valid, whatever becomes of the others.

        One that somebody is at, or has written since, is left alone: an ADD that the list could not know. Others are
        added to `dead`, also those that cannot be released.
        """
        seen = {each: _state(each) for each in self._stale(valid)}
        all_of(
            *(partial(self._collect, path, state, release, dead) for path, state in seen.items()),
            self._collect_unfinished,
        )

    def owners(self) -> Valid:
        """Ids and interfaces of this network that there is a record of."""
        names = os.listdir(self._directory) if os.path.isdir(self._directory) else []
        parts = [each.split("@", 2) for each in names if each.startswith(f"{self._network}@")]
        return frozenset((each[1], each[2]) for each in parts)

    def _stale(self, valid: Valid) -> list[str]:
        return [self._path(self._network, *each) for each in self.owners() - valid]

    def _collect(
        self, path: str, state: tuple[int, int], release: Callable[[Record], None], dead: set[tuple[str, str]]
    ) -> None:
        with suppress(BlockingIOError), self._locked(crc32(path.encode())):
            if _state(path) == state:
                _, id_, ifname = os.path.basename(path).split("@", 2)
                dead.add((id_, ifname))
                record = _whole(path)
                os.unlink(path) if record is None else release(record)

    def _collect_unfinished(self) -> None:
        """What those who died while they wrote have left, whatever network it was for."""
        for each in os.listdir(self._directory) if os.path.isdir(self._directory) else ():
            if _UNFINISHED.fullmatch(each):
                with suppress(BlockingIOError), self._locked(int(each[1:], 16)):
                    _remove(f"{self._directory}/{each}")

    def _unfinished(self, path: str) -> str:
        """Where a record is while it is written; whoever writes there holds its lock, which follows from the name."""
        return f"{self._directory}/.{crc32(path.encode()):08x}"

    def _path(self, network: str, container_id: str, ifname: str) -> str:
        return f"{self._directory}/{network}@{container_id}@{ifname}"

    def write(self, record: Record) -> None:
        os.makedirs(self._directory, mode=0o700, exist_ok=True)
        path = self._path(record.network, record.container_id, record.ifname)
        unfinished = self._unfinished(path)
        with step("record"), open(unfinished, "wb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(dumped({"format": FORMAT, **record._asdict()}))
        rename_over(unfinished, path)

    def read(self, call: Call) -> Record | None:
        """None when there is none, also when a loss of power left half of one."""
        path = self._path(call.config.name, call.invocation.container_id, call.invocation.ifname)
        try:
            return _read(path)
        except (CniError, TypeError) as error:
            call.tell(f"{path} cannot be read and is removed: {error}")
            os.unlink(path)
            return None

    def remove(self, record: Record) -> None:
        _remove(self._path(record.network, record.container_id, record.ifname))

    def check_writable(self) -> None:
        """Whether records could be written. Changes nothing."""
        place = why_unwritable(self._directory)
        if place:
            raise CniError(Code.UNAVAILABLE, f"dataDir: {place}")

    def any_attached(self) -> bool:
        return any(each.network == self._network and each.result is not None for each in self.all())

    def peek(self, call: Call) -> Record | None:
        """The same, and whatever cannot be read stays."""
        return _whole(self._path(call.config.name, call.invocation.container_id, call.invocation.ifname))

    def all(self) -> Iterator[Record]:
        """Every record of the plugin that can be read."""
        return records(self._directory)

    def tokens(self) -> set[str]:
        """Those of all plugins with records in the same place."""
        folders = os.listdir(self._data) if os.path.isdir(self._data) else []
        return {record.token for each in folders for record in records(f"{self._data}/{each}")}


@contextmanager
def suffered(attachments: Attachments) -> Iterator[None]:
    """STATUS: whatever is wrong in the block keeps pods from being attached; those that are suffer from it, too."""
    try:
        yield
    except (CniError, linux.LinuxError, OSError) as error:
        code = Code.LIMITED if attachments.any_attached() else Code.UNAVAILABLE
        raise CniError(code, str(error)) from error


def records(directory: str) -> Iterator[Record]:
    """Every record in a plugin's folder that can be read."""
    for each in os.listdir(directory) if os.path.isdir(directory) else ():
        record = None if each.startswith(".") else _whole(f"{directory}/{each}")
        if record is not None:
            yield record


def _lock(file: int, byte: int, patience: float) -> None:
    until, pause = monotonic() + patience, _SHORTEST
    while True:
        try:
            fcntl.fcntl(file, fcntl.F_OFD_SETLK, _RANGE.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0))
        except BlockingIOError:
            if not patience:
                raise
        else:
            return
        if monotonic() > until:
            raise CniError(Code.TRY_AGAIN_LATER, f"another call for the same interface takes more than {patience:g} s")
        sleep(pause)
        pause = min(2 * pause, _LONGEST)


def _remove(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


def _state(path: str) -> tuple[int, int]:
    """Changes whenever a record is written."""
    try:
        told = os.stat(path)
    except FileNotFoundError:
        return 0, 0
    return told.st_ino, told.st_mtime_ns


def _whole(path: str) -> Record | None:
    try:
        return _read(path)
    except (CniError, TypeError):
        return None


def _read(path: str) -> Record | None:
    try:
        with step("record"), open(path, "rb") as file:
            told = loaded_object(file.read(), path)
    except FileNotFoundError:
        return None
    return Record(**{key: value for key, value in told.items() if key in Record._fields})
