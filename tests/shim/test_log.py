"""The log: CRI lines, complete, in order, whatever becomes of the file."""

import os
import subprocess
import time

import pytest

from tests.eventually import eventually

LONG = 16 << 10

CASES = {
    "lines": (b"one\ntwo\n", [("F", b"one"), ("F", b"two")]),
    "nothing": (b"", []),
    "an empty line": (b"\n\n", [("F", b""), ("F", b"")]),
    "no newline at the end": (b"one\nrest", [("F", b"one"), ("P", b"rest")]),
    "a carriage return before the newline": (b"one\r\n\r\ntwo", [("F", b"one"), ("F", b""), ("P", b"two")]),
    "a carriage return elsewhere": (b"a\rb\n\rc\r", [("F", b"a\rb"), ("P", b"\rc\r")]),
    "two carriage returns": (b"a\r\r\n", [("F", b"a\r")]),
    "just as long as a line may be": (b"x" * LONG + b"\n", [("F", b"x" * LONG)]),
    "as long, and a carriage return": (b"x" * LONG + b"\r\n", [("F", b"x" * LONG)]),
    "as long, and a carriage return in its midst": (b"x" * LONG + b"\ry\n", [("P", b"x" * LONG), ("F", b"\ry")]),
    "a byte too long": (b"x" * LONG + b"y\n", [("P", b"x" * LONG), ("F", b"y")]),
    "twice as long": (b"x" * 2 * LONG + b"\n", [("P", b"x" * LONG), ("F", b"x" * LONG)]),
    "twice as long, without an end": (b"x" * 2 * LONG, [("P", b"x" * LONG), ("P", b"x" * LONG)]),
    "long, without an end": (b"x" * LONG + b"\r", [("P", b"x" * LONG), ("P", b"\r")]),
    "any bytes": (bytes(range(256)) + b"\n", [("F", bytes(range(10))), ("F", bytes(range(11, 256)))]),
}


@pytest.mark.parametrize(("written", "lines"), CASES.values(), ids=CASES)
def test_output_becomes_log_lines(boxes, support, tmp_path, written, lines):
    data = tmp_path / "data"
    data.mkdir()
    (data / "x").write_bytes(written)
    box = boxes.box("cat", "/data/x", data=data).start()
    box.exited()
    assert support.logged(box.log) == [("stdout", tag, text) for tag, text in lines]


def test_a_line_may_be_written_byte_by_byte(boxes, support):
    box = boxes.box(
        "sh", "-c", "for i in a b c; do printf $i; sleep 0.02; done; echo; printf 'd\\r'; sleep 0.05; echo e"
    ).start()
    box.exited()
    assert support.logged(box.log) == [("stdout", "F", b"abc"), ("stdout", "F", b"d\re")]


def test_both_streams_are_tagged(boxes, support):
    box = boxes.box("sh", "-c", "echo out; echo err >&2").start()
    box.exited()
    assert sorted(support.logged(box.log)) == [("stderr", "F", b"err"), ("stdout", "F", b"out")]


def test_without_a_log_the_output_goes_nowhere(boxes):
    box = boxes.box("sh", "-c", "yes | head -c 1000000; exit 3")
    at = box.argv.index("--log")
    del box.argv[at : at + 2]
    box.start()
    exit_status = box.exited()
    assert (exit_status["code"], exit_status["lost"]) == (3, 0)
    assert not box.log.exists()


def numbered(count: int) -> bytes:
    return b"".join(b"%d %s\n" % (number, b"." * (number % 97)) for number in range(count))


def test_ten_megabytes_arrive_whole(boxes, support, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    whole = numbered(190_000)
    assert len(whole) > 10 << 20
    (data / "x").write_bytes(whole)
    box = boxes.box("cat", "/data/x", data=data).start()
    exit_status = box.exited()
    assert (exit_status["code"], exit_status["lost"]) == (0, 0)
    assert b"".join(text + b"\n" for _, _, text in support.logged(box.log)) == whole


def test_the_file_is_changed_under_load_and_no_line_is_lost_or_split(boxes, support, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    script = "i=0; while [ ! -e /data/stop ]; do echo line $i; i=$((i+1)); done; echo end"
    box = boxes.box("sh", "-c", script, data=data).start()
    parts = []
    for number in range(30):
        parts.append(box.log.with_name(f"log.{number}"))
        box.log.rename(parts[-1])
        assert box.ask("reopen") == "ok"
        assert box.log.exists()
    (data / "stop").touch()
    box.exited()
    lines = [text for part in (*parts, box.log) for _, _, text in support.logged(part)]
    assert lines == [*(b"line %d" % number for number in range(len(lines) - 1)), b"end"]


@pytest.mark.parametrize("kind", ["symlink", "fifo", "directory"])
def test_a_special_file_at_the_path_of_the_log_is_refused(boxes, support, tmp_path, kind):
    box = boxes.box("sh", "-c", "echo before; sleep 0.5; echo after").start()
    kept = tmp_path / "kept"
    box.log.rename(kept)
    match kind:
        case "symlink":
            box.log.symlink_to(tmp_path / "elsewhere")
        case "fifo":
            os.mkfifo(box.log)
        case "directory":
            box.log.mkdir()
    assert box.ask("reopen").startswith("error ")
    box.exited()
    assert [text for _, _, text in support.logged(kept)] == [b"before", b"after"]
    assert not (tmp_path / "elsewhere").exists()


@pytest.fixture
def small(tmp_path):
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", place], check=True)
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_a_full_disk_costs_lines_and_not_the_container(boxes, support, tmp_path, small):
    data = tmp_path / "data"
    data.mkdir()
    count = 20_000
    (data / "x").write_bytes(numbered(count))
    script = "cat /data/x; read x; echo again"
    box = boxes.box("sh", "-c", script, data=data, log=small / "log", flags=["--stdin"]).start()
    status = '"lost":0'
    box.opened("attach")
    eventually(lambda: status not in box.ask("status"))
    eventually(lambda: box.ask("status") == box.ask("status"))
    with box.opened("stdin") as feeding:
        time.sleep(0.2)
        box.log.rename(small / "old")
        kept = [text + b"\n" for _, _, text in support.logged(small / "old")]
        (small / "old").unlink()
        assert box.ask("reopen") == "ok"
        feeding.socket.sendall(b"\n")
        exit_status = box.exited()
    assert exit_status["code"] == 0
    assert exit_status["lost"] == count - len(kept) > 0
    assert set(kept) <= set(numbered(count).splitlines(keepends=True))
    assert [text for _, _, text in support.logged(box.log)] == [b"again"]
