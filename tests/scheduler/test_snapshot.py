"""The sums, which are never counted anew."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.objects import nodes
from podwire.scheduler import Snapshot

PORT = {"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]}

steps = st.lists(
    st.tuples(st.sampled_from(["put", "drop"]), st.integers(0, 5), st.sampled_from(["n1", "n2"]), st.integers(0, 4)),
    max_size=30,
)


@given(steps)
def test_the_sums_are_always_those_of_the_pods_that_are_there(make_pod, steps):
    snapshot, there = Snapshot(), {}
    for name in ("n1", "n2"):
        snapshot.put_node(nodes.read({"metadata": {"name": name}}))
    for verb, number, node, cpu in steps:
        info = make_pod(f"p{number}", requests={"cpu": f"{cpu}m", "example.com/x": cpu}, owner="set")
        if verb == "put":
            snapshot.put_pod(info, node)
            there[info.pod.uid] = (node, info)
        else:
            assert (snapshot.drop_pod(info.pod.uid) is not None) == (info.pod.uid in there)
            there.pop(info.pod.uid, None)
    for node in snapshot.nodes:
        here = [info for name, info in there.values() if name == node.name]
        assert sorted(node.pods) == sorted(item.pod.uid for item in here)
        for sums, of in ((node.requested, "requests"), (node.usage, "usage")):
            assert +sums == +Counter(sum((Counter(getattr(item, of)) for item in here), Counter()))
        assert node.owners["set"] == len(here)
    assert {uid: snapshot.node_of(uid) for uid in there} == {uid: name for uid, (name, _) in there.items()}


def test_a_node_keeps_its_pods_while_its_object_is_away(make_pod):
    snapshot = Snapshot()
    snapshot.put_pod(make_pod("early", requests={"cpu": "1"}), "n1")
    assert snapshot.nodes == []
    snapshot.put_node(nodes.read({"metadata": {"name": "n1"}}))
    assert [node.requested["cpu"] for node in snapshot.nodes] == [1000]
    snapshot.drop_node("n1")
    assert snapshot.nodes == []
    snapshot.put_node(nodes.read({"metadata": {"name": "n1"}}))
    assert [node.requested["cpu"] for node in snapshot.nodes] == [1000]


def test_nothing_is_left_of_a_node_without_object_and_pods(make_pod):
    snapshot = Snapshot()
    snapshot.put_node(nodes.read({"metadata": {"name": "n1"}}))
    snapshot.put_pod(make_pod(**PORT), "n1")
    snapshot.drop_node("n1")
    snapshot.drop_pod("uid-default-web")
    assert snapshot._infos == {}


def test_a_node_that_cannot_be_read_is_none():
    snapshot = Snapshot()
    with pytest.raises(ValueError, match="quantit"):
        snapshot.put_node(nodes.read({"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "much"}}}))
    assert snapshot.nodes == []
