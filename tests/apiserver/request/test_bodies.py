"""Request bodies: media types, kinds, types, unknown and duplicate fields."""

import pytest

CONFIGS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
PROTOBUF = "application/vnd.kubernetes.protobuf"


@pytest.mark.parametrize("content_type", ["application/json", "application/json; charset=utf-8", "", "*/*"])
async def test_json_is_understood_however_it_is_announced(api, config, content_type):
    assert (await api.post(CONFIGS, config("one"), content_type=content_type)).status == 201


async def test_yaml_is_understood(api):
    reply = await api.post(CONFIGS, b"metadata: {name: one}\ndata: {a: '1'}\n", content_type="application/yaml")

    assert (reply.status, reply.body["data"]) == (201, {"a": "1"})


@pytest.mark.parametrize("content_type", ["text/plain", "application/cbor-seq", "application/x-www-form-urlencoded"])
async def test_other_media_types_are_refused_with_the_known_ones(api, config, content_type):
    reply = await api.post(CONFIGS, config("one"), content_type=content_type)

    assert (reply.status, reply.body["reason"]) == (415, "UnsupportedMediaType")
    assert reply.message == (
        "the body of the request was in an unknown format - accepted media types include: "
        "application/json, application/yaml, application/vnd.kubernetes.protobuf"
    )


async def test_protobuf_of_something_else_is_refused(api):
    assert (await api.post(CONFIGS, b"k8s\0\xff\xff", content_type=PROTOBUF)).status == 400


async def test_custom_resources_take_no_protobuf(widgets):
    reply = await widgets.post(WIDGETS, b"k8s\0", content_type=PROTOBUF)

    assert reply.status == 415
    assert PROTOBUF not in reply.message


@pytest.mark.parametrize(
    "body", [b"{", b"", b"[]", b"null", b'"text"', b"\xff\xfe", b'{"metadata": 7}', b'{"metadata": {"name": 7}}']
)
async def test_a_body_of_another_kind_is_a_bad_request(api, body):
    reply = await api.post(CONFIGS, body)

    assert (reply.status, reply.body["reason"]) == (400, "BadRequest")


async def test_a_body_that_is_too_large_is_refused_unread(api):
    reply = await api.post(CONFIGS, b" " * (3 * 1024 * 1024 + 1))

    assert (reply.status, reply.body["reason"]) == (413, "RequestEntityTooLarge")
    assert reply.message == "Request entity too large: limit is 3145728"


# --- kinds ------------------------------------------------------------------------------------------------------------


async def test_a_built_in_kind_may_leave_its_kind_out(api, config):
    made = await api.made(CONFIGS, config("one"))

    assert (made["kind"], made["apiVersion"]) == ("ConfigMap", "v1")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param({"kind": "Secret"}, "(Secret) does not match the expected kind (ConfigMap)", id="another kind"),
        pytest.param(
            {"apiVersion": "v2"},
            "the API version in the data (v2) does not match the expected API version (v1)",
            id="another version",
        ),
    ],
)
async def test_a_body_must_be_of_the_kind_of_the_url(api, config, words, said):
    reply = await api.post(CONFIGS, {**config("one"), **words})

    assert reply.status == 400
    assert said in reply.message


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param({"apiVersion": "example.com/v1"}, "Object 'Kind' is missing", id="no kind"),
        pytest.param(
            {"kind": "Widget"},
            "the API version in the data () does not match the expected API version (example.com/v1)",
            id="no version",
        ),
        pytest.param({"apiVersion": "example.com/v2", "kind": "Widget"}, "(example.com/v2) does not match", id="other"),
    ],
)
async def test_a_custom_resource_must_have_api_version_and_kind(widgets, words, said):
    reply = await widgets.post(WIDGETS, {"metadata": {"name": "w"}, **words})

    assert reply.status == 400
    assert said in reply.message


# --- unknown and duplicate fields -------------------------------------------------------------------------------------


async def test_strictly_an_unknown_field_is_refused_with_its_path(api, pod):
    given = pod()
    given["spec"]["containers"][0]["bogus"] = 1

    reply = await api.post(f"{PODS}?fieldValidation=Strict", given)

    assert reply.status == 400
    assert reply.message == (
        'Pod in version "v1" cannot be handled as a Pod: '
        'strict decoding error: unknown field "spec.containers[0].bogus"'
    )


async def test_by_default_an_unknown_field_is_dropped_with_a_warning(api, pod):
    given = pod()
    given["spec"]["containers"][0]["bogus"] = 1

    reply = await api.post(PODS, given)

    assert reply.status == 201
    assert reply.warnings == ['299 - "unknown field \\"spec.containers[0].bogus\\""']
    assert "bogus" not in reply.body["spec"]["containers"][0]


async def test_ignored_an_unknown_field_is_dropped_silently(api, config):
    reply = await api.post(f"{CONFIGS}?fieldValidation=Ignore", {**config("one"), "bogus": 1})

    assert (reply.status, reply.warnings) == (201, [])
    assert "bogus" not in reply.body


@pytest.mark.parametrize(("validation", "status"), [("Strict", 400), ("Warn", 201), ("Ignore", 201)])
async def test_duplicate_fields_follow_field_validation(api, validation, status):
    body = b'{"metadata":{"name":"one"},"data":{"a":"1","a":"2"}}'

    reply = await api.post(f"{CONFIGS}?fieldValidation={validation}", body)

    assert reply.status == status
    if status == 201:
        assert reply.body["data"] == {"a": "2"}
        assert bool(reply.warnings) is (validation == "Warn")
    else:
        assert 'duplicate field "data.a"' in reply.message


async def test_a_duplicate_key_of_a_yaml_body_is_reported_with_its_line(api):
    body = b"metadata:\n  name: one\ndata:\n  a: '1'\n  b: '1'\n  a: '2'\n"

    reply = await api.post(f"{CONFIGS}?fieldValidation=Strict", body, content_type="application/yaml")

    assert reply.status == 400
    assert 'strict decoding error: yaml: unmarshal errors:\n  line 6: key "a" already set in map' in reply.message


async def test_a_value_of_the_wrong_type_is_reported_with_its_path(api, pod):
    reply = await api.post(PODS, pod(terminationGracePeriodSeconds="soon"))

    assert reply.status == 400
    assert 'Pod in version "v1" cannot be handled as a Pod' in reply.message
    assert "terminationGracePeriodSeconds" in reply.message


async def test_nulls_are_as_if_not_given(api):
    made = await api.made(CONFIGS, {"metadata": {"name": "one", "labels": None}, "data": None, "immutable": None})

    assert {*made} == {"kind", "apiVersion", "metadata"}
    assert "labels" not in made["metadata"]
