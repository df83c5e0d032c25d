"""Exec and attach with both sides in one process."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.protocols.streaming.channels import PROTOCOLS, V4, V5, Streams, Violation
from podwire.protocols.streaming.client_side import ClientSide, Stderr, Stdout
from podwire.protocols.streaming.outcome import Exited
from podwire.protocols.streaming.server_side import ServerSide, Stdin, StdinEnded
from podwire.protocols.streaming.terminal import Size

ALL = Streams(stdin=True, stdout=True, stderr=True)
TERMINAL = Streams(stdin=True, stdout=True, tty=True)


def heard(server: ServerSide, *messages: bytes | str) -> list:
    return [event for message in messages for event in server.receive(message)]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_command_from_its_first_byte_to_its_exit_code(protocol):
    server, client = ServerSide(protocol, ALL), ClientSide(protocol)
    assert client.receive(server.opening()) is None
    assert heard(server, *client.stdin(b"echo hi\n")) == [Stdin(b"echo hi\n")]
    assert [client.receive(item) for item in server.stdout(b"hi\n")] == [Stdout(b"hi\n")]
    assert [client.receive(item) for item in server.stderr(b"oh\n")] == [Stderr(b"oh\n")]
    assert client.receive(server.ended(Exited(3))) == Exited(3)


def test_only_v5_signals_the_end_of_input():
    server, client = ServerSide(V5, ALL), ClientSide(V5)
    end = client.stdin_ended()
    assert end == b"\xff\x00"
    assert heard(server, end, end, b"\x00late") == [StdinEnded()]
    assert ClientSide(V4).stdin_ended() is None


def test_a_terminal_is_resized_and_others_are_not():
    resize = ClientSide(V5).resize(Size(80, 24))
    assert heard(ServerSide(V5, TERMINAL), resize) == [Size(80, 24)]
    assert heard(ServerSide(V5, ALL), resize) == []


@pytest.mark.parametrize(
    ("streams", "first"),
    [
        pytest.param(ALL, b"\x01", id="stdout"),
        pytest.param(Streams(stderr=True), b"\x02", id="stderr when there is no stdout"),
        pytest.param(Streams(stdin=True), b"\x03", id="else the outcome's channel"),
    ],
)
def test_the_server_speaks_first_so_that_the_client_knows_it_is_connected(streams, first):
    server, client = ServerSide(V5, streams), ClientSide(V5)
    assert server.opening() == first
    assert client.receive(first) is None
    assert client.receive(server.ended(Exited(0))) == Exited(0)


def test_streams_that_were_not_requested_are_not_used():
    server = ServerSide(V5, Streams(stdout=True))
    assert heard(server, b"\x00input", b"\xff\x00", b"\x01output", b"\x03error", b"", "") == []
    assert list(server.stderr(b"x")) == []
    assert list(ServerSide(V5, Streams(stdin=True)).stdout(b"x")) == []


@pytest.mark.parametrize("message", ["text", b"", b"\x03[]", b"\xff"])
def test_a_client_rejects_messages_that_only_clients_send(message):
    with pytest.raises(Violation):
        ClientSide(V5).receive(message)


def test_a_client_overlooks_channels_that_it_does_not_know():
    assert ClientSide(V5).receive(b"\x09x") is None
    assert ClientSide(V5).receive(b"\xff\x01") is None


@given(st.lists(st.binary(max_size=40) | st.text(max_size=40), max_size=10), st.sampled_from(PROTOCOLS))
def test_neither_side_crashes_on_arbitrary_messages(messages, protocol):
    server, client = ServerSide(protocol, TERMINAL), ClientSide(protocol)
    for item in messages:
        for hear in (lambda message: list(server.receive(message)), client.receive):
            with contextlib.suppress(Violation):
                hear(item)
