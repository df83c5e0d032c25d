"""Ways to a pod of `podwire up --nodes 2`: the API server's proxies, port-forward, and the policies in between."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.eventually import eventually
from tests.stories.test_440_nodes import PODWIRE, Cluster

IMAGE = "podwire.local/busybox:latest"
PAGE = '<a href="/x">x</a>'
SERVE = f"mkdir -p /www; cd /www; hostname > index.html; echo '{PAGE}' > page.html; httpd -f -p 8080"
PROXIED = "/api/v1/namespaces/default"


def web(name: str, node: str) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": IMAGE,
        "command": ["sh", "-c", SERVE],
        "ports": [{"name": "http", "containerPort": 8080}],
        "readinessProbe": {"httpGet": {"port": 8080}, "periodSeconds": 1},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "web", "name": name}},
        "spec": {"nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 0},
    }


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    made.podwire("up --detach --nodes 2")
    made.run_pods(web("one", "node-1"), web("two", "node-2"))
    made.kubectl("expose", "pod", "one", "--name=shop", "--port=80", "--target-port=http", "--selector=app=web")
    yield made
    made.close()


def raw(cluster: Cluster, path: str) -> str:
    return cluster.kubectl("get", "--raw", PROXIED + path)


def test_pods_of_every_node_answer_through_the_api_server(cluster: Cluster):
    for pod, name in {"one": "one", "two": "two", "http:two:8080": "two", "one:http": "one"}.items():
        assert raw(cluster, f"/pods/{pod}/proxy/index.html") == f"{name}\n"
    assert f'href="{PROXIED}/pods/one/proxy/x"' in raw(cluster, "/pods/one/proxy/page.html")
    missing = cluster.run("kubectl", "--kubeconfig", cluster.prefix / "var/lib/podwire/kubeconfig",
                          "get", "--raw", f"{PROXIED}/pods/one:9/proxy/")  # fmt: skip
    assert "error trying to reach service: dial tcp" in missing.stderr
    assert "connect: connection refused" in missing.stderr


def test_a_service_answers_with_each_of_its_pods(cluster: Cluster):
    eventually(lambda: {raw(cluster, "/services/shop:80/proxy/") for _ in range(10)} == {"one\n", "two\n"}, 60)


def test_a_nodes_proxy_answers_for_the_kubelet(cluster: Cluster):
    assert cluster.kubectl("get", "--raw", "/api/v1/nodes/node-2/proxy/healthz") == "ok"


def test_kubectl_forwards_ports_of_a_service_and_shows_the_cluster(cluster: Cluster):
    kubeconfig = cluster.prefix / "var/lib/podwire/kubeconfig"
    script = (
        f"kubectl --kubeconfig {kubeconfig} port-forward svc/shop 18081:80 > /dev/null & pid=$!; trap 'kill $pid' EXIT;"
        "for _ in $(seq 100); do busybox wget -qO- http://127.0.0.1:18081/ && exit 0; sleep 0.1; done; exit 1"
    )
    assert cluster.output("sh", "-c", script) in ("one\n", "two\n")
    assert "control plane" in cluster.kubectl("cluster-info")


def test_kubectl_proxy_passes_the_api_servers_proxies_on(cluster: Cluster):
    kubeconfig = cluster.prefix / "var/lib/podwire/kubeconfig"
    script = (
        f"kubectl --kubeconfig {kubeconfig} proxy --port=18082 > /dev/null & pid=$!; trap 'kill $pid' EXIT;"
        f"for _ in $(seq 100); do busybox wget -qO- http://127.0.0.1:18082{PROXIED}/pods/two/proxy/ && exit 0;"
        " sleep 0.1; done; exit 1"
    )
    assert cluster.output("sh", "-c", script) == "two\n"


def reaches(cluster: Cluster, source: str, address: str, port: int = 8080) -> bool:
    kubeconfig = cluster.prefix / "var/lib/podwire/kubeconfig"
    asks = f"printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 1 {address} {port}"
    done = cluster.run("kubectl", "--kubeconfig", kubeconfig, "exec", source, "--", "sh", "-c", asks)
    assert done.returncode == 0 or "timed out" in done.stderr, done.stderr
    return done.returncode == 0


def test_network_policies_are_enforced_on_all_nodes_without_any_plugin(cluster: Cluster):
    addresses = {name: pod["status"]["podIP"] for name, pod in cluster.pods().items()}
    assert reaches(cluster, "one", addresses["two"])
    assert reaches(cluster, "two", addresses["one"])
    policy = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "closed"},
        "spec": {"podSelector": {"matchLabels": {"name": "two"}}, "policyTypes": ["Ingress"]},
    }
    done = cluster.run("kubectl", "--kubeconfig", cluster.prefix / "var/lib/podwire/kubeconfig",
                       "apply", "-f", "-", stdin=json.dumps(policy))  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), "no warning"

    eventually(lambda: not reaches(cluster, "one", addresses["two"]), 60)
    assert reaches(cluster, "two", addresses["one"])
    cluster.kubectl("delete", "networkpolicy", "closed")
    eventually(lambda: reaches(cluster, "one", addresses["two"]), 60)


def apply(cluster: Cluster, **spec: Any) -> None:
    policy = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "way-out"},
        "spec": {"podSelector": {"matchLabels": {"name": "one"}}, **spec},
    }
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(policy))


def explain(cluster: Cluster, service: str, source: str, *options: str, code: int = 0) -> dict[str, Any]:
    words = ["service", "explain", service, "--from", source, *options, "--prefix", cluster.prefix, "-o", "json"]
    done = cluster.run(PODWIRE, *words)
    assert done.returncode == code, done.stdout + done.stderr
    explained: dict[str, Any] = json.loads(done.stdout)
    return explained


def test_policies_judge_the_pod_behind_a_service_and_not_its_address(cluster: Cluster):
    cluster.kubectl("expose", "pod", "two", "--name=only", "--port=80", "--target-port=8080", "--selector=name=two")
    cluster.kubectl("patch", "service", "only", "-p", '{"spec": {"type": "NodePort"}}')
    service = json.loads(cluster.kubectl("get", "service", "only", "-o", "json"))["spec"]
    address, node_port = service["clusterIP"], service["ports"][0]["nodePort"]
    nodes = json.loads(cluster.kubectl("get", "nodes", "-o", "json"))["items"]
    node = next(row["address"] for row in nodes[0]["status"]["addresses"] if row["type"] == "InternalIP")
    eventually(lambda: reaches(cluster, "one", address, 80), 60)
    assert reaches(cluster, "one", node, node_port)

    peer = {"podSelector": {"matchLabels": {"name": "two"}}}
    apply(cluster, policyTypes=["Egress"], egress=[{"to": [peer], "ports": [{"port": 80}]}])
    eventually(lambda: not reaches(cluster, "one", address, 80), 60)
    assert not reaches(cluster, "one", node, node_port), "its port is 8080, whichever way leads there"

    explained = explain(cluster, "only", "one", code=3)
    assert (explained["probe"], explained["reachable"]) == ("no answer within 2 s", False)
    assert explained["steps"][-1]["verdict"].startswith("denied (egress: default/way-out isolates default/one")

    apply(cluster, policyTypes=["Egress"], egress=[{"to": [peer], "ports": [{"port": 8080}]}])
    eventually(lambda: reaches(cluster, "one", address, 80), 60)
    assert reaches(cluster, "one", node, node_port)
    explained = explain(cluster, "only:80", "default/one")
    two = f"{cluster.pods()['two']['status']['podIP']}:8080"
    assert (explained["probe"], explained["probed_endpoint"], explained["endpoints"]) == ("connected", two, [two])
    assert [step["where"] for step in explained["steps"]] == [
        "podwire-proxy services, frontends4", "podwire-proxy cluster4-1", "podwire-policy"
    ]  # fmt: skip
    cluster.kubectl("delete", "networkpolicy", "way-out")
    cluster.kubectl("delete", "service", "only")


def test_a_policy_that_allows_the_pods_of_dns_allows_the_dns_server(cluster: Cluster):
    looks_up = "nslookup kubernetes.default.svc.cluster.local"
    kubeconfig = cluster.prefix / "var/lib/podwire/kubeconfig"

    def resolves() -> bool:
        asking = cluster.run(
            "kubectl", "--kubeconfig", kubeconfig, "exec", "one", "--", "timeout", "3", *looks_up.split()
        )
        return asking.returncode == 0

    apply(cluster, policyTypes=["Egress"], egress=[])
    eventually(lambda: not resolves(), 60)
    peer = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
        "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
    }
    ports = [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]
    apply(cluster, policyTypes=["Egress"], egress=[{"to": [peer], "ports": ports}])
    eventually(resolves, 60)
    assert not reaches(cluster, "one", cluster.pods()["two"]["status"]["podIP"])
    explained = explain(cluster, "kube-system/kube-dns:dns", "one")
    assert "default/way-out spec.egress[0] allows it" in explained["steps"][-1]["verdict"]
    cluster.kubectl("delete", "networkpolicy", "way-out")


def test_the_way_to_a_node_port_is_explained_by_the_rules_of_its_node(cluster: Cluster):
    cluster.kubectl("expose", "pod", "two", "--name=near", "--port=80", "--target-port=8080", "--selector=name=two")
    spec = {"type": "NodePort", "externalTrafficPolicy": "Local", "externalIPs": ["192.0.2.7"]}
    cluster.kubectl("patch", "service", "near", "-p", json.dumps({"spec": spec}))
    two = f"{cluster.pods()['two']['status']['podIP']}:8080"
    words = (PODWIRE, "service", "explain", "near", "--prefix", cluster.prefix, "--address", "192.0.2.7")
    eventually(lambda: "podwire-proxy external-local4-1-0" in cluster.run(*words).stdout, 30)
    explained = explain(cluster, "near", "one", "--address", "192.0.2.7")
    assert (explained["probe"], explained["probed_endpoint"]) == ("connected", two)

    explained = explain(cluster, "near", "one", "--node-port", "node-2")
    assert (explained["node"], explained["probe"], explained["probed_endpoint"]) == ("node-2", "connected", two)
    assert explained["steps"][1]["what"] == "a client elsewhere: one of 1 endpoints, at random"
    explained = explain(cluster, "near", "one", "--node-port", "node-1")
    assert (explained["probed_endpoint"], explained["endpoints"]) == (two, [two])
    explained = explain(cluster, "near", "two", "--node-port", "node-1", code=3)
    assert (explained["probe"], explained["endpoints"]) == ("no answer within 2 s", [])
    assert explained["steps"][-1]["verdict"] == "dropped"
    cluster.kubectl("delete", "service", "near")


def test_the_trace_of_a_pod_draws_the_way_of_a_test_packet(cluster: Cluster):
    explained = explain(cluster, "shop", "one")
    diagram = cluster.output(PODWIRE, "trace", "one", "--format", "mermaid", "--prefix", cluster.prefix)
    lines = [line.strip() for line in diagram.splitlines()]
    packet = f"TCP {explained['address']}:{explained['port']}"
    assert any(line.startswith("Pod->>") and "ServiceProxy" in line and packet in line for line in lines), diagram
    assert any("goto cluster4" in line for line in lines if line.startswith("ServiceProxy->>")), diagram
    assert any("allowed (egress" in line for line in lines if "NetworkPlugin: " in line), diagram
    assert any(f"Endpoint: TCP {explained['probed_endpoint']}" in line for line in lines), diagram


def admin_policy(kind: str, name: str, *rules: dict[str, Any], **spec: Any) -> str:
    subject = {"pods": {"namespaceSelector": {}, "podSelector": {"matchLabels": {"name": "two"}}}}
    head = {"apiVersion": "policy.networking.k8s.io/v1alpha1", "kind": kind, "metadata": {"name": name}}
    return json.dumps({**head, "spec": {"subject": subject, "ingress": [*rules], **spec}})


def test_admin_policies_stand_above_and_below_network_policies(cluster: Cluster):
    """Denied by the baseline, allowed by a NetworkPolicy, denied by the administrator, passed on: seen by packets."""
    addresses = {name: pod["status"]["podIP"] for name, pod in cluster.pods().items()}

    def seen(expected: bool, words: str) -> None:
        eventually(lambda: reaches(cluster, "one", addresses["two"]) is expected, 60)
        done = cluster.run(PODWIRE, "policy", "explain", "one", "two", "8080", "--prefix", cluster.prefix)
        assert (done.returncode, words in done.stdout) == (0 if expected else 3, True), done.stdout + done.stderr

    everyone = {"namespaces": {}}
    deny, pass_on = ({"action": action, "name": "all", "from": [everyone]} for action in ("Deny", "Pass"))
    below = admin_policy("BaselineAdminNetworkPolicy", "default", deny)
    applied = cluster.run("kubectl", "--kubeconfig", cluster.prefix / "var/lib/podwire/kubeconfig",
                          "apply", "-f", "-", stdin=below)  # fmt: skip
    assert (applied.returncode, applied.stderr) == (0, ""), "no warning"
    seen(False, 'BaselineAdminNetworkPolicy default spec.ingress[0] "all" denies it')
    assert reaches(cluster, "two", addresses["one"])

    spec = {"podSelector": {"matchLabels": {"name": "two"}}, "ingress": [{"ports": [{"port": 8080}]}]}
    open_ = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "open"}, "spec": spec}
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(open_))
    seen(True, "default/open spec.ingress[0] allows it")
    cluster.kubectl("apply", "-f", "-", stdin=admin_policy("AdminNetworkPolicy", "above", deny, priority=5))
    seen(False, 'AdminNetworkPolicy above spec.ingress[0] "all" denies it')
    cluster.kubectl("apply", "-f", "-", stdin=admin_policy("AdminNetworkPolicy", "first", pass_on, priority=1))
    seen(True, 'AdminNetworkPolicy first spec.ingress[0] "all" passes it on; default/open')
    assert "first   1" in cluster.kubectl("get", "anp", "first")
    cluster.kubectl("delete", "networkpolicy/open", "anp/above", "anp/first", "banp/default")
    seen(True, "no policy isolates default/two for ingress")
