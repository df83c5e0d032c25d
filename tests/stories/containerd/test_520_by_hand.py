"""Each of our programs started by hand around a containerd that uses the reference CNI plugins."""

import json

import pytest

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


@pytest.fixture(scope="module")
def by_hand(reference_machine, programs_of, eventually):
    """The network comes last: a node waits for it."""
    made = reference_machine
    apiserver, scheduler, kubelet = programs_of(made)
    apiserver.start()
    eventually(lambda: made.machine.run("kubectl", "get", "--raw", "/readyz").stdout == b"ok")
    scheduler.start()
    kubelet.start()
    made.kubelet = kubelet
    return made


def test_a_node_waits_for_a_network_and_pods_run_when_it_is_there(by_hand, eventually):
    def ready():
        nodes = json.loads(by_hand.kubectl("get", "nodes", "-o", "json"))["items"]
        return next((c for each in nodes for c in each["status"].get("conditions", ()) if c["type"] == "Ready"), {})

    eventually(lambda: ready().get("status") == "False")
    assert "NetworkReady=false" in ready()["message"]
    assert "cni plugin not initialized" in ready()["message"]
    directory = by_hand.machine.root / "etc/cni/net.d"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "10-reference.conflist").write_text(json.dumps(NETWORK))
    eventually(lambda: ready()["status"] == "True")
    eventually(lambda: by_hand.machine.run("kubectl", "get", "serviceaccount", "default").returncode == 0)
    one, other = by_hand.run(FOREVER), by_hand.run(FOREVER)
    leases = by_hand.machine.root / "var/lib/cni/networks/reference"
    assert {each.name for each in leases.glob("10.*")} == {one.status["podIP"], other.status["podIP"]}
    assert one.exec("ping", "-c", "1", "-W", "20", other.status["podIP"]).returncode == 0
    for each in (one, other):
        each.delete()
    eventually(lambda: not by_hand.containerd.containers())
    assert not list(leases.glob("10.*"))
    assert not [each for each in by_hand.machine.links() if each.startswith("veth")]


def test_a_kubelet_that_is_stopped_ends_and_leaves_its_pods_running(by_hand):
    pod = by_hand.run(FOREVER)
    tasks = by_hand.containerd.tasks()
    assert by_hand.kubelet.stop() == 0
    assert by_hand.containerd.tasks() == tasks
    by_hand.kubelet.start()
    after = by_hand.run(FOREVER)
    assert by_hand.containerd.tasks().items() >= tasks.items()
    for each in (pod, after):
        each.delete()
