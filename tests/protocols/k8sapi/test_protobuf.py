import base64
import contextlib
import json
import random
import struct
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.protocols.k8sapi import protobuf
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.codec import BadBody

GOLDEN = [
    json.loads(line)
    for line in Path(__file__).with_name("data").joinpath("kubectl-protobuf.jsonl").read_text().splitlines()
]
TABLE = protobuf.load_table()


@pytest.mark.parametrize("sent", GOLDEN, ids=[each["command"] for each in GOLDEN])
def test_protobuf_of_kubectl_decodes_to_its_json(sent):
    """Bodies of kubectl 1.32 and 1.33, byte for byte the same."""
    assert protobuf.decode(base64.b64decode(sent["body"])) == sent["object"]


# The table against the published definitions of the same version

DEFINITIONS = json.loads(
    files("kubernetes_validate").joinpath("kubernetes-json-schema/v1.36.0-local/_definitions.json").read_text()
)["$defs"]
PREFIXES = {
    "meta.": "io.k8s.apimachinery.pkg.apis.",
    "apiextensions.": "io.k8s.apiextensions-apiserver.pkg.apis.",
    "apiregistration.": "io.k8s.kube-aggregator.pkg.apis.",
}
JSON_TYPES = {
    "s": "string",
    "y": "string",
    "i": "integer",
    "b": "boolean",
    "d": "number",
    "Quantity": "io.k8s.apimachinery.pkg.api.resource.Quantity",
    "Time": "io.k8s.apimachinery.pkg.apis.meta.v1.Time",
    "MicroTime": "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime",
    "IntOrString": "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
}
ANY = ("RawExtension", "FieldsV1", "JSON")


def definition_name(message):
    return next((p for k, p in PREFIXES.items() if message.startswith(k)), "io.k8s.api.") + message


def members(message):
    """The members of a message in JSON, those of inlined messages among them, by name."""
    for each in message.parsed():
        if each.name == "+":
            yield from members(TABLE.messages[message.qualified(each.type)])
        else:
            yield each, message


def expected_type(schema, form):
    if form == "[]":
        schema = schema["items"]
    elif form == "{}":
        schema = schema["additionalProperties"]
    if "$ref" in schema:
        return schema["$ref"].removeprefix("#/$defs/")
    kind = schema["type"]
    return kind if isinstance(kind, str) else next(each for each in kind if each != "null")


def objects():
    """Every message that has a definition of its own, which is all but the inlined ones."""
    return [name for name in TABLE.messages if definition_name(name) in DEFINITIONS and "=" not in text_of(name)]


def text_of(name):
    return TABLE.messages[name].text


@pytest.mark.parametrize("name", objects())
def test_a_message_has_exactly_the_members_of_its_definition(name):
    schema = DEFINITIONS[definition_name(name)]
    told = set(schema.get("properties", {})) - ({"apiVersion", "kind"} if is_kind(name) else set())
    assert {each.name for each, _ in members(TABLE.messages[name])} == told


def is_kind(name):
    return name in TABLE.kinds.values()


@pytest.mark.parametrize("name", objects())
def test_members_have_the_types_of_their_definition(name):
    properties = DEFINITIONS[definition_name(name)].get("properties", {})
    for each, owner in members(TABLE.messages[name]):
        told = expected_type(properties[each.name], each.form if not is_value_list(each, owner) else "")
        if each.type == "Raw":
            assert told.endswith(ANY), each
        elif each.type in JSON_TYPES:
            assert told == JSON_TYPES[each.type], each
        elif not is_value_list(each, owner):
            assert told == definition_name(owner.qualified(each.type)), each


def is_value_list(each, owner):
    """A map of lists: the list is a message of its own."""
    return each.form == "{}" and each.type == "ExtraValue"


def test_only_inlined_and_value_messages_have_no_definition():
    inlined = {
        message.qualified(each.type)
        for message in TABLE.messages.values()
        for each in message.parsed()
        if each.name == "+"
    }
    without = {name for name in TABLE.messages if definition_name(name) not in DEFINITIONS}
    assert all(name in inlined or name.endswith(".ExtraValue") for name in without)


def test_every_built_in_kind_and_every_body_of_a_subresource_is_known():
    optional = ("Options", "Status")
    wanted = {(each.api_version, each.kind) for each in BUILTIN.all}
    for kind in BUILTIN.all:
        for sub in kind.subresources:
            if sub.kind and not sub.kind.endswith(optional):
                wanted.add((f"{sub.group}/{sub.version}" if sub.group else sub.version, sub.kind))
    assert wanted <= set(TABLE.kinds)


# The wire format, written


def varint(value):
    value &= 0xFFFF_FFFF_FFFF_FFFF
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field, value):
    return varint(field << 3) + varint(value)


def sized(field, data):
    return varint(field << 3 | 2) + varint(len(data)) + data


def body(api_version, kind, raw):
    type_meta = sized(1, api_version.encode()) + sized(2, kind.encode())
    return protobuf.MAGIC + sized(1, type_meta) + sized(2, raw) + sized(3, b"") + sized(4, b"")


def decoded(api_version, kind, raw):
    found = protobuf.decode(body(api_version, kind, raw))
    assert found.pop("apiVersion") == api_version
    assert found.pop("kind") == kind
    return found


# There and back: objects made from the table, written as Go's encoder does, with every plain field


class Writer:
    """Makes objects of a message and writes them; two walks over the same table, the other way round."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def make(self, message, depth=0):
        out = {}
        for each in message.parsed():
            if each.name == "+":
                out |= self.make(TABLE.messages[message.qualified(each.type)], depth)
            elif self.random.random() < (0.5 if depth < 3 else 0.1):
                value = self.member(each, message, depth)
                if each.keep or value not in ("", 0, False, {}):
                    out[each.name] = value
        return out

    def member(self, each, message, depth):
        if each.form == "[]":
            return [self.value(each, message, depth) for _ in range(self.random.randint(1, 2))]
        if each.form == "{}":
            return {self.random.choice(["a", "b", ""]): self.value(each, message, depth) for _ in range(2)}
        return self.value(each, message, depth)

    def value(self, each, message, depth):
        pick = self.random.choice
        simple = {
            "s": lambda: pick(["", "x", "é😀"]),
            "y": lambda: pick(["", "AP8="]),
            "i": lambda: pick([0, 1, -1, 300, 2**63 - 1, -(2**63)]),
            "b": lambda: pick([True, False]),
            "d": lambda: pick([0, 1, -2.5]),
            "Quantity": lambda: pick(["0", "1500m"]),
            "Time": lambda: pick(["1970-01-01T00:00:00Z", "2023-11-14T22:13:20Z"]),
            "MicroTime": lambda: pick(["1970-01-01T00:00:00.000000Z", "2023-11-14T22:13:20.000123Z"]),
            "IntOrString": lambda: pick([0, 80, -1, "", "web"]),
            "Raw": lambda: pick([0, "x", {}, [None], {"a": 1}]),
        }
        if each.type in simple:
            return simple[each.type]()
        inner = TABLE.messages[message.qualified(each.type)]
        if "=" in inner.text:
            chosen = pick(list(inner.parsed()))
            return self.member(chosen, inner, depth + 1)
        return self.make(inner, depth + 1)

    def write(self, message, value):
        out = b""
        for each in message.parsed():
            if each.name == "+":
                out += sized(each.number, self.write(TABLE.messages[message.qualified(each.type)], value))
            elif each.name == "=":
                out += self.write_itself(each, message, value)
            elif each.name in value:
                out += self.write_member(each, message, value[each.name])
            elif not each.keep:
                out += self.write_zero(each, message)
        return out

    def write_member(self, each, message, value):
        if each.form == "[]":
            return b"".join(self.write_value(each, message, one) for one in value)
        if each.form == "{}":
            plain = protobuf.Field(2, "value", each.type)
            return b"".join(
                sized(each.number, sized(1, key.encode()) + self.write_value(plain, message, one))
                for key, one in value.items()
            )
        return self.write_value(each, message, value)

    def write_itself(self, each, message, value):
        fits = {"[]": list, "": bool if each.type == "b" else dict}[each.form]
        strings = isinstance(value, list) and all(isinstance(one, str) for one in value)
        if not isinstance(value, fits) or (each.form == "[]" and strings != (each.type == "s")):
            return b""
        return self.write_member(each, message, value)

    def write_zero(self, each, message):
        if each.type in ("i", "b"):
            return number(each.number, 0)
        return sized(each.number, b"")

    def write_value(self, each, message, value):
        simple = {
            "s": lambda: sized(each.number, value.encode()),
            "y": lambda: sized(each.number, base64.b64decode(value)),
            "i": lambda: number(each.number, value),
            "b": lambda: number(each.number, value),
            "d": lambda: varint(each.number << 3 | 1) + struct.pack("<d", value),
            "Quantity": lambda: sized(each.number, sized(1, value.encode())),
            "Time": lambda: sized(each.number, self.seconds(value) + number(2, 0)),
            "MicroTime": lambda: sized(each.number, self.seconds(value) + number(2, int(value[20:26]) * 1000)),
            "IntOrString": lambda: sized(each.number, self.int_or_string(value)),
            "Raw": lambda: sized(each.number, sized(1, json.dumps(value).encode())),
        }
        if each.type in simple:
            return simple[each.type]()
        return sized(each.number, self.write(TABLE.messages[message.qualified(each.type)], value))

    @staticmethod
    def seconds(text):
        return number(1, 0 if text.startswith("1970") else 1_700_000_000)

    @staticmethod
    def int_or_string(value):
        if isinstance(value, str):
            return number(1, 1) + number(2, 0) + sized(3, value.encode())
        return number(1, 0) + number(2, value) + sized(3, b"")


@given(st.sampled_from(sorted(TABLE.kinds)), st.integers(0, 2**32))
def test_an_object_survives_a_round_trip(kind, seed):
    writer = Writer(seed)
    message = TABLE.messages[TABLE.kinds[kind]]
    value = writer.make(message)
    assert decoded(*kind, writer.write(message, value)) == value


MUTATIONS = st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=6)


@given(st.sampled_from(GOLDEN), MUTATIONS, st.integers(0, 2000))
def test_a_body_that_was_damaged_decodes_or_is_a_bad_body(sent, mutations, length):
    data = bytearray(base64.b64decode(sent["body"]))
    for place, value in mutations:
        data[4 + place % (len(data) - 4)] = value
    with contextlib.suppress(BadBody):
        json.dumps(protobuf.decode(bytes(data[: 4 + length])))


@given(st.sampled_from(sorted(TABLE.kinds)), st.binary(max_size=100))
def test_any_bytes_decode_or_are_a_bad_body(kind, raw):
    with contextlib.suppress(BadBody):
        json.dumps(protobuf.decode(body(*kind, raw)))
    with contextlib.suppress(BadBody):
        protobuf.decode(protobuf.MAGIC + raw)
