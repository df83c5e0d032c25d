"""Wrong bodies of creations and updates: each gets its code, its reason and the field that is wrong, and leaves no
trace."""

import gzip

import pytest

CORE = "/api/v1/namespaces/default"
MAPS = f"{CORE}/configmaps"
PODS = f"{CORE}/pods"
LONG = "x" * 254


@pytest.fixture
def stocked(house):
    house.made(MAPS, {"metadata": {"name": "there"}, "data": {"key": "value"}})
    house.made(PODS, {"metadata": {"name": "there"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    return house


def assert_refused(reply, code, reason, *parts):
    assert (reply.status, reply.body["reason"]) == (code, reason), reply.raw[:600]
    for part in parts:
        assert part in reply.message


BROKEN = [
    pytest.param(b"", "empty", id="nothing"),
    pytest.param(b" \n", "truncated", id="blanks"),
    pytest.param(b"null", "must be a JSON object", id="null"),
    pytest.param(b"[]", "must be a JSON object", id="a list"),
    pytest.param(b"17", "must be a JSON object", id="a number"),
    pytest.param(b'"Pod"', "must be a JSON object", id="a string"),
    pytest.param(b'{"metadata":', "truncated", id="half of one"),
    pytest.param(b"{}{}", "trailing", id="two of them"),
    pytest.param(b"<html>", "malformed", id="HTML"),
    pytest.param(b"\xff\xfe{\x00}\x00", "malformed", id="UTF-16"),
    pytest.param(b"\xef\xbb\xbf{}", "malformed", id="a byte order mark"),
    pytest.param(b'{"metadata":{"name":"\xff"}}', "UTF-8", id="no UTF-8"),
    pytest.param(b'{"metadata":{"name":"\\ud800"}}', "", id="half a surrogate pair"),
    pytest.param(b'{"metadata":{"name":"a\x00"}}', "malformed", id="NUL in a string"),
    pytest.param(b'{"metadata":NaN}', "malformed", id="NaN"),
    pytest.param(b'{"metadata":-Infinity}', "malformed", id="Infinity"),
    pytest.param(b'{"metadata":{"generation":1e999}}', "out of range", id="too large a float"),
    pytest.param(b'{"x":%s}' % (b"9" * 30), "64 bits", id="too large a whole number"),
    pytest.param(b'{"x":%s}' % (b"9" * 5000), "", id="a number of five thousand digits"),
    pytest.param(b'{"x":01}', "malformed", id="a leading zero"),
    pytest.param(b"{'x':1}", "malformed", id="single quotes"),
    pytest.param(b'{"x":1,}', "malformed", id="a trailing comma"),
    pytest.param(b'{"x":1/**/}', "malformed", id="a comment"),
    pytest.param(b"[" * 40_000, "100 levels", id="forty thousand brackets"),
    pytest.param(b'{"a":' * 5000 + b"1" + b"}" * 5000, "100 levels", id="five thousand levels"),
]


@pytest.mark.parametrize("method", ["POST", "PUT"])
@pytest.mark.parametrize(("body", "part"), BROKEN)
def test_a_body_that_is_not_a_json_object_is_a_bad_request(stocked, method, body, part):
    path = MAPS if method == "POST" else f"{MAPS}/there"
    assert_refused(stocked.refused(method, path, body), 400, "BadRequest", part)


WRONG = [
    pytest.param({"metadata": {}}, 422, "Invalid", "metadata.name: Required value", id="no name"),
    pytest.param({"metadata": None}, 422, "Invalid", "metadata.name: Required value", id="no metadata"),
    pytest.param({"metadata": []}, 400, "BadRequest", "cannot unmarshal array", id="a list for metadata"),
    pytest.param(
        {"metadata": {"name": 7}}, 400, "BadRequest", "metadata.name of type string", id="a number for a name"
    ),
    pytest.param(
        {"metadata": {"name": "Upper"}}, 422, "Invalid", "metadata.name: Invalid value", id="a name in capitals"
    ),
    pytest.param({"metadata": {"name": LONG}}, 422, "Invalid", "no more than 253", id="a name of 254"),
    pytest.param({"metadata": {"name": "x" * 1_000_000}}, 422, "Invalid", "no more than 253", id="a name of a million"),
    pytest.param(
        {"metadata": {"name": "../there"}}, 422, "Invalid", "metadata.name: Invalid value", id="dots in a name"
    ),
    pytest.param({"metadata": {"name": "a/b"}}, 422, "Invalid", "metadata.name: Invalid value", id="a slash in a name"),
    pytest.param(
        {"metadata": {"name": "a\n"}}, 422, "Invalid", "metadata.name: Invalid value", id="a line break in a name"
    ),
    pytest.param(
        {"metadata": {"name": "\uff41"}}, 422, "Invalid", "metadata.name: Invalid value", id="a wide letter in a name"
    ),
    pytest.param(
        {"metadata": {"generateName": "/"}}, 422, "Invalid", "metadata.generateName", id="a slash to generate from"
    ),
    pytest.param({"metadata": {"name": "there"}}, 409, "AlreadyExists", "already exists", id="a name that is taken"),
    pytest.param(
        {"metadata": {"name": "b", "namespace": "other"}}, 400, "BadRequest", "namespace", id="another namespace"
    ),
    pytest.param(
        {"metadata": {"name": "b", "resourceVersion": "5"}}, 400, "BadRequest", "resourceVersion", id="a version"
    ),
    pytest.param({"kind": "Pod", "metadata": {"name": "b"}}, 400, "BadRequest", "expected kind", id="another kind"),
    pytest.param({"kind": {}, "metadata": {"name": "b"}}, 400, "BadRequest", ".kind", id="an object for a kind"),
    pytest.param(
        {"apiVersion": 1, "metadata": {"name": "b"}}, 400, "BadRequest", ".apiVersion", id="a number for a version"
    ),
    pytest.param({"apiVersion": "v2", "metadata": {"name": "b"}}, 400, "BadRequest", "(v2)", id="another API version"),
    pytest.param(
        {"metadata": {"name": "b", "labels": {"a": 1}}}, 400, "BadRequest", "labels", id="a number for a label"
    ),
    pytest.param(
        {"metadata": {"name": "b", "labels": {"a b": ""}}}, 422, "Invalid", "metadata.labels", id="a blank in a label"
    ),
    pytest.param(
        {"metadata": {"name": "b", "labels": {"a": "x" * 64}}}, 422, "Invalid", "metadata.labels", id="a long label"
    ),
    pytest.param(
        {"metadata": {"name": "b", "labels": {"x" * 65536: ""}}}, 422, "Invalid", "labels", id="a label of 64 KiB"
    ),
    pytest.param(
        {"metadata": {"name": "b", "annotations": {"": ""}}}, 422, "Invalid", "metadata.annotations", id="no key"
    ),
    pytest.param(
        {"metadata": {"name": "b", "annotations": {"a": "x" * 300_000}}}, 422, "Invalid", "Too long", id="an essay"
    ),
    pytest.param(
        {"metadata": {"name": "b", "finalizers": ["x"]}}, 422, "Invalid", "finalizers[0]", id="a bare finalizer"
    ),
    pytest.param(
        {"metadata": {"name": "b", "ownerReferences": [{}]}},
        422,
        "Invalid",
        "ownerReferences.uid",
        id="an owner of nothing",
    ),
    pytest.param(
        {"metadata": {"name": "b", "ownerReferences": [None]}},
        422,
        "Invalid",
        "ownerReferences.uid",
        id="a null for an owner",
    ),
    pytest.param(
        {"metadata": {"name": "b", "creationTimestamp": "x"}}, 400, "BadRequest", "parsing time", id="no time"
    ),
    pytest.param(
        {"metadata": {"name": "b"}, "data": {"k": 1}}, 400, "BadRequest", "data of type string", id="a number as data"
    ),
    pytest.param({"metadata": {"name": "b"}, "data": {"../k": ""}}, 422, "Invalid", "data[../k]", id="dots in a key"),
    pytest.param({"metadata": {"name": "b"}, "binaryData": {"k": "!"}}, 400, "BadRequest", "base64", id="no base64"),
]


@pytest.mark.parametrize(("body", "code", "reason", "part"), WRONG)
def test_an_invalid_object_is_refused_with_the_reason(stocked, body, code, reason, part):
    assert_refused(stocked.refused("POST", MAPS, body), code, reason, part)


UPDATES = [
    pytest.param({}, 400, "BadRequest", "name", id="no name: nothing is emptied by accident"),
    pytest.param({"metadata": {"name": "other"}}, 400, "BadRequest", "does not match", id="another name"),
    pytest.param(
        {"metadata": {"name": "there", "namespace": "x"}}, 400, "BadRequest", "namespace", id="another namespace"
    ),
    pytest.param({"metadata": {"name": "there", "uid": "x"}}, 409, "Conflict", "UID in precondition", id="another uid"),
    pytest.param(
        {"metadata": {"name": "there", "resourceVersion": "1"}}, 409, "Conflict", "modified", id="an old version"
    ),
    pytest.param({"metadata": {"name": "there", "resourceVersion": "x"}}, None, None, "", id="no version at all"),
    pytest.param(
        {"metadata": {"name": "there", "resourceVersion": "9" * 30}}, None, None, "", id="a version too large"
    ),
    pytest.param(
        {"metadata": {"name": "there", "labels": {"a b": ""}}}, 422, "Invalid", "metadata.labels", id="a bad label"
    ),
]


@pytest.mark.parametrize(("body", "code", "reason", "part"), UPDATES)
def test_an_invalid_update_is_refused_with_the_reason(stocked, body, code, reason, part):
    reply = stocked.refused("PUT", f"{MAPS}/there", body)
    assert reply.status in (400, 409, 422)
    if code:
        assert_refused(reply, code, reason, part)


def test_an_update_of_a_missing_object_is_not_found(stocked):
    assert_refused(
        stocked.refused("PUT", f"{MAPS}/absent", {"metadata": {"name": "absent"}}), 404, "NotFound", '"absent"'
    )


@pytest.mark.parametrize(
    "media",
    [
        "text/plain",
        "application/xml",
        "multipart/form-data",
        "application/toml",
        "garbage",
        "application/json, text/plain",
        "application/merge-patch+json",
        "application/x-www-form-urlencoded",
    ],
)
def test_an_unsupported_media_type_is_refused_with_the_supported_ones(stocked, media):
    reply = stocked.refused("POST", MAPS, {"metadata": {"name": "b"}}, media=media)
    assert_refused(reply, 415, "UnsupportedMediaType", "application/json", "application/yaml")


@pytest.mark.parametrize("encoding", ["gzip", "GZIP", "deflate", "br", "zstd", "gzip, gzip", "nonsense"])
@pytest.mark.parametrize(("method", "path"), [("POST", MAPS), ("PUT", f"{MAPS}/there"), ("DELETE", f"{MAPS}/there")])
def test_a_packed_body_is_refused_clearly_and_never_unpacked(stocked, method, path, encoding):
    bomb = gzip.compress(b" " * 10_000_000)
    reply = stocked.refused(method, path, bomb, content_encoding=encoding)
    assert_refused(reply, 415, "UnsupportedMediaType", "content encoding")
    assert reply.headers["accept-encoding"] == "identity"


def test_a_body_of_three_mebibytes_and_one_is_too_large(stocked):
    body = b'{"metadata":{"name":"b"},"x":"' + b"x" * (3 * 1024 * 1024) + b'"}'
    reply = stocked.refused("POST", MAPS, body)
    assert_refused(reply, 413, "RequestEntityTooLarge", "limit is 3145728")


@pytest.mark.parametrize("how", ["create", "update", "patch"])
def test_an_object_above_the_stores_limit_is_too_large_however_it_grows(house, how):
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    made = house.made(classes, {"metadata": {"name": "there"}, "value": 1})
    large = {"description": "x" * 1_600_000}
    if how == "create":
        reply = house.refused("POST", classes, {"metadata": {"name": "b"}, "value": 1, **large})
    elif how == "update":
        reply = house.refused("PUT", f"{classes}/there", {**made, **large})
    else:
        reply = house.refused("PATCH", f"{classes}/there", large, media="application/merge-patch+json")
    assert_refused(reply, 413, "RequestEntityTooLarge", "limit")


def test_a_refused_service_takes_no_address_and_no_port(house):
    spec = {"type": "NodePort", "ports": [{"port": 80}, {"port": 0}]}
    assert_refused(
        house.refused("POST", f"{CORE}/services", {"metadata": {"name": "s"}, "spec": spec}), 422, "Invalid", "port"
    )
    assert_refused(
        house.refused("POST", f"{CORE}/services", {"metadata": {"name": "S"}, "spec": {}}), 422, "Invalid", "spec.ports"
    )


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"clusterIP": "10.96.0.300"}, id="no address"),
        pytest.param({"clusterIP": "10.97.0.1"}, id="an address from elsewhere"),
        pytest.param({"clusterIP": "10.96.0.1"}, id="the server's own address"),
        pytest.param({"clusterIP": "fd00::1%/../../pods/x"}, id="a zone that is a path"),
        pytest.param({"clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.8"]}, id="two that differ"),
        pytest.param({"clusterIPs": ["10.96.0.8"]}, id="the second without the first"),
        pytest.param({"clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7", "fd00::1"]}, id="one of each family"),
        pytest.param({"clusterIPs": ["10.96.0.7"] * 40_000, "clusterIP": "10.96.0.7"}, id="the same many times"),
        pytest.param({"type": "NodePort", "ports": [{"port": 1, "nodePort": 70_000}]}, id="no port"),
        pytest.param({"type": "NodePort", "ports": None}, id="no ports to give numbers to"),
        pytest.param({"type": "LoadBalancer", "ports": []}, id="nothing to balance"),
    ],
)
def test_addresses_that_cannot_be_had_are_invalid(house, spec):
    body = {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}], **spec}}
    assert_refused(house.refused("POST", f"{CORE}/services", body), 422, "Invalid")


@pytest.mark.parametrize(
    "name", ["010.0.0.1", "FD00::1", "fd00:0::1", "fd00::1%eth0", "::ffff:10.0.0.1", "10.0.0", "x"]
)
def test_an_address_has_one_spelling(house, name):
    body = {"metadata": {"name": name}, "spec": {"parentRef": {"resource": "gateways", "name": "g"}}}
    assert_refused(
        house.refused("POST", "/apis/networking.k8s.io/v1/ipaddresses", body), 422, "Invalid", "metadata.name"
    )


@pytest.mark.parametrize(
    ("name", "code"),
    [
        pytest.param("pods", 404, id="namespace not there"),
        pytest.param("nodes", 404, id="not in a namespace"),
    ],
)
def test_nothing_is_made_in_a_namespace_that_is_not_there(house, name, code):
    body = {"metadata": {"name": "x"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    assert house.refused("POST", f"/api/v1/namespaces/absent/{name}", body).status == code


def test_an_answer_lists_only_some_of_a_thousand_errors(stocked):
    labels = {f"bad key {number}": "" for number in range(30_000)}
    reply = stocked.refused("POST", MAPS, {"metadata": {"name": "b", "labels": labels}})
    assert_refused(reply, 422, "Invalid", "metadata.labels")
    assert len(reply.raw) < 200_000


def test_the_same_error_is_not_repeated_for_every_owner(stocked):
    """Every further controller among the owners complains with all of them: not with megabytes each."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}
    reply = stocked.refused("POST", MAPS, {"metadata": {"name": "b", "ownerReferences": [owner] * 10_000}})
    assert_refused(reply, 422, "Invalid", "Only one reference can have Controller set to true")
    assert len(reply.raw) < 200_000


@pytest.mark.parametrize(
    "unknown",
    [
        pytest.param({f"field{number}": 1 for number in range(90_000)}, id="many fields"),
        pytest.param({"x" * 1_000_000: 1}, id="a long field"),
        pytest.param({"a\r\nSet-Cookie: x\u00e9": 1}, id="a header in a field"),
    ],
)
def test_warnings_about_unknown_fields_stay_few_short_and_in_their_header(house, unknown):
    reply = house.ask("POST", MAPS, {"metadata": {"name": "b"}, **unknown})
    assert reply.status == 201
    assert len(reply.warnings) >= 1
    assert sum(map(len, reply.warnings)) < 10_000
    assert all(warning.isprintable() and warning.isascii() for warning in reply.warnings)


def test_strict_validation_refuses_unknown_fields_and_stores_nothing(house):
    body = {"metadata": {"name": "b", "x": 1}, **{f"field{number}": 1 for number in range(10_000)}}
    reply = house.refused("POST", MAPS, body, query={"fieldValidation": "Strict"})
    assert_refused(reply, 400, "BadRequest", 'unknown field "metadata.x"')
    assert len(reply.raw) < 20_000
