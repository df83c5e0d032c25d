"""What the runtime must not forget: one record per sandbox and per container, written before the thing exists.

A record is a small file in a directory of its own: a line of JSON, and one more for each time that it changes. One that
cannot be read harms only itself: it is set aside, named in the log, and what it stood for is left to the sweep.
"""

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Generic, TypeVar

import msgspec
from google.protobuf.message import DecodeError

from podwire.durable import append_log
from podwire.linux.values import Limits
from podwire.protocols.cri import cri_pb2 as pb

_log = logging.getLogger("podwire.runtime.records")

FORMAT = 1
FILE = "record.json"


class SandboxRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A pod's sandbox. `making` until its network stands, `ready`, then `stopped`."""

    id: str
    state: str
    config: bytes
    """The PodSandboxConfig as it came."""
    created_at: int
    boot_id: str
    handler: str = ""
    network: str = ""
    """Where its network namespace is pinned; empty for the node's own."""
    ipc: str = ""
    addresses: tuple[str, ...] = ()
    attached: bool = False
    """Whether CNI was asked for an attachment, so that it must be asked to give it back."""
    hooked: str = ""
    """What plugins were told: `run`, `stopped`; empty when nothing."""
    format: int = FORMAT


class ContainerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A container: `created`, `running`, `exited`."""

    id: str
    sandbox_id: str
    state: str
    config: bytes
    """The ContainerConfig as it came."""
    image_id: str
    image_ref: str
    created_at: int
    started_at: int = 0
    finished_at: int = 0
    pid: int = 0
    pid_started: int = 0
    """The start time of the process, so that a reused pid is never taken for it."""
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    log_path: str = ""
    uid: int = 0
    gid: int = 0
    groups: tuple[int, ...] = ()
    hooked: str = ""
    """What plugins were told: `created`, `stopped`; empty when nothing."""
    limits: Limits | None = None
    """What it may use; None is what its configuration says."""
    links: dict[str, str] = {}
    """Links of the host that move into its network namespace when it starts, and what they are called there."""
    format: int = FORMAT


class NewerRecord(Exception):
    """State of a later podwire: this one cannot know what it would break, so it does not touch it."""

    def __init__(self, path: Path, format_: int) -> None:
        super().__init__(f"{path} has format {format_}, written by a later podwire; this one knows up to {FORMAT}")


Record = TypeVar("Record", SandboxRecord, ContainerRecord)


class Records(Generic[Record]):
    """All records of one kind, each in `DIRECTORY/ID/`."""

    def __init__(self, directory: Path, kind: type[Record]) -> None:
        self._directory = directory
        self._decoder: msgspec.json.Decoder[Record] = msgspec.json.Decoder(kind)

    def home(self, id_: str) -> Path:
        """The directory that belongs to one record; whatever else is kept for it lies there too."""
        return self._directory / id_

    def write(self, record: Record) -> None:
        """It outlives this process; when a first one cannot be written, nothing is left."""
        home = self.home(record.id)
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            append_log.put(home / FILE, msgspec.json.encode(record), durably=False)
        except BaseException:
            if not (home / FILE).exists():
                shutil.rmtree(home, ignore_errors=True)
            raise

    def settle(self, id_: str) -> None:
        """It outlives a loss of power from now on. Only what must be given back to others needs that: namespaces,
        cgroups and processes end with the machine, and a writable layer without a record is swept."""
        append_log.fsync(self.home(id_) / FILE)

    def remove(self, id_: str) -> None:
        """Forget one, with its directory; the record itself goes first, so that a crash leaves only litter."""
        home = self.home(id_)
        (home / FILE).unlink(missing_ok=True)
        shutil.rmtree(home, ignore_errors=True)

    def load(self) -> Iterator[Record]:
        """Every record that can be read; litter is removed: without one, or with one that a loss of power has emptied.
        Raises NewerRecord."""
        for id_ in sorted(each.name for each in self._directory.iterdir()) if self._directory.exists() else ():
            try:
                data = (self.home(id_) / FILE).read_bytes()
                record = append_log.newest(data, self._decoder.decode, msgspec.MsgspecError) if data else None
            except FileNotFoundError:
                record = None
            except (OSError, msgspec.MsgspecError) as error:
                self._set_aside(id_, str(error))
                continue
            if record is None:
                shutil.rmtree(self.home(id_), ignore_errors=True)
                continue
            if record.format > FORMAT:
                raise NewerRecord(self.home(id_) / FILE, record.format)
            if record.id != id_:
                self._set_aside(id_, f"it is the record of {record.id!r}")
            elif not _is_message(record):
                self._set_aside(id_, "its configuration is no message of CRI")
            else:
                yield record

    def _set_aside(self, id_: str, reason: str) -> None:
        _log.error("a record cannot be read", extra={"record": str(self.home(id_)), "reason": reason})


def _is_message(record: SandboxRecord | ContainerRecord) -> bool:
    kind = pb.PodSandboxConfig if isinstance(record, SandboxRecord) else pb.ContainerConfig
    try:
        kind.FromString(record.config)
    except DecodeError:
        return False
    return True
