"""Messages of each filter about a node, in upstream's words."""

import pytest

from podwire.scheduler import Chosen, Unschedulable, choose
from podwire.scheduler.framework import ANYTHING, ClusterEvent

NODE, GONE = ClusterEvent.NODE, ClusterEvent.POD_GONE


def affinity(*expressions, fields=()):
    term = {"matchExpressions": list(expressions), "matchFields": list(fields)}
    return {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}},
    }


def expression(key, operator, *values):
    return {"key": key, "operator": operator, "values": list(values)}


def port(number, ip="", protocol="TCP"):
    ports = [{"containerPort": 80, "hostPort": number, "hostIP": ip, "protocol": protocol}]
    return {"containers": [{"name": "c", "ports": ports}]}


def tainted(effect, key="dedicated", value="gpu"):
    return {"taints": [{"key": key, "value": value, "effect": effect}]}


SELECTOR = "node(s) didn't match Pod's node affinity/selector"
PORTS = "node(s) didn't have free ports for the requested pod ports"
TAINT = "node(s) had untolerated taint {dedicated: gpu}"
EQUAL = [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]

ROWS = [
    ("a cordoned node", {"unschedulable": True}, {}, "node(s) were unschedulable"),
    (
        "a cordoned node that is tolerated",
        {"unschedulable": True},
        {"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]},
        "",
    ),
    ("another node by name", {}, {"nodeName": "other"}, "node(s) didn't match the requested node name"),
    ("this node by name", {}, {"nodeName": "n1"}, ""),
    ("a taint", tainted("NoSchedule"), {}, TAINT),
    ("a taint that evicts", tainted("NoExecute"), {}, TAINT),
    ("a taint without value", tainted("NoSchedule", "gone", ""), {}, "node(s) had untolerated taint {gone: }"),
    ("a soft taint", tainted("PreferNoSchedule"), {}, ""),
    ("a tolerated taint", tainted("NoSchedule"), {"tolerations": EQUAL}, ""),
    ("a taint of another effect", tainted("NoExecute"), {"tolerations": EQUAL}, TAINT),
    ("everything tolerated", tainted("NoExecute"), {"tolerations": [{"operator": "Exists"}]}, ""),
    ("another value tolerated", tainted("NoSchedule"), {"tolerations": [{"key": "dedicated", "value": "x"}]}, TAINT),
    ("a selected label", {"labels": {"disk": "ssd"}}, {"nodeSelector": {"disk": "ssd"}}, ""),
    ("a label with another value", {"labels": {"disk": "hdd"}}, {"nodeSelector": {"disk": "ssd"}}, SELECTOR),
    ("a label that is not there", {}, {"nodeSelector": {"disk": "ssd"}}, SELECTOR),
    ("In", {"labels": {"a": "1"}}, {"affinity": affinity(expression("a", "In", "1", "2"))}, ""),
    ("not In", {"labels": {"a": "3"}}, {"affinity": affinity(expression("a", "In", "1", "2"))}, SELECTOR),
    ("NotIn without the label", {}, {"affinity": affinity(expression("a", "NotIn", "1"))}, ""),
    ("Exists", {}, {"affinity": affinity(expression("a", "Exists"))}, SELECTOR),
    ("DoesNotExist", {}, {"affinity": affinity(expression("a", "DoesNotExist"))}, ""),
    ("Gt", {"labels": {"a": "9"}}, {"affinity": affinity(expression("a", "Gt", "8"))}, ""),
    ("not Gt", {"labels": {"a": "8"}}, {"affinity": affinity(expression("a", "Gt", "8"))}, SELECTOR),
    ("Lt", {"labels": {"a": "-9"}}, {"affinity": affinity(expression("a", "Lt", "8"))}, ""),
    ("no number", {"labels": {"a": "x"}}, {"affinity": affinity(expression("a", "Lt", "8"))}, SELECTOR),
    ("the name as a field", {}, {"affinity": affinity(fields=[expression("metadata.name", "In", "n1")])}, ""),
    ("another name", {}, {"affinity": affinity(fields=[expression("metadata.name", "In", "x")])}, SELECTOR),
    ("a term without conditions", {}, {"affinity": affinity()}, SELECTOR),
    ("a full node", {"allocatable": {"pods": "0"}}, {}, "Too many pods"),
    ("no nics", {}, {"requests": {"example.com/nic": 1}}, "Insufficient example.com/nic"),
    ("a nic", {"allocatable": {"example.com/nic": 1}}, {"requests": {"example.com/nic": 1}}, ""),
    ("all cpu", {}, {"requests": {"cpu": "4"}}, ""),
    ("too much cpu", {}, {"requests": {"cpu": "4001m"}}, "Insufficient cpu"),
    ("too much memory", {}, {"requests": {"memory": "9Gi"}}, "Insufficient memory"),
    ("no disk", {}, {"requests": {"ephemeral-storage": "1"}}, "Insufficient ephemeral-storage"),
    ("asking for zero of what is not there", {}, {"requests": {"example.com/nic": "0"}}, ""),
]


@pytest.mark.parametrize(("node", "pod", "reason"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_a_node_is_feasible_or_has_a_reason(make_pod, make_snapshot, node, pod, reason):
    found = choose(make_pod(**pod), make_snapshot({"n1": node}))
    if reason:
        assert isinstance(found, Unschedulable)
        assert found.message.startswith(f"0/1 nodes are available: 1 {reason}. ")
    else:
        assert found == Chosen("n1")


@pytest.mark.parametrize(
    ("wanted", "free"),
    [
        pytest.param(port(80), False, id="the same"),
        pytest.param(port(81), True, id="another port"),
        pytest.param(port(80, protocol="UDP"), True, id="another protocol"),
        pytest.param(port(80, "10.0.0.1"), False, id="one address of those that are all taken"),
    ],
)
def test_a_host_port_on_all_addresses_is_one_pods_alone(make_pod, make_snapshot, wanted, free):
    found = choose(make_pod(**wanted), make_snapshot({"n1": {}}, [("n1", "there", port(80))]))
    assert isinstance(found, Chosen) is free
    assert free or PORTS in found.message


@pytest.mark.parametrize(
    ("wanted", "free"),
    [
        pytest.param(port(80, "10.0.0.1"), False, id="the same address"),
        pytest.param(port(80, "10.0.0.2"), True, id="another address"),
        pytest.param(port(80), False, id="all addresses"),
    ],
)
def test_a_host_port_on_one_address_leaves_the_others(make_pod, make_snapshot, wanted, free):
    found = choose(make_pod(**wanted), make_snapshot({"n1": {}}, [("n1", "there", port(80, "10.0.0.1"))]))
    assert isinstance(found, Chosen) is free


def test_a_host_port_is_free_again_when_its_pod_is_gone(make_pod, make_snapshot):
    snapshot = make_snapshot({"n1": {}}, [("n1", "there", port(80))])
    snapshot.drop_pod("uid-default-there")
    assert choose(make_pod(**port(80)), snapshot) == Chosen("n1")


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        pytest.param(
            {"volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "rbd": {"image": "x", "monitors": ["m"]}}]},
            "spec.volumes[1].rbd is not evaluated by this scheduler",
            id="disks that one node has at a time",
        ),
    ],
)
def test_unsupported_fields_are_refused_by_name(make_pod, make_snapshot, spec, why):
    found = choose(make_pod(**spec), make_snapshot({"n1": {}, "n2": {}}))
    assert isinstance(found, Unschedulable)
    assert found.message.startswith(f"0/2 nodes are available: {why}. ")


@pytest.mark.parametrize(
    ("node", "pod", "retry_on"),
    [
        pytest.param(tainted("NoSchedule"), {}, NODE, id="a taint goes only with its node"),
        pytest.param({}, {"requests": {"cpu": "5"}}, NODE | GONE, id="space comes with a node or when a pod goes"),
        pytest.param(
            {},
            {"volumes": [{"name": "b", "persistentVolumeClaim": {"claimName": "x"}}]},
            GONE | ClusterEvent.VOLUMES,
            id="claims of storage, with anything about volumes",
        ),
        pytest.param(
            {},
            {"resourceClaims": [{"name": "x", "resourceClaimName": "x"}]},
            NODE | ClusterEvent.DEVICES,
            id="claims, with a node or with anything about devices",
        ),
        pytest.param(
            {},
            {
                "topologySpreadConstraints": [
                    {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
                ]
            },
            ANYTHING,
            id="balance, with whatever happens",
        ),
    ],
)
def test_a_waiting_pod_knows_the_events_that_may_help_it(make_pod, make_snapshot, node, pod, retry_on):
    found = choose(make_pod(**pod), make_snapshot({"n1": node}))
    assert isinstance(found, Unschedulable)
    assert found.retry_on == retry_on
