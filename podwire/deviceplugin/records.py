"""What each device of a pool was like before anybody had it, in files that survive any crash.

A device has its file before the kubelet hears of it, so nobody can have one that nobody could give back.
"""

import json
import logging
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from podwire.deviceplugin.snapshots import Snapshot, decoded, encoded
from podwire.durable.files import remove_durably, replace_file, sweep, write_durably

_log = logging.getLogger("podwire.deviceplugin")


@dataclass(frozen=True, slots=True)
class Record:
    snapshot: Snapshot
    out: bool = False
    """Whether somebody has it, or had it and it was not made what it was."""


class Records:
    """The files of one pool, one for each device: what is allocated is waited for."""

    def __init__(self, directory: Path, pool: str) -> None:
        self._directory = directory / pool
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        sweep(self._directory)
        self._written: dict[str, Record] = {}

    def read(self) -> dict[str, Record]:
        """All by id. A file that is damaged is put aside, and says so: its device is then taken as it is found."""
        for path in sorted(self._directory.glob("*.json")):
            try:
                self._written[unquote(path.stem)] = _parsed(path.read_text(encoding="utf-8", errors="replace"))
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                aside = path.with_suffix(".damaged")
                path.rename(aside)
                told = {"file": str(aside), "why": str(error) or type(error).__name__}
                _log.error("a record is damaged: its device is taken as it is found", extra=told)
        return dict(self._written)

    def write(self, records: Mapping[str, Record]) -> None:
        """Durable when this returns; what did not change is not written."""
        for key in self._written.keys() - records.keys():
            remove_durably(self._path(key))
        for key, each in records.items():
            if self._written.get(key) != each:
                write_durably(self._path(key), _text(each).encode())
        self._written = dict(records)

    def mark(self, records: Mapping[str, Record]) -> None:
        """Write down who is out. That survives the death of any process. A loss of power ends all pods and makes all
        links anew, so nobody waits for the disk; a record that it damaged is of no use any more."""
        for key, each in records.items():
            replace_file(self._path(key), _text(each).encode())
            self._written[key] = each

    def _path(self, key: str) -> Path:
        return self._directory / f"{quote(key, safe='')}.json"


def _text(record: Record) -> str:
    data = {"out": record.out, "snapshot": encoded(record.snapshot)}
    return json.dumps({"device": data, "checksum": _checksum(data)})


def _parsed(text: str) -> Record:
    read = json.loads(text)
    data: dict[str, Any] = read["device"]
    if _checksum(data) != read["checksum"]:
        raise ValueError("the checksum is another")
    return Record(decoded(data["snapshot"]), bool(data["out"]))


def _checksum(data: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(data, sort_keys=True).encode())
