"""Dual-stack Services on `podwire up --nodes 2`: reached over both families, by name, and at node ports."""

import json
from collections.abc import Iterator

import pytest

from tests.eventually import eventually
from tests.stories.test_440_nodes import Cluster
from tests.stories.test_467_services import WHO, ask, deployment, field, service


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    made.podwire("up --detach --nodes 2")
    eventually(lambda: "default" in made.kubectl("get", "serviceaccounts", "-o", "name"), 60)
    made.kubectl("apply", "-f", "-", stdin=json.dumps(deployment()))
    both = service("web", type="NodePort", ipFamilyPolicy="RequireDualStack")
    made.kubectl("apply", "-f", "-", stdin=json.dumps(both))
    made.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    yield made
    made.close()


def test_a_service_is_reached_over_both_families(cluster: Cluster):
    assert field(cluster, "web", ".spec.ipFamilies") == '["IPv4","IPv6"]'
    first, second = json.loads(field(cluster, "web", ".spec.clusterIPs"))
    for node in ("node-1", "node-2"):
        for where in (first, f"[{second}]"):
            eventually(lambda where=where, node=node: ask(cluster, where, 1, node)[0].startswith("web-"), 30)
            assert len({answer.split()[0] for answer in ask(cluster, where, 40, node)}) == 4


def test_its_name_has_both_addresses(cluster: Cluster):
    pod = cluster.kubectl("get", "pods", "-l", "app=web", "-o", "name").split()[0]
    first, second = json.loads(field(cluster, "web", ".spec.clusterIPs"))
    name = "web.default.svc.cluster.local"
    for kind, address in (("a", first), ("aaaa", second)):
        lookup = ("exec", pod, "--", "nslookup", f"-type={kind}", name)
        eventually(lambda words=lookup, address=address: address in cluster.kubectl(*words), 30)


def test_its_node_port_is_reached_from_the_host_over_both_families(cluster: Cluster):
    port = field(cluster, "web", ".spec.ports[0].nodePort")
    nodes = json.loads(cluster.kubectl("get", "nodes", "-o", "json"))["items"]
    addresses = [row["address"] for node in nodes for row in node["status"]["addresses"] if row["type"] == "InternalIP"]
    assert sum(":" in address for address in addresses) == 2
    for address in addresses:
        where = f"[{address}]" if ":" in address else address
        assert cluster.run("curl", "-s", "-m", "3", f"http://{where}:{port}{WHO}").stdout.startswith("web-")


def test_it_becomes_single_stack_and_dual_stack_again(cluster: Cluster):
    first, second = json.loads(field(cluster, "web", ".spec.clusterIPs"))
    cluster.kubectl("patch", "service", "web", "-p", json.dumps({"spec": {"ipFamilyPolicy": "SingleStack"}}))
    assert json.loads(field(cluster, "web", ".spec.clusterIPs")) == [first]
    eventually(lambda: ask(cluster, f"[{second}]", timeout=1)[0].startswith("failed"), 30)
    cluster.kubectl("patch", "service", "web", "-p", json.dumps({"spec": {"ipFamilyPolicy": "PreferDualStack"}}))
    again = json.loads(field(cluster, "web", ".spec.clusterIPs"))
    assert again[0] == first
    eventually(lambda: ask(cluster, f"[{again[1]}]")[0].startswith("web-"), 30)
