"""Field ownership after a write: apply, co-ownership, conflicts, force, removal, and every other write."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.kinds.apply.errors import conflict_error
from podwire.kinds.apply.fields import claimed
from podwire.kinds.apply.fieldsets import difference, paths, union
from podwire.kinds.apply.managers import Manager
from podwire.kinds.apply.ownership import Conflicts, Version, View, unmanaged
from podwire.kinds.apply.types import shown
from tests.kinds.apply.conftest import SCHEMA, VERSION, World, custom, widget

A, B, C = ('k:{"name":"%s"}' % letter for letter in "abc")  # noqa: UP031 - the form has braces of its own


def element(name, **more):
    return {"name": name, **more}


def owned(**fields):
    return {"f:spec": {f"f:{name}": below for name, below in fields.items()}}


CLAIMS = [
    pytest.param({"text": "a"}, owned(text={}), id="scalar"),
    pytest.param({"struct": {"a": "1"}}, owned(struct={"f:a": {}}), id="a struct itself is nobody's"),
    pytest.param({"struct": {}}, owned(struct={}), id="unless it is empty"),
    pytest.param({"whole": {"a": "1"}}, owned(whole={}), id="atomic map"),
    pytest.param({"map": {"x": "1"}}, owned(map={"f:x": {}}), id="map"),
    pytest.param({"maps": {"x": {"a": "1"}}}, owned(maps={"f:x": {".": {}, "f:a": {}}}), id="map of structs"),
    pytest.param({"open": {"x": {"y": 1}}}, owned(open={"f:x": {".": {}, "f:y": {}}}), id="open"),
    pytest.param({"list": ["a"]}, owned(list={}), id="atomic list"),
    pytest.param({"list": []}, owned(list={}), id="empty atomic list"),
    pytest.param({"set": ["a"]}, owned(set={'v:"a"': {}}), id="set"),
    pytest.param({"items": [element("a", size=1)]}, owned(items={A: {".": {}, "f:name": {}, "f:size": {}}}), id="keys"),
    pytest.param({"ports": [{"port": 80}]}, owned(ports={'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:port": {}}}),
                 id="several keys, one by default"),
    pytest.param({"items": []}, {}, id="an empty list by key is nothing"),
    pytest.param({"text": None}, owned(text={}), id="null"),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "wanted"), CLAIMS)
def test_an_apply_owns_the_fields_of_its_configuration(world, spec, wanted):
    world.apply("me", widget(**spec))
    assert world.fields("me") == wanted


def test_identifying_fields_have_no_owner(world):
    config = widget(text="a")
    config["metadata"] |= {"namespace": "n", "uid": "u", "resourceVersion": "1", "labels": {"x": "y"}}
    world.apply("me", config)
    assert world.fields("me") == {"f:metadata": {"f:labels": {"f:x": {}}}, "f:spec": {"f:text": {}}}


def test_an_applier_that_claims_nothing_has_no_entry(world):
    world.apply("me", widget(text="a"))
    world.apply("me", {"apiVersion": VERSION, "kind": "Widget", "metadata": {"name": "w"}})
    assert not world.managed
    assert "text" not in world.obj.get("spec", {})


SPARED = [
    pytest.param({"text": "a"}, {}, {}, id="scalar"),
    pytest.param({"struct": {"a": "1", "b": "2"}}, {"struct": {"a": "1"}}, {"struct": {"a": "1"}}, id="struct"),
    pytest.param({"map": {"x": "1", "y": "2"}}, {"map": {"x": "1"}}, {"map": {"x": "1"}}, id="map"),
    pytest.param({"whole": {"a": "1"}}, {}, {}, id="atomic map"),
    pytest.param({"list": ["a"]}, {}, {}, id="atomic list"),
    pytest.param({"set": ["a", "b"]}, {"set": ["b"]}, {"set": ["b"]}, id="set"),
    pytest.param({"items": [element("a"), element("b")]}, {"items": [element("b")]}, {"items": [element("b")]},
                 id="element"),
    pytest.param({"items": [element("a", value="1", size=2)]}, {"items": [element("a", size=2)]},
                 {"items": [element("a", size=2)]}, id="member of an element"),
    pytest.param({"open": {"x": {"y": 1, "z": 2}}}, {"open": {"x": {"z": 2}}}, {"open": {"x": {"z": 2}}}, id="open"),
]  # fmt: skip


@pytest.mark.parametrize(("first", "second", "wanted"), SPARED)
def test_fields_that_the_applier_leaves_out_are_removed(world, first, second, wanted):
    world.apply("me", widget(**first, count=1))
    assert world.apply("me", widget(**second, count=1))["spec"] == {**wanted, "count": 1}


@pytest.mark.parametrize(("first", "second", "wanted"), SPARED)
def test_fields_that_another_applier_owns_stay(world, first, second, wanted):
    world.apply("me", widget(**first))
    world.apply("other", widget(**first))
    assert world.apply("me", widget(**second, count=1))["spec"] == {**first, "count": 1}


def test_fields_that_an_updater_owns_stay(world):
    world.apply("me", widget(map={"x": "1"}))
    world.update("hand", widget(map={"x": "1", "y": "2"}))
    assert world.apply("me", widget(text="a"))["spec"] == {"map": {"y": "2"}, "text": "a"}


def test_fields_changed_by_an_update_are_not_removed_by_the_applier(world):
    world.apply("me", widget(text="a", count=1))
    world.update("hand", widget(text="b", count=1))
    assert world.apply("me", widget(count=1))["spec"] == {"text": "b", "count": 1}
    assert world.fields("hand") == owned(text={})


def test_the_same_value_is_owned_together(world):
    world.apply("one", widget(text="a"))
    world.apply("two", widget(text="a"))
    assert world.fields("one") == world.fields("two") == owned(text={})


CLASHES = [
    pytest.param({"text": "a"}, {"text": "b"}, [".spec.text"], id="scalar"),
    pytest.param({"whole": {"a": "1"}}, {"whole": {"b": "1"}}, [".spec.whole"], id="atomic map"),
    pytest.param({"list": ["a"]}, {"list": ["b"]}, [".spec.list"], id="atomic list"),
    pytest.param({"map": {"x": "1"}}, {"map": {"x": "2"}}, [".spec.map.x"], id="map"),
    pytest.param({"items": [element("a", value="1")]}, {"items": [element("a", value="2")]},
                 ['.spec.items[name="a"].value'], id="element"),
    pytest.param({"text": "a", "count": 1}, {"text": "b", "count": 2}, [".spec.count", ".spec.text"], id="two"),
    pytest.param({"set": ["a"]}, {"set": ["b"]}, [], id="sets never clash"),
    pytest.param({"struct": {"a": "1"}}, {"struct": {"b": "2"}}, [], id="other members do not clash"),
]  # fmt: skip


@pytest.mark.parametrize(("mine", "theirs", "fields"), CLASHES)
def test_fields_of_others_are_not_changed_without_force(world, mine, theirs, fields):
    world.apply("me", widget(**mine))
    before = copy.deepcopy((world.obj, world.managed))
    if not fields:
        world.apply("other", widget(**theirs))
        return
    with pytest.raises(Conflicts) as caught:
        world.apply("other", widget(**theirs))
    assert [shown(path) for _, path in caught.value.found] == fields
    assert (world.obj, world.managed) == before


@pytest.mark.parametrize(("mine", "theirs", "fields"), CLASHES)
def test_force_takes_fields_from_their_owners(world, mine, theirs, fields):
    world.apply("me", widget(**mine))
    world.apply("other", widget(**theirs), force=True)
    owned = {shown(path) for path in paths(world.fields("me"))}
    assert not owned & set(fields)
    assert set(fields) <= {shown(path) for path in paths(world.fields("other"))}


def test_a_missing_field_does_not_conflict_with_managers_that_removed_it(world):
    world.apply("me", widget(text="a", count=1))
    world.update("hand", widget(count=1))
    assert world.fields("me") == owned(count={})
    assert world.apply("me", widget(text="a", count=1))["spec"] == {"text": "a", "count": 1}


REFUSALS = [
    pytest.param(
        [(Manager("m1", "Apply"), ("f:data", "f:a"))],
        'Apply failed with 1 conflict: conflict with "m1": .data.a',
        ['conflict with "m1"'],
        id="an applier",
    ),
    pytest.param(
        [(Manager("m1", "Update", "v1"), ("f:data", "f:a"))],
        'Apply failed with 1 conflict: conflict with "m1" using v1: .data.a',
        ['conflict with "m1" using v1'],
        id="an updater",
    ),
    pytest.param(
        [(Manager("m1", "Update", "v1", "status"), ("f:status", "f:a")), (Manager("m2", "Apply"), ("f:b", 'v:"x"'))],
        'Apply failed with 2 conflicts: conflicts with "m1" with subresource "status" using v1:\n'
        '- .status.a\nconflicts with "m2":\n- .b[="x"]',
        ['conflict with "m1" with subresource "status" using v1', 'conflict with "m2"'],
        id="two",
    ),
]


@pytest.mark.parametrize(("found", "message", "causes"), REFUSALS)
def test_a_conflict_has_upstreams_message(found, message, causes):
    error = conflict_error(Conflicts(found))
    assert (error.code, str(error.reason), error.message) == (409, "Conflict", message)
    assert [cause["message"] for cause in error.details["causes"]] == causes
    assert {cause["reason"] for cause in error.details["causes"]} == {"FieldManagerConflict"}


def test_an_update_takes_the_fields_that_it_changes(world):
    world.apply("me", widget(text="a", map={"x": "1"}))
    world.update("hand", widget(text="b", map={"x": "1", "y": "2"}))
    assert world.fields("hand") == owned(text={}, map={"f:y": {}})
    assert world.fields("me") == owned(map={"f:x": {}})


def test_a_write_that_changes_nothing_leaves_everything_as_it_is(world):
    world.apply("me", widget(text="a"))
    before = world.managed
    world.update("hand", widget(text="a"))
    assert world.managed is before


def test_an_update_keeps_the_fields_of_its_manager(world):
    world.update("hand", widget(text="a"))
    world.update("hand", widget(text="a", count=1))
    fields = world.fields("hand")["f:spec"]
    assert {*fields} == {".", "f:text", "f:count"}
    world.update("hand", widget(count=1))
    assert {*world.fields("hand")["f:spec"]} == {".", "f:count"}


def test_a_manager_without_fields_is_removed(world):
    world.apply("me", widget(text="a"))
    world.update("hand", widget(text="b"))
    assert not world.fields("me")


def test_writes_through_a_subresource_have_an_entry_of_their_own(world):
    world.update("hand", widget(text="a"))
    world.update("hand", {**widget(text="a"), "status": {"text": "b"}}, "status")
    assert {manager.subresource for manager in world.managed} == {"", "status"}


def test_fields_from_before_the_first_apply_have_an_owner(world):
    live = widget(text="a", map={"x": "1"})
    world.managed = unmanaged(world.view, {"metadata": {}}, live, "", "2027-01-15T08:00:00Z")
    world.obj = live
    with pytest.raises(Conflicts) as caught:
        world.apply("me", widget(text="b"))
    assert str(caught.value.found[0][0]) == f'"before-first-apply" using {VERSION}'


def test_an_element_with_defaults_is_the_element_without(world):
    world.apply("me", widget(ports=[{"port": 80}]))
    world.obj["spec"]["ports"][0]["protocol"] = "TCP"
    world.apply("me", widget(ports=[{"port": 80}]))
    assert world.obj["spec"]["ports"] == [{"port": 80, "protocol": "TCP"}]
    assert world.apply("me", widget(count=1))["spec"] == {"count": 1}


def test_a_field_that_became_atomic_is_owned_as_a_whole(world):
    world.apply("me", widget(struct={"a": "1"}, items=[element("a")]))
    schema = copy.deepcopy(SCHEMA)
    for name in ("struct", "items"):
        spec = schema["properties"]["spec"]["properties"][name]
        spec.pop("x-kubernetes-list-type", None)
        spec.pop("x-kubernetes-list-map-keys", None)
        if name == "struct":
            spec["x-kubernetes-map-type"] = "atomic"
    world.view = View(custom(schema), lambda _version: None, changing=True)
    world.apply("other", widget(count=1))
    assert world.fields("me") == owned(struct={}, items={})


def test_managers_of_a_removed_version_are_dropped(world):
    world.apply("me", widget(text="a"))
    ((manager, mine),) = world.managed.items()
    mine.api_version = "example.com/v0"
    world.managed = {manager: mine}
    world.apply("other", widget(text="b"))
    assert not world.fields("me")


def test_fields_are_followed_into_other_versions(world):
    """In v0 the text is called words."""

    def renamed(name, wanted):
        def rename(obj):
            spec = {(wanted if key == name else key): value for key, value in obj.get("spec", {}).items()}
            return {**obj, "spec": spec}

        return rename

    there, back = renamed("text", "words"), renamed("words", "text")

    schema = copy.deepcopy(SCHEMA)
    properties = schema["properties"]["spec"]["properties"]
    properties["words"] = properties.pop("text")
    old = Version("example.com/v0", custom(schema).type, there, back)
    first = World(View(Version("example.com/v0", old.type), lambda _version: None))
    first.apply("me", widget(words="a", count=1))
    world.obj, world.managed = back(first.obj), first.managed
    world.view = View(custom(), {"example.com/v0": old}.get)
    with pytest.raises(Conflicts) as caught:
        world.apply("other", widget(text="b"))
    assert [shown(path) for _, path in caught.value.found] == [".spec.words"]
    assert world.apply("me", widget(count=1))["spec"] == {"count": 1}, "what was applied in v0 is removed in v1"


SPECS = st.fixed_dictionaries(
    {},
    optional={
        "text": st.sampled_from("ab"),
        "count": st.integers(0, 2),
        "struct": st.fixed_dictionaries({}, optional={"a": st.sampled_from("12"), "b": st.sampled_from("12")}),
        "map": st.dictionaries(st.sampled_from("xyz"), st.sampled_from("ab"), min_size=1),
        "set": st.lists(st.sampled_from("abc"), unique=True, min_size=1),
        "list": st.lists(st.sampled_from("abc"), min_size=1),
        "items": st.lists(
            st.fixed_dictionaries(
                {"name": st.sampled_from("abc")}, optional={"value": st.sampled_from("12"), "size": st.integers(0, 2)}
            ),
            unique_by=lambda each: each["name"],
            min_size=1,
        ),
        "open": st.dictionaries(st.sampled_from("xy"), st.dictionaries(st.sampled_from("pq"), st.integers(0, 2))),
    },
)


def fresh() -> World:
    return World(View(custom(), lambda _version: None))


def unordered(value):
    if isinstance(value, dict):
        return {key: unordered(each) for key, each in value.items()}
    return sorted(map(repr, map(unordered, value))) if isinstance(value, list) else value


@given(st.lists(st.tuples(st.sampled_from(["one", "two", "three"]), SPECS), max_size=4), SPECS)
def test_to_apply_the_same_again_changes_nothing(history, spec):
    world = fresh()
    for who, each in history:
        world.apply(who, widget(**each), force=True)
    world.apply("me", widget(**spec), force=True)
    before = copy.deepcopy((world.obj, world.managed))
    world.apply("me", widget(**spec))
    assert (world.obj, world.managed) == before


@given(SPECS, SPECS)
def test_disjoint_appliers_commute(one, other):
    other = {key: value for key, value in other.items() if key not in one}
    worlds = []
    for order in ((("one", one), ("other", other)), (("other", other), ("one", one))):
        world = fresh()
        for who, spec in order:
            world.apply(who, widget(**spec))
        worlds.append(world)
    first, second = worlds
    assert unordered(first.obj) == unordered(second.obj)
    for who in ("one", "other"):
        assert first.fields(who) == second.fields(who)


@given(st.lists(st.tuples(st.sampled_from(["one", "two", "three"]), SPECS), min_size=1, max_size=6))
def test_every_claimed_field_has_an_owner_that_set_its_value(history):
    world = fresh()
    for who, spec in history:
        world.apply(who, widget(**spec), force=True)
    last, spec = history[-1]
    claim = {"f:spec": below} if (below := claimed(custom().type, widget(**spec)).get("f:spec")) else {}
    assert not difference(claim, world.fields(last)), "who applied last owns all of it"
    everything = {}
    for item in world.managed.values():
        everything = union(everything, item.fields)
    there = {"f:spec": claimed(custom().type, world.obj).get("f:spec", {})}
    if there["f:spec"]:
        assert not difference(there, everything), "nothing is there that nobody owns"


@given(SPECS, SPECS)
def test_the_applied_configuration_is_in_the_object(first, spec):
    world = fresh()
    world.apply("one", widget(**first))
    found = world.apply("me", widget(**spec), force=True)
    again = fresh()
    again.obj, again.managed = found, world.managed
    again.apply("me", widget(**spec))
    assert again.obj == found
