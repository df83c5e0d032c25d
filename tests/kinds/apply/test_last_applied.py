"""From client-side apply to server-side apply and back."""

import msgspec
import pytest

from podwire.kinds.apply.fieldsets import paths
from podwire.kinds.apply.last_applied import ANNOTATION, allowed, kept_up
from podwire.kinds.apply.types import shown
from tests.kinds.apply.conftest import custom, widget


def annotated(obj, text):
    return {**obj, "metadata": {**obj["metadata"], "annotations": {ANNOTATION: text}}}


def allowed_paths(live, last):
    text = last if isinstance(last, str) else msgspec.json.encode(last).decode()
    return {shown(path) for path in paths(allowed(custom(), annotated(live, text)))}


def test_unchanged_last_applied_fields_are_allowed():
    live, last = widget(text="a", count=2, map={"x": "1", "y": "2"}), widget(text="a", count=1, map={"x": "1"})
    assert {".spec.text", ".spec.map.x"} <= allowed_paths(live, last)
    assert not {".spec.count", ".spec.map.y"} & allowed_paths(live, last)


@pytest.mark.parametrize("last", ["", "{", "[]", '{"apiVersion":"v2"}'])
def test_an_annotation_of_something_else_allows_nothing(last):
    assert allowed_paths(widget(text="a"), last) == set()


def test_an_existing_annotation_is_updated():
    config = annotated(widget(text="b"), "old")
    found = kept_up(annotated(widget(text="b"), "old"), config)
    annotation = msgspec.json.decode(found["metadata"]["annotations"][ANNOTATION])
    assert annotation["spec"] == {"text": "b"}
    assert annotation["metadata"]["annotations"] == {}


def test_a_missing_annotation_is_not_created():
    assert kept_up(widget(text="b"), widget(text="b")) == widget(text="b")


def test_an_annotation_that_gets_too_long_is_dropped():
    big = widget(text="x" * 300_000)
    assert kept_up(annotated(big, "old"), big)["metadata"]["annotations"] == {}
