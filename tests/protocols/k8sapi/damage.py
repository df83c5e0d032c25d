"""Protobuf bodies as Go writes them, and the same bodies damaged in every single place."""

from tests.protocols.k8sapi.protobuf_writer import encoded

OBJECTS = {
    "pods": {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "default", "labels": {"app": "web"}, "annotations": {"a/b": "c"}},
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": "nginx",
                    "args": ["-v"],
                    "ports": [{"containerPort": 80}],
                    "resources": {"requests": {"cpu": "100m"}},
                    "livenessProbe": {"httpGet": {"port": 80, "path": "/"}},
                }
            ],
            "volumes": [{"name": "tmp", "emptyDir": {}}],
            "tolerations": [{"key": "k", "operator": "Exists", "tolerationSeconds": 30}],
            "securityContext": {"supplementalGroups": [1, 2]},
        },
    },
    "configmaps": {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "settings", "namespace": "default"},
        "data": {"color": "blue", "empty": ""},
        "binaryData": {"blob": "AP8="},
        "immutable": False,
    },
    "leases": {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "lock", "namespace": "default"},
        "spec": {"holderIdentity": "me", "leaseDurationSeconds": 10, "renewTime": "2023-11-14T22:13:20.000123Z"},
    },
}
BODIES = {resource: encoded(obj) for resource, obj in OBJECTS.items()}
"""By resource."""


def flipped(data):
    """The body with one bit flipped, for every bit."""
    for place in range(len(data)):
        for bit in range(8):
            yield data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]


def truncated(data):
    """The body cut off, at every byte."""
    for length in range(len(data)):
        yield data[:length]
