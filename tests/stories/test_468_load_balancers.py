"""Services of type LoadBalancer on `podwire up --nodes 2`: a node announces each address, and another takes it over."""

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.eventually import eventually
from tests.stories.test_440_nodes import PODWIRE, Cluster
from tests.stories.test_467_services import WHO, deployment, field, service

NODES = ("node-1", "node-2")
MOVED = 90.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    made.podwire("up --detach --nodes 2")
    eventually(lambda: "default" in made.kubectl("get", "serviceaccounts", "-o", "name"), 60)
    made.kubectl("apply", "-f", "-", stdin=json.dumps(deployment()))
    made.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    yield made
    made.close()


def create(cluster: Cluster, name: str, **spec: Any) -> str:
    """Creates a Service, and returns its address."""
    balanced = service(name, type="LoadBalancer", **spec)
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(balanced))
    return eventually(lambda: field(cluster, name, ".status.loadBalancer.ingress[0].ip"), 30)


def answer(cluster: Cluster, address: str) -> list[str]:
    """Returns what the server says to the host: the name of the server, and the client's address."""
    where = f"[{address}]" if ":" in address else address
    return cluster.run("curl", "-s", "-m", "3", f"http://{where}{WHO}").stdout.split()


def holders(cluster: Cluster, address: str) -> list[str]:
    """Returns the nodes that have the address."""
    shown = {
        node: cluster.run(PODWIRE, "node", "exec", "--prefix", cluster.prefix, node, "--", "ip", "-o", "addr").stdout
        for node in NODES
    }
    return [node for node, text in shown.items() if f" {address}/" in text]


def test_a_service_is_reached_from_the_host_at_its_address(cluster: Cluster):
    address = create(cluster, "web", ipFamilyPolicy="RequireDualStack")
    assert field(cluster, "web", ".status.loadBalancer.ingress[0].ipMode") == "VIP"
    second = field(cluster, "web", ".status.loadBalancer.ingress[1].ip")
    assert ":" in second
    for item in (address, second):
        eventually(lambda item=item: answer(cluster, item), 30)
        assert len(holders(cluster, item)) == 1
    events = cluster.kubectl("get", "events", "--field-selector=involvedObject.name=web", "-o", "jsonpath={..reason}")
    assert {"EnsuringLoadBalancer", "EnsuredLoadBalancer"} <= set(events.split())


def test_local_traffic_keeps_the_source_and_goes_to_a_node_with_an_endpoint(cluster: Cluster):
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "alone", "labels": {"app": "alone"}},
        "spec": {**deployment()["spec"]["template"]["spec"], "nodeName": "node-2"},
    }
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(pod))
    address = create(cluster, "local", selector={"app": "alone"}, externalTrafficPolicy="Local")
    eventually(lambda: answer(cluster, address)[:1] == ["alone"], 60)
    assert holders(cluster, address) == ["node-2"]
    [route] = json.loads(cluster.output("ip", "-j", "route", "get", address))
    assert answer(cluster, address)[1].strip("[]").removeprefix("::ffff:") == route["prefsrc"]


def test_source_ranges_keep_others_out(cluster: Cluster):
    address = create(cluster, "closed", loadBalancerSourceRanges=["192.0.2.0/24"])
    eventually(lambda: holders(cluster, address), 30)
    assert answer(cluster, address) == []
    cluster.kubectl("patch", "service", "closed", "-p", json.dumps({"spec": {"loadBalancerSourceRanges": None}}))
    eventually(lambda: answer(cluster, address), 30)


def test_another_node_takes_over_when_the_proxy_hangs(cluster: Cluster):
    address = create(cluster, "moving")
    [holder] = eventually(lambda: holders(cluster, address), 30)
    other = NODES[1 - NODES.index(holder)]
    status = json.loads(cluster.podwire("status -o json"))
    name = "kubelet" if holder == "node-1" else f"kubelet@{holder}"
    pid = next(row["pid"] for row in status["components"] if row["name"] == name)
    os.kill(pid, signal.SIGSTOP)
    try:
        eventually(lambda: holders(cluster, address) == [other], MOVED)
        eventually(lambda: answer(cluster, address), 30)
    finally:
        os.kill(pid, signal.SIGCONT)
    eventually(lambda: holders(cluster, address) == [holder], MOVED)


def test_a_deleted_service_leaves_nothing_on_the_nodes(cluster: Cluster):
    address = create(cluster, "gone")
    eventually(lambda: holders(cluster, address), 30)
    assert cluster.run(PODWIRE, "leakcheck", "--prefix", cluster.prefix).stdout == "no leftovers\n"
    cluster.kubectl("delete", "service", "gone", "--timeout=30s")
    eventually(lambda: not holders(cluster, address), 30)
