"""Terminals, stdin, attached clients, and clients that mean no good."""

import json
import os
import signal
import socket
import time
from contextlib import suppress

import pytest

from tests.eventually import eventually

STDOUT, STDERR, EXITED = 1, 2, 3


def sendable(connection: socket.socket) -> bool:
    try:
        return connection.send(b"x") == 1
    except OSError:
        return False


def test_a_terminal_is_a_terminal(boxes, oci, support):
    boxes.oci = oci
    box = boxes.box("sh", "-c", "tty; read x; stty size; echo got $x; exit 3", flags=["--tty", "--stdin"]).start()
    eventually(lambda: support.logged(box.log))
    watching = box.opened("attach")
    assert box.ask("resize 101 37") == "ok"
    with box.opened("stdin") as feeding:
        feeding.socket.sendall(b"hello\n")
        assert box.exited()["code"] == 3
    frames = list(iter(watching.frame, None))
    assert {channel for channel, _, _ in frames[:-1]} == {STDOUT}
    assert b"37 101\r\ngot hello\r\n" in b"".join(data for _, _, data in frames[:-1])
    assert support.logged(box.log) == [
        ("stdout", "F", text) for text in (b"/dev/pts/0", b"hello", b"37 101", b"got hello")
    ]
    assert not (box.state / "console.sock").exists()


def test_a_runtime_that_hands_over_no_terminal(boxes):
    box = boxes.box("sleep", "100", flags=["--tty"])
    box.argv = [*box.argv[: box.argv.index("--")], "--", "sh", "-c", "exit 0"]
    assert box.run().result.stderr == "podwire-shim: the runtime handed over no terminal\n"


def test_without_a_terminal_there_is_nothing_to_resize(boxes):
    box = boxes.box("sleep", "100").start()
    assert box.ask("resize 80 25") == "error there is no terminal"


def test_stdin_is_empty_unless_requested(boxes, support):
    box = boxes.box("sh", "-c", "wc -c; sleep 0.3").start()
    assert box.ask("stdin") == "error stdin is not open"
    box.exited()
    assert support.logged(box.log) == [("stdout", "F", b"0")]


def test_stdin_ends_with_its_first_client_when_it_is_for_one(boxes, support):
    box = boxes.box("wc", "-c", flags=["--stdin", "--stdin-once"]).start()
    with box.opened("stdin") as feeding:
        for _ in range(32):
            feeding.socket.sendall(bytes(32 << 10))
    assert box.exited()["code"] == 0
    assert support.logged(box.log) == [("stdout", "F", b"1048576")]


def test_stdin_stays_open_for_the_next_client_when_it_is_for_many(boxes, support):
    box = boxes.box("sh", "-c", "read a; read b; echo $a $b", flags=["--stdin"]).start()
    for word in (b"one\n", b"two\n"):
        with box.opened("stdin") as feeding:
            feeding.socket.sendall(word)
    box.exited()
    assert support.logged(box.log) == [("stdout", "F", b"one two")]


def test_bytes_after_the_request_are_stdin(boxes, support):
    box = boxes.box("head", "-n", "1", flags=["--stdin"]).start()
    asked = box.open("stdin\nhello")
    assert asked.line() == "ok"
    assert box.exited()["code"] == 0
    assert support.logged(box.log) == [("stdout", "F", b"hello")]


def test_a_container_that_does_not_read_does_not_stop_the_shim(boxes, support):
    box = boxes.box("sh", "-c", "sleep 1; exec cat | wc -c", flags=["--stdin", "--stdin-once"]).start()
    with box.opened("stdin") as feeding:
        feeding.socket.setblocking(False)
        sent = 0
        with suppress(BlockingIOError):
            while sent < 1 << 30:
                sent += feeding.socket.send(bytes(4096))
        assert '"state":"running"' in box.ask("status")
    assert box.exited()["code"] == 0
    assert support.logged(box.log) == [("stdout", "F", b"%d" % sent)]


def test_a_container_that_closes_its_stdin_sends_its_clients_away(boxes, support):
    box = boxes.box("sh", "-c", "exec <&-; sleep 100", flags=["--stdin"]).start()
    with box.opened("stdin") as feeding:
        eventually(lambda: not sendable(feeding.socket))


def test_attached_clients_get_the_output_and_then_the_end(boxes):
    box = boxes.box("sh", "-c", "read x; printf now; echo bad >&2; read x; exit 2", flags=["--stdin"]).start()
    watching = [box.opened("attach") for _ in range(3)]
    with box.opened("stdin") as feeding:
        feeding.socket.sendall(b"\n")
        for item in watching:
            assert {item.frame(), item.frame()} == {(STDOUT, 0, b"now"), (STDERR, 0, b"bad\n")}
        feeding.socket.sendall(b"\n")
        for item in watching:
            channel, lost, data = item.frame()
            assert (channel, lost, json.loads(data)["code"]) == (EXITED, 0, 2)
            assert item.frame() is None


def test_a_slow_attached_client_delays_no_other_and_learns_its_loss(boxes, support):
    count = 200_000
    script = f"read x; yes 0123456789abcde | head -n {count}; read x; echo last"
    box = boxes.box("sh", "-c", script, flags=["--stdin"]).start()
    slow = box.opened("attach")
    frames = []
    with box.opened("stdin") as feeding:
        feeding.socket.sendall(b"\n")
        line = len("2026-01-02T03:04:05.123456789Z stdout F 0123456789abcde\n")
        eventually(lambda: box.log.stat().st_size == count * line)
        while support.readable(slow.socket.fileno(), 0.3):
            frames.append(slow.frame())
        feeding.socket.sendall(b"\n")
        frames += iter(slow.frame, None)
    assert [channel for channel, _, _ in frames] == [STDOUT] * (len(frames) - 1) + [EXITED]
    lost = sum(frame for _, frame, _ in frames)
    assert lost > count * 8
    assert sum(len(data) for _, _, data in frames[:-1]) + lost == count * 16 + len(b"last\n")
    assert box.exited()["lost"] == 0


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        pytest.param("", "error unknown request", id="nothing"),
        pytest.param("statu", "error unknown request", id="a word"),
        pytest.param("x" * 10_000, "error unknown request", id="too long"),
        pytest.param("resize 80", "error unknown request", id="too few"),
        pytest.param("resize a b", "error unknown request", id="no numbers"),
        pytest.param("status\x00", '{"state":"running"', id="a null"),
    ],
)
def test_invalid_requests_are_answered_with_an_error(boxes, request_, answer):
    box = boxes.box("sleep", "100").start()
    asked = box.open("")
    with suppress(BrokenPipeError):  # it may have heard enough
        asked.socket.sendall(request_.encode() + b"\n")
    assert asked.line().startswith(answer)


def test_a_request_may_come_byte_by_byte(boxes):
    box = boxes.box("sleep", "100").start()
    asked = box.open("")
    for byte in b"status\n":
        asked.socket.send(bytes([byte]))
        time.sleep(0.01)
    assert asked.line().startswith('{"state":"running"')


def test_a_waiting_client_may_close_its_half(boxes):
    box = boxes.box("sleep", "100").start()
    waiting = box.open("wait")
    waiting.socket.shutdown(socket.SHUT_WR)
    assert box.ask("status")
    os.kill(box.pid, signal.SIGKILL)
    assert json.loads(waiting.line())["signal"] == 9


def test_silent_clients_are_disconnected_and_free_their_slots(boxes):
    box = boxes.box("sleep", "100").start()
    silent = [box.open("") for _ in range(64)]
    refused = box.open("status")
    with suppress(ConnectionResetError):
        assert refused.line() == ""
    assert [item.line() for item in silent] == [""] * 64
    assert box.ask("status")
