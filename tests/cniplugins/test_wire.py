"""Messages between programs and the daemon, as bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.cniplugins.daemon import wire

TEXT = st.text(st.characters(exclude_characters="\0=", codec="utf-8"), max_size=20)


@given(
    name=TEXT,
    environ=st.dictionaries(TEXT.filter(bool), TEXT.map(lambda each: f"{each}=")),
    stdin=st.binary(max_size=99),
)
def test_call_is_decoded(name, environ, stdin):
    parts = [name.encode(), b"".join(f"{key}={value}\0".encode() for key, value in environ.items()), stdin]
    sizes = wire.lengths(wire.CALL.pack(wire.MAGIC, *map(len, parts)))
    assert wire.request(sizes, b"".join(parts)) == wire.Request(name, environ, stdin)


@given(st.binary(max_size=40))
def test_any_bytes_are_a_call_or_rejected(head):
    try:
        sizes = wire.lengths(head)
    except wire.NotACall:
        return
    assert head.startswith(wire.MAGIC)
    assert all(each <= largest for each, largest in zip(sizes, wire.LARGEST, strict=True))


@pytest.mark.parametrize("at", range(3))
def test_too_long_lengths_are_rejected(at):
    sizes = [0, 0, 0]
    sizes[at] = wire.LARGEST[at] + 1
    with pytest.raises(wire.NotACall, match=str(sizes[at])):
        wire.lengths(wire.CALL.pack(wire.MAGIC, *sizes))


def test_environment_with_invalid_text_is_accepted():
    body = b"bridgeA=\xff\0nothing\0B=\0"
    assert wire.request((6, len(body) - 6, 0), body).environ == {"A": "\udcff", "B": ""}
