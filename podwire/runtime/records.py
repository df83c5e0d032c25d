"""The records of sandboxes and containers: written before the thing exists, so that a restart knows what may be left.

Each record is an append log, `DIRECTORY/ID/record.json`; other files of a sandbox or container are in the same
directory. Nothing is fsynced by `put`: namespaces, cgroups and processes end with the machine, and a writable layer
without a record is swept. Only what must be released elsewhere (CNI) needs a record that survives a power loss;
RunPodSandbox fsyncs it before it calls CNI.

A lost record (damaged, empty, missing) costs its pod and no other: what the pod was asked to be is not known any more,
so the next start removes it by what the kernel, the bundles and CNI's cache have of it, and the kubelet makes another.
A running runtime writes the record again with its next change. A damaged file is kept in `runtime/damaged/` and logged
once, and the condition RecordsIntact of the runtime's status says so until the next start.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec
from google.protobuf.message import DecodeError, Message

from podwire.durable import append_log
from podwire.durable.codecs import json_codec
from podwire.durable.layout import QUARANTINED, Layout
from podwire.durable.records import NewerFormat, Problem, Records
from podwire.linux.cgroups.values import Limits
from podwire.protocols.cri import cri_pb2 as pb

_log = logging.getLogger("podwire.runtime.records")

FORMAT = 2
"""1 had no envelope and no checksum."""
FILE = "record.json"
MOST_KEPT = 100
"""Damaged files that are kept."""
MOST_NAMED = 10
"""Lost records that the status of the runtime names."""


class SandboxRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A pod's sandbox. State: `making` until RunPodSandbox succeeds, then `ready`, then `stopped`."""

    id: str
    state: str
    config: bytes
    """The PodSandboxConfig, serialized."""
    created_at: int
    boot_id: str
    handler: str = ""
    network: str = ""
    """The path of its network namespace; empty for the node's own."""
    ipc: str = ""
    user: str = ""
    """The path of its user namespace; empty for the node's own."""
    addresses: tuple[str, ...] = ()
    attached: bool = False
    """CNI ADD may have been called, so that DEL is needed."""
    hooked: str = ""
    """The last NRI event: `run`, `stopped`; empty when none was sent."""


class ContainerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A container. State: `created`, `running`, `exited`."""

    id: str
    sandbox_id: str
    state: str
    config: bytes
    """The ContainerConfig, serialized, without its secrets: only the OCI specification has these."""
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
    """The last NRI event: `created`, `stopped`; empty when none was sent."""
    limits: Limits | None = None
    """Its resource limits; None means those of its configuration."""
    links: dict[str, str] = {}
    """Links of the host that move into its network namespace when it starts, and their names there."""
    fingerprint: str = ""
    """Of the whole ContainerConfig, to recognize a repeated CreateContainer; empty in records of earlier versions."""


Record = TypeVar("Record", SandboxRecord, ContainerRecord)

_MESSAGES: dict[type[msgspec.Struct], type[Message]] = {
    SandboxRecord: pb.PodSandboxConfig,
    ContainerRecord: pb.ContainerConfig,
}


@dataclass(slots=True)
class LostRecords:
    """The records that were lost since the start, for the status of the runtime."""

    count: int = 0
    named: list[str] = field(default_factory=list)

    def add(self, kind: str, id_: str, error: str) -> None:
        self.count += 1
        if len(self.named) < MOST_NAMED:
            self.named.append(f"{kind} {id_}: {error}")

    def message(self) -> str:
        """Says which; empty when none was lost."""
        more = [f"and {self.count - len(self.named)} more"] if self.count > len(self.named) else []
        return "; ".join([*self.named, *more])


def open_records(directory: Path, kind: type[Record], lost: LostRecords | None = None) -> Records[Record]:
    """Returns the records of one kind, each in `DIRECTORY/ID/`. Damaged ones are added to `lost`."""

    def report(problem: Problem) -> None:
        fields = {"key": problem.key, "path": problem.path, "error": problem.error}
        _log.error("cannot use record of the runtime", extra=fields)
        if lost is not None:
            lost.add(kind.__name__.removesuffix("Record").lower(), problem.key, problem.error)

    def check(key: str, record: Record) -> None:
        if record.id != key:
            raise ValueError(f"it is the record of {record.id!r}")
        try:
            _MESSAGES[kind].FromString(record.config)
        except DecodeError as error:
            raise ValueError(f"config is not a {_MESSAGES[kind].DESCRIPTOR.name}: {error}") from error

    return Records(
        directory,
        json_codec(kind),
        format=FORMAT,
        migrate=_migration(kind),
        layout=Layout(file=FILE),
        append=True,
        check=check,
        report=report,
        discard_empty=True,
    )


def record_directory(records: Records[Record], id_: str) -> Path:
    """Returns the directory of one record, which holds the other files of its sandbox or container, too."""
    return Path(records.path(id_)).parent


def keep_damaged(records: Records[Record], id_: str) -> None:
    """Moves the damaged files of a sandbox or container, of which nothing else is left, out of its directory."""
    directory = record_directory(records, id_)
    aside = directory.parent.parent / "damaged"
    for path in directory.glob(f"{FILE}{QUARANTINED}*"):
        try:
            aside.mkdir(mode=0o700, exist_ok=True)
            if len(list(aside.iterdir())) < MOST_KEPT:
                path.rename(aside / f"{directory.parent.name}-{id_}-{path.name}")
            else:
                path.unlink()
        except OSError as error:
            _log.error("cannot keep damaged record", extra={"path": str(path), "error": str(error)})


def _migration(kind: type[Record]) -> Callable[[int, bytes], Record]:
    """Reads format 1: an append log of plain JSON with a field `format`."""
    decoder = msgspec.json.Decoder(kind)

    class Envelope(msgspec.Struct):
        format: int = 1

    def decode(line: bytes) -> Record:
        if (format_ := msgspec.json.decode(line, type=Envelope).format) > 1:
            raise NewerFormat(format_)
        return decoder.decode(line)

    def migrate(_format: int, data: bytes) -> Record:
        try:
            return append_log.newest(data, decode, msgspec.MsgspecError)
        except msgspec.MsgspecError as error:
            raise ValueError(str(error)) from error

    return migrate
