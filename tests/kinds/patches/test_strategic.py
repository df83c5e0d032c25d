# ruff: noqa: E501 -- tables of cases: one a line reads better than six
import copy
import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.kinds.patches import PatchError, strategic
from podwire.kinds.schema import Schemas
from podwire.kinds.shape import Field


@dataclass
class Shape:
    """A type by hand: members by name, `any_member` for maps, `element` for lists."""

    members: dict = field(default_factory=dict)
    any_member: Field | None = None
    element: "Shape | None" = None

    def decode(self, value, path, report):
        return value

    def field(self, name):
        return self.members.get(name, self.any_member)


LEAF = Shape()
STRINGS = Shape(any_member=Field(LEAF))
MERGE, REPLACE, RETAIN = frozenset({"merge"}), frozenset({"replace"}), frozenset({"merge", "retainKeys"})
ITEM = Shape({"name": Field(LEAF), "value": Field(LEAF), "labels": Field(STRINGS)})
ITEM.members["items"] = Field(Shape(element=ITEM), "name", MERGE)
SHAPE = Shape(
    {
        "items": Field(Shape(element=ITEM), "name", MERGE),
        "sources": Field(Shape(element=ITEM), "name", RETAIN),
        "ports": Field(Shape(element=Shape({"port": Field(LEAF)})), "port", MERGE),
        "plain": Field(Shape(element=ITEM)),
        "set": Field(Shape(element=LEAF), "", MERGE),
        "list": Field(Shape(element=LEAF)),
        "map": Field(STRINGS),
        "whole": Field(ITEM, strategies=REPLACE),
        "keyless": Field(Shape(element=ITEM), "", MERGE),
    }
)


def items(*names):
    return [{"name": name} for name in names]


@pytest.mark.parametrize(
    ("obj", "patch", "result"),
    [
        pytest.param({"map": {"a": "1", "b": "2"}}, {"map": {"b": None, "c": "3"}}, {"map": {"a": "1", "c": "3"}}, id="objects merge, null removes"),
        pytest.param({}, {"map": {"a": "1", "b": None}}, {"map": {"a": "1"}}, id="null in what is new is nothing"),
        pytest.param({"list": [1, 2]}, {"list": [3]}, {"list": [3]}, id="a plain list is replaced"),
        pytest.param({"plain": items("a")}, {"plain": items("b")}, {"plain": items("b")}, id="a plain list of objects too"),
        pytest.param({"other": {"x": 1, "l": [1]}}, {"other": {"y": 2, "l": [2]}}, {"other": {"x": 1, "y": 2, "l": [2]}}, id="what no schema knows merges like JSON"),
        pytest.param({"map": {"a": "1"}}, {"map": "x"}, {"map": "x"}, id="another type replaces"),
        pytest.param({"whole": {"name": "a", "value": 1}}, {"whole": {"value": 2}}, {"whole": {"value": 2}}, id="an object that is replaced whole"),
        # lists by key
        pytest.param({"items": [{"name": "a", "value": 1}]}, {"items": [{"name": "a", "labels": {"x": "y"}}]}, {"items": [{"name": "a", "value": 1, "labels": {"x": "y"}}]}, id="elements merge by key"),
        pytest.param({"items": items("a", "b")}, {"items": [{"name": "b", "$patch": "delete"}]}, {"items": items("a")}, id="an element is deleted"),
        pytest.param({"items": items("a")}, {"items": [{"name": "z", "$patch": "delete"}]}, {"items": items("a")}, id="deleting what is not there"),
        pytest.param({"items": items("a")}, {"items": [{"$patch": "replace"}, {"name": "b"}]}, {"items": items("b")}, id="the list is replaced"),
        pytest.param({"items": items("a")}, {"items": [{"$patch": "replace"}]}, {"items": []}, id="the list is emptied"),
        pytest.param({"items": [{"name": "a", "value": 1}]}, {"items": [{"name": "a", "$patch": "merge", "value": 2}]}, {"items": [{"name": "a", "value": 2}]}, id="merge, said out loud"),
        pytest.param({}, {"items": [{"name": "a", "value": None, "$patch": "merge"}, {"name": "b", "$patch": "delete"}, {"$patch": "replace"}]}, {"items": items("a")}, id="directives in a list that is new"),
        pytest.param({"items": [{"name": "a", "items": [{"name": "x", "value": 1}]}]}, {"items": [{"name": "a", "items": [{"name": "x", "value": 2}, {"name": "y"}]}]}, {"items": [{"name": "a", "items": [{"name": "x", "value": 2}, {"name": "y"}]}]}, id="lists in lists"),
        pytest.param({"ports": [{"port": 1, "p": "TCP"}, {"port": 1, "p": "UDP"}]}, {"ports": [{"port": 1, "n": "x"}]}, {"ports": [{"port": 1, "p": "TCP", "n": "x"}, {"port": 1, "p": "UDP"}]}, id="of two with one key the first is merged"),
        pytest.param({"ports": [{"port": 1}]}, {"ports": [{"port": True}]}, {"ports": [{"port": True}, {"port": 1}]}, id="true is not 1"),
        # order
        pytest.param({"items": items("a", "b")}, {"items": items("c")}, {"items": items("c", "a", "b")}, id="what is new comes first"),
        pytest.param({"items": items("a", "b", "c")}, {"items": items("c", "a")}, {"items": items("b", "c", "a")}, id="the patch's order holds among its own"),
        pytest.param({"items": items("a", "b", "c")}, {"$setElementOrder/items": items("c", "b", "a")}, {"items": items("c", "b", "a")}, id="only the order"),
        pytest.param({"items": items("a", "s", "b")}, {"$setElementOrder/items": items("b", "a")}, {"items": items("s", "b", "a")}, id="others keep their place before who stood behind"),
        pytest.param({"items": items("a", "b")}, {"$setElementOrder/items": items("n", "a", "b"), "items": [{"name": "n", "value": 1}]}, {"items": [{"name": "n", "value": 1}, *items("a", "b")]}, id="the order with something new"),
        pytest.param({"items": items("a", "b")}, {"$setElementOrder/items": items("a"), "items": [{"name": "b", "$patch": "delete"}]}, {"items": items("a")}, id="the order with a deletion"),
        pytest.param({}, {"$setElementOrder/items": items("b", "a"), "items": items("b", "a")}, {"items": items("b", "a")}, id="the order of what is new"),
        pytest.param({}, {"$setElementOrder/items": items("a")}, {}, id="the order of nothing"),
        pytest.param({"items": items("a")}, {"$setElementOrder/items": [], "items": None}, {}, id="the order of what goes"),
        # sets
        pytest.param({"set": ["a", "b"]}, {"set": ["c", "a"]}, {"set": ["c", "a", "b"]}, id="a set grows"),
        pytest.param({"set": ["a", "b", "c"]}, {"$deleteFromPrimitiveList/set": ["b", "z"]}, {"set": ["a", "c"]}, id="a set shrinks"),
        pytest.param({"set": ["a", "b"]}, {"$deleteFromPrimitiveList/set": ["a"], "set": ["c"], "$setElementOrder/set": ["b", "c"]}, {"set": ["b", "c"]}, id="a set grows, shrinks and is ordered"),
        pytest.param({}, {"$deleteFromPrimitiveList/set": ["a"]}, {}, id="shrinking nothing"),
        pytest.param({"set": []}, {"set": []}, {"set": []}, id="empty sets"),
        # objects as a whole
        pytest.param({"map": {"a": "1"}}, {"map": {"$patch": "replace", "b": "2"}}, {"map": {"b": "2"}}, id="an object is replaced"),
        pytest.param({}, {"map": {"$patch": "replace", "b": "2"}}, {"map": {"b": "2"}}, id="an object that is not there is replaced"),
        pytest.param({"map": {"a": "1"}}, {"map": {"$patch": "delete"}}, {"map": {}}, id="an object is emptied"),
        pytest.param({}, {"map": {"$patch": "delete"}}, {}, id="an object that is not there is deleted"),
        pytest.param({"map": {"a": "1"}}, {"map": {"$patch": "merge", "b": "2"}}, {"map": {"a": "1", "b": "2"}}, id="an object is merged, said out loud"),
        pytest.param({"map": {"a": "1", "b": "2"}}, {"map": {"$retainKeys": ["b", "c"], "c": "3"}}, {"map": {"b": "2", "c": "3"}}, id="only some keys are kept"),
        pytest.param({"sources": [{"name": "v", "value": 1}]}, {"sources": [{"name": "v", "labels": {"a": "b"}, "$retainKeys": ["name", "labels"]}]}, {"sources": [{"name": "v", "labels": {"a": "b"}}]}, id="a union changes its member"),
        pytest.param({"map": {"a": "1"}}, {"map": {"$retainKeys": ["b"], "a": None}}, {"map": {}}, id="null needs not be retained"),
        pytest.param({}, {"map": {"$retainKeys": ["a"], "a": "1"}, "items": [{"name": "a", "$setElementOrder/items": [], "$deleteFromPrimitiveList/set": []}]}, {"map": {"a": "1"}, "items": items("a")}, id="no directive gets into the object"),
        pytest.param({"a": 1}, {"$patch": "replace", "b": 2}, {"b": 2}, id="the whole object is replaced"),
    ],
)  # fmt: skip
def test_patches(obj, patch, result):
    before = copy.deepcopy((obj, patch))
    assert strategic.apply(obj, patch, SHAPE) == result
    assert (obj, patch) == before


@pytest.mark.parametrize(
    ("obj", "patch", "code", "message"),
    [
        pytest.param({}, [], 400, "must be an object", id="a list"),
        pytest.param({"map": {}}, {"map": {"$patch": "frob"}}, 400, "map: unknown patch type: frob", id="unknown directive"),
        pytest.param({}, {"$patch": ["x"]}, 400, "the patch: unknown patch type", id="a directive that is not a string"),
        pytest.param({"items": []}, {"items": [{"$patch": "frob", "name": "a"}]}, 400, "items: unknown patch type", id="unknown directive in a list"),
        pytest.param({"items": items("a")}, {"items": [{"value": 1}]}, 422, "items: an element does not contain declared merge key: name", id="no merge key"),
        pytest.param({"items": items("a")}, {"items": [{"$patch": "delete"}]}, 422, "declared merge key: name", id="delete whom"),
        pytest.param({"items": items("a")}, {"items": ["a"]}, 422, "types are not identical", id="a string among objects"),
        pytest.param({"items": ["a"]}, {"items": items("a")}, 422, "types are not identical", id="an object among strings"),
        pytest.param({"keyless": items("a")}, {"keyless": items("b")}, 422, "without merge key", id="a list without key"),
        pytest.param({}, {"$setElementOrder/items": {}}, 400, "items: invalid patch format of setElementOrder", id="no order"),
        pytest.param({"items": items("a")}, {"$setElementOrder/items": items("b", "a"), "items": items("a", "b")}, 422, "doesn't match its $setElementOrder", id="two orders"),
        pytest.param({"items": items("a")}, {"$setElementOrder/items": items("a"), "items": items("b")}, 422, "doesn't match", id="an order that lacks one"),
        pytest.param({"set": ["a"]}, {"$deleteFromPrimitiveList/set": "a"}, 400, "set: invalid patch format of primitive list", id="no list to delete"),
        pytest.param({"map": {}}, {"map": {"$retainKeys": "a"}}, 400, "map: invalid patch format of retainKeys", id="no keys"),
        pytest.param({"map": {}}, {"map": {"$retainKeys": [1]}}, 400, "invalid patch format of retainKeys", id="keys that are numbers"),
        pytest.param({"map": {}}, {"map": {"$retainKeys": ["a"], "b": "1"}}, 400, "map: b is set, but $retainKeys does not name it", id="set but not retained"),
    ],
)  # fmt: skip
def test_invalid_patches_are_rejected_with_a_path(obj, patch, code, message):
    with pytest.raises(PatchError) as refused:
        strategic.apply(obj, patch, SHAPE)
    assert (refused.value.code, message in refused.value.message) == (code, True), refused.value


def test_untouched_values_are_shared():
    old = {"items": [{"name": "a", "labels": {"x": "1"}}, {"name": "b", "value": 1}], "map": {}}
    new = strategic.apply(old, {"items": [{"name": "b", "value": 2}]}, SHAPE)
    assert new["map"] is old["map"]
    assert new["items"][0] is old["items"][0]
    assert old["items"][1] == {"name": "b", "value": 1}


# With the real pod

POD = Schemas().shape("v1", "Pod")
GOLDEN = [
    json.loads(line)
    for line in Path(__file__).with_name("data").joinpath("kubectl-strategic.jsonl").read_text().splitlines()
]


def pruned(value):
    if isinstance(value, dict):
        members = {key: pruned(each) for key, each in value.items()}
        return {key: each for key, each in members.items() if each not in (None, {}, [])}
    return [pruned(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("case", GOLDEN, ids=range(len(GOLDEN)))
def test_a_pod_is_patched_as_kubectl_does_it(case):
    """Results of `kubectl patch --local --type=strategic` (1.33) without what is empty."""
    assert pruned(strategic.apply(case["object"], case["patch"], POD)) == case["result"]


def test_a_union_member_of_a_volume_is_replaced():
    pod = {"spec": {"volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "emptyDir": {}}]}}
    patch = {"spec": {"volumes": [{"$retainKeys": ["name", "hostPath"], "name": "v", "hostPath": {"path": "/x"}}]}}
    volumes = [{"name": "v", "hostPath": {"path": "/x"}}, {"name": "w", "emptyDir": {}}]
    assert strategic.apply(pod, patch, POD) == {"spec": {"volumes": volumes}}


def test_conditions_are_merged_by_type_as_a_kubelet_wants_it():
    ready = {"type": "Ready", "status": "False"}
    pod = {"status": {"conditions": [{"type": "PodScheduled", "status": "True"}, ready]}}
    patch = {
        "status": {
            "$setElementOrder/conditions": [{"type": "Ready"}, {"type": "PodScheduled"}],
            "conditions": [{"type": "Ready", "status": "True"}],
        }
    }
    conditions = [{"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "True"}]
    assert strategic.apply(pod, patch, POD) == {"status": {"conditions": conditions}}


# Properties: a patch made from a difference leads to the target

NAMES = st.sampled_from("abcdef")
VALUES = st.integers(0, 2)
MAPS = st.dictionaries(NAMES, VALUES, max_size=3)


def lists(depth):
    members = {"value": VALUES, "labels": MAPS}
    if depth:
        members["items"] = lists(depth - 1)
    element = st.fixed_dictionaries({}, optional=members)
    return st.lists(st.tuples(NAMES, element), max_size=4, unique_by=lambda pair: pair[0]).map(
        lambda pairs: [{"name": name, **rest} for name, rest in pairs]
    )


OBJECTS = st.fixed_dictionaries(
    {},
    optional={
        "items": lists(1),
        "set": st.lists(NAMES, max_size=4, unique=True),
        "list": st.lists(VALUES, max_size=3),
        "map": MAPS,
    },
)


def difference(old, new):
    """A strategic merge patch from one object to the other, as `kubectl apply` makes it."""
    patch = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if before is None or key == "list" or not isinstance(value, dict | list):
            patch[key] = value
        elif isinstance(value, dict):
            patch[key] = difference(before, value)
        elif key == "set":
            patch["$deleteFromPrimitiveList/set"] = [item for item in before if item not in value]
            patch["set"] = [item for item in value if item not in before]
            patch["$setElementOrder/set"] = value
        else:
            patch[key] = list_difference(before, value)
            patch[f"$setElementOrder/{key}"] = [{"name": item["name"]} for item in value]
    return patch


def list_difference(old, new):
    before = {item["name"]: item for item in old}
    after = {item["name"] for item in new}
    changed = [{"name": item["name"], **difference(before.get(item["name"], {}), item)} for item in new]
    return changed + [{"name": name, "$patch": "delete"} for name in before if name not in after]


@given(OBJECTS, OBJECTS)
def test_the_patch_of_a_difference_leads_to_the_target(old, new):
    before = copy.deepcopy(old)
    assert strategic.apply(old, difference(old, new), SHAPE) == new
    assert old == before


@given(OBJECTS, OBJECTS)
def test_applying_twice_is_applying_once(old, new):
    patch = difference(old, new)
    once = strategic.apply(old, patch, SHAPE)
    assert strategic.apply(once, patch, SHAPE) == once


OTHERS = st.lists(st.sampled_from("uvwxyz"), max_size=3, unique=True)


@given(OBJECTS, OBJECTS, OTHERS, st.data())
def test_a_three_way_patch_keeps_list_elements_of_other_managers(applied, wanted, others, data):
    """The patch is made from what was applied and what is wanted now; the server has more by then."""
    live = copy.deepcopy(applied)
    for name in others:
        live.setdefault("map", {})[name] = 9
        live.setdefault("items", []).insert(data.draw(st.integers(0, len(live.get("items", [])))), {"name": name})
    patch = difference(
        {**applied, "items": applied.get("items", []), "map": applied.get("map", {})},
        {"items": [], "map": {}, **wanted},
    )
    result = strategic.apply(live, patch, SHAPE)
    ours = [item for item in result["items"] if item["name"] not in others]
    assert ours == wanted.get("items", [])
    assert [item["name"] for item in result["items"] if item["name"] in others] == [
        item["name"] for item in live.get("items", []) if item["name"] in others
    ]
    assert result["map"] == {**wanted.get("map", {}), **dict.fromkeys(others, 9)}


DIRECTIVES = ("$patch", "$retainKeys", "$setElementOrder/items", "$setElementOrder/set", "$deleteFromPrimitiveList/set")
ANYTHING = st.recursive(
    st.none() | st.booleans() | VALUES | NAMES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([*SHAPE.members, "name", "port", *DIRECTIVES]),
            inner | st.sampled_from(["replace", "delete", "merge"]),
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from([*SHAPE.members]), ANYTHING), ANYTHING)
def test_any_patch_applies_or_is_rejected(obj, patch):
    before = copy.deepcopy((obj, patch))
    try:
        result = strategic.apply(obj, patch, SHAPE)
    except PatchError as refused:
        assert refused.code in (400, 422)  # noqa: PT017 -- both ends are fine, each with its own check
    else:
        assert "$setElementOrder/items" not in result
    assert (obj, patch) == before
