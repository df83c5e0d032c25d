"""What each device of a pool was like before anybody had it, in a file that survives any crash.

A device is in the file before the kubelet hears of it, so nobody can have one that nobody could give back.
"""

import json
import logging
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podwire.deviceplugin.snapshots import Snapshot, decoded, encoded
from podwire.linux.files import remove_durably, sweep, write_durably

_log = logging.getLogger("podwire.deviceplugin")


@dataclass(frozen=True, slots=True)
class Record:
    snapshot: Snapshot
    out: bool = False
    """Whether somebody has it, or had it and it was not made what it was."""


class Records:
    """The file of one pool."""

    def __init__(self, directory: Path, pool: str) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        sweep(directory)
        self._path = directory / f"{pool}.json"
        self._written: dict[str, Record] | None = None

    def read(self) -> dict[str, Record]:
        """All by id. A file that is damaged is put aside, and says so: its devices are then taken as they are found."""
        try:
            text = self._path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return {}
        try:
            self._written = _parsed(text)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            aside = self._path.with_suffix(".damaged")
            self._path.rename(aside)
            told = {"file": str(aside), "why": str(error) or type(error).__name__}
            _log.error("records are damaged: devices that are out will be taken as they come back", extra=told)
            return {}
        return dict(self._written)

    def write(self, records: Mapping[str, Record]) -> None:
        """Durable when this returns; nothing is written when nothing changed."""
        if records == self._written:
            return
        if records:
            write_durably(self._path, _text(records).encode())
        else:
            remove_durably(self._path)
        self._written = dict(records)


def _text(records: Mapping[str, Record]) -> str:
    data = {key: {"out": each.out, "snapshot": encoded(each.snapshot)} for key, each in records.items()}
    return json.dumps({"devices": data, "checksum": _checksum(data)}, indent=1)


def _parsed(text: str) -> dict[str, Record]:
    read = json.loads(text)
    data: dict[str, Any] = read["devices"]
    if _checksum(data) != read["checksum"]:
        raise ValueError("the checksum is another")
    return {key: Record(decoded(each["snapshot"]), bool(each["out"])) for key, each in data.items()}


def _checksum(data: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(data, sort_keys=True).encode())
