import contextlib
import gzip
import io
import os
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.kubelet.log_rotation import _compress
from podwire.kubelet.server import log_files
from podwire.kubelet.server.log_files import LogFiles, tail_of_stream, tail_start
from podwire.kubelet.server.log_lines import LONGEST_RECORD, LogOptions, Renderer
from podwire.linux.errors import NoSuchPath, WrongKind


def record(text, tag="F"):
    return f"2026-11-15T10:00:00.123456789Z stdout {tag} {text}\n".encode()


def records(*texts):
    return b"".join(record(text) for text in texts)


def shown(files):
    """All that is there by now, as a reader sees it."""
    renderer = Renderer(LogOptions())
    return b"".join(renderer.feed(file) for file in iter(files.read, b"")).decode()


def read(path, tail=None):
    with contextlib.closing(LogFiles(path, tail)) as files:
        return shown(files)


class Counting(io.BytesIO):
    """Knows how much was read of it."""

    taken = 0

    def read(self, size=-1):
        data = super().read(size)
        self.taken += len(data)
        return data


LONG = 20_000
"""More than one block is long, in pieces."""


@pytest.mark.parametrize(
    ("log", "count", "tail", "missing"),
    [
        pytest.param(records("a", "b", "c"), 2, records("b", "c"), 0, id="the last two"),
        pytest.param(records("a", "b", "c"), 3, records("a", "b", "c"), 0, id="exactly all"),
        pytest.param(records("a", "b"), 5, records("a", "b"), 3, id="more than there are"),
        pytest.param(records("a", "b"), 0, b"", 0, id="none"),
        pytest.param(b"", 3, b"", 3, id="of nothing"),
        pytest.param(
            record("a") + record("b1", "P") + record("b2") + record("c"),
            2,
            record("b1", "P") + record("b2") + record("c"),
            0,
            id="pieces are one line",
        ),
        pytest.param(
            record("a") + record("b") + record("c1", "P"),
            2,
            record("b") + record("c1", "P"),
            0,
            id="an unfinished line",
        ),
        pytest.param(
            record("a") + record("x" * LONG, "P") * 10 + record("x") + record("c"),
            2,
            record("x" * LONG, "P") * 10 + record("x") + record("c"),
            0,
            id="a line that is longer than what is looked at at once",
        ),
    ],
)
def test_the_last_lines_are_found(log, count, tail, missing):
    start, left = tail_start(io.BytesIO(log), count)
    assert (log[start:], left) == (tail, missing)


@given(st.lists(st.tuples(st.sampled_from("FP"), st.integers(0, 40)), max_size=40), st.integers(0, 12))
def test_the_last_lines_are_those_that_counting_from_the_front_gives(parts, count):
    log = b"".join(record("x" * size, tag) for tag, size in parts)
    lines, line = [], b""
    for tag, size in parts:
        line += record("x" * size, tag)
        if tag == "F":
            lines, line = [*lines, line], b""
    lines += [line] if line else []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_files, "BLOCK", 64)
        start, missing = tail_start(io.BytesIO(log), count)
    assert log[start:] == b"".join(lines[len(lines) - min(count, len(lines)) :])
    assert missing == max(0, count - len(lines))


def test_only_the_end_of_a_large_file_is_read():
    file = Counting(records(*map(str, range(1_000_000))))
    start, _ = tail_start(file, 100)
    file.seek(start)
    assert file.getvalue()[start:].count(b"\n") == 100
    assert file.taken <= 2 * log_files.BLOCK


@pytest.fixture
def log(tmp_path):
    return tmp_path / "0.log"


def test_rotated_files_are_read_in_the_order_of_writing(log):
    log.with_name("0.log.20261115-090000.gz").write_bytes(gzip.compress(records("a", "b")))
    log.with_name("0.log.20261115-100000").write_bytes(records("c", "d"))
    log.with_name("0.log.20261115-100000.tmp").write_bytes(records("half packed"))
    log.with_name("10.log").write_bytes(records("another run's"))
    log.write_bytes(records("e"))
    assert read(log) == "a\nb\nc\nd\ne\n"
    assert read(log, tail=2) == "d\ne\n"
    assert read(log, tail=4) == "b\nc\nd\ne\n"
    assert read(log, tail=9) == "a\nb\nc\nd\ne\n"


def test_a_line_that_was_cut_by_a_rotation_is_whole(log):
    log.with_name("0.log.20261115-100000").write_bytes(record("begin ", "P"))
    log.write_bytes(record("end"))
    assert read(log) == "begin end\n"


def rotate(log, time):
    log.rename(log.with_name(f"{log.name}.{time}"))


def test_a_reader_continues_across_rotations(log):
    log.write_bytes(records("a"))
    with contextlib.closing(LogFiles(log, None)) as files:
        assert shown(files) == "a\n"
        rotate(log, "20261115-100000")
        assert not files.is_replaced(), "the writer still has the old file"
        assert not files.advance()
        log.write_bytes(records("b"))
        rotate(log, "20261115-110000")
        log.write_bytes(records("c"))
        assert files.is_replaced()
        assert files.advance()
        assert shown(files) == "b\nc\n"
        assert not files.advance()


def test_a_reader_of_a_removed_file_continues_with_the_newest(log):
    log.write_bytes(records("a"))
    with contextlib.closing(LogFiles(log, None)) as files:
        log.unlink()
        log.write_bytes(records("b"))
        assert shown(files) == "a\n"
        assert files.advance()
        assert shown(files) == "b\n"


def test_a_file_that_is_rotated_between_opening_and_listing_is_read_once(log, monkeypatch):
    log.write_bytes(records("a"))
    listed = log_files.rotated

    def rotating(path):
        if path.exists():
            rotate(log, "20261115-100000")
        return listed(path)

    monkeypatch.setattr(log_files, "rotated", rotating)
    assert read(log) == "a\n"


def test_a_log_that_is_not_there(log):
    with pytest.raises(NoSuchPath):
        LogFiles(log, None)


@pytest.mark.parametrize("trap", ["symlink", "fifo", "directory"])
def test_anything_but_a_regular_file_is_not_read_as_a_log(log, tmp_path, trap):
    (tmp_path / "secret").write_bytes(records("of the node"))
    match trap:
        case "symlink":
            log.symlink_to(tmp_path / "secret")
        case "fifo":
            os.mkfifo(log)
        case "directory":
            log.mkdir()
    with pytest.raises(WrongKind):
        LogFiles(log, None)


def test_the_tail_of_a_compressed_file_is_found_without_keeping_it(log):
    lines = [f"line {number} {'x' * 1000}" for number in range(60_000)]
    with gzip.open(log.with_name("0.log.20261115-090000.gz"), "wb", compresslevel=1) as packed:
        for line in lines:
            packed.write(record(line))
    log.write_bytes(records("last"))
    tracemalloc.start()
    try:
        assert read(log, tail=3).splitlines() == [*lines[-2:], "last"]
        assert tracemalloc.get_traced_memory()[1] < 16 * 1024**2
    finally:
        tracemalloc.stop()


@given(st.lists(st.tuples(st.sampled_from("FP"), st.integers(0, 40)), max_size=40), st.integers(1, 12))
def test_streams_and_files_have_the_same_tails(parts, count):
    log = b"".join(record("x" * size, tag) for tag, size in parts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_files, "CHUNK", 64)
        assert tail_of_stream(io.BytesIO(log), count) == tail_start(io.BytesIO(log), count)


def test_a_damaged_compressed_file_is_skipped(log):
    log.with_name("0.log.20261115-090000.gz").write_bytes(gzip.compress(records("a", "b"))[:-10])
    log.with_name("0.log.20261115-090001.gz").write_bytes(b"not compressed")
    log.write_bytes(records("c"))
    assert read(log).endswith("c\n")
    assert read(log, tail=5).endswith("c\n")


def test_a_file_that_is_being_compressed_is_read_once(log):
    log.with_name("0.log.20261115-090000").write_bytes(records("a"))
    log.with_name("0.log.20261115-090000.gz").write_bytes(gzip.compress(records("a")))
    log.write_bytes(records("b"))
    assert read(log) == "a\nb\n"


def test_a_slow_reader_finds_the_files_after_its_own_although_that_was_compressed(log):
    with contextlib.closing(open_log(log, "a")) as files:
        for number, text in enumerate("bcd"):
            rotate(log, f"20261115-10000{number}")
            log.write_bytes(records(text))
            os.utime(log, ns=(0, number + 2))
        first = log.with_name("0.log.20261115-100000")
        _compress(first)
        assert shown(files) == "a\n"
        assert files.advance()
        assert shown(files) == "b\nc\nd\n"


def open_log(log, text):
    log.write_bytes(records(text))
    os.utime(log, ns=(0, 1))
    return LogFiles(log, None)


def test_a_log_without_a_line_break_is_not_kept_in_memory():
    renderer = Renderer(LogOptions())
    for _ in range(100):
        assert renderer.feed(b"x" * 256 * 1024) == b""
    assert len(renderer._rest) <= LONGEST_RECORD
    assert tail_start(io.BytesIO(b"x" * 5 * LONGEST_RECORD), 1)[1] <= 1
