"""CBOR: the same values as JSON, written and read by the rules of Kubernetes."""

import cbor2
import pytest

from podwire.protocols.k8sapi import cbor
from podwire.protocols.k8sapi.codec import MAX_DEPTH, MOST_CONTAINERS, MOST_MEMBERS, BadBody

VALUE = {"kind": "Pod", "é": ["ü", 1, -1, 2**62, 1.5, None, True, False, {}, []], "empty": ""}


def test_a_value_is_self_described_and_its_text_is_in_byte_strings():
    assert cbor.encode({"b": "x"}) == bytes.fromhex("d9d9f7 a1 4162 4178")
    assert cbor2.loads(cbor.encode(VALUE))[b"kind"] == b"Pod"


def test_what_is_written_is_read():
    assert cbor.decode(cbor.encode(VALUE)) == VALUE


@pytest.mark.parametrize("count", [0, 1, 30, 300])
def test_a_list_is_its_head_and_its_items(count):
    items = [{"metadata": {"name": f"n{number}"}} for number in range(count)]
    head = cbor.list_head("PodList", "v1", {"resourceVersion": "1"}, count)
    whole = head + b"".join(map(cbor.encode_item, items))
    listed = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}
    assert whole == cbor.encode(listed)


@pytest.mark.parametrize(
    ("body", "value"),
    [
        pytest.param("a1 6161 6162", {"a": "b"}, id="text strings, not self-described"),
        pytest.param("bf 4161 9f 01 02 ff ff", {"a": [1, 2]}, id="indefinite lengths"),
        pytest.param("5f 4161 4162 ff", "ab", id="an indefinite byte string"),
        pytest.param("d6 43 ff0001", "/wAB", id="bytes to be base64"),
        pytest.param("d5 43 ff0001", "_wAB", id="bytes to be base64url"),
        pytest.param("d7 43 ff0001", "FF0001", id="bytes to be hexadecimal"),
        pytest.param("c0 74 323032362d30312d30315430303a30303a30305a", "2026-01-01T00:00:00Z", id="a time"),
        pytest.param("c1 1a 5f000000", "2020-07-04T04:05:20Z", id="a time in seconds"),
        pytest.param("d9 2710 01", 1, id="a tag without a meaning"),
        pytest.param("d8 23 62 2828", "((", id="a tag whose meaning is not wanted"),
        pytest.param("81" * MAX_DEPTH, None, id="as deep as may be"),
    ],
)
def test_other_forms_are_read(body, value):
    data = bytes.fromhex(body)
    if value is None:
        assert cbor.decode(data[:-1] + b"\x80")
    else:
        assert cbor.decode(data) == value


@pytest.mark.parametrize(
    ("body", "why"),
    [
        pytest.param("", "premature end", id="empty"),
        pytest.param("a1 4161", "premature end", id="cut"),
        pytest.param("9b 000000ffffffffff", "premature end", id="a length of 2^40"),
        pytest.param("5b 000000ffffffffff", "premature end", id="a string of 2^40"),
        pytest.param("01 02", "1 bytes behind", id="two items"),
        pytest.param("a2 4161 01 4161 02", "Duplicate map key", id="a key twice"),
        pytest.param("a2 4161 01 6161 02", "as text and as bytes", id="a key twice, in two forms"),
        pytest.param("a1 01 02", "map key must be", id="a number as key"),
        pytest.param("41 ff", "not UTF-8", id="bytes without a tag"),
        pytest.param("61 ff", "decode byte", id="text that is not UTF-8"),
        pytest.param("f9 7e00", "finite", id="NaN"),
        pytest.param("f9 7c00", "finite", id="infinity"),
        pytest.param("f7", "no JSON form", id="undefined"),
        pytest.param("e5", "no JSON form", id="a simple value"),
        pytest.param("c2 41 01", "tag 2 is not supported", id="a large number"),
        pytest.param("1b ffffffffffffffff", "64 bits", id="more than int64"),
        pytest.param("c1 f97e00", "a time in seconds", id="no time"),
        pytest.param("d81c 81 d81d 00", "not supported", id="a cycle"),
        pytest.param("81" * (MAX_DEPTH + 1) + "80", "levels deep", id="too deep"),
        pytest.param("81" * 200_000, "more than 50000", id="much too deep"),
        pytest.param("d6" * 40_000, "depth", id="many tags"),
    ],
)
def test_bad_bodies_are_refused(body, why):
    with pytest.raises(BadBody, match=why):
        cbor.decode(bytes.fromhex(body))


@pytest.mark.parametrize(
    ("body", "why"),
    [
        pytest.param(b"\x9f" + b"\x80" * (MOST_CONTAINERS + 1) + b"\xff", "objects and lists", id="containers"),
        pytest.param(b"\xba" + (MOST_MEMBERS + 1).to_bytes(4, "big") + b"\x60\x60" * 9000, "members", id="members"),
        pytest.param(b"\xbf" + b"\x60\x60" * (MOST_MEMBERS + 1), "members", id="members of an indefinite map"),
    ],
)
def test_too_many_parts_are_refused_before_they_are_created(body, why):
    with pytest.raises(BadBody, match=f"more than .* {why}"):
        cbor.decode(body + b"\x00" * MOST_CONTAINERS)
