import base64
import contextlib
import json
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.protocols.k8sapi import protobuf
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.codec import BadBody
from tests.protocols.k8sapi.protobuf_reference import reference
from tests.protocols.k8sapi.protobuf_writer import TABLE, Writer, body, decoded

GOLDEN = [
    json.loads(line)
    for line in Path(__file__).with_name("data").joinpath("kubectl-protobuf.jsonl").read_text().splitlines()
]


@pytest.mark.parametrize("sent", GOLDEN, ids=[item["command"] for item in GOLDEN])
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
    for item in message.parsed():
        if item.name == "+":
            yield from members(TABLE.messages[message.qualified(item.type)])
        else:
            yield item, message


def expected_type(schema, form):
    if form == "[]":
        schema = schema["items"]
    elif form == "{}":
        schema = schema["additionalProperties"]
    if "$ref" in schema:
        return schema["$ref"].removeprefix("#/$defs/")
    kind = schema["type"]
    return kind if isinstance(kind, str) else next(item for item in kind if item != "null")


def objects():
    """Every message that has a definition of its own, which is all but the inlined ones."""
    return [name for name in TABLE.messages if definition_name(name) in DEFINITIONS and "=" not in text_of(name)]


def text_of(name):
    return TABLE.messages[name].text


@pytest.mark.parametrize("name", objects())
def test_a_message_has_exactly_the_members_of_its_definition(name):
    schema = DEFINITIONS[definition_name(name)]
    result = set(schema.get("properties", {})) - ({"apiVersion", "kind"} if is_kind(name) else set())
    assert {each.name for each, _ in members(TABLE.messages[name])} == result


def is_kind(name):
    return name in TABLE.kinds.values()


@pytest.mark.parametrize("name", objects())
def test_members_have_the_types_of_their_definition(name):
    properties = DEFINITIONS[definition_name(name)].get("properties", {})
    for each, owner in members(TABLE.messages[name]):
        result = expected_type(properties[each.name], each.form if not is_value_list(each, owner) else "")
        if each.type == "Raw":
            assert result.endswith(ANY), each
        elif each.type in JSON_TYPES:
            assert result == JSON_TYPES[each.type], each
        elif not is_value_list(each, owner):
            assert result == definition_name(owner.qualified(each.type)), each


def is_value_list(each, owner):
    """A map of lists: the list is a message of its own."""
    return each.form == "{}" and each.type == "ExtraValue"


def test_only_inlined_and_value_messages_have_no_definition():
    inlined = {
        message.qualified(item.type)
        for message in TABLE.messages.values()
        for item in message.parsed()
        if item.name == "+"
    }
    without = {name for name in TABLE.messages if definition_name(name) not in DEFINITIONS}
    assert all(name in inlined or name.endswith(".ExtraValue") for name in without)


def test_every_built_in_kind_and_every_body_of_a_subresource_is_known():
    optional = ("Options", "Status")
    wanted = {(item.api_version, item.kind) for item in BUILTIN.all}
    for kind in BUILTIN.all:
        for sub in kind.subresources:
            if sub.kind and not sub.kind.endswith(optional):
                wanted.add((f"{sub.group}/{sub.version}" if sub.group else sub.version, sub.kind))
    assert wanted <= set(TABLE.kinds)


@given(st.sampled_from(sorted(TABLE.kinds)), st.integers(0, 2**32))
def test_an_object_survives_a_round_trip(kind, seed):
    writer = Writer(seed)
    message = TABLE.messages[TABLE.kinds[kind]]
    value = writer.make(message)
    assert decoded(*kind, writer.write(message, value)) == value


MUTATIONS = st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=6)


@given(st.sampled_from(GOLDEN), MUTATIONS, st.integers(0, 2000))
def test_a_body_that_was_damaged_decodes_as_upstream_decodes_it_or_is_a_bad_body(sent, mutations, length):
    damaged = bytearray(base64.b64decode(sent["body"]))
    for place, value in mutations:
        damaged[4 + place % (len(damaged) - 4)] = value
    data = bytes(damaged[: 4 + length])
    with contextlib.suppress(BadBody):
        assert protobuf.decode(data) == reference(data)


@given(st.sampled_from(sorted(TABLE.kinds)), st.binary(max_size=100))
def test_any_bytes_decode_or_are_a_bad_body(kind, raw):
    with contextlib.suppress(BadBody):
        json.dumps(protobuf.decode(body(*kind, raw)))
    with contextlib.suppress(BadBody):
        protobuf.decode(protobuf.MAGIC + raw)
