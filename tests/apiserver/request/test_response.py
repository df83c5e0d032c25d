"""Answers in the form that was asked for: the object, a table, its metadata; pretty; with warnings."""

import pytest

CONFIGS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
async def two(api, pod):
    """A server with two pods."""
    await api.made(PODS, pod("a", labels={"app": "x"}))
    await api.made(PODS, pod("b", node="n1"))
    return api


# --- tables -----------------------------------------------------------------------------------------------------------


async def test_a_list_as_a_table_has_columns_rows_and_the_lists_metadata(two, forms):
    reply = await two.get(f"{PODS}?limit=1", accept=forms["table"])

    table = reply.body
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert table["metadata"]["resourceVersion"] == str(two.store.revision)
    assert table["metadata"]["remainingItemCount"] == 1
    assert table["metadata"]["continue"]
    columns = [definition["name"] for definition in table["columnDefinitions"]]
    assert columns[:5] == ["Name", "Ready", "Status", "Restarts", "Age"]
    (row,) = table["rows"]
    assert len(row["cells"]) == len(columns)
    assert row["cells"][0] == "a"


async def test_one_object_as_a_table_has_one_row_and_its_version(two, forms):
    reply = await two.get(f"{PODS}/a", accept=forms["table"])

    assert reply.body["kind"] == "Table"
    assert [row["cells"][0] for row in reply.body["rows"]] == ["a"]
    assert reply.version == (await two.get(f"{PODS}/a")).version


async def test_ages_are_computed_with_the_servers_clock(two, forms):
    two.clock.move(125)

    reply = await two.get(f"{PODS}/a", accept=forms["table"])

    assert reply.body["rows"][0]["cells"][4] == "2m5s"


async def test_an_old_client_gets_the_table_of_its_version(two, forms):
    reply = await two.get(PODS, accept=forms["table"].replace("v=v1", "v=v1beta1"))

    assert reply.body["apiVersion"] == "meta.k8s.io/v1beta1"
    assert reply.body["rows"][0]["object"]["apiVersion"] == "meta.k8s.io/v1beta1"


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        pytest.param("", "PartialObjectMetadata", id="by itself"),
        pytest.param("?includeObject=Metadata", "PartialObjectMetadata", id="metadata"),
        pytest.param("?includeObject=Object", "Pod", id="the object"),
        pytest.param("?includeObject=None", None, id="nothing"),
    ],
)
async def test_a_row_includes_the_requested_part_of_its_object(two, forms, query, kind):
    reply = await two.get(f"{PODS}{query}", accept=forms["table"])

    row = reply.body["rows"][0]
    assert row.get("object", {}).get("kind") == kind
    if kind == "Pod":
        assert row["object"] == (await two.get(f"{PODS}/a")).body


async def test_an_unknown_include_object_is_refused(two, forms):
    reply = await two.get(f"{PODS}?includeObject=Everything", accept=forms["table"])

    assert reply.status == 400
    assert "includeObject" in reply.message


async def test_an_empty_table_has_columns_and_no_rows(api, forms):
    reply = await api.get(PODS, accept=forms["table"])

    assert reply.body["columnDefinitions"]
    assert reply.body["rows"] == []


async def test_a_refusal_is_a_status_in_every_requested_form(api, forms):
    reply = await api.get(f"{PODS}/none", accept=forms["table"])

    assert (reply.status, reply.body["kind"]) == (404, "Status")


# --- metadata ---------------------------------------------------------------------------------------------------------


async def test_metadata_of_one_object(two, forms):
    whole = (await two.get(f"{PODS}/a")).body

    reply = await two.get(f"{PODS}/a", accept=forms["metadata"])

    assert reply.body == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": whole["metadata"],
    }


@pytest.mark.parametrize("form", ["metadata", "metadata list"])
async def test_metadata_of_a_list(two, forms, form):
    whole = (await two.get(PODS)).body

    reply = await two.get(PODS, accept=forms[form])

    assert reply.body["kind"] == "PartialObjectMetadataList"
    assert reply.body["metadata"] == whole["metadata"]
    assert [item["metadata"] for item in reply.body["items"]] == [item["metadata"] for item in whole["items"]]


# --- pretty and warnings ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["true", "1"])
async def test_a_pretty_answer_is_indented_and_the_same(two, value):
    plain, pretty = await two.get(f"{PODS}/a"), await two.get(f"{PODS}/a?pretty={value}")

    assert pretty.body == plain.body
    assert pretty.raw.startswith(b'{\n  "kind": "Pod",\n')
    assert b"\n" not in plain.raw


@pytest.mark.parametrize("value", ["false", "0", "", "rather"])
async def test_an_answer_is_not_pretty_by_accident(two, value):
    assert b"\n" not in (await two.get(f"{PODS}/a?pretty={value}")).raw


async def test_unknown_fields_are_warned_of_in_a_header_each(api, config):
    reply = await api.post(CONFIGS, {**config("a"), "bogus": 1, "back\\slash": 2})

    assert reply.status == 201
    assert reply.warnings == ['299 - "unknown field \\"bogus\\""', '299 - "unknown field \\"back\\\\slash\\""']


async def test_a_warning_is_one_printable_line(api, config):
    reply = await api.post(CONFIGS, {**config("a"), "bad\r\nname\x00\u2028": 1})

    (warning,) = reply.warnings
    assert warning.isprintable()
    assert warning.isascii()
