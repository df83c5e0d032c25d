"""Records on disk: bounded by size and age; what is broken is named and skipped."""

import errno
import os
import time

import pytest

from podwire.trace.collector import Collector
from podwire.trace.record import Record, encode
from podwire.trace.segments import SEGMENTS, Reader, Writer, segment_files

DAY = 24 * 3600.0


def line(seq: int, when: float | None = None, **fields) -> bytes:
    made = {"id": "a.1", "seq": seq, "caller": "a", "callee": "b", "method": "m"} | fields
    return encode(Record(time=time.time() if when is None else when, **made))


def numbers(reader: Reader) -> list[int]:
    return [item.seq for item in reader.more()]


def test_records_that_are_too_old_are_dropped_below_the_size_limit(tmp_path):
    writer = Writer(tmp_path, age=7 * DAY)
    writer.write([line(1)])
    writer.close()
    [file] = segment_files(tmp_path)
    (tmp_path / "00000002.jsonl").write_bytes(line(2) + b"\n")
    past = time.time() - 8 * DAY
    os.utime(file, (past, past))
    Writer(tmp_path, age=7 * DAY).close()
    assert numbers(Reader(tmp_path)) == [2]


def test_a_segment_that_began_long_ago_is_followed_by_a_new_one(tmp_path):
    writer = Writer(tmp_path, age=SEGMENTS * DAY)
    writer.write([line(1, time.time() - 2 * DAY)])
    writer.close()
    again = Writer(tmp_path, age=SEGMENTS * DAY)
    again.write([line(2)])
    again.write([line(3)])
    again.close()
    first, second = segment_files(tmp_path)
    assert first.read_bytes().count(b"\n") == 1
    assert second.read_bytes().count(b"\n") == 2


def test_the_newest_segment_is_kept_however_old_it_is(tmp_path):
    (tmp_path / "00000001.jsonl").write_bytes(line(1) + b"\n")
    os.utime(tmp_path / "00000001.jsonl", (0, 0))
    Writer(tmp_path).close()
    assert numbers(Reader(tmp_path)) == [1]


BROKEN = {
    "no JSON": b"hello",
    "half a record": b'{"id":"a.1","seq":',
    "no record": b"[]",
    "no UTF-8": b'{"id":"\xff"}',
    "binary": bytes(range(1, 10)) + bytes(range(11, 256)),
    "deep": b'{"id":"a.1","seq":1,"time":1,"from":"a","to":"b","method":"m","detail":' + b"[" * 100_000,
    "a detail that is none": line(9, detail=[1]),
    "a time that is none": line(9, 1e300),
    "before the epoch": line(9, -1.0),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
def test_an_invalid_line_is_skipped_and_reported(broken, tmp_path):
    (tmp_path / "00000001.jsonl").write_bytes(b"\n".join([line(1), broken, line(2), broken, b""]))
    reader = Reader(tmp_path)
    assert numbers(reader) == [1, 2]
    assert reader.troubles() == [f"{tmp_path}/00000001.jsonl: 2 invalid lines were skipped, first line 2"]


def test_a_file_that_cannot_be_read_is_named_and_the_others_are_read(tmp_path):
    (tmp_path / "00000001.jsonl").mkdir()
    (tmp_path / "00000002.jsonl").write_bytes(line(2) + b"\n")
    (tmp_path / "00000003.jsonl").write_bytes(b"x" * 5000)
    (tmp_path / "00000004.jsonl").symlink_to("nowhere")
    (tmp_path / "00000005.jsonl").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "00000006.jsonl")
    reader = Reader(tmp_path, most=4000)
    assert numbers(reader) == [2]
    assert reader.troubles() == [
        f"{tmp_path}/00000001.jsonl: Is a directory",
        f"{tmp_path}/00000003.jsonl: larger than 4000 bytes",
        f"{tmp_path}/00000005.jsonl: not a regular file",
        f"{tmp_path}/00000006.jsonl: not a regular file",
    ]


def test_a_directory_that_may_not_be_read_is_not_taken_for_an_empty_one(tmp_path, monkeypatch):
    def refused(_: object) -> list[str]:
        raise PermissionError(errno.EACCES, "Permission denied")

    assert numbers(Reader(tmp_path / "nowhere")) == []
    monkeypatch.setattr(os, "listdir", refused)
    with pytest.raises(PermissionError):
        numbers(Reader(tmp_path))


def test_a_full_disk_loses_only_the_records_of_that_time(tmp_path, monkeypatch):
    writer, write = Writer(tmp_path), os.write
    writer.write([line(1)])

    def full(file: int, data: bytes) -> int:
        if len(data) < 20:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, data[: len(data) - 10])

    monkeypatch.setattr(os, "write", full)
    for _ in range(2):
        with pytest.raises(OSError, match="No space"):
            writer.write([line(2)])
    monkeypatch.undo()
    writer.write([line(3), line(4)])
    writer.close()
    reader = Reader(tmp_path)
    assert numbers(reader) == [1, 3, 4]
    assert "2 invalid lines" in reader.troubles()[0]


def test_a_segment_that_cannot_be_made_leaves_the_writer_where_it_was(tmp_path, monkeypatch):
    writer, opened = Writer(tmp_path, limit=SEGMENTS * len(line(1))), os.open
    writer.write([line(1)])

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "open", full)
    with pytest.raises(OSError, match="No space"):
        writer.write([line(2)])
    monkeypatch.setattr(os, "open", opened)
    writer.write([line(3)])
    writer.close()
    assert numbers(Reader(tmp_path)) == [1, 3]


def test_files_of_others_are_left_alone(tmp_path):
    for name in ("notes.txt", "x.jsonl", "٣.jsonl"):
        (tmp_path / name).write_text("mine")
    writer = Writer(tmp_path, limit=SEGMENTS * 200)
    for number in range(100):
        writer.write([line(number)])
    writer.close()
    assert {path.name for path in tmp_path.iterdir()} >= {"notes.txt", "x.jsonl", "٣.jsonl"}


def test_a_collector_starts_with_broken_files_and_logs_them(tmp_path, caplog):
    (tmp_path / "00000001.jsonl").write_bytes(b"hello\n" + line(1) + b"\n")
    Collector(tmp_path)._writer.close()
    assert "cannot read stored trace records" in caplog.text


def test_lines_are_counted_over_several_reads(tmp_path):
    file = tmp_path / "00000001.jsonl"
    file.write_bytes(line(1) + b"\n")
    reader = Reader(tmp_path)
    assert numbers(reader) == [1]
    with file.open("ab") as more:
        more.write(line(2) + b"\nhello\n")
    assert numbers(reader) == [2]
    assert reader.troubles() == [f"{tmp_path}/00000001.jsonl: an invalid line was skipped, first line 3"]
