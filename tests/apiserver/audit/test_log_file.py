"""The audit log as a file: permissions, rotation, and requests that never wait for it."""

import json
import os
import stat

import pytest

from podwire.apiserver.audit import AuditLog, Rotation
from podwire.apiserver.audit.audit import Record
from tests.eventually import eventually


def record(number: int = 0, size: int = 0) -> Record:
    return Record({"kind": "Event", "number": number, "verb": "get", "filling": "x" * size})


def numbers(*paths) -> list[int]:
    return [json.loads(line)["number"] for path in paths for line in path.read_text().splitlines()]


def mode(path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_events_are_lines_of_a_file_that_only_its_owner_can_read(tmp_path):
    path = tmp_path / "new" / "audit.log"
    log = AuditLog(str(path))
    for number in range(100):
        log.put(record(number))
    log.close()
    assert (numbers(path), mode(path)) == (list(range(100)), 0o600)
    path.chmod(0o644)
    log = AuditLog(str(path))
    log.put(record(100))
    log.close()
    assert (numbers(path)[-1], mode(path)) == (100, 0o600)


def test_a_full_file_is_rotated_and_old_ones_are_removed(tmp_path):
    path = tmp_path / "audit.log"
    log = AuditLog(str(path), Rotation(megabytes=1, backups=2))
    for number in range(50):
        log.put(record(number, 100_000))
    log.close()
    backups = sorted(tmp_path.glob("audit-*.log"))
    assert len(backups) == 2
    assert all(file.stat().st_size <= 1024 * 1024 and mode(file) == 0o600 for file in (path, *backups))
    found = numbers(*backups, path)
    assert found == list(range(found[0], 50)), "the newest are kept, without a gap"


def test_files_that_are_too_old_are_removed_and_others_stay(tmp_path):
    path = tmp_path / "audit.log"
    old, other = tmp_path / "audit-2020-01-01T00-00-00.000.log", tmp_path / "audit-mine.log"
    for file in (old, other):
        file.touch()
        os.utime(file, (0, 0))
    log = AuditLog(str(path), Rotation(megabytes=1, days=1))
    for number in range(12):
        log.put(record(number, 100_000))
    log.close()
    assert (old.exists(), other.exists()) == (False, True)
    assert numbers(*sorted(tmp_path.glob("audit-2*.log")), path) == list(range(12))


def test_a_request_never_waits_for_a_log_that_does_not_write(tmp_path):
    """The log is a pipe that nobody reads."""
    os.mkfifo(tmp_path / "pipe")
    reading = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    log = AuditLog(str(tmp_path / "pipe"), records=100)
    for number in range(5000):
        log.put(record(number, 1000))
    assert log.dropped > 4000
    os.close(reading)
    log.close()


def test_dropped_events_are_reported(tmp_path, caplog):
    log = AuditLog(str(tmp_path / "audit.log"), records=0)
    log.put(record())
    log.put(record())
    log._most = 1
    log.put(record(3))
    eventually(lambda: "audit events were dropped" in caplog.text)
    log.close()
    assert numbers(tmp_path / "audit.log") == [3]


def test_an_event_that_cannot_be_encoded_does_not_end_the_log(tmp_path, caplog):
    log = AuditLog(str(tmp_path / "audit.log"))
    log.put(Record({"number": object()}))
    log.put(record(1))
    log.close()
    assert numbers(tmp_path / "audit.log") == [1]
    assert "audit events were dropped" in caplog.text


def test_a_full_disk_drops_events_and_the_log_goes_on(tmp_path, monkeypatch, caplog):
    write, failures = os.write, [OSError(28, "No space left on device")]

    def once_full(descriptor, data):
        if failures:
            raise failures.pop()
        return write(descriptor, data)

    log = AuditLog(str(tmp_path / "audit.log"))
    monkeypatch.setattr(os, "write", once_full)
    log.put(record(1))
    eventually(lambda: not failures)
    log.put(record(2))
    log.close()
    assert numbers(tmp_path / "audit.log") == [2]
    assert "audit events were dropped" in caplog.text


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="symbolic links"):
        AuditLog(str(tmp_path / "link"))
    assert not (tmp_path / "target").exists()
