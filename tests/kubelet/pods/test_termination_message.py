"""Termination messages: from the container's file, or from the end of its log."""

import pytest

from podwire.kubelet.paths import KubeletPaths
from podwire.kubelet.pods.termination_message import LOG_BYTES, LOG_LINES, MESSAGE_BYTES, read
from podwire.objects.containers import Container

FILE, LOG = Container(name="c"), Container(name="c", termination_message_policy="FallbackToLogsOnError")
TIME = "2026-01-01T00:00:00.000000000Z"


@pytest.fixture
def place(tmp_path):
    return tmp_path / "message", tmp_path / "0.log"


def logged(*texts, tag="F"):
    return "".join(f"{TIME} stdout {tag} {text}\n" for text in texts)


@pytest.mark.parametrize(
    ("container", "code", "file", "log", "reported"),
    [
        pytest.param(FILE, 0, "all is done", "x", "all is done", id="the file"),
        pytest.param(FILE, 1, "", "x", "", id="the log is not asked for"),
        pytest.param(LOG, 1, "from the file", "x", "from the file", id="the file goes first"),
        pytest.param(LOG, 1, "", "from the log", "from the log\n", id="the log after a failure"),
        pytest.param(LOG, 0, "", "from the log", "", id="no log without a failure"),
    ],
)
def test_where_it_comes_from(place, container, code, file, log, reported):
    message, lines = place
    message.write_text(file)
    lines.write_text(logged(log))
    assert read(container, message, str(lines), code) == reported


@pytest.mark.parametrize("log", ["", "/no/such/file"], ids=["none kept", "none there"])
def test_a_missing_file_is_an_empty_message(place, log):
    assert read(LOG, place[0], log, 1) == ""


def test_a_directory_in_place_of_the_file_is_an_empty_message(tmp_path):
    assert read(FILE, tmp_path, "", 1) == ""


def test_a_long_message_is_cut(place):
    place[0].write_text("x" * 2 * MESSAGE_BYTES)
    assert read(FILE, place[0], "", 1) == "x" * MESSAGE_BYTES


def test_invalid_utf8_is_replaced(place):
    place[0].write_bytes(b"ok \xff")
    assert read(FILE, place[0], "", 1) == "ok \ufffd"


def test_of_a_log_only_the_last_lines(place):
    place[1].write_text(logged(*(str(number) for number in range(LOG_LINES + 20))))
    result = read(LOG, place[0], str(place[1]), 1).splitlines()
    assert result == [str(number) for number in range(20, LOG_LINES + 20)]


def test_of_a_log_only_the_last_bytes(place):
    place[1].write_text(logged(*("x" * 100 for _ in range(200))))
    result = read(LOG, place[0], str(place[1]), 1)
    assert len(result) == LOG_BYTES
    assert set(result) == {"x", "\n"}


def test_a_line_in_parts_is_one_line(place):
    place[1].write_text(logged("half and ", tag="P") + logged("half", "more"))
    assert read(LOG, place[0], str(place[1]), 1) == "half and half\nmore\n"


def test_an_invalid_log_line_is_left_out(place):
    place[1].write_text("garbage\n" + logged("good"))
    assert read(LOG, place[0], str(place[1]), 1) == "good\n"


def test_every_attempt_has_a_file_of_its_own(tmp_path):
    paths = KubeletPaths(root=tmp_path, logs=tmp_path)
    assert paths.termination_message("u", "c", 0) != paths.termination_message("u", "c", 1)
