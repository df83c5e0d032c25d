import json
import os

import pytest

from podwire.durable import append_log
from podwire.linux import errors


def read(path):
    return append_log.newest(path.read_bytes(), json.loads, ValueError)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "value"


def test_the_newest_line_is_the_value(path):
    for number in range(3):
        append_log.put(path, b"%d" % number)
        assert read(path) == number
    assert path.read_bytes() == b"0\n1\n2"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [item.name for item in path.parent.iterdir()] == ["value"]


def test_only_the_first_line_is_fsynced(path, monkeypatch):
    waits = []
    monkeypatch.setattr(os, "fsync", waits.append)
    append_log.put(path, b"0")
    assert len(waits) == 2, "the file, and its name"
    append_log.put(path, b"1")
    assert len(waits) == 2


def test_a_first_line_can_be_fsynced_later(path, monkeypatch):
    waits = []
    append_log.put(path, b"0", durably=False)
    monkeypatch.setattr(os, "fsync", waits.append)
    append_log.put(path, b"1", durably=False)
    assert not waits
    append_log.fsync(path)
    assert len(waits) == 2, "the file, and its name"
    with pytest.raises(errors.LinuxError, match=r"write .*nothing"):
        append_log.fsync(path.with_name("nothing"))


@pytest.mark.parametrize("torn", [b"\n", b'\n{"a', b"\n{\n[", b"\n\0\0\0\0"])
def test_a_torn_line_is_ignored_and_does_not_damage_the_next(path, torn):
    append_log.put(path, b"0")
    append_log.put(path, b"1")
    path.write_bytes(path.read_bytes() + torn)
    assert read(path) == 1
    append_log.put(path, b"2")
    assert read(path) == 2


@pytest.mark.parametrize("data", [b"", b'{"a', b"\n", b"{\n["])
def test_a_log_without_a_whole_line_is_damaged(path, data):
    path.write_bytes(data)
    with pytest.raises(ValueError):
        read(path)


def test_a_long_log_is_rewritten(path):
    lines = [json.dumps(str(number) * 3000).encode() for number in range(9)] * 4
    for line in lines:
        append_log.put(path, line)
        assert path.stat().st_size <= append_log.MAX_BYTES + 2 * len(line)
    assert read(path) == json.loads(lines[-1])


def test_a_rewritten_log_is_fsynced(path, monkeypatch):
    append_log.put(path, b"0")
    path.write_bytes(b"0\n" * append_log.MAX_BYTES)
    waits = []
    monkeypatch.setattr(os, "fsync", waits.append)
    append_log.put(path, b"1", durably=False)
    assert (path.read_bytes(), len(waits)) == (b"1", 2)


def test_errors_name_the_path(path):
    with pytest.raises(errors.NoSuchPath, match=r"write .*nowhere"):
        append_log.put(path.parent / "nowhere" / "value", b"0")
    with pytest.raises(errors.LinuxError, match=r"write .*Is a directory"):
        append_log.put(path.parent, b"0")


def test_full_disk_is_reported():
    with pytest.raises(errors.LinuxError, match="No space left"):
        append_log.put("/dev/full", b"0")
