"""A configuration in an object, by the kind of every list and map."""

import pytest

from podwire.kinds.apply.merge import merge
from tests.kinds.apply.conftest import custom, widget

CASES = [
    pytest.param({"text": "a"}, {"count": 1}, {"text": "a", "count": 1}, id="members come together"),
    pytest.param({"text": "a"}, {"text": "b"}, {"text": "b"}, id="a scalar is replaced"),
    pytest.param({"struct": {"a": "1"}}, {"struct": {"b": "2"}}, {"struct": {"a": "1", "b": "2"}}, id="struct"),
    pytest.param({"whole": {"a": "1"}}, {"whole": {"b": "2"}}, {"whole": {"b": "2"}}, id="an atomic map is one value"),
    pytest.param({"map": {"x": "1"}}, {"map": {"y": "2"}}, {"map": {"x": "1", "y": "2"}}, id="map"),
    pytest.param({"maps": {"x": {"a": "1"}}}, {"maps": {"x": {}}}, {"maps": {"x": {"a": "1"}}}, id="map of structs"),
    pytest.param({"open": {"x": {"y": 1}}}, {"open": {"x": {"z": 2}}}, {"open": {"x": {"y": 1, "z": 2}}}, id="open"),
    pytest.param({"open": {"x": [1, 2]}}, {"open": {"x": [3]}}, {"open": {"x": [3]}}, id="a list in the open is one"),
    pytest.param({"open": {"x": {"y": 1}}}, {"open": {"x": 2}}, {"open": {"x": 2}}, id="another kind of value"),
    pytest.param({"list": ["a", "b"]}, {"list": ["c"]}, {"list": ["c"]}, id="an atomic list is one value"),
    pytest.param({"set": ["a", "b"]}, {"set": ["c", "a"]}, {"set": ["c", "a", "b"]}, id="set"),
    pytest.param({"set": ["a", "b", "c"]}, {"set": ["c", "a"]}, {"set": ["b", "c", "a"]}, id="the config's order"),
    pytest.param(
        {"items": [{"name": "a", "value": "1"}, {"name": "b", "value": "2"}]},
        {"items": [{"name": "b", "size": 3}, {"name": "c"}]},
        {"items": [{"name": "a", "value": "1"}, {"name": "b", "value": "2", "size": 3}, {"name": "c"}]},
        id="list by key",
    ),
    pytest.param(
        {"ports": [{"port": 80, "protocol": "TCP"}, {"port": 80, "protocol": "UDP"}]},
        {"ports": [{"port": 80}]},
        {"ports": [{"port": 80, "protocol": "TCP"}, {"port": 80, "protocol": "UDP"}]},
        id="a key that is left out has its default",
    ),
    pytest.param({"text": "a"}, {"text": None}, {"text": None}, id="a null scalar replaces"),
    pytest.param({"map": {"x": "1"}}, {"map": None}, {"map": {"x": "1"}}, id="a null map takes nothing away"),
    pytest.param({"items": [{"name": "a"}]}, {"items": None}, {"items": [{"name": "a"}]}, id="nor does a null list"),
    pytest.param({"items": [{"name": "a"}]}, {"items": []}, {"items": [{"name": "a"}]}, id="nor an empty one"),
    pytest.param({"list": ["a"]}, {"list": []}, {"list": []}, id="but an empty atomic list is a value"),
    pytest.param(
        {"items": [{"name": "a", "value": "1"}, {"name": "a", "value": "2"}]},
        {"items": [{"name": "a", "size": 1}]},
        {"items": [{"name": "a", "size": 1}]},
        id="twins in the object are replaced by the one",
    ),
    pytest.param(
        {"items": [{"value": "?"}, {"name": "a"}]},
        {"items": [{"name": "b"}]},
        {"items": [{"value": "?"}, {"name": "a"}, {"name": "b"}]},
        id="who has no key keeps the place",
    ),
]


@pytest.mark.parametrize(("live", "config", "wanted"), CASES)
def test_a_configuration_is_merged_into_an_object(live, config, wanted):
    before = repr((live, config))
    assert merge(custom().type, widget(**live), widget(**config)) == widget(**wanted)
    assert repr((live, config)) == before, "neither may change"


@pytest.mark.parametrize(
    ("live", "config", "wanted"),
    [
        pytest.param("ab", "abc", "abc", id="more at the end"),
        pytest.param("ab", "cab", "cab", id="more at the beginning"),
        pytest.param("axb", "ab", "axb", id="one between stays between"),
        pytest.param("abc", "cba", "cba", id="turned around"),
        pytest.param("axbyc", "cba", "xycba", id="turned around with others between"),
        pytest.param("xy", "ab", "xyab", id="strangers"),
        pytest.param("", "ab", "ab", id="into nothing"),
        pytest.param("ab", "", "ab", id="nothing into it"),
        pytest.param("aXbYc", "adb", "aXdbYc", id="a new one among the old"),
    ],
)
def test_elements_keep_the_configuration_s_order_and_others_their_place(live, config, wanted):
    merged = merge(custom().type, widget(set=[*live]), widget(set=[*config]))
    assert "".join(merged["spec"].get("set", [])) == wanted
