import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.protocols.streaming.channels import PROTOCOLS, V4, V5, Violation
from podwire.protocols.streaming.portforward import (
    BadPorts,
    Bytes,
    ClientSide,
    Ended,
    Problem,
    ServerSide,
    ports_of,
)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_two_ports_from_opening_to_a_problem(protocol):
    server, client = ServerSide(protocol, (80, 8443)), ClientSide(protocol, (80, 8443))
    opening = list(server.opening())
    assert opening == [b"\x00\x50\x00", b"\x01\x50\x00", b"\x02\xfb\x20", b"\x03\xfb\x20"]
    assert [client.receive(item) for item in opening] == [None] * 4
    assert [server.receive(item) for item in client.data(1, b"GET /")] == [Bytes(1, b"GET /")]
    assert [client.receive(item) for item in server.data(0, b"200 OK")] == [Bytes(0, b"200 OK")]
    assert [client.receive(item) for item in server.problem(1, "connection refused")] == [
        Problem(1, "connection refused")
    ]


def test_only_v5_signals_a_half_close():
    end = ClientSide(V5, (80, 81)).ended(1)
    assert ServerSide(V5, (80, 81)).receive(end) == Ended(1)
    assert ClientSide(V5, (80, 81)).receive(b"\xff\x02") == Ended(1)
    assert ClientSide(V4, (80,)).ended(0) is None


def test_a_client_cannot_write_on_the_channel_for_problems():
    assert ServerSide(V4, (80,)).receive(b"\x01x") is None


def test_the_port_that_opens_a_channel_may_come_in_pieces_and_must_be_the_right_one():
    client = ClientSide(V4, (80,))
    assert client.receive(b"\x00\x50") is None
    assert client.receive(b"\x00\x00first") == Bytes(0, b"first")
    with pytest.raises(Violation, match="channel 1 is not for port 80"):
        client.receive(b"\x01\x51\x00")


@pytest.mark.parametrize(
    ("values", "ports"),
    [(["80"], (80,)), (["80,443", "8080"], (80, 443, 8080)), (["65535"], (65535,)), (["80", "80"], (80, 80))],
)
def test_ports_are_read_from_a_query(values, ports):
    assert ports_of(values) == ports


@pytest.mark.parametrize(
    "values", [[], [""], ["80,"], ["0"], ["65536"], ["-1"], ["http"], ["٣"], ["9" * 5000], ["1"] * 128]
)
def test_ports_that_cannot_be_are_refused(values):
    with pytest.raises(BadPorts):
        ports_of(values)


@given(st.lists(st.binary(max_size=20) | st.text(max_size=20), max_size=10), st.sampled_from(PROTOCOLS))
def test_neither_side_crashes_on_arbitrary_messages(messages, protocol):
    server, client = ServerSide(protocol, (1, 2)), ClientSide(protocol, (1, 2))
    for message in messages:
        for hear in (server.receive, client.receive):
            with contextlib.suppress(Violation):
                hear(message)
