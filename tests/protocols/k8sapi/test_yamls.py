import contextlib
import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from podwire.protocols.k8sapi.codec import BadBody
from podwire.protocols.k8sapi.yamls import decode_yaml, load_all

# What kubectl 1.33 makes of each, seen with `kubectl config view --raw -o json` on an extension of a kubeconfig.
# fmt: off
SCALARS = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "on", "On", "true", "True", "TRUE"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "off", "false"), False),
    **dict.fromkeys(("~", "null", "Null", "NULL", ""), None),
    **{name: name for name in ("yEs", "oN", "tRue", "nULL", "NaN", "nan", "Infinity", "inf", "=", "-x", "1.2.3")},
    **{name: name for name in ("12:30:45", "190:20:30", "1:2", "2020-01-01", "2001-12-14 21:59:43.10 -5")},
    **{name: name for name in ("0b12", "_1", ".e3", ".5.", "1 2", "0x", "0b", "0o", "0o8", "1,000", "1e", "e1", "+")},
    **{name: name for name in ("1e400", "-1e400", "1e400000")},
    "014": 12, "0o14": 12, "0O14": 12, "-014": -12, "007": 7, "00": 0, "0": 0, "-0": 0, "0777": 511,
    "08": 8, "09": 9, "0888": 888, "0777.5": 777.5, "0_8": 8,
    "0x1F": 31, "0X1f": 31, "-0x1F": -31, "0x_1F": 31, "0b11": 3, "0B11": 3, "-0b11": -3, "+0b11": 3, "+12": 12,
    "1_000": 1000, "1__000": 1000, "1_": 1, "9_9": 99, "1_0.5": 10.5, "1.5_0": 1.5,
    ".5": 0.5, "5.": 5, "+.5": 0.5, "-.5": -0.5, "1.0": 1, "1.5": 1.5, "0.0": 0, "123456.789": 123456.789,
    "1e3": 1000, "1E3": 1000, "1e+3": 1000, "1e-3": 0.001, "1.e3": 1000, "1e03": 1000, "0e0": 0, "1.5e300": 1.5e300,
    "9223372036854775807": 2**63 - 1, "-9223372036854775808": -(2**63),
    "!!str 12": "12", "!!str y": "y", "'y'": "y", '"1"': "1", "!!int '3'": 3, "!!float 3": 3, "!!bool 'y'": True,
    "!!null ''": None, "!!binary aGk=": "hi", "!foo bar": "bar", "!!timestamp 2020-01-01": "2020-01-01",
}
# fmt: on


@pytest.mark.parametrize(("text", "value"), SCALARS.items(), ids=SCALARS)
def test_scalars_are_resolved_as_kubectl_does(text, value):
    (document,) = load_all(f"k: {text}\n")
    assert document == {"k": value}
    assert type(document["k"]) is type(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("n: 1", {"false": 1}, id="a boolean key"),
        pytest.param("1e3: 1", {"1000": 1}, id="a number as key"),
        pytest.param("1.5: 1", {"1.5": 1}, id="a fraction as key"),
        pytest.param("2020-01-01: 1", {"2020-01-01": 1}, id="a date as key"),
        pytest.param("a: &x {b: 1}\nc: *x", {"a": {"b": 1}, "c": {"b": 1}}, id="an alias"),
        pytest.param("- &x k\n- {*x : v}", ["k", {"k": "v"}], id="an alias as key"),
        pytest.param("a: &x {b: 1}\nc: {<<: *x, b: 2}", {"a": {"b": 1}, "c": {"b": 2}}, id="a merge key, overwritten"),
        pytest.param(
            "a: &x {b: 1}\nc: {b: 2, <<: *x}", {"a": {"b": 1}, "c": {"b": 1}}, id="a merge key that comes last"
        ),
        pytest.param("a: {<<: [{x: 1}, {x: 2, z: 3}]}", {"a": {"x": 1, "z": 3}}, id="of several merged the first wins"),
        pytest.param("{a, b}", {"a": None, "b": None}, id="keys without values"),
        pytest.param("a: |\n  x\n  z\n", {"a": "x\nz\n"}, id="a block"),
        pytest.param("a: [1, {b: []}]", {"a": [1, {"b": []}]}, id="flow"),
    ],
)
def test_documents(text, value):
    assert load_all(text) == [value]
    assert decode_yaml(text.encode()).value == value


def test_manifests_may_have_many_documents_and_empty_ones():
    assert load_all("---\na: 1\n---\n---\n# nothing\n---\nb: 2\n...\n") == [{"a": 1}, {"b": 2}]
    assert load_all("") == []


def test_a_body_has_one_document():
    assert decode_yaml(b"").value is None
    with pytest.raises(BadBody, match="one YAML document"):
        decode_yaml(b"--- 1\n--- 2\n")


def test_a_json_body_is_read_as_json():
    body = b'{"a":"\\ud83d\\ude00","b":1,"b":2}'
    decoded = decode_yaml(body)
    assert decoded.value == {"a": "😀", "b": 2}
    assert decoded.duplicates == ["b"]


def test_duplicate_keys_are_reported_by_path_and_refused_in_manifests():
    text = "spec:\n  replicas: 1\n  list:\n  - {a: 1, a: 2, a: 3}\n  replicas: 2\n"
    decoded = decode_yaml(text.encode())
    assert decoded.value == {"spec": {"replicas": 2, "list": [{"a": 3}]}}
    assert decoded.duplicates == ["spec.list[0].a", "spec.replicas"]
    with pytest.raises(BadBody, match=r'duplicate field "spec.list\[0\].a"'):
        load_all(text)


BOMB = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9))
DEEP = "a0: &a0 " + "[" * 50 + "]" * 50 + "\n" + "".join(f"a{n}: &a{n} [[*a{n - 1}]]\n" for n in range(1, 60))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("a: b: c", "yaml: line 1: mapping values are not allowed", id="two colons"),
        pytest.param("x: 1\n- y", "yaml: line 2:", id="a list in a mapping"),
        pytest.param("a:\n\t- b", "cannot start any token", id="a tab"),
        pytest.param("a: *z", "unknown anchor 'z'", id="an unknown alias"),
        pytest.param("&a [*a]", "unknown anchor 'a'", id="a value in itself"),
        pytest.param("? [a]\n: b", "a key must be a scalar", id="a list as key"),
        pytest.param("- &a [1]\n- *a : b", "a key must be a scalar", id="an alias of a list as key"),
        pytest.param("~: 1", "a key must not be null", id="null as key"),
        pytest.param("<<: 1", "map merge requires map", id="merging a number"),
        pytest.param(".inf", "unsupported value: .inf", id="infinity"),
        pytest.param("-.INF", "unsupported value: -.INF", id="minus infinity"),
        pytest.param(".NaN", "unsupported value: .NaN", id="not a number"),
        pytest.param("9223372036854775808", "does not fit in 64 bits", id="a large number"),
        pytest.param("9" * 100_000, "does not fit in 64 bits", id="a very large number"),
        pytest.param("!!int x", "cannot decode `x` as a !!int", id="no integer"),
        pytest.param("!!binary '!!'", "invalid base64", id="no base64"),
        pytest.param('"\\ud800"', "invalid Unicode", id="a lone surrogate"),
        pytest.param("\x00", "control characters", id="a control character"),
        pytest.param("[" * 101 + "]" * 101, "more than 100 levels", id="too deep"),
        pytest.param("- " * 100_000, "more than 100 levels", id="much too deep"),
        pytest.param(BOMB, "aliases repeat too much", id="a small text that is a large value"),
        pytest.param(DEEP, "more than 100 levels", id="a deep value made of aliases"),
        pytest.param(
            f"- &a {'x' * 100_000}\n" + "- *a\n" * 100, "aliases repeat too much", id="a long string repeated"
        ),
    ],
)
def test_unreadable_yaml_is_rejected_with_a_reason(text, message):
    with pytest.raises(BadBody) as refused:
        decode_yaml(text.encode())
    assert message in refused.value.message


def test_a_body_that_is_not_utf8_is_refused():
    with pytest.raises(BadBody, match="not UTF-8"):
        decode_yaml(b"a: \xff")
    with pytest.raises(BadBody, match="surrogate"):
        load_all("\ud800")


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc é0", min_size=1), inner, max_size=4),
    max_leaves=15,
)


class _Quoting(yaml.CSafeDumper):
    """Writes strings in quotes, as somebody who knows YAML 1.1 does, and everything in full."""

    def ignore_aliases(self, data):
        return True


_Quoting.add_representer(str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"'))


@given(PLAIN)
def test_yaml_survives_a_round_trip(value):
    text = yaml.dump(value, Dumper=_Quoting, allow_unicode=True, sort_keys=False)
    assert decode_yaml(text.encode()).value == value


@given(PLAIN)
def test_json_is_yaml(value):
    assert load_all(json.dumps(value, ensure_ascii=False)) == ([] if value is None else [value])


@given(st.binary(max_size=80) | st.text("[]{}'\":,-?&*!|>%@#.\n\t <~0123456789eExaby_=", max_size=80).map(str.encode))
def test_any_bytes_decode_or_are_a_bad_body(body):
    with contextlib.suppress(BadBody):
        decode_yaml(body)
