"""The graph's indexes always say the same as its nodes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.controllers.graph import Graph
from podwire.controllers.kinds import CONFIG_MAPS, PODS
from podwire.controllers.metadata import Metadata, Owner, PartialObject, from_json, from_object, resource_of

uids = st.sampled_from("abcdef")


@st.composite
def nodes(draw) -> PartialObject:
    """A uid never changes its kind and namespace."""
    uid = draw(uids)
    owners = tuple(Owner(uid=item) for item in draw(st.lists(uids, max_size=3, unique=True)))
    kind, namespace = (PODS, "one") if uid in "abc" else (CONFIG_MAPS, "two")
    return PartialObject(kind, Metadata(name=uid, namespace=namespace, uid=uid, owner_references=owners))


@given(st.lists(st.one_of(nodes(), uids), max_size=40))
def test_indexes_follow_every_change(steps):
    graph, model = Graph(), {}
    for step in steps:
        if isinstance(step, PartialObject):
            assert graph.put(step) == model.get(step.uid)
            model[step.uid] = step
        else:
            assert graph.drop(step) == model.pop(step, None)
    assert {node.uid: node for node in graph.nodes()} == model
    for uid in "abcdef":
        assert graph.dependents(uid) == [
            each for _, each in sorted(model.items()) if any(owner.uid == uid for owner in each.owners)
        ]
    for kind, namespace in ((PODS, "one"), (CONFIG_MAPS, "two")):
        of_kind = [item for item in model.values() if item.kind is kind]
        assert graph.has(kind) is bool(of_kind)
        assert graph.in_namespace(namespace) == ({resource_of(kind): len(of_kind)} if of_kind else {})


OBJECT = {
    "kind": "Pod",
    "metadata": {
        "name": "web",
        "namespace": "dev",
        "uid": "u1",
        "resourceVersion": "7",
        "labels": {"a": "b"},
        "finalizers": ["x/y"],
        "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u2", "controller": True}
        ],
    },
    "spec": {"containers": []},
}


def test_an_object_is_seen_alike_from_json_and_from_a_dict():
    import msgspec

    seen = from_object(PODS, OBJECT)
    assert from_json(PODS, msgspec.json.encode(OBJECT)) == seen
    assert seen.owners == (Owner(api_version="apps/v1", kind="ReplicaSet", name="r", uid="u2", controller=True),)
    assert msgspec.to_builtins(seen.owners[0]) == OBJECT["metadata"]["ownerReferences"][0]
    assert from_json(PODS, msgspec.json.encode(OBJECT), "9").metadata.resource_version == "9"


@pytest.mark.parametrize(
    ("spec", "claims"),
    [
        pytest.param({"spec": {"containers": []}}, False, id="none"),
        pytest.param({"spec": {"resourceClaims": [{"name": "nic"}]}}, True, id="one"),
    ],
)
def test_of_a_whole_pod_it_is_seen_whether_it_asks_for_devices(spec, claims):
    import msgspec

    whole = {**OBJECT, **spec}
    assert from_object(PODS, whole).claims is claims
    assert from_json(PODS, msgspec.json.encode(whole)).claims is claims
    assert from_object(PODS, {"metadata": OBJECT["metadata"]}).claims is None


def test_objects_that_are_kept_whole_are_found_by_name_and_decoded():
    import msgspec

    graph, whole = Graph(), from_json(PODS, msgspec.json.encode(OBJECT), "9", whole=True)
    graph.put(whole)
    assert graph.find(PODS, "web", "dev") is whole
    assert graph.listed(PODS, "dev") == graph.everywhere(PODS) == [whole]
    assert whole.object() == {**OBJECT, "metadata": {**OBJECT["metadata"], "resourceVersion": "9"}}
    graph.drop(whole.uid)
    assert graph.find(PODS, "web", "dev") is None
    assert graph.listed(PODS, "dev") == graph.everywhere(PODS) == []


def test_an_object_that_replaced_another_of_its_name_is_found():
    import msgspec

    later = {**OBJECT, "metadata": {**OBJECT["metadata"], "uid": "later"}}
    first, second = (from_json(PODS, msgspec.json.encode(item), whole=True) for item in (OBJECT, later))
    graph = Graph()
    for seen in (first, second):
        graph.put(seen)
    graph.drop(first.uid)
    assert graph.find(PODS, "web", "dev") is second
