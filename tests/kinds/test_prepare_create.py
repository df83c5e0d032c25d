"""Fields that only creation sets."""

import pytest

from podwire.kinds.builtin.core.pod.qos import qos_class
from podwire.kinds.strategies import strategy_of
from podwire.kinds.strategy import CUSTOM
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.kinds import Kind, Subresource

META = {"name": "x", "uid": "u-1", "creationTimestamp": "2024-01-01T00:00:00Z"}


def created(api_version, kind, **fields):
    found = BUILTIN.of_kind(api_version, kind)
    obj = {"apiVersion": api_version, "kind": kind, "metadata": dict(META), **fields}
    strategy_of(found).apply_defaults(obj)
    strategy_of(found).prepare_for_create(found, obj)
    return obj


def test_a_new_pod_is_pending_and_loses_a_given_status():
    pod = created("v1", "Pod", spec={"containers": [{"name": "c"}]}, status={"phase": "Running"})
    assert pod["status"] == {"phase": "Pending", "qosClass": "BestEffort"}


def test_a_gated_pod_has_a_scheduling_condition():
    pod = created("v1", "Pod", spec={"containers": [], "schedulingGates": [{"name": "g"}]})
    (condition,) = pod["status"]["conditions"]
    assert condition["type"] == "PodScheduled"
    assert condition["reason"] == "SchedulingGated"


def test_label_keys_become_part_of_the_selector():
    term = {"labelSelector": {}, "matchLabelKeys": ["app", "missing"], "mismatchLabelKeys": ["tier"]}
    spread = {"labelSelector": {"matchExpressions": []}, "matchLabelKeys": ["app"]}
    pod = {
        "metadata": {**META, "labels": {"app": "web", "tier": "front"}},
        "spec": {
            "containers": [],
            "affinity": {
                "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]},
                "podAntiAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {"podAffinityTerm": {"matchLabelKeys": ["app"]}}
                    ]
                },
            },
            "topologySpreadConstraints": [spread],
        },
    }
    kind = BUILTIN.of_kind("v1", "Pod")
    strategy_of(kind).prepare_for_create(kind, pod)
    web = {"key": "app", "operator": "In", "values": ["web"]}
    assert term["labelSelector"]["matchExpressions"] == [web, {"key": "tier", "operator": "NotIn", "values": ["front"]}]
    assert spread["labelSelector"]["matchExpressions"] == [web]


def test_a_namespace_is_finalized_by_kubernetes():
    namespace = created("v1", "Namespace", spec={"finalizers": ["example.com/mine"]}, status={"phase": "Terminating"})
    assert namespace["spec"]["finalizers"] == ["example.com/mine", "kubernetes"]
    assert namespace["status"] == {"phase": "Active"}


def test_a_node_keeps_the_status_that_its_kubelet_sends():
    node = created("v1", "Node", status={"capacity": {"cpu": "1"}})
    assert node["status"]["capacity"] == {"cpu": "1"}


def test_a_status_starts_empty_but_whole():
    budget = created("policy/v1", "PodDisruptionBudget", status={"currentHealthy": 7})
    assert budget["status"] == {"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0}
    assert created("v1", "Service", spec={}, status={"conditions": [{}]})["status"] == {"loadBalancer": {}}


def test_a_job_selects_its_own_pods():
    job = created("batch/v1", "Job", spec={"template": {"spec": {"containers": []}}})
    assert job["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": "u-1"}}
    assert job["spec"]["template"]["metadata"]["labels"] == {
        "job-name": "x",
        "controller-uid": "u-1",
        "batch.kubernetes.io/job-name": "x",
        "batch.kubernetes.io/controller-uid": "u-1",
    }
    manual = created("batch/v1", "Job", spec={"manualSelector": True, "template": {"spec": {"containers": []}}})
    assert "selector" not in manual["spec"]


def test_volumes_and_claims_begin_pending():
    assert created("v1", "PersistentVolume")["status"] == {
        "phase": "Pending",
        "lastPhaseTransitionTime": META["creationTimestamp"],
    }
    claim = created("v1", "PersistentVolumeClaim", spec={"dataSource": {"kind": "K", "name": "n"}})
    assert claim["spec"]["dataSourceRef"] == {"kind": "K", "name": "n"}
    assert claim["status"] == {"phase": "Pending"}


def test_a_definition_stores_its_storage_version():
    crd = created(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        spec={"names": {"kind": "W"}, "versions": [{"name": "v1", "storage": True}]},
        status={"storedVersions": ["v9"], "conditions": [{}]},
    )
    assert crd["status"] == {"storedVersions": ["v1"]}


def test_new_custom_resources_with_a_status_subresource_lose_their_status():
    kind = Kind(
        group="example.com",
        version="v1",
        resource="widgets",
        kind="Widget",
        subresources=(Subresource("status", ("get",)),),
    )
    widget = {"metadata": {"name": "w"}, "status": {"a": 1}}
    CUSTOM.prepare_for_create(kind, widget)
    assert widget == {"metadata": {"name": "w"}}


def asks(requests=None, limits=None):
    return {"resources": {"requests": requests or {}, "limits": limits or {}}}


FULL = {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({"containers": [{}]}, "BestEffort", id="nothing asked"),
        pytest.param({"containers": [asks(FULL, FULL)]}, "Guaranteed", id="all equal"),
        pytest.param({"containers": [asks({"cpu": "1000m", "memory": "1Gi"}, FULL)]}, "Guaranteed", id="equal amounts"),
        pytest.param({"containers": [asks(FULL, {"cpu": "2", "memory": "1Gi"})]}, "Burstable", id="a higher limit"),
        pytest.param({"containers": [asks({"cpu": "1"}, {"cpu": "1"})]}, "Burstable", id="no memory"),
        pytest.param({"containers": [asks(FULL, FULL), {}]}, "Burstable", id="one of two"),
        pytest.param({"containers": [asks(FULL, FULL)], "initContainers": [{}]}, "Burstable", id="init counts"),
        pytest.param({"containers": [asks({"example.com/nic": "1"})]}, "BestEffort", id="only a device"),
        pytest.param(
            {"containers": [{}], "resources": {"requests": FULL, "limits": FULL}}, "Guaranteed", id="pod level"
        ),
        pytest.param({"containers": []}, "BestEffort", id="no containers"),
    ],
)
def test_the_qos_class_follows_from_requests_and_limits(spec, expected):
    assert qos_class({"spec": spec}) == expected
