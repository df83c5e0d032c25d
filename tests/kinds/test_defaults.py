"""Every kind gets what a real server adds to it."""

import copy

import pytest

from podwire.kinds.strategies import strategy_of
from podwire.protocols.k8sapi.builtin import BUILTIN

TEMPLATE = {"spec": {"containers": [{"name": "c", "image": "a:1"}]}}


def apply(api_version, kind, **fields):
    obj = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}, **fields}
    strategy_of(BUILTIN.of_kind(api_version, kind)).apply_defaults(obj, now=lambda: 0)
    return obj


@pytest.mark.parametrize("kind", BUILTIN.all, ids=lambda kind: f"{kind.api_version}.{kind.kind}")
def test_an_empty_object_of_any_kind_can_be_defaulted_and_then_stays(kind):
    first = {"apiVersion": kind.api_version, "kind": kind.kind}
    strategy_of(kind).apply_defaults(first, now=lambda: 0)
    again = copy.deepcopy(first)
    strategy_of(kind).apply_defaults(again, now=lambda: 0)
    assert again == first


def test_two_objects_share_nothing():
    one, other = apply("v1", "Service", spec={}), apply("v1", "Service", spec={})
    one["status"]["loadBalancer"]["ingress"] = []
    assert other["status"] == {"loadBalancer": {}}


def test_a_namespace_carries_its_name():
    namespace = apply("v1", "Namespace")
    assert namespace["metadata"]["labels"] == {"kubernetes.io/metadata.name": "x"}
    assert namespace["status"] == {"phase": "Active"}


def test_a_service_is_completed():
    service = apply("v1", "Service", spec={"ports": [{"port": 80}, {"port": 1, "targetPort": "http"}]})
    assert service["spec"] == {
        "type": "ClusterIP",
        "sessionAffinity": "None",
        "internalTrafficPolicy": "Cluster",
        "ports": [
            {"port": 80, "protocol": "TCP", "targetPort": 80},
            {"port": 1, "protocol": "TCP", "targetPort": "http"},
        ],
    }


def test_a_load_balancer_is_reached_from_outside():
    spec = apply("v1", "Service", spec={"type": "LoadBalancer", "sessionAffinity": "ClientIP"})["spec"]
    assert spec["externalTrafficPolicy"] == "Cluster"
    assert spec["allocateLoadBalancerNodePorts"] is True
    assert spec["sessionAffinityConfig"] == {"clientIP": {"timeoutSeconds": 10800}}


def test_an_external_name_has_no_traffic_policy():
    spec = apply("v1", "Service", spec={"type": "ExternalName", "externalName": "a.b"})["spec"]
    assert spec == {"type": "ExternalName", "externalName": "a.b", "sessionAffinity": "None"}


def test_string_data_of_a_secret_becomes_data():
    secret = apply("v1", "Secret", stringData={"a": "b"}, data={"a": "x", "c": "eA=="})
    assert secret["data"] == {"a": "Yg==", "c": "eA=="}
    assert secret["type"] == "Opaque"
    assert "stringData" not in secret


def test_a_node_can_allocate_its_capacity():
    status = apply("v1", "Node", status={"capacity": {"cpu": "2"}})["status"]
    assert status["allocatable"] == {"cpu": "2"}
    assert status["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 0}}
    assert status["nodeInfo"]["kubeletVersion"] == ""


def test_limit_range_defaults_follow_from_minimum_and_maximum():
    (item,) = apply(
        "v1", "LimitRange", spec={"limits": [{"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Mi"}}]}
    )["spec"]["limits"]
    assert item["default"] == {"cpu": "2"}
    assert item["defaultRequest"] == {"cpu": "2", "memory": "1Mi"}


def test_a_deployment_is_completed():
    spec = apply("apps/v1", "Deployment", spec={"template": TEMPLATE})["spec"]
    assert spec["replicas"] == 1
    assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}}
    assert (spec["revisionHistoryLimit"], spec["progressDeadlineSeconds"]) == (10, 600)
    assert spec["template"]["spec"]["restartPolicy"] == "Always"
    assert "enableServiceLinks" not in spec["template"]["spec"]


def test_a_template_leaves_requests_to_the_pod():
    template = {"spec": {"containers": [{"name": "c", "image": "a", "resources": {"limits": {"cpu": "1"}}}]}}
    spec = apply("apps/v1", "ReplicaSet", spec={"template": template})["spec"]
    assert spec["template"]["spec"]["containers"][0]["resources"] == {"limits": {"cpu": "1"}}


def test_a_daemon_set_rolls_one_by_one():
    strategy = apply("apps/v1", "DaemonSet", spec={"template": TEMPLATE})["spec"]["updateStrategy"]
    assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}


def test_a_stateful_set_is_completed():
    spec = apply("apps/v1", "StatefulSet", spec={"template": TEMPLATE, "volumeClaimTemplates": [{}]})["spec"]
    assert spec["podManagementPolicy"] == "OrderedReady"
    assert spec["updateStrategy"] == {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}
    assert spec["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    assert spec["volumeClaimTemplates"][0]["spec"] == {"volumeMode": "Filesystem", "resources": {}}


def test_a_job_is_completed():
    job = apply("batch/v1", "Job", spec={"template": {**TEMPLATE, "metadata": {"labels": {"a": "b"}}}})
    spec = {key: value for key, value in job["spec"].items() if key != "template"}
    assert spec == {
        "completions": 1,
        "parallelism": 1,
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "suspend": False,
        "manualSelector": False,
        "podReplacementPolicy": "TerminatingOrFailed",
    }
    assert job["metadata"]["labels"] == {"a": "b"}


def test_a_job_with_parallelism_alone_has_no_completions():
    assert "completions" not in apply("batch/v1", "Job", spec={"parallelism": 2, "template": TEMPLATE})["spec"]


def test_a_cron_job_is_completed_but_not_the_job_inside():
    spec = apply("batch/v1", "CronJob", spec={"jobTemplate": {"spec": {"template": TEMPLATE}}})["spec"]
    assert (spec["concurrencyPolicy"], spec["suspend"]) == ("Allow", False)
    assert (spec["successfulJobsHistoryLimit"], spec["failedJobsHistoryLimit"]) == (3, 1)
    assert "backoffLimit" not in spec["jobTemplate"]["spec"]


def test_a_replication_controller_takes_its_labels_from_its_template():
    controller = apply(
        "v1", "ReplicationController", spec={"template": {**TEMPLATE, "metadata": {"labels": {"a": "b"}}}}
    )
    assert controller["spec"]["selector"] == controller["metadata"]["labels"] == {"a": "b"}
    assert controller["spec"]["replicas"] == 1


@pytest.mark.parametrize(
    ("spec", "types"),
    [({}, ["Ingress"]), ({"egress": [{}]}, ["Ingress", "Egress"]), ({"policyTypes": ["Egress"]}, ["Egress"])],
)
def test_a_network_policy_is_of_the_types_it_speaks_of(spec, types):
    assert apply("networking.k8s.io/v1", "NetworkPolicy", spec=spec)["spec"]["policyTypes"] == types


def test_bindings_refer_to_roles_and_users_of_the_rbac_group():
    group = "rbac.authorization.k8s.io"
    binding = apply(
        f"{group}/v1",
        "RoleBinding",
        roleRef={"kind": "Role", "name": "r"},
        subjects=[{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s"}],
    )
    assert binding["roleRef"]["apiGroup"] == group
    assert [subject.get("apiGroup") for subject in binding["subjects"]] == [group, None]


def test_an_autoscaler_behaves():
    spec = apply("autoscaling/v2", "HorizontalPodAutoscaler", spec={"behavior": {"scaleUp": {"policies": []}}})["spec"]
    assert spec["minReplicas"] == 1
    assert spec["metrics"][0]["resource"]["target"] == {"type": "Utilization", "averageUtilization": 80}
    assert spec["behavior"]["scaleUp"] == {"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": []}
    assert spec["behavior"]["scaleDown"]["policies"] == [{"type": "Percent", "value": 100, "periodSeconds": 15}]


def test_webhooks_are_completed():
    (webhook,) = apply(
        "admissionregistration.k8s.io/v1",
        "MutatingWebhookConfiguration",
        webhooks=[{"name": "w", "clientConfig": {"service": {"name": "s"}}, "rules": [{}]}],
    )["webhooks"]
    assert webhook == {
        "name": "w",
        "clientConfig": {"service": {"name": "s", "port": 443}},
        "rules": [{"scope": "*"}],
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "namespaceSelector": {},
        "objectSelector": {},
        "timeoutSeconds": 10,
        "reinvocationPolicy": "Never",
    }


def test_a_definition_names_itself():
    crd = apply(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        spec={"names": {"kind": "Widget"}, "versions": [{"name": "v1"}, {"name": "v2", "storage": True}]},
    )
    assert crd["spec"]["names"] == {"kind": "Widget", "singular": "widget", "listKind": "WidgetList"}
    assert crd["spec"]["conversion"] == {"strategy": "None"}
    assert "scope" not in crd["spec"]
    assert crd["status"]["storedVersions"] == ["v2"]


def test_a_device_request_is_for_one_device():
    claim = apply(
        "resource.k8s.io/v1",
        "ResourceClaim",
        spec={
            "devices": {
                "requests": [
                    {"name": "a", "exactly": {"tolerations": [{"key": "k"}]}},
                    {"name": "b", "firstAvailable": [{"name": "x", "allocationMode": "All"}]},
                ]
            }
        },
    )
    assert claim["spec"]["devices"]["requests"] == [
        {
            "name": "a",
            "exactly": {
                "allocationMode": "ExactCount",
                "count": 1,
                "tolerations": [{"key": "k", "operator": "Equal"}],
            },
        },
        {"name": "b", "firstAvailable": [{"name": "x", "allocationMode": "All"}]},
    ]


def test_a_taint_of_a_device_is_dated():
    spec = {"devices": [{"taints": [{"key": "a"}, {"key": "b", "timeAdded": "then"}]}]}
    (device,) = apply("resource.k8s.io/v1", "ResourceSlice", spec=spec)["spec"]["devices"]
    assert [taint["timeAdded"] for taint in device["taints"]] == ["1970-01-01T00:00:00Z", "then"]


def test_storage_is_completed():
    assert apply("v1", "PersistentVolume")["spec"] == {
        "persistentVolumeReclaimPolicy": "Retain",
        "volumeMode": "Filesystem",
    }
    claim = apply("v1", "PersistentVolumeClaim")
    assert (claim["spec"], claim["status"]) == ({"resources": {}, "volumeMode": "Filesystem"}, {"phase": "Pending"})
    assert apply("storage.k8s.io/v1", "StorageClass")["volumeBindingMode"] == "Immediate"
    assert apply("storage.k8s.io/v1", "CSIDriver")["spec"]["volumeLifecycleModes"] == ["Persistent"]


def test_endpoints_speak_tcp():
    slice_ = apply("discovery.k8s.io/v1", "EndpointSlice", ports=[{"port": 1}], endpoints=[{"addresses": ["a"]}])
    assert slice_["ports"] == [{"port": 1, "name": "", "protocol": "TCP"}]
    assert slice_["endpoints"] == [{"addresses": ["a"], "conditions": {}}]
    assert apply("v1", "Endpoints", subsets=[{"ports": [{"port": 1}]}])["subsets"] == [
        {"ports": [{"port": 1, "protocol": "TCP"}]}
    ]
