# ruff: noqa: E501 -- tables of cases: one a line reads better than six
"""Messages written by hand: what zero means, what JSON writes otherwise, what is refused."""

import struct

import pytest

from podwire.protocols.k8sapi import protobuf
from podwire.protocols.k8sapi.codec import BadBody
from tests.protocols.k8sapi.protobuf_writer import body, decoded, number, sized, varint


@pytest.mark.parametrize("api_version", ["v1", "apps/v1", "meta.k8s.io/v1", "example.com/v1"])
def test_delete_options_belong_to_every_version(api_version):
    options = sized(4, b"Background") + number(1, 0) + sized(2, sized(1, b"uid-1"))
    assert protobuf.decode(body(api_version, "DeleteOptions", options)) == {
        "apiVersion": api_version,
        "kind": "DeleteOptions",
        "propagationPolicy": "Background",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": "uid-1"},
    }


ZEROES = [
    pytest.param("v1", "PersistentVolumeClaim", sized(2, sized(5, b"")), {"spec": {"storageClassName": ""}}, id="*string"),
    pytest.param("v1", "PersistentVolumeClaim", sized(2, sized(3, b"")), {}, id="string"),
    pytest.param("apps/v1", "Deployment", sized(2, number(1, 0)), {"spec": {"replicas": 0}}, id="*int32"),
    pytest.param("apps/v1", "Deployment", sized(2, number(5, 0)), {}, id="int32"),
    pytest.param("v1", "Service", sized(2, sized(1, number(3, 0))), {"spec": {"ports": [{"port": 0}]}}, id="required int32"),
    pytest.param("v1", "Pod", sized(2, number(21, 0)), {"spec": {"automountServiceAccountToken": False}}, id="*bool"),
    pytest.param("v1", "Pod", sized(2, number(11, 0)), {}, id="bool"),
    pytest.param("v1", "Pod", sized(2, sized(14, b"")), {"spec": {"securityContext": {}}}, id="*struct"),
    pytest.param("v1", "Pod", sized(1, b"") + sized(2, b"") + sized(3, b""), {}, id="struct"),
    pytest.param("apps/v1", "Deployment", sized(2, sized(4, sized(1, b""))), {}, id="struct of zeroes"),
    pytest.param(
        "v1",
        "Pod",
        sized(2, sized(1, sized(1, b"tmp") + sized(2, sized(2, b"")))),
        {"spec": {"volumes": [{"name": "tmp", "emptyDir": {}}]}},
        id="*struct that is inlined",
    ),
    pytest.param("v1", "Service", sized(2, sized(1, sized(4, number(1, 0)))), {"spec": {"ports": [{}]}}, id="IntOrString"),
    pytest.param("v1", "Pod", sized(1, sized(8, b"")), {}, id="Time"),
    pytest.param("v1", "ConfigMap", sized(2, sized(1, b"k")), {"data": {"k": ""}}, id="map value"),
    pytest.param("v1", "ConfigMap", sized(2, b""), {"data": {"": ""}}, id="map entry"),
    pytest.param("v1", "ResourceQuota", sized(2, sized(1, sized(1, b"k"))), {"spec": {"hard": {"k": "0"}}}, id="Quantity"),
]  # fmt: skip


@pytest.mark.parametrize(("api_version", "kind", "raw", "value"), ZEROES)
def test_a_zero_is_kept_where_it_was_meant(api_version, kind, raw, value):
    assert decoded(api_version, kind, raw) == value


def lease(micro):
    return sized(2, sized(3, micro))


SPECIAL = [
    pytest.param("v1", "Pod", sized(1, sized(8, number(1, 1_700_000_000) + number(2, 5))), {"metadata": {"creationTimestamp": "2023-11-14T22:13:20Z"}}, id="Time"),
    pytest.param("v1", "Pod", sized(1, sized(8, number(1, 0))), {"metadata": {"creationTimestamp": "1970-01-01T00:00:00Z"}}, id="the epoch"),
    pytest.param("v1", "Pod", sized(1, sized(8, number(1, -62135596799))), {"metadata": {"creationTimestamp": "0001-01-01T00:00:01Z"}}, id="long ago"),
    pytest.param("coordination.k8s.io/v1", "Lease", lease(number(1, 1_700_000_000) + number(2, 123_456_789)), {"spec": {"acquireTime": "2023-11-14T22:13:20.123456Z"}}, id="MicroTime"),
    pytest.param("v1", "Service", sized(2, sized(1, sized(4, number(1, 0) + number(2, -5)))), {"spec": {"ports": [{"targetPort": -5}]}}, id="a negative number"),
    pytest.param("v1", "Service", sized(2, sized(1, sized(4, number(1, 1) + sized(3, b"web")))), {"spec": {"ports": [{"targetPort": "web"}]}}, id="a string"),
    pytest.param("v1", "Secret", sized(2, sized(1, b"k") + sized(2, b"\xff\x00")), {"data": {"k": "/wA="}}, id="bytes"),
    pytest.param("apps/v1", "ControllerRevision", sized(2, sized(1, b'{"a":[1]}')), {"data": {"a": [1]}}, id="RawExtension"),
    pytest.param("v1", "Pod", sized(1, sized(17, sized(7, sized(1, b'{"f:a":{}}')))), {"metadata": {"managedFields": [{"fieldsV1": {"f:a": {}}}]}}, id="FieldsV1"),
    pytest.param("authentication.k8s.io/v1", "TokenReview", sized(3, sized(2, sized(4, sized(1, b"k") + sized(2, sized(1, b"a") + sized(1, b""))))), {"status": {"user": {"extra": {"k": ["a", ""]}}}}, id="ExtraValue"),
    pytest.param("v1", "Pod", sized(2, sized(14, number(4, 1) + number(4, -1))), {"spec": {"securityContext": {"supplementalGroups": [1, -1]}}}, id="numbers one by one"),
    pytest.param("v1", "Pod", sized(2, sized(14, sized(4, varint(300) + varint(0)))), {"spec": {"securityContext": {"supplementalGroups": [300, 0]}}}, id="numbers packed"),
    pytest.param("v1", "Pod", sized(2, sized(2, sized(1, b"c") + sized(10, sized(1, sized(2, sized(1, b"/h") + sized(2, number(2, 80))))))), {"spec": {"containers": [{"name": "c", "livenessProbe": {"httpGet": {"path": "/h", "port": 80}}}]}}, id="an inlined probe"),
    pytest.param("v1", "Pod", sized(99, b"x") + number(98, 7) + varint(97 << 3 | 1) + bytes(8) + varint(96 << 3 | 5) + bytes(4) + sized(2, sized(10, b"n1")), {"spec": {"nodeName": "n1"}}, id="unknown fields"),
]  # fmt: skip


@pytest.mark.parametrize(("api_version", "kind", "raw", "value"), SPECIAL)
def test_messages_that_json_writes_otherwise(api_version, kind, raw, value):
    assert decoded(api_version, kind, raw) == value


def schema_body(schema):
    version = sized(1, b"v1") + sized(4, sized(1, schema))
    return decoded("apiextensions.k8s.io/v1", "CustomResourceDefinition", sized(2, sized(7, version)))["spec"][
        "versions"
    ][0]["schema"]["openAPIV3Schema"]


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        pytest.param(sized(24, sized(1, sized(5, b"string"))), {"items": {"type": "string"}}, id="items: one schema"),
        pytest.param(sized(24, sized(2, b"") + sized(2, sized(5, b"x"))), {"items": [{}, {"type": "x"}]}, id="items: many"),
        pytest.param(sized(30, number(1, 0)), {"additionalProperties": False}, id="additionalProperties: false"),
        pytest.param(sized(30, number(1, 1) + sized(2, sized(5, b"x"))), {"additionalProperties": {"type": "x"}}, id="or a schema"),
        pytest.param(sized(32, sized(1, b"a") + sized(2, sized(2, b"b"))), {"dependencies": {"a": ["b"]}}, id="dependencies: names"),
        pytest.param(sized(8, sized(1, b"false")), {"default": False}, id="a default that is false"),
        pytest.param(sized(20, sized(1, b"null")) + sized(20, sized(1, b'"a"')), {"enum": [None, "a"]}, id="null in an enum"),
        pytest.param(sized(3, b"#/x"), {"$ref": "#/x"}, id="$ref"),
        pytest.param(b"\x49" + struct.pack("<d", 2.5), {"maximum": 2.5}, id="a double"),
        pytest.param(b"\x49" + struct.pack("<d", 5), {"maximum": 5}, id="a whole double"),
        pytest.param(number(38, 1), {"x-kubernetes-preserve-unknown-fields": True}, id="x-kubernetes"),
    ],
)  # fmt: skip
def test_schemas_of_custom_resources(raw, value):
    assert schema_body(raw) == value


def nested_schema(levels):
    """Properties in properties; each is two levels of JSON."""
    schema = b""
    for _ in range(levels):
        schema = sized(29, sized(1, b"p") + sized(2, schema))
    return schema


POD = body("v1", "Pod", sized(1, sized(1, b"web")))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(b"", "expected prefix [107 56 115 0]", id="nothing"),
        pytest.param(b'{"kind":"Pod"}', "expected prefix", id="JSON"),
        pytest.param(POD[:-1], "ends in the middle of a field", id="cut"),
        pytest.param(POD[:10], "", id="cut in the envelope"),
        pytest.param(protobuf.MAGIC, 'no kind "" is registered for version ""', id="no type"),
        pytest.param(body("v1", "Foo", b""), 'no kind "Foo" is registered for version "v1"', id="unknown kind"),
        pytest.param(body("apps.example.com/v1", "Deployment", b""), "no kind", id="a kind of another group"),
        pytest.param(body("v1", "Container", b""), "no kind", id="a message that is not a kind"),
        pytest.param(POD + sized(3, b"gzip"), "contentEncoding 'gzip' is not supported", id="compressed"),
        pytest.param(POD + sized(4, b"application/json"), "contentType", id="JSON in the envelope"),
        pytest.param(body("v1", "Pod", b"\x0b" * 10_000), "proto: Pod: wrong wireType = 3 for field metadata", id="groups"),
        pytest.param(body("v1", "Pod", varint(99 << 3 | 3)), "wire type 3 is not supported", id="an unknown group"),
        pytest.param(body("v1", "Pod", b"\x0c"), "proto: Pod: wiretype end group for non-group", id="the end of a group"),
        pytest.param(body("v1", "Pod", b"\x0f\x00"), "proto: Pod: wrong wireType = 7 for field metadata", id="no wire type"),
        pytest.param(body("v1", "Pod", varint(99 << 3 | 7)), "wire type 7", id="an unknown field without wire type"),
        pytest.param(body("v1", "Pod", number(1, 5)), "proto: Pod: wrong wireType = 0 for field metadata", id="a number instead of a message"),
        pytest.param(body("v1", "Pod", sized(1, number(1, 5))), "proto: ObjectMeta: wrong wireType = 0 for field name", id="a number instead of a string"),
        pytest.param(body("v1", "Pod", sized(2, sized(4, b"30"))), "proto: PodSpec: wrong wireType = 2 for field terminationGracePeriodSeconds", id="a string instead of a number"),
        pytest.param(body("v1", "Pod", sized(1, sized(11, number(1, 1)))), "proto: labels: wrong wireType = 0 for field key", id="a number as a key"),
        pytest.param(body("v1", "Pod", b"\x82\x80\x80\x80\x10\x00"), "proto: Pod: illegal tag 536870912 (wire type 2)", id="a tag of 33 bits"),
        pytest.param(body("v1", "Service", sized(2, sized(1, sized(4, number(1, 2))))), "IntOrString in the protobuf message has the type 2", id="IntOrString of no type"),
        pytest.param(body("v1", "Service", sized(2, sized(1, sized(4, number(1, 0) + number(2, 80)) + sized(4, b"")))), "proto: field targetPort is given twice", id="two values"),
        pytest.param(body("v1", "Pod", b"\x02\x00"), "proto: Pod: illegal tag 0 (wire type 2)", id="field 0"),
        pytest.param(body("v1", "Pod", b"\x0a\xff\xff\xff\xff\x07"), "longer than", id="a length of 2 GB"),
        pytest.param(body("v1", "Pod", b"\x0a" + b"\xff" * 9 + b"\x01"), "longer than", id="a length of 64 bits"),
        pytest.param(body("v1", "Pod", b"\x98\x06" + b"\x80" * 11), "longer than 64 bits", id="a number without end"),
        pytest.param(body("v1", "Pod", b"\x0a\x05\x0a\x09x"), "", id="a field that is longer than its message"),
        pytest.param(body("v1", "Pod", sized(1, sized(1, b"\xff"))), "not UTF-8", id="no UTF-8"),
        pytest.param(body("v1", "Pod", varint(97 << 3 | 1) + bytes(7)), "", id="half a double"),
        pytest.param(body("v1", "Pod", sized(1, sized(8, number(1, 2**62)))), "out of range", id="after the end of time"),
        pytest.param(body("coordination.k8s.io/v1", "Lease", lease(number(1, 1) + number(2, -1))), "out of range", id="nanos"),
        pytest.param(body("apps/v1", "ControllerRevision", sized(2, sized(1, b"{"))), "truncated", id="JSON that is none"),
        pytest.param(body("apps/v1", "ControllerRevision", sized(2, sized(1, b"[" * 100 + b"]" * 100))), "more than 99 levels", id="deep JSON"),
    ],
)  # fmt: skip
def test_an_invalid_body_is_rejected_with_a_reason(data, message):
    with pytest.raises(BadBody) as refused:
        protobuf.decode(data)
    assert message in refused.value.message


TWICE = [
    pytest.param("v1", "Pod", sized(1, sized(1, b"a")) + sized(1, sized(3, b"b")), {"metadata": {"name": "a", "namespace": "b"}}, id="messages"),
    pytest.param("v1", "Pod", sized(1, sized(1, b"a") + sized(1, b"b")), {"metadata": {"name": "b"}}, id="strings"),
    pytest.param("v1", "Pod", sized(1, sized(1, b"a") + sized(1, b"")), {}, id="the second string is empty"),
    pytest.param("apps/v1", "Deployment", sized(2, number(5, 3) + number(5, 0)), {}, id="the second number is zero"),
]  # fmt: skip


@pytest.mark.parametrize(("api_version", "kind", "raw", "value"), TWICE)
def test_of_a_field_given_twice_messages_are_merged_and_the_last_value_counts(api_version, kind, raw, value):
    assert decoded(api_version, kind, raw) == value


def test_a_schema_with_both_forms_has_the_one_that_upstream_writes():
    """JSONSchemaPropsOrArray and JSONSchemaPropsOrBool have a field for each form."""
    both = sized(24, sized(1, sized(5, b"string")) + sized(2, sized(5, b"number")))
    assert schema_body(both) == {"items": [{"type": "number"}]}
    assert schema_body(sized(30, sized(2, sized(5, b"x")) + number(1, 1))) == {"additionalProperties": {"type": "x"}}


def test_nesting_ends_where_json_would_end():
    schema_body(nested_schema(45))
    for levels in (50, 3000):
        with pytest.raises(BadBody, match="nested more than 100 levels"):
            schema_body(nested_schema(levels))


def test_numbers_that_are_not_finite_are_refused():
    for text in ("nan", "inf", "-inf"):
        with pytest.raises(BadBody, match="not finite"):
            schema_body(b"\x49" + struct.pack("<d", float(text)))
