"""Usage of the resources that quotas limit."""

import pytest

from podwire.kinds.quota.evaluators import IGNORED, counted_kind, evaluator_of
from podwire.kinds.quota.scopes import pod_matches, requirements, volume_claim_matches


def usage(group, resource, obj, now=0.0):
    return {name: str(amount) for name, amount in evaluator_of(group, resource).usage(obj, now).items()}


def pod(*resources, status=None, metadata=None, **spec):
    containers = [{"name": f"c{index}", "resources": given} for index, given in enumerate(resources)]
    return {"metadata": metadata or {"name": "p"}, "spec": {"containers": containers, **spec}, "status": status or {}}


def test_every_kind_is_counted_by_group_and_resource():
    assert usage("apps", "deployments", {}) == {"count/deployments.apps": "1"}
    assert usage("", "configmaps", {}) == {"count/configmaps": "1", "configmaps": "1"}
    assert evaluator_of("", "events") is None
    assert ("", "bindings") in IGNORED


def test_a_pod_uses_requests_and_limits():
    resources = {
        "requests": {"cpu": "100m", "memory": "1Gi", "ephemeral-storage": "1Gi", "example.com/gpu": "2"},
        "limits": {"cpu": "1", "hugepages-2Mi": "4Mi"},
    }
    used = usage("", "pods", pod(resources, {"requests": {"cpu": "50m", "hugepages-2Mi": "4Mi"}}))
    assert used == {
        "count/pods": "1",
        "pods": "1",
        "cpu": "150m",
        "requests.cpu": "150m",
        "limits.cpu": "1",
        "memory": "1Gi",
        "requests.memory": "1Gi",
        "ephemeral-storage": "1Gi",
        "requests.ephemeral-storage": "1Gi",
        "requests.example.com/gpu": "2",
        "hugepages-2Mi": "4Mi",
        "requests.hugepages-2Mi": "4Mi",
    }


def test_a_pod_uses_its_overhead_and_what_it_requests_as_a_whole():
    used = usage(
        "",
        "pods",
        pod({"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}, overhead={"cpu": "250m", "memory": "1Gi"}),
    )
    assert (used["requests.cpu"], used["limits.memory"], "limits.cpu" in used) == ("1250m", "2Gi", False)
    whole = usage("", "pods", pod({"requests": {"cpu": "1"}}, resources={"requests": {"cpu": "3"}}))
    assert whole["requests.cpu"] == "3"


def test_a_pod_that_is_resized_down_uses_what_it_still_holds():
    held = [{"name": "c0", "allocatedResources": {"cpu": "2"}, "resources": {"requests": {"cpu": "3"}}}]
    shrinking = pod({"requests": {"cpu": "1"}}, status={"containerStatuses": held})
    assert usage("", "pods", shrinking)["requests.cpu"] == "3"
    condition = {"type": "PodResizePending", "reason": "Infeasible"}
    growing = pod({"requests": {"cpu": "9"}}, status={"containerStatuses": held, "conditions": [condition]})
    assert usage("", "pods", growing)["requests.cpu"] == "3"


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_pod_is_only_counted(phase):
    assert usage("", "pods", pod({"requests": {"cpu": "1"}}, status={"phase": phase})) == {"count/pods": "1"}


def test_a_pod_whose_grace_period_has_long_passed_is_only_counted():
    metadata = {"name": "p", "deletionTimestamp": "2026-01-01T00:00:30Z", "deletionGracePeriodSeconds": 30}
    deleted = 1767225630.0
    assert "pods" in usage("", "pods", pod({}, metadata=metadata), deleted + 29)
    assert "pods" not in usage("", "pods", pod({}, metadata=metadata), deleted + 31)


@pytest.mark.parametrize(
    ("spec", "ports", "balancers"),
    [
        ({"type": "ClusterIP", "ports": [{}, {}]}, "0", "0"),
        ({"type": "NodePort", "ports": [{}, {}]}, "2", "0"),
        ({"type": "LoadBalancer", "ports": [{}, {}]}, "2", "1"),
        (
            {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": False, "ports": [{}, {"nodePort": 30000}]},
            "1",
            "1",
        ),
    ],
)
def test_services_use_node_ports_and_load_balancers(spec, ports, balancers):
    used = usage("", "services", {"spec": spec})
    assert (used["services"], used["services.nodeports"], used["services.loadbalancers"]) == ("1", ports, balancers)


def test_volume_claims_use_storage_of_their_class():
    claim = {
        "metadata": {"name": "c"},
        "spec": {"storageClassName": "gold", "resources": {"requests": {"storage": "1Gi"}}},
        "status": {"allocatedResources": {"storage": "2Gi"}},
    }
    assert usage("", "persistentvolumeclaims", claim) == {
        "count/persistentvolumeclaims": "1",
        "persistentvolumeclaims": "1",
        "requests.storage": "2Gi",
        "gold.storageclass.storage.k8s.io/persistentvolumeclaims": "1",
        "gold.storageclass.storage.k8s.io/requests.storage": "2Gi",
    }


def test_device_claims_use_devices_of_each_class():
    def exactly(class_, **more):
        return {"exactly": {"deviceClassName": class_, "allocationMode": "ExactCount", **more}}

    choices = [{"deviceClassName": "gpu", "count": 4}, {"deviceClassName": "nic", "count": 1}]
    requests = [exactly("gpu", count=2), {"firstAvailable": choices}, exactly("any", allocationMode="All")]
    assert usage("resource.k8s.io", "resourceclaims", {"spec": {"devices": {"requests": requests}}}) == {
        "count/resourceclaims.resource.k8s.io": "1",
        "gpu.deviceclass.resource.k8s.io/devices": "6",
        "nic.deviceclass.resource.k8s.io/devices": "1",
        "any.deviceclass.resource.k8s.io/devices": "32",
    }


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("count/deployments.apps", ("apps", "deployments")),
        ("count/widgets.example.com", ("example.com", "widgets")),
        ("secrets", ("", "secrets")),
        ("limits.memory", ("", "pods")),
        ("requests.example.com/gpu", ("", "pods")),
        ("services.nodeports", ("", "services")),
        ("gold.storageclass.storage.k8s.io/requests.storage", ("", "persistentvolumeclaims")),
        ("gpu.deviceclass.resource.k8s.io/devices", ("resource.k8s.io", "resourceclaims")),
        ("example.com/other", None),
    ],
)
def test_a_resource_belongs_to_the_kind_that_uses_it(name, kind):
    assert counted_kind(name) == kind


@pytest.mark.parametrize(
    ("requirement", "spec", "matched"),
    [
        ({"scopeName": "Terminating"}, {"activeDeadlineSeconds": 5}, True),
        ({"scopeName": "Terminating"}, {}, False),
        ({"scopeName": "NotTerminating"}, {}, True),
        ({"scopeName": "BestEffort"}, {}, True),
        ({"scopeName": "NotBestEffort"}, {}, False),
        ({"scopeName": "PriorityClass", "operator": "Exists"}, {"priorityClassName": "high"}, True),
        ({"scopeName": "PriorityClass", "operator": "DoesNotExist"}, {}, True),
        ({"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}, {"priorityClassName": "low"}, False),
        ({"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}, {"priorityClassName": "high"}, True),
        ({"scopeName": "PriorityClass", "operator": "NotIn", "values": ["high"]}, {"priorityClassName": "low"}, True),
        ({"scopeName": "PriorityClass", "operator": "NotIn", "values": ["high"]}, {}, True),
        ({"scopeName": "CrossNamespacePodAffinity"}, {}, False),
        ({"scopeName": "Unknown"}, {}, False),
    ],
)
def test_pods_are_in_scopes(requirement, spec, matched):
    assert pod_matches(requirement, {"spec": {"containers": [{"name": "c"}], **spec}}) is matched


@pytest.mark.parametrize("kind", ["podAffinity", "podAntiAffinity"])
@pytest.mark.parametrize("term", [{"namespaces": ["a"]}, {"namespaceSelector": {}}])
def test_affinity_to_other_namespaces_is_a_scope(kind, term):
    required = {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
    weighted = [{"weight": 1, "podAffinityTerm": term}]
    preferred = {"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": weighted}}}
    for spec in (required, preferred):
        assert pod_matches({"scopeName": "CrossNamespacePodAffinity"}, {"spec": spec})


def test_volume_claims_are_in_the_scope_of_their_attributes_class():
    gold = {"scopeName": "VolumeAttributesClass", "operator": "In", "values": ["gold"]}
    assert volume_claim_matches(gold, {"spec": {"volumeAttributesClassName": "gold"}})
    assert volume_claim_matches(gold, {"status": {"currentVolumeAttributesClassName": "gold"}})
    assert not volume_claim_matches(gold, {"spec": {}})
    assert not volume_claim_matches({"scopeName": "Terminating"}, {"spec": {}})


def test_scopes_and_the_scope_selector_are_both_required():
    expression = {"scopeName": "PriorityClass", "operator": "In", "values": ["a"]}
    quota = {"spec": {"scopes": ["BestEffort"], "scopeSelector": {"matchExpressions": [expression]}}}
    assert requirements(quota) == [{"scopeName": "BestEffort", "operator": "Exists"}, expression]
