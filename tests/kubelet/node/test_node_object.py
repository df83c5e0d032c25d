"""The Node object, from what the machine and the runtime say."""

from dataclasses import replace

import pytest

from podwire.kubelet.eviction.thresholds import DEFAULT, parse_thresholds
from podwire.kubelet.node import NodeSettings, Readiness, conditions, node_object, readiness
from podwire.kubelet.node.capacity import allocatable
from podwire.kubelet.node.lease import lease, renewed
from podwire.kubelet.node.node_object import NodeSnapshot
from podwire.linux.machine import Facts, FreeResources
from podwire.objects.nodes import ContainerImage, Taint
from podwire.protocols.cri import cri_pb2 as pb

THEN, NOW = "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"
GIB = 1024**3
FACTS = Facts(
    cpus=4,
    memory=8 * GIB,
    swap=0,
    hugepages=(("2Mi", 0),),
    kernel="6.18",
    os_image="Test Linux",
    architecture="arm64",
    machine_id="m",
    system_uuid="u",
    boot_id="b",
)
LEFT = FreeResources(
    memory=4 * GIB, disk=50 * GIB, disk_size=100 * GIB, inodes=0, inodes_size=0, pids=900, pids_size=1000
)
SETTINGS = NodeSettings(name="n1", pod_cidrs=("10.1.0.0/24",), labels={"rack": "a"})
READY = Readiness(True)


def seen(runtime=READY, *, facts=FACTS, left=LEFT, **more):
    return NodeSnapshot(facts=facts, left=left, addresses=("10.0.0.2",), runtime=runtime, **more)


def stored(node):
    """As the API has it."""
    return {**node, "metadata": {**node["metadata"], "uid": "u1"}}


def test_a_node_is_registered_whole():
    node = node_object.node(seen(runtime_version="podwire://1"), SETTINGS, NOW)
    assert node["metadata"]["labels"] == {
        "beta.kubernetes.io/arch": "arm64",
        "beta.kubernetes.io/os": "linux",
        "kubernetes.io/arch": "arm64",
        "kubernetes.io/os": "linux",
        "kubernetes.io/hostname": "n1",
        "rack": "a",
    }
    assert node["spec"] == {"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24"]}
    status = node["status"]
    assert status["capacity"] == {
        "cpu": "4",
        "ephemeral-storage": "100Gi",
        "hugepages-2Mi": "0",
        "memory": "8Gi",
        "pods": "110",
    }
    assert status["allocatable"] == {**status["capacity"], "memory": "8092Mi", "ephemeral-storage": "90Gi"}
    assert status["addresses"] == [
        {"type": "InternalIP", "address": "10.0.0.2"},
        {"type": "Hostname", "address": "n1"},
    ]
    assert status["nodeInfo"]["containerRuntimeVersion"] == "podwire://1"
    assert {condition["type"]: condition["status"] for condition in status["conditions"]} == {
        "MemoryPressure": "False",
        "DiskPressure": "False",
        "PIDPressure": "False",
        "Ready": "True",
    }
    assert {condition["lastHeartbeatTime"] for condition in status["conditions"]} == {NOW}


def test_a_node_that_is_not_ready_has_the_taint_beside_its_own():
    settings = NodeSettings(name="n1", taints=(Taint(key="gpu", value="yes", effect="NoSchedule"),))
    own = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    assert node_object.node(seen(), settings, NOW)["spec"]["taints"] == [own]
    assert node_object.node(seen(Readiness(False)), settings, NOW)["spec"]["taints"] == [
        own,
        {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
    ]


@pytest.mark.parametrize(
    ("left", "pressed"),
    [
        pytest.param(LEFT, set(), id="enough of everything"),
        pytest.param(LEFT._replace(memory=99 * 1024**2), {"MemoryPressure"}, id="no memory"),
        pytest.param(LEFT._replace(disk=9 * GIB), {"DiskPressure"}, id="no disk"),
        pytest.param(LEFT._replace(inodes=4, inodes_size=100), {"DiskPressure"}, id="no inodes"),
        pytest.param(LEFT._replace(inodes=5, inodes_size=100), set(), id="just enough inodes"),
        pytest.param(LEFT._replace(pids=9), {"PIDPressure"}, id="no pids"),
        pytest.param(LEFT._replace(pids=0, pids_size=0), set(), id="a machine that does not count pids"),
    ],
)
def test_a_node_is_under_pressure_when_too_little_is_left(left, pressed):
    settings = replace(SETTINGS, thresholds=(*DEFAULT, *parse_thresholds("pid.available<1%")))
    found = node_object.status(seen(left=left), settings)["conditions"]
    assert {item["type"] for item in found if item["status"] == "True"} == {"Ready", *pressed}
    assert all(
        ("Insufficient" in item["reason"] or "HasDiskPressure" in item["reason"]) == (item["type"] in pressed)
        for item in found
    )


def status_of(**reported):
    return pb.RuntimeStatus(
        conditions=[
            pb.RuntimeCondition(type=type_, status=not why, reason=why, message=f"{why} it is")
            for type_, why in reported.items()
        ]
    )


NETWORK = "container runtime network not ready: NetworkReady=false reason:NoPlugin message:NoPlugin it is"
RUNTIME = "container runtime not ready: RuntimeReady=false reason:Down message:Down it is"


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        pytest.param({"RuntimeReady": "", "NetworkReady": ""}, Readiness(True), id="ready"),
        pytest.param(
            {"RuntimeReady": "", "NetworkReady": "NoPlugin"},
            Readiness(False, "KubeletNotReady", NETWORK),
            id="no network",
        ),
        pytest.param(
            {"RuntimeReady": "Down", "NetworkReady": "NoPlugin"},
            Readiness(False, "KubeletNotReady", f"[{RUNTIME}, {NETWORK}]"),
            id="nothing",
        ),
    ],
)
def test_a_runtime_makes_a_node_ready_or_not(reported, expected):
    assert readiness(status_of(**reported)) == expected


def test_a_runtime_without_conditions_is_not_ready():
    assert not readiness(pb.RuntimeStatus()).ready


def test_the_time_of_a_change_stays_while_nothing_changes():
    before = node_object.node(seen(), SETTINGS, THEN)["status"]["conditions"]
    said = conditions.conditions(Readiness(False, "", "down"), ())
    after = {item["type"]: item for item in conditions.dated(said, before, NOW)}
    assert after["Ready"]["lastTransitionTime"] == NOW
    assert after["Ready"]["reason"] == "KubeletNotReady"
    assert after["MemoryPressure"]["lastTransitionTime"] == THEN
    assert after["MemoryPressure"]["lastHeartbeatTime"] == NOW
    assert conditions.events(said, before) == ["NodeNotReady"]


def test_a_status_differs_by_content_and_not_by_time():
    node = stored(node_object.node(seen(), SETTINGS, THEN))
    assert not node_object.differs(node, node_object.status(seen(), SETTINGS))
    changes = [
        seen(Readiness(False, "", "down")),
        seen(left=LEFT._replace(memory=1)),
        seen(images=(ContainerImage(names=("a",), size_bytes=1),)),
        seen(runtime_version="other://1"),
        seen(facts=FACTS._replace(cpus=8)),
    ]
    assert all(node_object.differs(node, node_object.status(change, SETTINGS)) for change in changes)


def test_resources_that_others_advertise_are_there_for_pods():
    node = stored(node_object.node(seen(), SETTINGS, THEN))
    node["status"]["capacity"]["example.com/nic"] = "3"
    said = node_object.status(seen(), SETTINGS)
    assert node_object.differs(node, said)
    patch = node_object.report(node, said, NOW)
    assert patch["status"]["allocatable"]["example.com/nic"] == "3"
    node["status"]["allocatable"]["example.com/nic"] = "3"
    assert not node_object.differs(node, said)


def test_devices_are_reported_and_removed_ones_are_null():
    has = node_object.status(seen(devices={"example.org/nic": (10_000, 3), "example.org/gpu": None}), SETTINGS)
    assert (has["capacity"]["example.org/nic"], has["allocatable"]["example.org/nic"]) == ("10k", "3")
    new = stored(node_object.node(seen(devices={"example.org/nic": (2, 1), "example.org/gpu": None}), SETTINGS, NOW))
    assert "example.org/gpu" not in new["status"]["capacity"]
    said = node_object.status(seen(devices={"example.org/nic": None, "example.org/gpu": None}), SETTINGS)
    assert node_object.differs(new, said)
    patch = node_object.report(new, said, NOW)["status"]
    assert patch["capacity"]["example.org/nic"] is patch["allocatable"]["example.org/nic"] is None
    for amounts in (new["status"]["capacity"], new["status"]["allocatable"]):
        del amounts["example.org/nic"]
    assert not node_object.differs(new, said)


def test_an_existing_node_keeps_foreign_labels_and_taints():
    found = stored(node_object.node(seen(), SETTINGS, THEN))
    found["metadata"]["labels"]["zone"] = "b"
    assert node_object.reconciled(found, seen(), SETTINGS) is None
    found["metadata"]["labels"]["rack"] = "z"
    found["spec"]["podCIDR"] = "10.2.0.0/24"
    assert node_object.reconciled(found, seen(), SETTINGS) == {"metadata": {"labels": {"rack": "a"}}}
    found["spec"] = {}
    assert node_object.reconciled(found, seen(), SETTINGS)["spec"]["podCIDRs"] == ["10.1.0.0/24"]


def test_the_largest_images_are_reported():
    images = tuple(ContainerImage(names=tuple(f"{size}-{n}" for n in range(9)), size_bytes=size) for size in range(80))
    result = node_object.status(seen(images=images), SETTINGS)["images"]
    assert [item["sizeBytes"] for item in result] == list(range(79, 29, -1))
    assert {len(item["names"]) for item in result} == {5}


def test_reserved_resources_are_not_allocatable():
    settings = NodeSettings(name="n1", reserved={"cpu": "500m", "memory": "1Gi"}, thresholds=())
    has = {"cpu": "4", "memory": "8Gi", "hugepages-2Mi": "2Gi", "ephemeral-storage": "1Gi", "pods": "110"}
    assert allocatable(has, settings) == {**has, "cpu": "3500m", "memory": "5Gi"}


def test_more_than_there_is_cannot_be_reserved():
    assert allocatable({"cpu": "1"}, NodeSettings(name="n1", reserved={"cpu": "2"})) == {"cpu": "0"}


def test_a_lease_is_held_by_the_node_and_goes_with_it():
    made = lease("n1", "u1", NOW, 40)
    assert made["metadata"]["ownerReferences"] == [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u1"}]
    assert made["spec"] == {"holderIdentity": "n1", "leaseDurationSeconds": 40, "renewTime": NOW}
    found = {**made, "metadata": {**made["metadata"], "resourceVersion": "7"}, "spec": {"leaseTransitions": 1}}
    again = renewed(found, "n1", "u2", "later", 40)
    assert again["metadata"]["resourceVersion"] == "7"
    assert again["metadata"]["ownerReferences"][0]["uid"] == "u2"
    assert again["spec"] == {"leaseTransitions": 1, **made["spec"], "renewTime": "later"}
