import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.protocols.streaming.channels import Violation
from podwire.protocols.streaming.terminal import MAX_WAITING, Size, SizeReader, encode

sizes = st.lists(st.builds(Size, st.integers(0, 65535), st.integers(0, 65535)), max_size=5)


def test_a_size_is_json():
    assert encode(Size(80, 24)) == b'{"Width":80,"Height":24}\n'


@given(sizes, st.data())
def test_sizes_arrive_however_they_are_cut_and_joined(sizes, data):
    wire = b"".join(encode(size) for size in sizes)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=6)))
    reader = SizeReader()
    got = [
        size for start, end in zip([0, *cuts], [*cuts, len(wire)], strict=True) for size in reader.feed(wire[start:end])
    ]
    assert got == sizes


def test_names_may_be_written_in_any_case():
    assert list(SizeReader().feed(b' {"width": 1, "HEIGHT": 2, "Other": "x"} ')) == [Size(1, 2)]


@pytest.mark.parametrize(
    "data",
    [
        b"80x24",
        b"[80,24]",
        b"{}",
        b'{"Width":-1,"Height":1}',
        b'{"Width":65536,"Height":1}',
        b'{"Width":1.5,"Height":1}',
        b'{"Width":true,"Height":1}',
        b'{"Width":"80","Height":1}',
        b"\xff",
        b'{"a":' * (MAX_WAITING // 2),
        b'{"Width":' + b"1" * 5000 + b"}",
    ],
)
def test_an_invalid_terminal_size_is_rejected(data):
    with pytest.raises(Violation):
        list(SizeReader().feed(data))


def test_many_sizes_at_once_take_no_longer_than_they_must():
    assert sum(1 for _ in SizeReader().feed(encode(Size(1, 1)) * 20_000)) == 20_000
