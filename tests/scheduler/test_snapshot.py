"""The sums, which are never counted anew."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.objects import nodes, selectors
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


LABELS = [{}, {"app": "a"}, {"app": "b"}, {"app": "a", "x": ""}]
APP_A = selectors.from_labels({"app": "a"})


@given(steps)
def test_indexed_pods_are_always_those_that_are_there(make_pod, steps):
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "a"}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    snapshot, there = Snapshot(), {}
    for name in ("n1", "n2"):
        snapshot.put_node(nodes.read({"metadata": {"name": name, "labels": {"zone": f"zone-of-{name}"}}}))
    for verb, number, node, which in steps:
        given_ = {"affinity": affinity} if which == 4 else {}
        info = make_pod(f"p{number}", labels=LABELS[which % 4], **given_)
        if verb == "put":
            snapshot.put_pod(info, node)
            there[info.pod.uid] = (node, info)
        else:
            snapshot.drop_pod(info.pod.uid)
            there.pop(info.pod.uid, None)
        if number == 5:
            labels = {"zone": f"zone-{which}"} if which else {}
            snapshot.put_node(nodes.read({"metadata": {"name": node, "labels": labels}}))
        assert _counted(snapshot) == _recounted(snapshot, there.values())
        hypothetical = snapshot.node_info(node).copy()
        for uid in list(hypothetical.pods)[:1]:
            hypothetical.remove(uid)
        hypothetical.add(make_pod("other", labels={"app": "a"}, affinity=affinity))
        assumed = [(name, info) for name, info in there.values() if name != node]
        assumed += [(node, info) for info in hypothetical.pods.values()]
        assert _counted(snapshot.with_node(hypothetical)) == _recounted(snapshot, assumed)


def _counted(snapshot):
    groups = list(snapshot.pod_index.matching(APP_A))
    zones = sum((Counter(group.domains("zone")) for group in groups), Counter())
    with_terms = sum((Counter(group.domains("zone")) for group in snapshot.pod_index.by_terms.values()), Counter())
    return sum((group.nodes for group in groups), Counter()), zones, with_terms


def _recounted(snapshot, placed):
    zone_of = {node.name: node.labels.get("zone") for node in snapshot.nodes}
    matching = [name for name, info in placed if info.pod.metadata.labels.get("app") == "a"]
    with_terms = [zone_of[name] for name, info in placed if info.terms.anti_affinity and zone_of[name]]
    return Counter(matching), Counter(zone_of[name] for name in matching if zone_of[name]), Counter(with_terms)


def test_a_heartbeat_of_a_node_is_not_a_change():
    snapshot = Snapshot()
    heartbeat = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2030-01-01T00:00:00Z"}
    snapshot.put_node(nodes.read({"metadata": {"name": "n1"}}))
    _, before = snapshot.changes_since(0)
    snapshot.put_node(nodes.read({"metadata": {"name": "n1"}, "status": {"conditions": [heartbeat]}}))
    assert snapshot.changes_since(before) == (set(), before)
    snapshot.put_node(nodes.read({"metadata": {"name": "n1", "labels": {"x": ""}}}))
    assert snapshot.changes_since(before) == ({"n1"}, before + 1)
