"""The audit log as a file of JSON lines, written by a thread of its own and rotated by size.

A request never waits for the log. Records that come faster than they can be written are kept up to a limit, in number
and in bytes; further ones are dropped, counted, and reported in the server's log.

A full file `audit.log` becomes `audit-2026-11-16T08-40-00.123.log`. Both are readable by their owner only.
"""

import contextlib
import logging
import os
import re
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from podwire.apiserver.audit.audit import Record
from podwire.apiserver.request.bodies import decode
from podwire.protocols.k8sapi.status import ApiError

_log = logging.getLogger("podwire.apiserver.audit")

MEGABYTE = 1024 * 1024
DAY = 86_400.0
MOST_RECORDS = 10_000
MOST_BYTES = 64 * MEGABYTE
BATCH = 500
"""Records that are taken from the queue together."""
REPORT_SECONDS = 30.0
"""Between two reports of dropped records or of errors."""

STANDARD_OUTPUT = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """When a file is full, and how many old ones are kept; 0 for no limit."""

    megabytes: int = 100
    backups: int = 0
    days: int = 0


class AuditLog:
    """Writes records to a file, or to the standard output for the path `-`. `open` raises OSError."""

    def __init__(self, path: str, rotation: Rotation | None = None, *, records: int = MOST_RECORDS) -> None:
        self._rotation = rotation or Rotation()
        self._path = Path(path)
        self._to_file = path != STANDARD_OUTPUT
        self._most = records
        self._queue: deque[Record] = deque()
        self._bytes = 0
        self._wake = threading.Condition()
        self._closing = False
        self._descriptor = self._open() if self._to_file else sys.stdout.fileno()
        self._size = os.fstat(self._descriptor).st_size if self._to_file else 0
        self._dropped = 0
        self._reported = 0.0
        self._thread = threading.Thread(target=self._run, name="audit log", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        """Records that were dropped and are not reported yet."""
        return self._dropped

    def put(self, record: Record) -> None:
        """Never waits. Drops the record when there are too many."""
        with self._wake:
            if len(self._queue) >= self._most or self._bytes > MOST_BYTES:
                self._dropped += 1
                return
            self._queue.append(record)
            self._bytes += record.size
            self._wake.notify()

    def close(self) -> None:
        """Writes what is left and closes the file."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join()
        if self._to_file and self._descriptor >= 0:
            os.close(self._descriptor)

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._queue and not self._closing:
                    self._wake.wait()
                batch = [self._queue.popleft() for _ in range(min(BATCH, len(self._queue)))]
                self._bytes -= sum(record.size for record in batch)
            if not batch:
                return
            for record in batch:
                try:
                    self._write(encoded(record))
                except OSError as error:
                    self._lost(1, str(error))
                except Exception as error:  # noqa: BLE001 - one event must not silence all others
                    self._lost(1, repr(error))
            if self._dropped:
                self._lost(0, "more events than the log can take")

    def _lost(self, number: int, reason: str) -> None:
        """Reports dropped records now and then."""
        self._dropped += number
        if (now := time.monotonic()) - self._reported >= REPORT_SECONDS or not self._reported:
            self._reported = now
            _log.error("audit events were dropped", extra={"count": self._dropped, "error": reason})
            self._dropped = 0

    def _write(self, line: bytes) -> None:
        if self._descriptor < 0:
            self._descriptor = self._open()  # the rotation failed half-way
        if self._to_file and self._size and self._size + len(line) > self._rotation.megabytes * MEGABYTE:
            self._rotate()
        left = memoryview(line)
        while left:
            left = left[os.write(self._descriptor, left) :]
        self._size += len(line)

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._path, flags, 0o600)
        os.fchmod(descriptor, 0o600)
        return descriptor

    def _rotate(self) -> None:
        """Renames the file, begins another and removes what is too much or too old."""
        now = time.time()
        stamp = time.strftime("%Y-%m-%dT%H-%M-%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03d}"
        backup = self._path.with_name(f"{self._path.stem}-{stamp}{self._path.suffix}")
        number = 0
        while backup.exists():
            number += 1
            backup = self._path.with_name(f"{self._path.stem}-{stamp}-{number}{self._path.suffix}")
        self._path.rename(backup)
        os.close(self._descriptor)
        self._descriptor, self._size = -1, 0
        self._descriptor = self._open()
        backups = sorted(path for path in self._path.parent.iterdir() if self._is_backup(path.name))
        keep = backups if not self._rotation.backups else backups[-self._rotation.backups :]
        if self._rotation.days:
            keep = [path for path in keep if now - path.stat().st_mtime < self._rotation.days * DAY]
        for path in backups:
            if path not in keep:
                with contextlib.suppress(FileNotFoundError):
                    path.unlink()

    def _is_backup(self, name: str) -> bool:
        stem, suffix = re.escape(self._path.stem), re.escape(self._path.suffix)
        stamp = r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{3}(-\d+)?"
        return re.fullmatch(f"{stem}-{stamp}{suffix}", name) is not None


class _Named(msgspec.Struct, rename="camel"):
    name: str = ""
    uid: str = ""
    resource_version: str = ""


class _Metadata(msgspec.Struct):
    metadata: _Named = msgspec.field(default_factory=_Named)


def encoded(record: Record) -> bytes:
    """Returns the line of a record."""
    event = record.event
    if record.request_body:
        event["requestObject"] = _request_object(record)
    if record.response_body:
        _add_response(record, event)
    return msgspec.json.encode({key: value for key, value in event.items() if value is not None}) + b"\n"


def _request_object(record: Record) -> Any:
    """A body that cannot be decoded is left out: the response says what was wrong with it."""
    media = record.request_media.partition(";")[0].strip().lower() or "application/json"
    try:
        value = decode(record.request_body, _DECODED_AS.get(media, media)).value
    except ApiError:
        return None
    return _without_managed_fields(value) if record.omit_managed_fields else value


_DECODED_AS = {
    "application/merge-patch+json": "application/json",
    "application/json-patch+json": "application/json",
    "application/strategic-merge-patch+json": "application/json",
    "application/apply-patch+yaml": "application/yaml",
}


def _add_response(record: Record, event: dict[str, Any]) -> None:
    status = event["responseStatus"]
    if status["code"] >= 400:
        with contextlib.suppress(msgspec.DecodeError):
            failure = msgspec.json.decode(record.response_body, type=dict)
            known = ("status", "message", "reason", "details")
            status = {"metadata": {}, **{key: failure[key] for key in known if key in failure}, "code": status["code"]}
            event["responseStatus"] = status
    elif event["verb"] == "create" and "objectRef" in event:
        with contextlib.suppress(msgspec.DecodeError):
            named = msgspec.json.decode(record.response_body, type=_Metadata).metadata
            parts = {"name": named.name, "uid": named.uid, "resourceVersion": named.resource_version}
            event["objectRef"] = {**{key: value for key, value in parts.items() if value}, **event["objectRef"]}
    if record.response_in_event:
        if not record.omit_managed_fields:
            event["responseObject"] = msgspec.Raw(record.response_body)
            return
        with contextlib.suppress(msgspec.DecodeError):
            event["responseObject"] = _without_managed_fields(msgspec.json.decode(record.response_body))


def _without_managed_fields(value: Any) -> Any:
    """Leaves managedFields out of an object, and out of the objects of a list."""
    if not isinstance(value, dict):
        return value
    value = dict(value)
    if isinstance(metadata := value.get("metadata"), dict):
        value["metadata"] = {key: part for key, part in metadata.items() if key != "managedFields"}
    if isinstance(items := value.get("items"), list):
        value["items"] = [_without_managed_fields(item) for item in items]
    return value
