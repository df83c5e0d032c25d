"""Services on `podwire up --nodes 2`: reached from pods, nodes and the host, also while their pods change."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.eventually import eventually
from tests.stories.test_440_nodes import PODWIRE, Cluster

IMAGE = "podwire.local/busybox:latest"
SERVE = (
    "mkdir -p /www/cgi-bin; printf '#!/bin/sh\\necho; echo $HOSTNAME $REMOTE_ADDR\\n' >/www/cgi-bin/who;"
    " chmod +x /www/cgi-bin/who; trap 'sleep 1; exit 0' TERM; httpd -f -p 8080 -h /www & wait"
)
"""Names the server and its client; goes on for a second when it is to end, as servers behind a Service should."""
WHO = "/cgi-bin/who"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    made.podwire("up --detach --nodes 2")
    eventually(lambda: "default" in made.kubectl("get", "serviceaccounts", "-o", "name"), 60)
    made.kubectl("apply", "-f", "-", stdin=json.dumps(deployment()))
    made.kubectl("apply", "-f", "-", stdin=json.dumps(service("web", type="NodePort")))
    made.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    eventually(lambda: len(servers(made, address(made), 20)) == 4, 30)
    yield made
    made.close()


def deployment() -> dict[str, Any]:
    probe = {"tcpSocket": {"port": 8080}, "periodSeconds": 1}
    container = {"name": "c", "image": IMAGE, "command": ["sh", "-c", SERVE], "readinessProbe": probe}
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 5},
    }
    strategy = {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 2}}
    spec = {"replicas": 4, "selector": {"matchLabels": {"app": "web"}}, "template": template, "strategy": strategy}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}


def service(name: str, **spec: Any) -> dict[str, Any]:
    ports = [{"port": 80, "targetPort": 8080}]
    spec = {"selector": {"app": "web"}, "ports": ports, **spec}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def field(cluster: Cluster, name: str, path: str) -> str:
    return cluster.kubectl("get", "service", name, "-o", f"jsonpath={{{path}}}")


def address(cluster: Cluster, name: str = "web") -> str:
    return field(cluster, name, ".spec.clusterIP")


def ask(cluster: Cluster, where: str, times: int = 1, node: str = "node-1", timeout: int = 3) -> list[str]:
    """Returns the answers of so many requests from a node: server and client, or curl's exit code."""
    loop = f"for i in $(seq {times}); do curl -s -m {timeout} http://{where}{WHO} || echo failed $?; done"
    done = cluster.run(PODWIRE, "node", "exec", "--prefix", cluster.prefix, node, "--", "sh", "-c", loop)
    return done.stdout.splitlines()


def servers(cluster: Cluster, where: str, times: int) -> set[str]:
    return {answer.split()[0] for answer in ask(cluster, where, times)}


def test_a_service_is_reached_from_each_node_and_its_pods_share_the_work(cluster: Cluster):
    for node in ("node-1", "node-2"):
        answers = ask(cluster, address(cluster), 40, node)
        assert len({answer.split()[0] for answer in answers}) == 4
        assert not any(answer.startswith("failed") for answer in answers)


def test_pods_reach_the_api_server_at_its_service(cluster: Cluster):
    reached = "exec 3<>/dev/null; nc -w 3 -z $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT || nc -w 3"
    probe = f"{reached} $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT </dev/null && echo reached"
    for name in cluster.kubectl("get", "pods", "-l", "app=web", "-o", "name").split():
        assert "reached" in cluster.kubectl("exec", name, "--", "sh", "-c", probe)


def test_a_node_port_is_reached_from_the_host_at_each_node(cluster: Cluster):
    port = field(cluster, "web", ".spec.ports[0].nodePort")
    for ip in cluster.kubectl("get", "nodes", "-o", "jsonpath={.items[*].status.addresses[0].address}").split():
        done = cluster.run("curl", "-s", "-m", "3", f"http://{ip}:{port}{WHO}")
        assert done.stdout.startswith("web-")


def test_a_client_with_affinity_stays_with_one_pod(cluster: Cluster):
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(service("sticky", sessionAffinity="ClientIP")))
    where = address(cluster, "sticky")
    eventually(lambda: servers(cluster, where, 1) != {"failed"}, 30)
    assert len(servers(cluster, where, 15)) == 1


def test_a_rolling_update_fails_no_request(cluster: Cluster):
    old = set(cluster.kubectl("get", "pods", "-l", "app=web", "-o", "name").replace("pod/", "").split())
    cluster.kubectl("set", "env", "deployment/web", "STEP=2")
    answers: list[str] = []

    def only_new_ones_answer() -> bool:
        some = ask(cluster, address(cluster), 20)
        answers.extend(some)
        return old.isdisjoint(answer.split()[0] for answer in some)

    eventually(only_new_ones_answer, 90)
    assert [answer for answer in answers if answer.startswith("failed")] == []


def test_external_policy_local_shows_the_client_and_stays_on_the_node(cluster: Cluster):
    spec = {"type": "NodePort", "externalTrafficPolicy": "Local"}
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(service("near", **spec)))
    port = field(cluster, "near", ".spec.ports[0].nodePort")
    nodes = json.loads(cluster.kubectl("get", "nodes", "-o", "json"))["items"]
    for node in nodes:
        ip = next(row["address"] for row in node["status"]["addresses"] if row["type"] == "InternalIP")
        selector = f"spec.nodeName={node['metadata']['name']}"
        pods = cluster.kubectl("get", "pods", "-l", "app=web", "--field-selector", selector, "-o", "name").split()
        names = {name.removeprefix("pod/") for name in pods}
        source = json.loads(cluster.output("ip", "-j", "route", "get", ip))[0]["prefsrc"]

        def is_local(ip: str = ip, names: set[str] = names, source: str = source) -> bool:
            loop = f"for i in $(seq 10); do curl -s -m 2 http://{ip}:{port}{WHO} || echo failed $?; done"
            answers = {tuple(answer.split()) for answer in cluster.run("sh", "-c", loop).stdout.splitlines()}
            seen = f"[::ffff:{source}]"  # by a server of both families
            expected = {(name, seen) for name in names} or {("failed", "28")}  # without a pod it is dropped
            assert answers, "no answer"
            assert answers <= expected
            return True

        eventually(is_local, 60)
    cluster.kubectl("delete", "service", "near")


HALVES = """
import os, signal, socket, sys, time, urllib.request
address, port, node, pid = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
connection = socket.create_connection((address, port), 20)
connection.sendall(b"GET /cgi-bin/who HTTP/1.0\\r\\n")
os.kill(pid, signal.SIGKILL)
while os.path.exists(f"/proc/{pid}"):
    time.sleep(0.01)
for _ in range(600):
    try:
        urllib.request.urlopen(f"http://{node}:10256/livez", timeout=5)
        break
    except OSError:
        time.sleep(0.1)
connection.sendall(b"\\r\\n")
print(connection.makefile().read())
"""
"""One half of a request before the proxy is killed, the other half when it is back."""


def test_an_established_connection_goes_on_when_the_proxy_is_killed(cluster: Cluster):
    port = field(cluster, "web", ".spec.ports[0].nodePort")
    node = cluster.kubectl("get", "node", "node-1", "-o", "jsonpath={.status.addresses[0].address}")
    pid = cluster.components()["kubelet"]["pid"]
    answer = cluster.output(sys.executable, "-c", HALVES, node, port, node, pid)
    assert "200 OK" in answer
    assert "web-" in answer
    eventually(lambda: cluster.components()["kubelet"]["pid"] not in (0, pid), 60)


def test_a_killed_proxy_loses_no_connection_and_comes_back(cluster: Cluster):
    status = json.loads(cluster.podwire("status -o json"))
    pid = next(row["pid"] for row in status["components"] if row["name"] == "kubelet")
    os.kill(pid, signal.SIGKILL)
    answers = ask(cluster, address(cluster), 40)
    assert [answer for answer in answers if answer.startswith("failed")] == []
    cluster.kubectl("scale", "deployment/web", "--replicas=2")
    cluster.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    eventually(lambda: len(servers(cluster, address(cluster), 20)) == 2, 60)


def test_a_service_without_pods_refuses_at_once(cluster: Cluster):
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(service("none", selector={"app": "nobody"})))
    where = address(cluster, "none")
    eventually(lambda: ask(cluster, where) == ["failed 7"], 30)  # refused, where 28 would be a timeout
