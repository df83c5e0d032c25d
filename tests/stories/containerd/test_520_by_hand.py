"""Each of our programs started by hand around a containerd that uses the reference CNI plugins."""

import json

import pytest

from tests.eventually import eventually

FOREVER = "trap 'exit 0' TERM; sleep 100000 & wait"
NETWORK = {
    "cniVersion": "1.0.0",
    "name": "reference",
    "plugins": [
        {
            "type": "bridge",
            "bridge": "ref0",
            "isGateway": True,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.99.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]},
        }
    ],
}


def ready(cluster):
    """The condition of the node, when there is one."""
    nodes = json.loads(cluster.kubectl("get", "nodes", "-o", "json"))["items"]
    found = [
        condition
        for node in nodes
        for condition in node["status"].get("conditions", ())
        if condition["type"] == "Ready"
    ]
    return found[0] if found else {"status": "Unknown"}


@pytest.fixture(scope="module")
def by_hand(reference_machine, programs_of):
    """The network comes last; `waited` is what the node said until then."""
    made = reference_machine
    apiserver, scheduler, made.kubelet = programs_of(made)
    apiserver.start()
    eventually(lambda: made.machine.run("kubectl", "get", "--raw", "/readyz").stdout == b"ok")
    scheduler.start()
    made.kubelet.start()
    eventually(lambda: ready(made)["status"] == "False")
    made.waited = ready(made)
    directory = made.machine.root / "etc/cni/net.d"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "10-reference.conflist").write_text(json.dumps(NETWORK))
    eventually(lambda: ready(made)["status"] == "True")
    eventually(lambda: made.machine.run("kubectl", "get", "serviceaccount", "default").returncode == 0)
    return made


def test_a_node_waits_for_its_network(by_hand):
    assert "NetworkReady=false" in by_hand.waited["message"]
    assert "cni plugin not initialized" in by_hand.waited["message"]


def test_pods_have_the_network_of_the_reference_plugins(by_hand):
    one, other = by_hand.run(FOREVER), by_hand.run(FOREVER)
    leases = by_hand.machine.root / "var/lib/cni/networks/reference"
    assert {path.name for path in leases.glob("10.*")} == {one.status["podIP"], other.status["podIP"]}
    assert one.exec("ping", "-c", "1", "-W", "20", other.status["podIP"]).returncode == 0
    for item in (one, other):
        item.delete()
    eventually(lambda: not by_hand.containerd.containers())
    assert not list(leases.glob("10.*"))
    assert not [link for link in by_hand.machine.links() if link.startswith("veth")]


def test_a_kubelet_that_is_stopped_ends_and_leaves_its_pods_running(by_hand):
    pod = by_hand.run(FOREVER)
    tasks = by_hand.containerd.tasks()
    assert by_hand.kubelet.stop() == 0
    assert by_hand.containerd.tasks().items() >= tasks.items()
    by_hand.kubelet.start()
    after = by_hand.run(FOREVER)
    assert by_hand.containerd.tasks().items() >= tasks.items()
    for item in (pod, after):
        item.delete()
