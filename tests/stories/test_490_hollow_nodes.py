"""Fifty hollow nodes by `podwire hollow`, with an API server and a scheduler: workloads run, end, and leave nothing."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.eventually import eventually
from tests.stories.support import PODWIRE, ApiServer, Process

NODES = 50
PROBE = {"httpGet": {"path": "/", "port": 80}, "periodSeconds": 1}
CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "gpu"},
    "spec": {"selectors": [{"cel": {"expression": 'device.driver == "gpu.example.com"'}}]},
}
TEMPLATE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "gpu"},
    "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}},
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServer]:
    server, scheduler = ApiServer(tmp_path / "server"), Process("scheduler", tmp_path / "scheduler.log")
    server.start()
    scheduler.run(PODWIRE, "scheduler", "--kubeconfig", server.kubeconfig)
    yield server
    scheduler.kill()
    server.close()


def deployment(name: str, replicas: int, **spec: Any) -> dict[str, Any]:
    container = {"name": "app", "image": "busybox", "readinessProbe": PROBE, **spec.pop("container", {})}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container], **spec}}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def items(server: ApiServer, path: str) -> list[dict[str, Any]]:
    return list(server.rest("GET", path)["items"])


def ready(server: ApiServer, name: str) -> int:
    deployments = server.rest("GET", f"/apis/apps/v1/namespaces/default/deployments/{name}")
    return int(deployments["status"].get("readyReplicas", 0))


def test_workloads_run_on_hollow_nodes_and_leave_nothing(server: ApiServer, tmp_path: Path):
    hollow = Process("hollow", tmp_path / "hollow.log")
    hollow.run(
        PODWIRE, "hollow", "--kubeconfig", server.kubeconfig, "--nodes", NODES, "--zones", 5,
        "--device", "example.com/nic=2", "--dra-device", "gpu.example.com=2",
    )  # fmt: skip
    eventually(lambda: len(items(server, "/api/v1/nodes")) == NODES)
    eventually(lambda: any(item["metadata"]["name"] == "default"
                           for item in items(server, "/api/v1/namespaces/default/serviceaccounts")))  # fmt: skip
    for group, made in (("resource.k8s.io/v1/deviceclasses", CLASS),
                        ("resource.k8s.io/v1/namespaces/default/resourceclaimtemplates", TEMPLATE)):  # fmt: skip
        server.rest("POST", f"/apis/{group}", made)
    nics = {"resources": {"limits": {"example.com/nic": "1"}}}
    claims = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}],
              "container": {"resources": {"claims": [{"name": "gpu"}]}}}  # fmt: skip
    deployments = [deployment("web", 60), deployment("nics", 10, container=nics), deployment("gpus", 5, **claims)]
    path = "/apis/apps/v1/namespaces/default/deployments"
    for made in deployments:
        server.rest("POST", path, made)
    eventually(lambda: [ready(server, name) for name in ("web", "nics", "gpus")] == [60, 10, 5])
    web = [pod for pod in items(server, "/api/v1/pods") if pod["metadata"]["labels"]["app"] == "web"]
    assert len({pod["spec"]["nodeName"] for pod in web}) == NODES, "pods of one owner are spread over all nodes"
    assert len({pod["status"]["podIP"] for pod in items(server, "/api/v1/pods")}) == 75

    victim = web[0]["metadata"]["name"]
    patch = json.loads('{"metadata": {"annotations": {"hollow.podwire.dev/failing-probes": "readiness"}}}')
    headers = {"Content_Type": "application/merge-patch+json"}
    server.rest("PATCH", f"/api/v1/namespaces/default/pods/{victim}", patch, **headers)
    eventually(lambda: ready(server, "web") == 59)

    for name in ("web", "nics", "gpus"):
        server.rest("DELETE", f"{path}/{name}", {"propagationPolicy": "Foreground"})
    eventually(lambda: not items(server, "/api/v1/pods"))
    eventually(lambda: not items(server, "/apis/resource.k8s.io/v1/resourceclaims"))
    hollow.signal(signal.SIGTERM)
    assert hollow.exit_code() == 0, hollow.log.read_text()
    for kind in ("/api/v1/nodes", "/apis/resource.k8s.io/v1/resourceslices",
                 "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"):  # fmt: skip
        assert not items(server, kind)
    assert "Traceback" not in hollow.log.read_text()
