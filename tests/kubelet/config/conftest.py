"""Pods to make messages of, as the API has them."""

from typing import Any

import pytest

from podwire.kubelet.config.fields import NodeFacts
from podwire.objects import pods
from podwire.objects.pods import Pod

NODE = NodeFacts(
    name="node-1",
    ips=("192.0.2.10", "2001:db8::10"),
    allocatable={"cpu": "3500m", "memory": "7Gi", "ephemeral-storage": "90Gi"},
    memory_capacity=8 << 30,
)


def pod(spec: dict[str, Any] | None = None, *, container: dict[str, Any] | None = None, **metadata: Any) -> Pod:
    """A pod with one container, and what a test adds to either."""
    main = {"name": "main", "image": "registry.test/app:1", **(container or {})}
    about = {"name": "web", "namespace": "shop", "uid": "uid-1", **metadata}
    return pods.read({"metadata": about, "spec": {"containers": [main], **(spec or {})}})


RICH = pod(
    {
        "nodeName": "node-1",
        "serviceAccountName": "seller",
        "terminationGracePeriodSeconds": 5,
        "shareProcessNamespace": True,
        "overhead": {"cpu": "250m", "memory": "120Mi"},
        "initContainers": [
            {"name": "warm", "image": "registry.test/warm:1", "resources": {"requests": {"cpu": "3"}}},
        ],
        "securityContext": {
            "runAsUser": 1000,
            "runAsGroup": 2000,
            "fsGroup": 3000,
            "supplementalGroups": [4000],
            "supplementalGroupsPolicy": "Strict",
            "sysctls": [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}],
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    },
    container={
        "command": ["serve", "$(GREETING)"],
        "args": ["--at=$(WHERE)", "$$(WHERE)", "$(NOBODY)"],
        "workingDir": "/srv",
        "stdin": True,
        "tty": True,
        "ports": [
            {"name": "http", "containerPort": 8080, "hostPort": 80},
            {"containerPort": 53, "hostPort": 53, "protocol": "UDP", "hostIP": "192.0.2.10"},
            {"containerPort": 9090},
        ],
        "resources": {
            "requests": {"cpu": "100m", "memory": "64Mi"},
            "limits": {"cpu": "1500m", "memory": "256Mi", "hugepages-2Mi": "4Mi"},
        },
        "lifecycle": {"preStop": {"exec": {"command": ["bye"]}}, "stopSignal": "SIGRTMIN+3"},
        "securityContext": {
            "runAsUser": 1234,
            "privileged": False,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"add": ["NET_ADMIN"], "drop": ["ALL"]},
            "seccompProfile": {"type": "Localhost", "localhostProfile": "tight.json"},
            "appArmorProfile": {"type": "Localhost", "localhostProfile": "tight"},
        },
    },
    labels={"app": "web"},
    annotations={"owner": "ops"},
)


@pytest.fixture(name="pod")
def _pod():
    return pod


@pytest.fixture
def rich() -> Pod:
    return RICH


@pytest.fixture
def node() -> NodeFacts:
    return NODE
