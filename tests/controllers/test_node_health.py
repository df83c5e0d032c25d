"""Taints and evictions that follow from the state of a node."""

import pytest

from podwire.controllers import node_health
from podwire.controllers.disruption import with_disruption_target
from podwire.controllers.pod_gc import NAMED_NODES, by_node, failed, selector_of_others, surplus
from podwire.controllers.taint_eviction import tolerated_seconds
from podwire.objects.nodes import Taint
from podwire.objects.pods import Toleration

THEN, NOW = "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"
GOOD = {"Ready": "True", "MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False"}
PREFIX = "node.kubernetes.io/"


def node(*, taints=(), unschedulable=False, **conditions):
    rows = [
        {"type": type_, "status": status, "reason": "r", "lastHeartbeatTime": THEN, "lastTransitionTime": THEN}
        for type_, status in conditions.items()
    ]
    return {
        "metadata": {"name": "n1", "creationTimestamp": THEN},
        "spec": {**({"unschedulable": True} if unschedulable else {}), **({"taints": list(taints)} if taints else {})},
        "status": {"conditions": rows},
    }


def taint(key, effect, added=NOW):
    return {"key": PREFIX + key, "effect": effect, "timeAdded": added}


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        pytest.param({"Ready": "False"}, [("not-ready", "NoSchedule"), ("not-ready", "NoExecute")], id="not ready"),
        pytest.param(
            {"Ready": "Unknown"}, [("unreachable", "NoSchedule"), ("unreachable", "NoExecute")], id="unreachable"
        ),
        pytest.param({"MemoryPressure": "True"}, [("memory-pressure", "NoSchedule")], id="short of memory"),
        pytest.param({"DiskPressure": "True"}, [("disk-pressure", "NoSchedule")], id="short of disk"),
        pytest.param({"PIDPressure": "True"}, [("pid-pressure", "NoSchedule")], id="short of pids"),
        pytest.param({"NetworkUnavailable": "True"}, [("network-unavailable", "NoSchedule")], id="without network"),
        pytest.param({"unschedulable": True}, [("unschedulable", "NoSchedule")], id="cordoned"),
    ],
)
def test_a_node_gets_the_taints_that_follow_from_its_state_and_loses_them_again(state, expected):
    tainted = node_health.tainted(node(**{**GOOD, **state}), NOW)
    assert tainted["spec"]["taints"] == [taint(*item) for item in expected]
    assert node_health.tainted(tainted, "later") is None
    back = {**node(**GOOD), "spec": {"taints": tainted["spec"]["taints"]}}
    assert node_health.tainted(back, NOW)["spec"]["taints"] == []


def test_a_node_that_is_well_needs_no_change():
    assert node_health.tainted(node(**GOOD), NOW) is None


def test_taints_of_others_stay():
    own = {"key": "example.com/gpu", "value": "yes", "effect": "NoExecute"}
    tainted = node_health.tainted(node(**GOOD, taints=[own, taint("not-ready", "NoSchedule", THEN)]), NOW)
    assert tainted["spec"]["taints"] == [own]


def test_a_node_that_goes_from_not_ready_to_unreachable_changes_its_taints():
    before = [taint("not-ready", "NoSchedule", THEN), taint("not-ready", "NoExecute", THEN)]
    tainted = node_health.tainted(node(**{**GOOD, "Ready": "Unknown"}, taints=before), NOW)
    assert tainted["spec"]["taints"] == [taint("unreachable", "NoSchedule"), taint("unreachable", "NoExecute")]


def test_of_a_silent_node_nothing_is_known():
    silent = node_health.with_unknown_conditions(node(**GOOD, NetworkUnavailable="False"), NOW)
    rows = {condition["type"]: condition for condition in silent["status"]["conditions"]}
    assert {type_: each["status"] for type_, each in rows.items()} == {
        **dict.fromkeys(GOOD, "Unknown"),
        "NetworkUnavailable": "False",
    }
    ready = rows["Ready"]
    assert (ready["reason"], ready["message"]) == ("NodeStatusUnknown", "Kubelet stopped posting node status.")
    assert (ready["lastHeartbeatTime"], ready["lastTransitionTime"]) == (THEN, NOW)
    assert node_health.with_unknown_conditions(silent, "later") is None


def test_a_node_that_never_reported_has_conditions_that_show_it():
    silent = node_health.with_unknown_conditions(node(), NOW)
    rows = silent["status"]["conditions"]
    assert {row["type"] for row in rows} == set(GOOD)
    assert {row["message"] for row in rows} == {"Kubelet never posted node status."}


def test_pods_of_a_failing_node_are_not_ready():
    rows = [{"type": "Ready", "status": "True", "lastTransitionTime": THEN}, {"type": "Initialized", "status": "True"}]
    pod = node_health.not_ready_pod({"metadata": {}, "status": {"conditions": rows}}, NOW)
    assert pod["status"]["conditions"] == [{"type": "Ready", "status": "False", "lastTransitionTime": NOW}, rows[1]]
    assert node_health.not_ready_pod(pod, NOW) is None


def tolerations(*given):
    return [Toleration(**item) for item in given]


GONE = Taint(key="gone", effect="NoExecute")
SLOW = Taint(key="slow", value="very", effect="NoExecute")


@pytest.mark.parametrize(
    ("taints", "given", "seconds"),
    [
        pytest.param([], [], None, id="no taint"),
        pytest.param([GONE], [], 0, id="not tolerated"),
        pytest.param([GONE], [{"operator": "Exists"}], None, id="everything is tolerated for ever"),
        pytest.param([GONE], [{"key": "gone", "operator": "Exists", "toleration_seconds": 300}], 300, id="for a while"),
        pytest.param(
            [GONE], [{"key": "gone", "operator": "Exists", "toleration_seconds": -1}], 0, id="not even a while"
        ),
        pytest.param([GONE, SLOW], [{"key": "gone", "operator": "Exists"}], 0, id="one of two is not tolerated"),
        pytest.param(
            [GONE, SLOW],
            [
                {"key": "gone", "operator": "Exists", "toleration_seconds": 300},
                {"key": "slow", "value": "very", "toleration_seconds": 60},
            ],
            60,
            id="the shorter of two",
        ),
        pytest.param([SLOW], [{"key": "slow", "value": "a bit"}], 0, id="another value"),
        pytest.param([SLOW], [{"key": "slow", "operator": "Exists", "effect": "NoSchedule"}], 0, id="another effect"),
    ],
)
def test_a_pod_stays_as_long_as_it_tolerates(taints, given, seconds):
    assert tolerated_seconds(taints, tolerations(*given)) == seconds


def pod(name, node_name="", phase="Running", created=THEN):
    return {
        "metadata": {"name": name, "namespace": "default", "creationTimestamp": created},
        "spec": {"nodeName": node_name} if node_name else {},
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def test_pods_are_missed_by_the_nodes_that_are_gone():
    pods = [pod("a", "n1"), pod("b", "gone"), pod("c"), pod("d", "gone")]
    found = by_node(pods, ["n1"])
    assert {name: [each["metadata"]["name"] for each in each] for name, each in found.items()} == {"gone": ["b", "d"]}


def test_the_server_is_asked_for_pods_of_other_nodes_only():
    assert selector_of_others(["b", "a"]) == "spec.nodeName!=,spec.nodeName!=a,spec.nodeName!=b"
    assert selector_of_others(str(number) for number in range(NAMED_NODES + 1)) == "spec.nodeName!="


def test_the_oldest_of_too_many_finished_pods_go():
    pods = [pod("new", created=NOW), pod("old", created=THEN), pod("older", created="2025-01-01T00:00:00Z")]
    assert [item["metadata"]["name"] for item in surplus(pods, 1)] == ["older", "old"]
    assert surplus(pods, 3) == []


def test_a_pod_of_a_node_that_is_gone_has_failed():
    last = failed(pod("a", "gone"), NOW)
    assert last["status"]["phase"] == "Failed"
    assert last["status"]["conditions"][-1] == {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "DeletionByPodGC",
        "message": "PodGC: node no longer exists",
        "lastTransitionTime": NOW,
    }
    assert failed(pod("a", "gone", phase="Succeeded"), NOW) is None


def test_a_disruption_is_reported_once():
    once = with_disruption_target(pod("a"), "Why", "because", NOW)
    assert with_disruption_target(once, "Why", "because", "later") is None
    again = with_disruption_target(once, "Other", "because", "later")
    assert [condition["type"] for condition in again["status"]["conditions"]] == ["Ready", "DisruptionTarget"]
