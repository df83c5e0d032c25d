"""Metrics on `podwire up`: `kubectl top`, every endpoint that Prometheus scrapes, and an autoscaler under load."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from podwire.cluster.up.slots import Slot
from tests.eventually import eventually
from tests.stories.test_440_nodes import Cluster

ROOT = Path(__file__).parents[2]
IMAGE = "podwire.local/busybox:latest"
BURN = "while true; do if [ -e /tmp/busy ]; then :; else sleep 0.1; fi; done"
NODE = "/api/v1/nodes/node-1/proxy"
KUBELET = ("metrics", "metrics/resource", "metrics/cadvisor", "metrics/probes")
FUNCTIONS = {
    "sum", "by", "rate", "histogram_quantile", "topk", "le", "code", "verb", "name", "result", "namespace", "pod",
    "container", "operation", "operation_type", "request_kind", "probe_type", "job", "container_state", "rcode", "zone",
    "to",
}  # fmt: skip

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    made.podwire("up --detach")
    eventually(lambda: "default" in made.kubectl("get", "serviceaccounts", "-o", "name"), 60)
    made.kubectl("apply", "-f", "-", stdin=json.dumps(deployment()))
    made.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    yield made
    made.close()


def deployment() -> dict[str, Any]:
    probe = {"exec": {"command": ["true"]}, "periodSeconds": 1}
    container = {
        "name": "main",
        "image": IMAGE,
        "command": ["sh", "-c", BURN],
        "resources": {"requests": {"cpu": "50m", "memory": "8Mi"}, "limits": {"cpu": "300m"}},
        "livenessProbe": probe,
    }
    labels = {"app": "web"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
    }
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}


def autoscaler() -> dict[str, Any]:
    target = {"type": "Utilization", "averageUtilization": 100}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "minReplicas": 1,
        "maxReplicas": 3,
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
    }
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web"},
        "spec": spec,
    }


def test_kubectl_top_shows_nodes_and_pods(cluster: Cluster):
    [heading, node] = cluster.kubectl("top", "node").splitlines()
    assert heading.split() == ["NAME", "CPU(cores)", "CPU(%)", "MEMORY(bytes)", "MEMORY(%)"]
    assert re.fullmatch(r"node-1\s+\d+m\s+\d+%\s+\d+Mi\s+\d+%\s*", node), node
    rows = cluster.kubectl("top", "pod", "-l", "app=web", "--containers", "--no-headers").splitlines()
    assert [re.sub(r"\S+-\S+-\S+", "pod", row).split()[:2] for row in rows] == [["pod", "main"]], rows
    missing = cluster.run(
        "kubectl", "--kubeconfig", cluster.prefix / "var/lib/podwire/kubeconfig", "top", "pod", "nope"
    )
    assert 'pods.metrics.k8s.io "nope" not found' in missing.stderr


def test_the_summary_of_the_node_is_complete(cluster: Cluster):
    summary = json.loads(cluster.kubectl("get", "--raw", f"{NODE}/stats/summary"))
    assert {"cpu", "memory", "network", "fs", "runtime", "rlimit", "swap", "startTime"} <= summary["node"].keys()
    assert summary["node"]["cpu"]["usageNanoCores"] > 0
    [pod] = [pod for pod in summary["pods"] if pod["podRef"]["name"].startswith("web-")]
    expected = {"cpu", "memory", "network", "volume", "ephemeral-storage", "process_stats", "startTime", "containers"}
    assert expected <= pod.keys()
    assert {"cpu", "memory", "rootfs", "logs", "startTime"} <= pod["containers"][0].keys()
    assert pod["process_stats"]["process_count"] >= 1


def scheduler(cluster: Cluster, path: str = "/metrics") -> str:
    """Returns a URL of the scheduler, whose port follows from the slot."""
    number = re.search(r'"slot": ?(\d+)', (cluster.prefix / "var/lib/podwire/up.json").read_text())
    assert number is not None
    slot = Slot(int(number[1]))
    return f"https://127.0.0.1:{slot.scheduler_port}{path}"


def served(cluster: Cluster) -> dict[str, set[str]]:
    """Returns the names of all metrics by the endpoint that serves them."""
    cluster.kubectl("create", "serviceaccount", "prometheus")
    cluster.kubectl(
        "create", "clusterrolebinding", "prometheus", "--clusterrole=system:monitoring",
        "--serviceaccount=default:prometheus",
    )  # fmt: skip
    token = cluster.kubectl("create", "token", "prometheus").strip()
    texts = {"apiserver": cluster.kubectl("get", "--raw", "/metrics")}
    texts |= {path: cluster.kubectl("get", "--raw", f"{NODE}/{path}") for path in KUBELET}
    texts["scheduler"] = cluster.output("curl", "-sSk", "-H", f"Authorization: Bearer {token}", scheduler(cluster))
    kubelet = json.loads(cluster.kubectl("get", "node", "node-1", "-o", "json"))["status"]["addresses"][0]["address"]
    direct = cluster.output(
        "curl", "-sSk", "-H", f"Authorization: Bearer {token}", f"https://{kubelet}:10250/metrics/resource"
    )
    assert "node_cpu_usage_seconds_total" in direct
    texts["proxy"] = cluster.output("curl", "-sS", f"http://{kubelet}:10249/metrics")
    servers = json.loads(cluster.kubectl("get", "endpointslices", "-n", "kube-system", "-o", "json"))["items"]
    server, _ = [row for row in servers if row["metadata"]["labels"]["kubernetes.io/service-name"] == "kube-dns"]
    port = next(row["port"] for row in server["ports"] if row["name"] == "metrics")
    texts["dns"] = cluster.output("curl", "-sS", f"http://{server['endpoints'][0]['addresses'][0]}:{port}/metrics")
    return {name: set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)) for name, text in texts.items()}


def test_every_metric_of_the_dashboard_is_served(cluster: Cluster):
    names = served(cluster)
    assert "apiserver_request_total" in names["apiserver"]
    assert "workqueue_adds_total" in names["apiserver"]
    assert "scheduler_schedule_attempts_total" in names["scheduler"]
    assert "kubelet_runtime_operations_total" in names["metrics"]
    assert "prober_probe_total" in names["metrics/probes"]
    assert "kubeproxy_sync_proxy_rules_duration_seconds" in names["proxy"]
    assert "coredns_dns_requests_total" in names["dns"]
    assert all("process_resident_memory_bytes" in names[part] for part in ("apiserver", "scheduler", "metrics"))
    everything = set().union(*names.values())
    dashboard = json.loads((ROOT / "deploy/grafana-dashboard.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    for expression in expressions:
        bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]|\"[^\"]*\"", "", expression)
        asked = set(re.findall(r"[a-z][a-z_]+", bare)) - FUNCTIONS
        assert asked, expression
        for name in asked:
            assert re.sub(r"_(bucket|sum|count)$", "", name) in everything, f"{name} of {expression}"


def test_metrics_are_refused_without_the_right(cluster: Cluster):
    assert cluster.output("curl", "-sk", "-o", "/dev/null", "-w", "%{http_code}", scheduler(cluster)) == "401"
    health = cluster.output("curl", "-sk", scheduler(cluster, "/healthz"))
    assert health == "ok"
    token = cluster.kubectl("create", "token", "default").strip()
    refused = cluster.output("curl", "-sk", "-H", f"Authorization: Bearer {token}", scheduler(cluster))
    assert refused.startswith('forbidden: User "system:serviceaccount:default:default" cannot get path "/metrics"')


def test_an_autoscaler_follows_the_load_up_and_down(cluster: Cluster):
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(autoscaler()))
    [pod] = cluster.kubectl("get", "pods", "-l", "app=web", "-o", "name").split()
    cluster.kubectl("exec", pod, "--", "touch", "/tmp/busy")

    def replicas() -> str:
        return cluster.kubectl("get", "deployment", "web", "-o", "jsonpath={.spec.replicas}")

    eventually(lambda: int(replicas()) > 1, 120, explain=lambda: cluster.kubectl("describe", "hpa", "web"))
    cluster.kubectl("exec", pod, "--", "rm", "/tmp/busy")
    eventually(lambda: replicas() == "1", 120, explain=lambda: cluster.kubectl("describe", "hpa", "web"))
    for reason in ("cpu resource utilization (percentage of request) above target", "All metrics below target"):
        eventually(lambda reason=reason: reason in cluster.kubectl("describe", "hpa", "web"))
    assert "ValidMetricFound" in cluster.kubectl("describe", "hpa", "web")
