"""The options of a request, read as Go reads them and checked."""

import pytest

from podwire.apiserver.request.call import WriteOptions, boolean_option, integer_option, revision_option, write_options
from podwire.protocols.k8sapi.server_side import Request
from podwire.protocols.k8sapi.status import ApiError

CONFIGS = "/api/v1/namespaces/default/configmaps"


def asking(**query):
    values = {name: value if isinstance(value, list) else [value] for name, value in query.items()}
    return Request(method="GET", path="/", query=values)


@pytest.mark.parametrize(
    ("query", "options"),
    [
        pytest.param({}, WriteOptions(), id="nothing"),
        pytest.param({"dryRun": "All"}, WriteOptions(dry_run=True), id="dry run"),
        pytest.param({"dryRun": ["All", "All"]}, WriteOptions(dry_run=True), id="dry run twice"),
        pytest.param({"dryRun": ""}, WriteOptions(), id="an empty dry run is none"),
        pytest.param({"fieldValidation": "Strict"}, WriteOptions(field_validation="Strict"), id="strict"),
        pytest.param({"fieldValidation": ""}, WriteOptions(), id="no validation said"),
        pytest.param({"fieldManager": "x" * 128}, WriteOptions(), id="a manager that just fits"),
    ],
)
def test_write_options_are_read(query, options):
    assert write_options(asking(**query), "CreateOptions") == options


@pytest.mark.parametrize(
    ("query", "said"),
    [
        pytest.param({"dryRun": "Some"}, 'dryRun: Unsupported value: ["Some"]', id="dry run"),
        pytest.param({"dryRun": ["All", "Some"]}, "dryRun: Unsupported value", id="dry run of both kinds"),
        pytest.param({"fieldManager": "x" * 129}, "fieldManager: Too long: may not be more than 128 bytes", id="long"),
        pytest.param({"fieldManager": "ü" * 65}, "fieldManager: Too long", id="long in bytes"),
        pytest.param({"fieldManager": "a\nb"}, "should only contain printable characters", id="unprintable"),
        pytest.param({"fieldValidation": "Lax"}, 'fieldValidation: Unsupported value: "Lax"', id="validation"),
    ],
)
def test_write_options_that_are_wrong_are_invalid(query, said):
    with pytest.raises(ApiError) as refused:
        write_options(asking(**query), "UpdateOptions")

    assert refused.value.code == 422
    assert refused.value.message.startswith('UpdateOptions.meta.k8s.io "" is invalid: ')
    assert said in refused.value.message


async def test_all_invalid_parameters_are_reported_at_once(api, config):
    reply = await api.post(f"{CONFIGS}?dryRun=Some&fieldValidation=Lax&fieldManager={'x' * 200}", config("a"))

    assert reply.status == 422
    assert [cause["field"] for cause in reply.body["details"]["causes"]] == [
        "dryRun",
        "fieldManager",
        "fieldValidation",
    ]
    assert (await api.get(f"{CONFIGS}/a")).status == 404


@pytest.mark.parametrize(("text", "number"), [("", None), ("0", 0), ("7", 7), ("-3", -3), ("+5", 5)])
def test_numbers_are_read(text, number):
    assert integer_option(asking(limit=text), "limit") == number


@pytest.mark.parametrize("text", ["x", "1.5", "1e3", "0x10", "1_000", " 1", "9" * 20, "٣"])
def test_a_parameter_that_is_not_a_number_is_refused(text):
    with pytest.raises(ApiError) as refused:
        integer_option(asking(limit=text), "limit")

    assert refused.value.code == 400
    assert "limit" in refused.value.message


@pytest.mark.parametrize("text", ["", "1", "t", "T", "true", "TRUE", "True"])
def test_truths(text):
    assert boolean_option(asking(watch=text), "watch")


@pytest.mark.parametrize("text", ["0", "f", "F", "false", "FALSE", "False"])
def test_falsehoods(text):
    assert not boolean_option(asking(watch=text), "watch")


def test_a_missing_boolean_parameter_is_false():
    assert not boolean_option(asking(), "watch")


def test_neither_true_nor_false_is_refused():
    with pytest.raises(ApiError):
        boolean_option(asking(watch="perhaps"), "watch")


@pytest.mark.parametrize(("text", "revision"), [("", None), ("0", 0), ("12", 12), (str(2**63 - 1), 2**63 - 1)])
def test_revisions_are_read(text, revision):
    assert revision_option(asking(resourceVersion=text)) == revision


@pytest.mark.parametrize("text", ["-1", "+1", "1.0", "latest", " 1", "٣", str(2**63), "9" * 40])
def test_an_invalid_revision_is_refused(text):
    with pytest.raises(ApiError) as refused:
        revision_option(asking(resourceVersion=text))

    assert refused.value.code == 400
