"""What a plugin has done for an interface, written down before it does it.

A record is all that DEL needs besides the ids: no namespace, no `prevResult`, no configuration. Its token marks
everything that belongs to the attachment, in the kernel's own tables, so that nobody's things are taken for another's.

A record survives a killed process. It is not synced to disk: what it names is in the kernel, and a loss of power takes
that away, too. Leases do survive one, and are found by the ids alone.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from podwire.cniplugins.skeleton import Call
from podwire.protocols.cni.config import PluginConfig
from podwire.protocols.cni.errors import CniError
from podwire.protocols.cni.values import Object, dumped, loaded_object, taken

DATA = "/var/lib/podwire/cni/attachments"
FORMAT = 1
_LONGEST_ALIAS = 255
_LOCK = ".lock"
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
        told = f"podwire:{self.token} {self.network}/{self.container_id}/{self.ifname}"
        return told[:_LONGEST_ALIAS]

    @property
    def comment(self) -> str:
        """How an nft element is marked."""
        return f"{self.token} {self.container_id[:64]} {self.ifname}"

    def marks(self, text: str) -> bool:
        """Whether an alias or a comment is of this attachment."""
        return text.removeprefix("podwire:").partition(" ")[0] == self.token


def new_record(call: Call, inode: int = 0, link: str = "") -> Record:
    asked = call.invocation
    config = {key: value for key, value in call.config.raw.items() if key != "prevResult"}
    token = os.urandom(8).hex()
    return Record(call.config.name, asked.container_id, asked.ifname, token, inode, link, config, netns=asked.netns)


class Attachments:
    """The records of one plugin."""

    def __init__(self, config: PluginConfig, plugin: str) -> None:
        self._data = taken(config.raw, "dataDir", str, "") or DATA
        self._directory = os.path.join(self._data, plugin)

    @contextmanager
    def turn(self, call: Call) -> Iterator[None]:
        """One after the other per attachment: DEL may come while the ADD that its runtime gave up goes on elsewhere.

        A byte of one file is locked, which one follows from the ids; the kernel unlocks it for whoever dies.
        """
        os.makedirs(self._data, mode=0o700, exist_ok=True)
        path = self._path(call.config.name, call.invocation.container_id, call.invocation.ifname)
        file = os.open(os.path.join(self._data, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.fcntl(file, fcntl.F_OFD_SETLKW, _RANGE.pack(fcntl.F_WRLCK, os.SEEK_SET, crc32(path.encode()), 1, 0))
            yield
        finally:
            os.close(file)

    def _path(self, network: str, container_id: str, ifname: str) -> str:
        return f"{self._directory}/{network}@{container_id}@{ifname}"

    def write(self, record: Record) -> None:
        os.makedirs(self._directory, mode=0o700, exist_ok=True)
        temporary = f"{self._directory}/.{record.token}"
        with open(temporary, "wb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(dumped({"format": FORMAT, **record._asdict()}))
        os.rename(temporary, self._path(record.network, record.container_id, record.ifname))

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
        with suppress(FileNotFoundError):
            os.unlink(self._path(record.network, record.container_id, record.ifname))

    def all(self) -> Iterator[Record]:
        """Every record that can be read."""
        for each in os.listdir(self._directory) if os.path.isdir(self._directory) else ():
            try:
                record = None if each.startswith(".") else _read(f"{self._directory}/{each}")
            except (CniError, TypeError):
                continue
            if record is not None:
                yield record


def _read(path: str) -> Record | None:
    try:
        with open(path, "rb") as file:
            told = loaded_object(file.read(), path)
    except FileNotFoundError:
        return None
    return Record(**{key: value for key, value in told.items() if key in Record._fields})
