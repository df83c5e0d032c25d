"""Stored bytes: a constant head, no revision inside, answers spliced without decoding."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podwire.kinds import stored
from podwire.protocols.storage import Item

TEXTS = st.text(max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["Pod", 'Od"d', "Ünï"]),
        "apiVersion": st.sampled_from(["v1", "example.com/v1beta1"]),
        "metadata": st.fixed_dictionaries(
            {"name": TEXTS}, optional={"labels": st.dictionaries(TEXTS, TEXTS, max_size=3), "annotations": JSON}
        ),
    },
    optional={"spec": JSON, "data": JSON, "status": JSON},
)


def _item(obj, revision=7):
    return Item("/registry/things/a", stored.pack(obj), revision, 3)


@settings(max_examples=50)
@given(OBJECTS)
def test_a_packed_object_is_unpacked_with_its_revision(obj):
    metadata = {**obj["metadata"], "resourceVersion": "7"}

    assert stored.unpack(_item(obj)) == {**obj, "metadata": metadata}


@settings(max_examples=50)
@given(OBJECTS, st.integers(1, 10**9))
def test_an_answer_is_the_object_with_its_revision(obj, revision):
    head = stored.head(obj["apiVersion"], obj["kind"])

    answer = stored.splice(stored.pack(obj), revision, head, head)

    assert msgspec.json.decode(answer) == {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(revision)}}


@settings(max_examples=50)
@given(OBJECTS)
def test_a_dry_runs_answer_has_no_revision(obj):
    head = stored.head(obj["apiVersion"], obj["kind"])

    assert msgspec.json.decode(stored.splice(stored.pack(obj), 0, head, head)) == obj
    assert stored.unpack(_item(obj, 0)) == obj


@settings(max_examples=50)
@given(OBJECTS)
def test_an_answer_can_have_another_version_of_the_kind(obj):
    served = stored.head("example.com/v2", obj["kind"])

    answer = stored.splice(stored.pack(obj), 7, stored.head(obj["apiVersion"], obj["kind"]), served)

    assert msgspec.json.decode(answer)["apiVersion"] == "example.com/v2"


@settings(max_examples=50)
@given(OBJECTS)
def test_the_metadata_alone_is_that_of_the_object(obj):
    expected = {**obj["metadata"], "resourceVersion": "7"}

    assert msgspec.json.decode(stored.metadata_bytes(stored.pack(obj), 7)) == expected


@settings(max_examples=50)
@given(OBJECTS)
def test_the_labels_alone_are_those_of_the_object(obj):
    assert stored.labels(stored.pack(obj)) == obj["metadata"].get("labels", {})


def test_a_revision_in_the_object_is_not_stored():
    packed = stored.pack({"metadata": {"name": "a", "resourceVersion": "9"}, "apiVersion": "v1", "kind": "Pod"})

    assert packed == b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}}'


def test_unpacking_gives_everybody_a_copy_of_their_own():
    item = _item({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a"}, "spec": {"x": [1]}})

    stored.unpack(item)["spec"]["x"].append(2)

    assert stored.unpack(item)["spec"] == {"x": [1]}


@pytest.mark.parametrize("url", ["/api/v1/nodes", "/api/v1/namespaces", "/apis/scheduling.k8s.io/v1/priorityclasses"])
async def test_stored_objects_have_the_header_that_answers_rely_on(api, url):
    await api.post(url, {"metadata": {"name": "x"}})

    for item in (await api.store.list("/registry/")).items:
        obj = msgspec.json.decode(item.value)
        assert item.value.startswith(stored.head(obj["apiVersion"], obj["kind"]))
        assert "resourceVersion" not in obj["metadata"]
