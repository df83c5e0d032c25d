"""Records of a pool's devices: each link as it was before a pod had it.

A device has its record before the kubelet learns of it, so that no pod can have a device that cannot be restored.

| record  | kubelet (pod-resources) | link           | meaning                                                        |
|---------|-------------------------|----------------|----------------------------------------------------------------|
| free    | free                    | on the host    | the record follows what an administrator changes on the host   |
| free    | allocated               | on the host    | CNI has not moved it yet; from now on the record is kept       |
| out     | allocated               | in a pod       | the pod has it                                                 |
| out     | any                     | back on host   | restored at once, before another pod can get it                |
| out     | free                    | elsewhere      | left where it is: a kubelet that just started knows no pods yet |
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote
from zlib import crc32

from podwire.durable.files import Durability
from podwire.durable.layout import QUARANTINED
from podwire.durable.records import Codec, Records
from podwire.linux.net import borrow
from podwire.linux.net.borrow import LinkSnapshot

FORMAT = 2
"""1 was `{"device": {…}, "checksum": N}`, without an envelope."""


class Record(NamedTuple):
    snapshot: LinkSnapshot
    out: bool = False
    """Whether a pod has it, or had it and it was not restored yet."""


class PoolRecords:
    """The records of one pool, by the devices' ids. Blocks; raises NewerFormat, LinuxError."""

    def __init__(self, directory: Path, pool: str) -> None:
        self._records: Records[Record] = Records(
            directory / pool, Codec(_encode, _decode), format=FORMAT, migrate=_migrate
        )
        (directory / pool).mkdir(mode=0o700, parents=True, exist_ok=True)  # fails now if the state cannot be used
        self._records.sweep()
        self._written: dict[str, Record] = {}

    def read(self) -> dict[str, Record]:
        """Returns all records. A damaged one is quarantined and logged: its device is recorded as it is found."""
        self._written = {unquote(key): record for key, record in self._records.load().items()}
        return dict(self._written)

    def write(self, records: Mapping[str, Record]) -> None:
        """Writes what changed and removes the rest; survives a power loss when this returns."""
        for id_ in self._written.keys() - records.keys():
            self._records.remove(_key(id_))
        for id_, record in records.items():
            if self._written.get(id_) != record:
                self._records.put(_key(id_), record)
        self._written = dict(records)

    def mark_out(self, records: Mapping[str, Record]) -> None:
        """Writes which devices are out, without fsync: a power loss ends all pods and creates all links anew."""
        for id_, record in records.items():
            self._records.put(_key(id_), record, Durability.PROCESS_DEATH)
            self._written[id_] = record


def count_damaged(directory: Path, pool: str) -> int:
    """Returns how many damaged records of a pool are in quarantine."""
    return sum(1 for _ in (directory / pool).glob(f"*{QUARANTINED}*"))


def _key(id_: str) -> str:
    """A file name; one that begins with a dot would be a temporary file."""
    key = quote(id_, safe="")
    return f"%2E{key[1:]}" if key.startswith(".") else key


def _encode(record: Record) -> bytes:
    return json.dumps({"out": record.out, "snapshot": borrow.encode(record.snapshot)}).encode()


def _decode(body: bytes) -> Record:
    return _record(json.loads(body))


def _record(fields: Mapping[str, Any]) -> Record:
    return Record(borrow.decode(fields["snapshot"]), bool(fields["out"]))


def _migrate(_format: int, data: bytes) -> Record:
    envelope = json.loads(data)
    fields: dict[str, Any] = envelope["device"]
    if crc32(json.dumps(fields, sort_keys=True).encode()) != envelope["checksum"]:
        raise ValueError("checksum mismatch")
    return _record(fields)
