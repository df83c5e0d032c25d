"""Compressed bytes: whole, or refused."""

import gzip
import io
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.runtime.images import BadImage, Limits
from podwire.runtime.images.errors import OverLimit
from podwire.runtime.images.streams import CHUNK, Decompressed, Hashing, Pieces, compression


def gunzip(data: bytes, limits: Limits | None = None) -> bytes:
    stream = Decompressed(io.BytesIO(data), "gzip", limits or Limits(), "layer")
    return b"".join(iter(lambda: stream.read(CHUNK), b""))


@given(st.lists(st.binary(max_size=3000), min_size=1, max_size=4))
def test_members_follow_each_other(parts):
    assert gunzip(b"".join(map(gzip.compress, parts))) == b"".join(parts)


WHOLE = gzip.compress(bytes(range(256)) * 500, mtime=0)


@pytest.mark.parametrize("sixteenths", range(16))
def test_a_stream_that_ends_early_is_refused(sixteenths):
    with pytest.raises(BadImage):
        gunzip(WHOLE[: len(WHOLE) * sixteenths // 16])


@pytest.mark.parametrize("extra", [b"\0", b"garbage", WHOLE[:5], b"\x1f\x8b"])
def test_bytes_after_the_end_of_a_stream_are_refused(extra):
    with pytest.raises(BadImage):
        gunzip(WHOLE + extra)


def test_a_wrong_sum_is_refused():
    with pytest.raises(BadImage):
        gunzip(WHOLE[:-5] + b"\xff" + WHOLE[-4:])


def test_a_stream_that_expands_too_much_is_refused_while_it_expands():
    bomb = gzip.compress(bytes(64 << 20))
    tracemalloc.start()
    with pytest.raises(OverLimit, match="more than 200 times"):
        gunzip(bomb, Limits(ratio_from=1 << 20))
    assert tracemalloc.get_traced_memory()[1] < 32 << 20
    tracemalloc.stop()


def test_a_small_file_of_zeros_is_accepted():
    assert gunzip(gzip.compress(bytes(1 << 20))) == bytes(1 << 20)


@pytest.mark.parametrize(
    ("beginning", "name"),
    [(b"\x1f\x8b\x08", "gzip"), (b"\x28\xb5\x2f\xfd", "zstd"), (b"\xfd7zXZ\0", "xz"), (b"BZh9", "bzip2"), (b"a", "")],
)
def test_compressions_are_known_by_their_first_bytes(beginning, name):
    assert compression(beginning) == name


@given(st.binary(max_size=200), st.lists(st.integers(0, 50), max_size=8))
def test_chunks_have_the_exact_size_until_the_end(data, sizes):
    hashed = Hashing(io.BytesIO(data))
    pieces, at = Pieces(hashed, "t"), 0
    for size in sizes:
        if at + size > len(data):
            with pytest.raises(BadImage):
                pieces.exactly(size)
            return
        assert pieces.exactly(size) == data[at : at + size]
        at += size
        assert pieces.position == at
