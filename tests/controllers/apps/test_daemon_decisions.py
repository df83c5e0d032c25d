"""On which nodes the pods of a DaemonSet run, and how they are replaced, without a cluster."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.controllers.apps.daemon_decisions import (
    Placement,
    daemon_pod,
    daemon_status,
    manage,
    rolling,
    target_node,
    tolerations,
)
from podwire.controllers.kinds import PODS
from podwire.controllers.metadata import Metadata, PartialObject, PodState
from podwire.objects import nodes as node_objects

NOW = 2e9


def node(name, labels=None, *taints):
    given = [{"key": key, "effect": effect} for key, effect in taints]
    return node_objects.read({"metadata": {"name": name, "labels": labels or {}}, "spec": {"taints": given}})


def daemon(strategy=None, **spec):
    return {
        "metadata": {"name": "web", "generation": 3},
        "spec": {
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": spec},
            "updateStrategy": strategy or {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
        },
    }


def pod(name, on, *, phase="Running", ready=True, hash_="new", deleting=False, age=0):
    state = PodState(phase, on, ready, "2026-01-01T00:00:00Z" if ready else "")
    metadata = Metadata(
        name=name,
        uid=name,
        labels={"controller-revision-hash": hash_},
        creation_timestamp=f"2026-01-01T00:00:{age:02}Z",
        deletion_timestamp="now" if deleting else None,
    )
    return PartialObject(PODS, metadata, pod=state)


@pytest.mark.parametrize(
    ("spec", "taints", "expected"),
    [
        pytest.param({}, [], (True, True), id="any node"),
        pytest.param({}, [("dedicated", "NoSchedule")], (False, True), id="NoSchedule: what runs may continue"),
        pytest.param({}, [("dedicated", "NoExecute")], (False, False), id="NoExecute"),
        pytest.param({}, [("dedicated", "PreferNoSchedule")], (True, True), id="PreferNoSchedule"),
        pytest.param({}, [("node.kubernetes.io/unschedulable", "NoSchedule")], (True, True), id="cordoned"),
        pytest.param({}, [("node.kubernetes.io/not-ready", "NoExecute")], (True, True), id="not ready"),
        pytest.param(
            {}, [("node.kubernetes.io/not-ready", "NoSchedule")], (False, True), id="not ready: new ones wait"
        ),
        pytest.param(
            {"tolerations": [{"key": "dedicated", "operator": "Exists"}]},
            [("dedicated", "NoExecute")],
            (True, True),
            id="tolerated",
        ),
        pytest.param({"nodeSelector": {"disk": "ssd"}}, [], (True, True), id="selected"),
        pytest.param({"nodeSelector": {"disk": "hdd"}}, [], (False, False), id="not selected"),
        pytest.param({"nodeName": "other"}, [], (False, False), id="another node by name"),
    ],
)
def test_nodes_are_chosen_by_selector_affinity_and_taints(spec, taints, expected):
    assert Placement.of(daemon(**spec)).on(node("one", {"disk": "ssd"}, *taints)) == expected


def test_the_network_taint_is_tolerated_on_the_host_network_only():
    def keys(spec):
        return {toleration["key"] for toleration in tolerations(spec)}

    assert keys({"hostNetwork": True}) - keys({}) == {"node.kubernetes.io/network-unavailable"}


def test_a_toleration_for_a_while_does_not_replace_the_daemons():
    given = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 9}
    own = [toleration for toleration in tolerations({"tolerations": [given]}) if toleration["key"] == given["key"]]
    assert own == [{"key": given["key"], "operator": "Exists", "effect": "NoExecute"}]


def test_a_pod_is_bound_to_its_node_by_affinity_and_keeps_its_preferences():
    preferred = [{"weight": 1, "preference": {}}]
    spec = {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}}
    made = daemon_pod({"spec": spec}, "one", {"controller-revision-hash": "h"})
    affinity = made["spec"]["affinity"]["nodeAffinity"]
    assert affinity["preferredDuringSchedulingIgnoredDuringExecution"] == preferred
    import msgspec

    pending = PartialObject(PODS, Metadata(), pod=PodState(), json=msgspec.json.encode({"metadata": {}, **made}))
    assert target_node(pending) == "one"


def named(changes):
    return sorted(changes.create), sorted(pod.name for pod in changes.delete)


def test_nodes_without_a_pod_get_one_and_surplus_pods_go():
    nodes = [node("one"), node("two"), node("three", {}, ("x", "NoExecute"))]
    pods = {
        "one": [pod("a", "one", age=2), pod("b", "one", age=1)],
        "three": [pod("c", "three")],
        "gone": [pod("d", "", phase="Pending", ready=False)],
    }
    assert named(manage(daemon(), nodes, pods, "new", NOW)) == (["two"], ["a", "c", "d"])


def test_pods_that_ended_are_listed_apart():
    pods = {"one": [pod("a", "one", phase="Failed", ready=False)], "two": [pod("b", "two", phase="Succeeded")]}
    changes = manage(daemon(), [node("one"), node("two")], pods, "new", NOW)
    assert [each.name for _, each in changes.failed] == ["a"]
    assert [each.name for _, each in changes.succeeded] == ["b"]
    assert named(changes) == ([], [])


SURGE = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}


def test_a_surge_keeps_the_old_pod_until_the_new_one_is_available():
    nodes, old = [node("one")], pod("old", "one", hash_="old", age=1)
    assert named(rolling(daemon(SURGE), nodes, {"one": [old]}, "new", NOW)) == (["one"], [])
    waiting = {"one": [old, pod("new", "one", ready=False, age=2)]}
    assert named(manage(daemon(SURGE), nodes, waiting, "new", NOW)) == ([], [])
    assert named(rolling(daemon(SURGE), nodes, waiting, "new", NOW)) == ([], [])
    available = {"one": [old, pod("new", "one", age=2)]}
    assert named(manage(daemon(SURGE), nodes, available, "new", NOW)) == ([], ["old"])


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        pytest.param({"one": ["old"], "two": ["old"], "three": ["old"]}, ["one"], id="one at a time"),
        pytest.param({"one": ["new-broken"], "two": ["old"], "three": ["old"]}, [], id="waits for the new one"),
        pytest.param({"one": ["old-broken"], "two": ["old-broken"], "three": ["old"]}, ["one", "two"], id="broken"),
        pytest.param({"one": [], "two": ["old"], "three": ["old"]}, [], id="a node without a pod counts"),
        pytest.param({"one": ["new"], "two": ["new"], "three": ["new"]}, [], id="done"),
    ],
)
def test_pods_are_replaced_in_place(pods, expected):
    made = {
        name: [pod(name, name, hash_=kind.split("-")[0], ready="broken" not in kind) for kind in kinds]
        for name, kinds in pods.items()
    }
    nodes = [node(name) for name in pods]
    assert named(rolling(daemon(), nodes, made, "new", NOW)) == ([], expected)


@given(
    st.integers(1, 6),
    st.integers(1, 3),
    st.booleans(),
    st.lists(st.sampled_from(["old", "new"]), min_size=6, max_size=6),
)
def test_every_update_ends_and_keeps_its_bounds(count, bound, surging, kinds):
    """Pods get ready and end at once."""
    bounds = {"maxSurge": bound, "maxUnavailable": 0} if surging else {"maxUnavailable": bound}
    given_ = daemon({"type": "RollingUpdate", "rollingUpdate": bounds})
    nodes = [node(f"n{index}") for index in range(count)]
    pods = {each.name: [pod(each.name, each.name, hash_=kinds[index])] for index, each in enumerate(nodes)}
    for step in range(40):
        changes = manage(given_, nodes, pods, "new", NOW)
        if not changes.create and not changes.delete:
            changes = rolling(given_, nodes, pods, "new", NOW)
            assert len(changes.delete) <= (count if surging else bound)
            assert len(changes.create) <= bound
        if not changes.create and not changes.delete:
            break
        for ended in changes.delete:
            on_node = pods[ended.pod.node_name]
            on_node.remove(ended)
            if not on_node:
                del pods[ended.pod.node_name]
        for name in changes.create:
            pods.setdefault(name, []).append(pod(f"{name}-{step}", name, age=min(step + 1, 59)))
    assert {name: [item.labels["controller-revision-hash"] for item in held] for name, held in pods.items()} == {
        node.name: ["new"] for node in nodes
    }


def test_the_status_counts_nodes():
    nodes = [node("one"), node("two"), node("three"), node("four", {}, ("x", "NoSchedule"))]
    pods = {
        "one": [pod("a", "one")],
        "two": [pod("b", "two", ready=False, hash_="old")],
        "four": [pod("c", "four")],
    }
    assert daemon_status(daemon(), nodes, pods, "new", NOW) == {
        "currentNumberScheduled": 2,
        "numberMisscheduled": 1,
        "desiredNumberScheduled": 3,
        "numberReady": 1,
        "updatedNumberScheduled": 1,
        "numberAvailable": 1,
        "numberUnavailable": 2,
        "observedGeneration": 3,
    }
