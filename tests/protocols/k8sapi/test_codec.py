import contextlib
import json
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.protocols.k8sapi.codec import MAX_DEPTH, MAX_DUPLICATES, MOST_CONTAINERS, BadBody, decode_json

SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
)
JSON = st.recursive(
    SCALARS | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
)


@given(JSON)
def test_json_survives_a_round_trip(value):
    decoded = decode_json(msgspec.json.encode(value))
    assert decoded.value == value
    assert decoded.duplicates == []


@given(JSON, st.sampled_from([None, 1, "\t"]), st.booleans())
def test_layout_and_escapes_make_no_difference(value, indent, ascii_only):
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only, separators=(" ,", " :"))
    assert decode_json(text.encode()).value == value


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(b"", "Input data was truncated", id="nothing"),
        pytest.param(b'{"a":', "Input data was truncated", id="half an object"),
        pytest.param(b'{"a" 1}', "expected ':' (byte 5)", id="no colon"),
        pytest.param(b'{"a":1} x', "trailing characters (byte 9)", id="something behind"),
        pytest.param(b'{"a":1,}', "trailing comma in object (byte 7)", id="comma at the end"),
        pytest.param(b"{'a':1}", "byte 1", id="single quotes"),
        pytest.param(b"NaN", "invalid character (byte 0)", id="NaN"),
        pytest.param(b"-Infinity", "invalid character (byte 1)", id="infinity"),
        pytest.param(b"1e400", "out of range", id="a float that is infinite"),
        pytest.param(b"01", "invalid number", id="leading zero"),
        pytest.param(b"9223372036854775808", "9223372036854775808 does not fit in 64 bits", id="too large"),
        pytest.param(b"[-9223372036854775809]", "does not fit in 64 bits", id="too small"),
        pytest.param(b"1" * 5000, "out of range", id="a very long number"),
        pytest.param(b'"\xff"', "not UTF-8 (byte 1)", id="not UTF-8"),
        pytest.param(b'{"key":"\xed\xa0\x80"}', "not UTF-8 (byte 8)", id="a surrogate in UTF-8"),
        pytest.param('"a"'.encode("utf-16"), "invalid character (byte 0)", id="UTF-16"),
        pytest.param(b"\xef\xbb\xbf{}", "invalid character (byte 0)", id="byte order mark"),
        pytest.param(b'"\\ud800"', "", id="a lone surrogate"),
        pytest.param(b'"\\ud800\\u0041"', "", id="half a pair"),
        pytest.param(b'"\\udc00"', "", id="the other half"),
        pytest.param(b'"\x00"', "invalid character", id="a control character"),
        pytest.param(b"[" * 101 + b"]" * 101, "nested more than 100 levels deep", id="too deep"),
        pytest.param(b'{"a":' * 3000 + b"1" + b"}" * 3000, "nested more than 100 levels deep", id="much too deep"),
        pytest.param(b"[" * 40_000, "nested more than 100 levels deep", id="all depth"),
    ],
)
def test_json_that_is_not_strict_is_rejected_with_a_reason(body, message):
    with pytest.raises(BadBody) as refused:
        decode_json(body)
    assert message in refused.value.message


def test_the_depth_limit_is_the_callers():
    deep = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    assert decode_json(deep).duplicates == []
    assert decode_json(b"1", max_depth=0).value == 1
    with pytest.raises(BadBody, match="more than 0 levels"):
        decode_json(b"[]", max_depth=0)


@pytest.mark.parametrize(
    ("body", "duplicates"),
    [
        pytest.param('{"a":1,"a":2}', ["a"], id="at the top"),
        pytest.param('{"a":1,"a":2,"a":3}', ["a"], id="three times is reported once"),
        pytest.param('{"spec":{"replicas":1,"x":[],"replicas":2}}', ["spec.replicas"], id="below"),
        pytest.param('{"c":[{"i":1},{"i":1,"i":2}]}', ["c[1].i"], id="in a list"),
        pytest.param('[[{"i":1,"i":2}]]', ["[0][0].i"], id="in lists of lists"),
        pytest.param('{"a":1 , "a" : 2}', ["a"], id="space before the colon"),
        pytest.param('{"a"\n:1,"a"\r\n\t:2}', ["a"], id="a line break before the colon"),
        pytest.param('{"a\\\\":1,"a\\\\":2}', ["a\\"], id="a key that ends in a backslash"),
        pytest.param('{"a\\"":1,"a\\"":2}', ['a"'], id="a key that ends in a quote"),
        pytest.param('{"\\u0061":1,"a":2}', ["a"], id="written in two ways"),
        pytest.param('{"a":{"x":1,"x":2},"a":3}', ["a.x", "a"], id="in what is overwritten"),
        pytest.param('{"a":"\\":","b":":","c":"x :"}', [], id="colons in strings"),
        pytest.param('{"a":"{\\"b\\":1,\\"b\\":2}"}', [], id="JSON in a string"),
        pytest.param('{"a":{"x":1},"b":{"x":1}}', [], id="the same key elsewhere"),
    ],
)
def test_keys_given_twice_are_reported_by_path(body, duplicates):
    assert decode_json(body.encode()).duplicates == duplicates


def test_the_last_of_two_equal_keys_wins():
    assert decode_json(b'{"a":1,"a":{"b":2}}').value == {"a": {"b": 2}}


def test_reports_of_duplicates_end_somewhere():
    body = "{" + ",".join(f'"k{n}":1,"k{n}":2' for n in range(1000)) + "}"
    assert len(decode_json(body.encode()).duplicates) == MAX_DUPLICATES


KEYS = st.sampled_from(["a", "b", "\\", '"', ":", " :", '\\":', "é"])


@st.composite
def texts_with_pairs(draw):
    """A JSON text as pairs, so that keys may repeat, and the paths that do."""
    paths = []

    def value(path, depth):
        if depth == 0 or draw(st.booleans()):
            return json.dumps(draw(st.sampled_from([1, "x", 'a":', " :", "\\"])))
        pairs, seen = [], set()
        for _ in range(draw(st.integers(0, 3))):
            key = draw(KEYS)
            here = f"{path}.{key}" if path else key
            if key in seen:
                paths.append(here)
            seen.add(key)
            space = draw(st.sampled_from(["", " ", "\n"]))
            pairs.append(f"{json.dumps(key)}{space}:{value(here, depth - 1)}")
        return "{" + ",".join(pairs) + "}"

    return value("", 3), paths


@given(texts_with_pairs())
def test_no_duplicate_goes_unseen_and_none_is_made_up(made):
    text, paths = made
    assert decode_json(text.encode()).duplicates == list(dict.fromkeys(paths))


@given(st.binary(max_size=60) | st.text('[]{}":,\\u0123456789eE+-. truefalsnd', max_size=60).map(str.encode))
def test_any_bytes_decode_or_are_a_bad_body(body):
    with contextlib.suppress(BadBody):
        assert decode_json(body).value == json.loads(body)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"[" + b"[0]," * 780_000 + b"0]", id="many lists"),
        pytest.param(b"{" + b'"a":0,' * 500_000 + b'"a":1}', id="one key many times"),
        pytest.param(b"[" + b'":",' * 780_000 + b"0]", id="many colons in strings"),
        pytest.param(b"[" + b'{"":0},' * 430_000 + b"0]", id="many objects"),
    ],
)
def test_the_largest_body_takes_a_moment(body):
    begun = time.process_time()
    with contextlib.suppress(BadBody):
        decode_json(body)
    assert time.process_time() - begun < 5


@pytest.mark.parametrize("part", [b"{}", b"[]", b'{"a":[]}'])
def test_too_many_parts_are_a_bad_body(part):
    each = part.count(b"{") + part.count(b"[")
    allowed = (MOST_CONTAINERS - 1) // each
    decode_json(b"[" + b",".join([part] * allowed) + b"]")
    with pytest.raises(BadBody, match="more than 50000 objects and lists"):
        decode_json(b"[" + b",".join([part] * (allowed + 1)) + b"]")
