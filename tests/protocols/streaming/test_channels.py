import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.protocols.streaming.channels import (
    CHUNK,
    PROTOCOLS,
    V4,
    V5,
    Data,
    HalfClose,
    Violation,
    decode,
    encode,
    greeting,
    half_close,
)


@pytest.mark.parametrize(
    ("message", "protocol", "said"),
    [
        pytest.param(b"\x00ls\n", V5, Data(0, b"ls\n"), id="data"),
        pytest.param(b"\x01", V5, Data(1, b""), id="a greeting"),
        pytest.param("\x00grüß", V5, Data(0, "grüß".encode()), id="text is its bytes"),
        pytest.param(b"\xff\x00", V5, HalfClose(0), id="half-close"),
        pytest.param(b"\xff\x00", V4, None, id="v4 has no half-close, only a channel that there is not"),
        pytest.param(b"\x05x", V5, None, id="a channel that there is not"),
        pytest.param(b"", V5, None, id="nothing"),
        pytest.param("", V4, None, id="no text"),
    ],
)
def test_a_message_is_parsed(message, protocol, said):
    assert decode(message, protocol=protocol, channels=5) == said


@pytest.mark.parametrize("message", [b"\xff", b"\xff\x00\x00", b"\xff\x05", b"\xff\xff"])
def test_a_half_close_names_one_channel_that_there_is(message):
    with pytest.raises(Violation):
        decode(message, protocol=V5, channels=5)


@given(st.integers(0, 4), st.binary(max_size=3 * CHUNK), st.sampled_from(PROTOCOLS))
def test_large_data_is_sent_in_chunks_that_peers_accept(channel, data, protocol):
    messages = list(encode(channel, data))
    assert all(1 < len(message) <= CHUNK + 1 for message in messages)
    said = [decode(message, protocol=protocol, channels=5) for message in messages]
    assert b"".join(item.data for item in said) == data
    assert {item.channel for item in said} <= {channel}


def test_no_data_makes_no_message_but_a_greeting_is_one():
    assert list(encode(1, b"")) == []
    assert greeting(1) == b"\x01"
    assert half_close(0) == b"\xff\x00"


@given(st.binary(max_size=64) | st.text(max_size=64), st.sampled_from(PROTOCOLS), st.integers(1, 254))
def test_any_message_is_parsed_or_rejected(message, protocol, channels):
    try:
        said = decode(message, protocol=protocol, channels=channels)
    except Violation:
        return
    assert said is None or said.channel < channels
