"""The DNS of `podwire up --nodes 2`: names from pods of both nodes, changes while it runs, and its death under load."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.eventually import eventually
from tests.stories.test_440_nodes import PODWIRE, Cluster

IMAGE = "podwire.local/busybox:latest"
SERVE = "mkdir -p /www; echo $HOSTNAME >/www/index.html; exec httpd -f -p 80 -h /www"
ZONE = "svc.cluster.local"

pytestmark = pytest.mark.timeout(300)


def pod(name: str, node: str, command: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": IMAGE, "command": ["sh", "-c", command]}
    fields = {"nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [container], **spec}
    meta = {"name": name, "labels": {"app": name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": fields}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    try:
        made.podwire("up --detach --nodes 2")
        made.run_pods(
            pod("web", "node-1", SERVE),
            pod("one", "node-1", "sleep infinity"),
            pod("two", "node-2", "sleep infinity"),
        )
        made.kubectl("expose", "pod", "web", "--port=80", "--name=web")
        yield made
    finally:
        made.close()


def exec_in(cluster: Cluster, name: str, command: str) -> subprocess.CompletedProcess[str]:
    kubeconfig = cluster.prefix / "var/lib/podwire/kubeconfig"
    return cluster.run("kubectl", "--kubeconfig", kubeconfig, "exec", name, "--", "sh", "-c", command)


def resolved(cluster: Cluster, name: str, *, pod: str = "two") -> set[str]:
    """The addresses that a pod finds for a name."""
    lines = exec_in(cluster, pod, f"nslookup -type=a {name}").stdout.partition("\n\n")[2].splitlines()
    return {line.split()[1] for line in lines if line.startswith("Address")}


def test_pods_of_both_nodes_find_a_service_by_its_short_name(cluster: Cluster):
    address = cluster.kubectl("get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")
    for name in ("one", "two"):
        config = exec_in(cluster, name, "cat /etc/resolv.conf").stdout.splitlines()
        assert config[1:] == [f"search default.{ZONE} {ZONE} cluster.local", "options ndots:5"]
        server = cluster.kubectl("get", "service", "-n", "kube-system", "kube-dns", "-o", "jsonpath={.spec.clusterIP}")
        assert config[0] == f"nameserver {server}"
        eventually(lambda name=name: resolved(cluster, f"web.default.{ZONE}", pod=name) == {address})
        eventually(lambda name=name: exec_in(cluster, name, "timeout 10 wget -qO- http://web").stdout == "web\n")
        assert exec_in(cluster, name, "timeout 10 wget -qO- http://web.default").stdout == "web\n"
        assert resolved(cluster, f"none.default.{ZONE}", pod=name) == set()
    assert "MissingClusterDNS" not in cluster.kubectl("get", "events", "-A")


def test_pods_of_a_statefulset_have_names_that_follow_them(cluster: Cluster):
    labels = {"app": "db"}
    template = {"metadata": {"labels": labels}, "spec": pod("db", "", "sleep infinity")["spec"]}
    del template["spec"]["nodeName"]
    spec = {"serviceName": "db", "replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    statefulset = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"}, "spec": spec}
    headless = {"clusterIP": "None", "selector": labels, "ports": [{"name": "sql", "port": 5432}]}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "db"}, "spec": headless}
    items = {"apiVersion": "v1", "kind": "List", "items": [service, statefulset]}
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(items))
    cluster.kubectl("rollout", "status", "statefulset/db", "--timeout=60s")

    def address_of(name: str) -> str:
        return cluster.kubectl("get", "pod", name, "-o", "jsonpath={.status.podIP}")

    both = {address_of("db-0"), address_of("db-1")}
    eventually(lambda: resolved(cluster, f"db.default.{ZONE}") == both)
    assert resolved(cluster, f"db-1.db.default.{ZONE}") == {address_of("db-1")}
    cluster.kubectl("delete", "pod", "db-1")
    eventually(lambda: resolved(cluster, f"db-1.db.default.{ZONE}", pod="one") == {address_of("db-1")} != {""})
    cluster.kubectl("delete", "statefulset", "db")
    eventually(lambda: resolved(cluster, f"db.default.{ZONE}") == set())


def test_an_external_name_is_an_alias_that_can_change(cluster: Cluster):
    cluster.kubectl("create", "service", "externalname", "alias", f"--external-name=web.default.{ZONE}")
    eventually(lambda: exec_in(cluster, "two", "timeout 10 wget -qO- http://alias").stdout == "web\n")
    change = json.dumps({"spec": {"externalName": f"kubernetes.default.{ZONE}"}})
    cluster.kubectl("patch", "service", "alias", "-p", change)
    address = cluster.kubectl("get", "service", "kubernetes", "-o", "jsonpath={.spec.clusterIP}")
    eventually(lambda: resolved(cluster, f"alias.default.{ZONE}") == {address})


def test_a_stub_domain_is_asked_of_its_own_server(cluster: Cluster):
    """The server of the domain is a second `podwire dns`, for another domain, on the host."""
    kubeconfig = cluster.prefix / "var/lib/podwire/kubeconfig"
    slice_ = cluster.kubectl("get", "endpointslices", "-n", "kube-system", "kube-dns-podwire", "-o", "json")
    host = json.loads(slice_)["endpoints"][0]["addresses"][0]
    words = [PODWIRE, "dns", "--kubeconfig", kubeconfig, "--listen", host, "--port", "5353", "--metrics-port", "0"]
    words += ["--cluster-domain", "corp.test"]
    entered = ["nsenter", "-t", cluster._child.pid, "-n", "-m", "--", *words]
    other = subprocess.Popen(list(map(str, entered)), stderr=subprocess.DEVNULL)
    try:
        stubs = json.dumps({"corp.test": [f"{host}:5353"]})
        cluster.kubectl("create", "configmap", "-n", "kube-system", "kube-dns", f"--from-literal=stubDomains={stubs}")
        address = cluster.kubectl("get", "service", "kubernetes", "-o", "jsonpath={.spec.clusterIP}")
        eventually(lambda: resolved(cluster, "kubernetes.default.svc.corp.test") == {address})
        cluster.kubectl("delete", "configmap", "-n", "kube-system", "kube-dns")
        eventually(lambda: "SERVFAIL" in exec_in(cluster, "two", "nslookup b.corp.test").stdout)
    finally:
        other.terminate()
        other.wait()


def test_a_policy_that_allows_only_dns_allows_names_and_nothing_else(cluster: Cluster):
    cluster.run_pods(pod("shut", "node-2", "sleep infinity"))
    ports = [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]
    spec = {
        "podSelector": {"matchLabels": {"app": "shut"}},
        "policyTypes": ["Egress"],
        "egress": [{"ports": ports}],
    }
    policy = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "dns"}, "spec": spec}
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(policy))
    eventually(lambda: exec_in(cluster, "shut", "timeout 3 wget -qO- http://web").returncode != 0)
    address = cluster.kubectl("get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")
    assert resolved(cluster, f"web.default.{ZONE}", pod="shut") == {address}
    assert exec_in(cluster, "shut", f"timeout 3 wget -qO- http://{address}").returncode != 0
    cluster.kubectl("delete", "networkpolicy", "dns")


def test_no_name_is_lost_when_a_server_is_killed_under_load(cluster: Cluster):
    lookups = f"for i in $(seq 150); do nslookup -type=a web.default.{ZONE} >/dev/null || echo lost; done; echo done"
    kubeconfig = cluster.prefix / "var/lib/podwire/kubeconfig"
    words = ["nsenter", "-t", cluster._child.pid, "-n", "-m", "--", "kubectl", "--kubeconfig", kubeconfig, "exec"]
    clients = [
        subprocess.Popen([*map(str, words), name, "--", "sh", "-c", lookups], stdout=subprocess.PIPE, text=True)
        for name in ("one", "two")
    ]
    killed = {"dns": 0, "dns-2": 0}
    while clients[0].poll() is None and sum(killed.values()) < 4:
        server = min(killed, key=lambda name: killed[name])
        before = cluster.components()[server]
        os.kill(before["pid"], signal.SIGKILL)
        killed[server] += 1
        eventually(lambda pid=before["pid"], server=server: cluster.components()[server]["pid"] not in (0, pid))
        eventually(lambda server=server: cluster.components()[server]["state"] == "ready")
    outputs = [client.communicate(timeout=120)[0] for client in clients]
    assert outputs == ["done\n"] * 2
    assert killed["dns"] > 0
    assert all(cluster.components()[server]["restarts"] >= times for server, times in killed.items())
    slices = json.loads(cluster.kubectl("get", "endpointslices", "-n", "kube-system", "-o", "json"))["items"]
    assert [row["metadata"]["name"] for row in slices] == ["kube-dns-podwire", "kube-dns-podwire-2"]


@pytest.mark.parametrize("server", ["dns", "dns-2"])
def test_names_resolve_while_one_of_the_two_servers_hangs(cluster: Cluster, server: str):
    pid = cluster.components()[server]["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        lookup = f"timeout 3 nslookup -type=a web.default.{ZONE} >/dev/null || echo lost"
        done = exec_in(cluster, "two", f"for i in $(seq 20); do {lookup}; done; echo done")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert done.stdout == "done\n", done.stderr
