"""Sample rows of every other group."""

import pytest

from podwire.kinds.strategies import strategy_of
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.builtin import BUILTIN

NOW = 1_700_000_000.0


def ago(seconds):
    return rfc3339(NOW - seconds)


META = {"name": "x", "creationTimestamp": ago(80)}


def row(resource, obj, *, group="", version="v1"):
    [kind] = [item for item in BUILTIN.all if (item.group, item.version, item.resource) == (group, version, resource)]
    return strategy_of(kind).row({"metadata": META} | obj, NOW)


TEMPLATE = {"spec": {"containers": [{"name": "a", "image": "i:1"}, {"name": "b", "image": "j:2"}]}}
SELECTOR = {
    "matchLabels": {"app": "web"},
    "matchExpressions": [{"key": "tier", "operator": "In", "values": ["b", "a"]}],
}
SELECTED = "app=web,tier in (a,b)"


CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 80}}}
CPU_NOW = {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 12}}}


@pytest.mark.parametrize(
    ("group", "resource", "obj", "expected"),
    [
        pytest.param(
            "events.k8s.io",
            "events",
            {
                "deprecatedLastTimestamp": ago(30),
                "eventTime": ago(60),
                "regarding": {"kind": "Pod", "name": "p"},
                "note": "hi",
                "reportingController": "c",
                "reportingInstance": "i",
            },
            ["30s", "", "", "pod/p", "", "c, i", "hi", "60s", 1, "x"],
            id="event of the newer group",
        ),
        pytest.param(
            "apps",
            "deployments",
            {
                "spec": {"replicas": 3, "selector": SELECTOR, "template": TEMPLATE},
                "status": {"readyReplicas": 1, "updatedReplicas": 2, "availableReplicas": 1},
            },
            ["x", "1/3", 2, 1, "80s", "a,b", "i:1,j:2", SELECTED],
            id="deployment",
        ),
        pytest.param(
            "apps",
            "replicasets",
            {"spec": {"replicas": 1, "selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}},
            ["x", 1, 0, 0, "80s", "", "", "<error>"],
            id="replica set with a selector that cannot be",
        ),
        pytest.param(
            "apps",
            "daemonsets",
            {
                "spec": {"template": {"spec": {"nodeSelector": {"disk": "ssd"}}}, "selector": SELECTOR},
                "status": {
                    "desiredNumberScheduled": 5,
                    "currentNumberScheduled": 4,
                    "numberReady": 3,
                    "updatedNumberScheduled": 2,
                    "numberAvailable": 1,
                },
            },
            ["x", 5, 4, 3, 2, 1, "disk=ssd", "80s", "", "", SELECTED],
            id="daemon set",
        ),
        pytest.param(
            "apps",
            "statefulsets",
            {"spec": {"replicas": 2, "template": TEMPLATE}, "status": {"readyReplicas": 1}},
            ["x", "1/2", "80s", "a,b", "i:1,j:2"],
            id="stateful set",
        ),
        pytest.param(
            "apps",
            "controllerrevisions",
            {
                "metadata": META
                | {
                    "ownerReferences": [
                        {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "ds", "controller": True},
                    ]
                },
                "revision": 4,
            },
            ["x", "daemonset.apps/ds", 4, "80s"],
            id="controller revision",
        ),
        pytest.param(
            "batch",
            "jobs",
            {
                "spec": {"completions": 3, "selector": SELECTOR, "template": TEMPLATE},
                "status": {"succeeded": 1, "startTime": ago(300)},
            },
            ["x", "Running", "1/3", "5m", "80s", "a,b", "i:1,j:2", SELECTED],
            id="running job",
        ),
        pytest.param(
            "batch",
            "jobs",
            {
                "spec": {"parallelism": 4},
                "status": {
                    "succeeded": 1,
                    "startTime": ago(300),
                    "completionTime": ago(240),
                    "conditions": [{"type": "Complete", "status": "True"}],
                },
            },
            ["x", "Complete", "1/1 of 4", "60s", "80s", "", "", "<none>"],
            id="finished job",
        ),
        pytest.param(
            "batch",
            "cronjobs",
            {
                "spec": {"schedule": "* * * * *", "suspend": False, "jobTemplate": {"spec": {"template": TEMPLATE}}},
                "status": {"active": [{}], "lastScheduleTime": ago(40)},
            },
            ["x", "* * * * *", "<none>", "False", 1, "40s", "80s", "a,b", "i:1,j:2", "<none>"],
            id="cron job",
        ),
        pytest.param(
            "autoscaling",
            "horizontalpodautoscalers",
            {
                "spec": {
                    "scaleTargetRef": {"kind": "Deployment", "name": "web"},
                    "targetCPUUtilizationPercentage": 50,
                    "maxReplicas": 5,
                },
                "status": {"currentCPUUtilizationPercentage": 7, "currentReplicas": 2},
            },
            ["x", "Deployment/web", "cpu: 7%/50%", "<unset>", 5, 2, "80s"],
            id="autoscaler of version 1",
        ),
        pytest.param(
            "policy",
            "poddisruptionbudgets",
            {"spec": {"minAvailable": "50%"}, "status": {"disruptionsAllowed": 1}},
            ["x", "50%", "N/A", 1, "80s"],
            id="disruption budget",
        ),
        pytest.param(
            "scheduling.k8s.io",
            "priorityclasses",
            {"value": 10, "preemptionPolicy": "Never"},
            ["x", 10, False, "80s", "Never"],
            id="priority class",
        ),
        pytest.param(
            "networking.k8s.io",
            "ingresses",
            {"spec": {"tls": [{}], "rules": [{"host": "a"}, {"host": "b"}, {}, {"host": "c"}, {"host": "d"}]}},
            ["x", "<none>", "a,b,c + 2 more...", "", "80, 443", "80s"],
            id="ingress",
        ),
        pytest.param(
            "networking.k8s.io",
            "ingressclasses",
            {"spec": {"controller": "c", "parameters": {"kind": "P", "apiGroup": "g", "name": "n"}}},
            ["x", "c", "P.g/n", "80s"],
            id="ingress class",
        ),
        pytest.param(
            "networking.k8s.io",
            "ipaddresses",
            {"spec": {"parentRef": {"resource": "services", "namespace": "default", "name": "kubernetes"}}},
            ["x", "services/default/kubernetes"],
            id="IP address",
        ),
        pytest.param(
            "networking.k8s.io", "networkpolicies", {"spec": {}}, ["x", "<none>", "80s"], id="policy for all pods"
        ),
        pytest.param(
            "networking.k8s.io",
            "servicecidrs",
            {"spec": {"cidrs": ["10.0.0.0/8", "fd00::/64"]}},
            ["x", "10.0.0.0/8,fd00::/64", "80s"],
            id="service CIDR",
        ),
        pytest.param(
            "discovery.k8s.io",
            "endpointslices",
            {
                "addressType": "IPv4",
                "ports": [{"port": 80}, {"name": "any"}, {}],
                "endpoints": [{"addresses": ["1.1.1.1"]}],
            },
            ["x", "IPv4", "80,any,*", "1.1.1.1", "80s"],
            id="endpoint slice",
        ),
        pytest.param("discovery.k8s.io", "endpointslices", {}, ["x", "", "<unset>", "<unset>", "80s"], id="no slice"),
        pytest.param(
            "rbac.authorization.k8s.io",
            "rolebindings",
            {
                "roleRef": {"kind": "Role", "name": "r"},
                "subjects": [
                    {"kind": "User", "name": "u"},
                    {"kind": "User", "name": "v"},
                    {"kind": "ServiceAccount", "namespace": "n", "name": "s"},
                ],
            },
            ["x", "Role/r", "80s", "u, v", "", "n/s"],
            id="role binding",
        ),
        pytest.param(
            "certificates.k8s.io",
            "certificatesigningrequests",
            {
                "spec": {"username": "u", "expirationSeconds": 3600},
                "status": {"conditions": [{"type": "Approved"}], "certificate": "Zm9v"},
            },
            ["x", "80s", "<none>", "u", "60m", "Approved,Issued"],
            id="signing request",
        ),
        pytest.param(
            "storage.k8s.io",
            "storageclasses",
            {
                "metadata": META | {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
                "provisioner": "p",
            },
            ["x (default)", "p", "Delete", "Immediate", False, "80s"],
            id="default storage class",
        ),
        pytest.param(
            "storage.k8s.io",
            "csidrivers",
            {"spec": {"tokenRequests": [{"audience": "a"}], "volumeLifecycleModes": ["Persistent"]}},
            ["x", True, False, False, "a", False, "Persistent", "80s"],
            id="CSI driver",
        ),
        pytest.param("storage.k8s.io", "csinodes", {"spec": {"drivers": [{}, {}]}}, ["x", 2, "80s"], id="CSI node"),
        pytest.param("resource.k8s.io", "resourceclaims", {}, ["x", "pending", "80s"], id="pending claim"),
        pytest.param(
            "resource.k8s.io",
            "resourceclaims",
            {"status": {"allocation": {}, "reservedFor": [{}]}},
            ["x", "allocated,reserved", "80s"],
            id="claim in use",
        ),
        pytest.param(
            "resource.k8s.io",
            "resourceclaims",
            {"metadata": META | {"deletionTimestamp": ago(1)}},
            ["x", "deleted", "80s"],
            id="deleted claim",
        ),
        pytest.param(
            "resource.k8s.io",
            "resourceslices",
            {"spec": {"nodeName": "n", "driver": "d", "pool": {"name": "p"}}},
            ["x", "n", "d", "p", "80s"],
            id="slice",
        ),
        pytest.param(
            "flowcontrol.apiserver.k8s.io",
            "prioritylevelconfigurations",
            {"spec": {"type": "Limited", "limited": {"nominalConcurrencyShares": 5}}},
            ["x", "Limited", 5, "<none>", "<none>", "<none>", "80s"],
            id="priority level",
        ),
        pytest.param(
            "apiregistration.k8s.io",
            "apiservices",
            {
                "spec": {"service": {"namespace": "n", "name": "s"}},
                "status": {"conditions": [{"type": "Available", "status": "False", "reason": "Gone"}]},
            },
            ["x", "n/s", "False (Gone)", "80s"],
            id="API service",
        ),
        pytest.param(
            "admissionregistration.k8s.io",
            "validatingadmissionpolicybindings",
            {"spec": {"policyName": "p", "paramRef": {"name": "q"}}},
            ["x", "p", "*/q", "80s"],
            id="policy binding",
        ),
        pytest.param(
            "coordination.k8s.io", "leases", {"spec": {"holderIdentity": "me"}}, ["x", "me", "80s"], id="lease"
        ),
    ],
)
def test_rows_of_other_groups(group, resource, obj, expected):
    assert row(resource, obj, group=group) == expected


def test_autoscalers_show_two_metrics_and_count_the_rest():
    spec = {
        "scaleTargetRef": {"kind": "Deployment", "name": "web"},
        "minReplicas": 1,
        "maxReplicas": 5,
        "metrics": [CPU, {"type": "Pods", "pods": {"target": {"averageValue": "10"}}}, {"type": "Odd"}],
    }
    found = row(
        "horizontalpodautoscalers",
        {"spec": spec, "status": {"currentMetrics": [CPU_NOW]}},
        group="autoscaling",
        version="v2",
    )
    assert found[2:4] == ["cpu: 12%/80%, <unknown>/10 + 1 more...", "1"]
