"""Sample rows of the core group."""

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


NODE = {
    "metadata": META
    | {"labels": {"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "edge", "node-role.kubernetes.io/": ""}},
    "spec": {"unschedulable": True},
    "status": {
        "conditions": [{"type": "Ready", "status": "True"}],
        "addresses": [{"type": "Hostname", "address": "h"}, {"type": "InternalIP", "address": "10.0.0.1"}],
        "nodeInfo": {
            "kubeletVersion": "v1.36.0",
            "osImage": "Debian",
            "kernelVersion": "6.1",
            "containerRuntimeVersion": "podwire://0.1",
        },
    },
}
TEMPLATE = {"spec": {"containers": [{"name": "a", "image": "i:1"}, {"name": "b", "image": "j:2"}]}}


@pytest.mark.parametrize(
    ("resource", "obj", "expected"),
    [
        pytest.param(
            "nodes",
            NODE,
            [
                "x",
                "Ready,SchedulingDisabled",
                "edge,worker",
                "80s",
                "v1.36.0",
                "10.0.0.1",
                "<none>",
                "Debian",
                "6.1",
                "podwire://0.1",
            ],
            id="node",
        ),
        pytest.param(
            "nodes",
            {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}},
            ["x", "NotReady", "<none>", "80s", "", "<none>", "<none>", "<unknown>", "<unknown>", "<unknown>"],
            id="node that stopped answering",
        ),
        pytest.param(
            "services",
            {
                "spec": {
                    "type": "NodePort",
                    "clusterIPs": ["10.96.0.1"],
                    "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}],
                    "selector": {"b": "2", "a": "1"},
                }
            },
            ["x", "NodePort", "10.96.0.1", "<none>", "80:30080/TCP,53/UDP", "80s", "a=1,b=2"],
            id="service",
        ),
        pytest.param(
            "services",
            {"spec": {"type": "LoadBalancer", "clusterIP": "10.96.0.2", "ports": []}},
            ["x", "LoadBalancer", "10.96.0.2", "<pending>", "<none>", "80s", "<none>"],
            id="service without its balancer",
        ),
        pytest.param(
            "services",
            {
                "spec": {"type": "LoadBalancer", "clusterIPs": ["None"], "externalIPs": ["9.9.9.9"]},
                "status": {"loadBalancer": {"ingress": [{"hostname": "b"}, {"ip": "1.1.1.1"}]}},
            },
            ["x", "LoadBalancer", "None", "1.1.1.1,b,9.9.9.9", "<none>", "80s", "<none>"],
            id="service with balancers",
        ),
        pytest.param(
            "services",
            {"spec": {"type": "ExternalName", "externalName": "example.com"}},
            ["x", "ExternalName", "<none>", "example.com", "<none>", "80s", "<none>"],
            id="external name",
        ),
        pytest.param(
            "endpoints",
            {"subsets": [{"addresses": [{"ip": "1.1.1.1"}, {"ip": "fd00::1"}], "ports": [{"port": 1}, {"port": 2}]}]},
            ["x", "1.1.1.1:1,[fd00::1]:1,1.1.1.1:2 + 1 more...", "80s"],
            id="endpoints",
        ),
        pytest.param("endpoints", {}, ["x", "<none>", "80s"], id="no endpoints"),
        pytest.param("configmaps", {"data": {"a": ""}, "binaryData": {"b": ""}}, ["x", 2, "80s"], id="config map"),
        pytest.param("secrets", {"type": "Opaque", "data": {"a": ""}}, ["x", "Opaque", 1, "80s"], id="secret"),
        pytest.param("namespaces", {"status": {"phase": "Active"}}, ["x", "Active", "80s"], id="namespace"),
        pytest.param("limitranges", {}, ["x", ago(80)], id="limit range"),
        pytest.param(
            "resourcequotas",
            {"status": {"hard": {"pods": "10", "limits.cpu": "2", "cpu": 1}, "used": {"pods": "3"}}},
            ["x", "cpu: 0/1, pods: 3/10", "limits.cpu: 0/2", "80s"],
            id="quota",
        ),
        pytest.param(
            "replicationcontrollers",
            {
                "spec": {"replicas": 3, "selector": {"a": "b"}, "template": TEMPLATE},
                "status": {"replicas": 2, "readyReplicas": 1},
            },
            ["x", 3, 2, 1, "80s", "a,b", "i:1,j:2", "a=b"],
            id="replication controller",
        ),
        pytest.param(
            "persistentvolumeclaims",
            {
                "spec": {"volumeName": "v", "storageClassName": "fast", "volumeMode": "Filesystem"},
                "status": {
                    "phase": "Bound",
                    "capacity": {"storage": "1Gi"},
                    "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
                },
            },
            ["x", "Bound", "v", "1Gi", "RWO,RWX", "fast", "<unset>", "80s", "Filesystem"],
            id="bound claim",
        ),
        pytest.param(
            "persistentvolumes",
            {
                "spec": {
                    "capacity": {"storage": "1Gi"},
                    "accessModes": ["ReadOnlyMany"],
                    "persistentVolumeReclaimPolicy": "Retain",
                    "claimRef": {"namespace": "n", "name": "c"},
                },
                "status": {"phase": "Bound"},
            },
            ["x", "1Gi", "ROX", "Retain", "Bound", "n/c", "", "<unset>", "", "80s", "<unset>"],
            id="volume",
        ),
        pytest.param(
            "componentstatuses",
            {"conditions": [{"type": "Healthy", "status": "True", "message": "ok"}]},
            ["x", "Healthy", "ok", ""],
            id="component",
        ),
        pytest.param(
            "events",
            {
                "lastTimestamp": ago(30),
                "firstTimestamp": ago(300),
                "type": "Normal",
                "reason": "Pulled",
                "involvedObject": {"kind": "Pod", "name": "web", "fieldPath": "spec.containers{c}"},
                "source": {"component": "kubelet", "host": "n1"},
                "message": " done\n",
                "count": 4,
            },
            ["30s", "Normal", "Pulled", "pod/web", "spec.containers{c}", "kubelet, n1", "done", "5m", 4, "x"],
            id="event",
        ),
        pytest.param(
            "events",
            {
                "eventTime": ago(200),
                "series": {"count": 7, "lastObservedTime": ago(5)},
                "involvedObject": {"kind": "Node"},
                "reportingComponent": "sched",
            },
            ["5s", "", "", "node", "", "sched", "", "3m20s", 7, "x"],
            id="event series",
        ),
    ],
)
def test_core_rows(resource, obj, expected):
    assert row(resource, obj) == expected
