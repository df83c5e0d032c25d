import json
import os

import pytest

from podwire.linux import errors
from podwire.linux.fs import append_log


def read(path):
    return append_log.newest(path.read_bytes(), json.loads, ValueError)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "value"


def test_the_newest_counts(path):
    for each in range(3):
        append_log.put(path, b"%d" % each)
        assert read(path) == each
    assert path.read_bytes() == b"0\n1\n2"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["value"]


def test_only_the_first_waits_for_the_disk(path, monkeypatch):
    waits = []
    monkeypatch.setattr(os, "fsync", waits.append)
    append_log.put(path, b"0")
    assert len(waits) == 2, "the file, and its name"
    append_log.put(path, b"1")
    assert len(waits) == 2


def test_a_first_one_can_be_brought_to_the_disk_later(path, monkeypatch):
    waits = []
    append_log.put(path, b"0", durably=False)
    monkeypatch.setattr(os, "fsync", waits.append)
    append_log.put(path, b"1", durably=False)
    assert not waits
    append_log.settle(path)
    assert len(waits) == 2, "the file, and its name"
    with pytest.raises(errors.LinuxError, match=r"write .*nothing"):
        append_log.settle(path.with_name("nothing"))


@pytest.mark.parametrize("torn", [b"\n", b'\n{"a', b"\n{\n[", b"\n\0\0\0\0"])
def test_a_line_that_is_not_whole_counts_for_nothing_and_spoils_no_other(path, torn):
    append_log.put(path, b"0")
    append_log.put(path, b"1")
    path.write_bytes(path.read_bytes() + torn)
    assert read(path) == 1
    append_log.put(path, b"2")
    assert read(path) == 2


@pytest.mark.parametrize("data", [b"", b'{"a', b"\n", b"{\n["])
def test_where_nothing_is_whole_nothing_is_told(path, data):
    path.write_bytes(data)
    with pytest.raises(ValueError):
        read(path)


def test_a_file_that_grew_too_long_is_put_in_place_anew(path):
    lines = [json.dumps(str(number) * 3000).encode() for number in range(9)] * 4
    for each in lines:
        append_log.put(path, each)
        assert path.stat().st_size <= append_log.LONGEST + 2 * len(each)
    assert read(path) == json.loads(lines[-1])


def test_what_takes_the_place_of_all_before_it_is_on_the_disk(path, monkeypatch):
    append_log.put(path, b"0")
    path.write_bytes(b"0\n" * append_log.LONGEST)
    waits = []
    monkeypatch.setattr(os, "fsync", waits.append)
    append_log.put(path, b"1", durably=False)
    assert (path.read_bytes(), len(waits)) == (b"1", 2)


def test_what_cannot_be_written_is_told_by_name(path):
    with pytest.raises(errors.NoSuchPath, match=r"write .*nowhere"):
        append_log.put(path.parent / "nowhere" / "value", b"0")
    with pytest.raises(errors.LinuxError, match=r"write .*Is a directory"):
        append_log.put(path.parent, b"0")


def test_a_full_disk_leaves_what_was_there():
    with pytest.raises(errors.LinuxError, match="No space left"):
        append_log.put("/dev/full", b"0")
