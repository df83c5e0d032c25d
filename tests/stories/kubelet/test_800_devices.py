"""Devices, from a plugin in plain grpcio into real containers. Plugins and kubelets die; no device is given twice."""

import contextlib
import json
import os
import random
import time

import pytest

from podwire.failpoints import KNOWN
from podwire.kubelet.devices import DeviceManager  # noqa: F401 - declares the failpoints
from podwire.protocols.deviceplugin import deviceplugin_pb2 as pb
from tests.kubelet.devices import conftest as plugins

NIC = "example.org/nic"
POINTS = sorted(item for item in KNOWN if item.startswith("devices."))

SOAK = bool(os.environ.get("PODWIRE_SOAK"))
SEED = int(os.environ.get("PODWIRE_CRASH_SEED", "0")) or int(time.time()) // 3600
"""The same for all workers of a run; set it to repeat a run."""
SAMPLE = POINTS if SOAK else sorted(random.Random(SEED).sample(POINTS, 2))

pytestmark = pytest.mark.timeout(400)


@contextlib.contextmanager
def plugin_of(node, *devices):
    made = plugins.DevicePlugin(node.root / "device-plugins", NIC, devices)
    made.answer = lambda ids: pb.ContainerAllocateResponse(
        envs={"NICS": " ".join(ids)},
        devices=[pb.DeviceSpec(container_path=f"/dev/{id_}", host_path="/dev/zero", permissions="r") for id_ in ids],
    )
    try:
        yield comes(node, made)
    finally:
        made.kill()


def comes(node, plugin):
    """It serves and registers, and does so again when a kubelet that starts has removed its socket."""
    plugin.kill()
    plugin.socket.unlink(missing_ok=True)

    def taken():
        if not plugin.socket.exists():
            plugin.kill()
            plugin.serve().register()
        return amounts(node) == (str(len(plugin.devices)),) * 2

    node.eventually(taken, "devices")
    return plugin


def amounts(node):
    status = node.get("node node")["status"]
    return status["capacity"].get(NIC), status["allocatable"].get(NIC)


def wanting(container, count=1, name="c0"):
    return container(name, resources={"limits": {NIC: str(count)}})


def phases(node):
    return {item["metadata"]["name"]: item["status"]["phase"] for item in node.get("pods")["items"]}


def held(node):
    """Pod uid to ids, from the disk."""
    found = {}
    for path in (node.root / "devices").iterdir():
        if path.name == "resources" or path.name.startswith("."):
            continue
        with contextlib.suppress(FileNotFoundError):
            record = json.loads(path.read_bytes())["record"]
            found[path.name] = sorted({id_ for of in record["containers"].values() for id_ in of[NIC]["ids"]})
    return found


@pytest.fixture
def own_node(running, template):
    with running(template) as made:
        yield made


def test_a_pod_has_two_devices_inside_and_gives_them_back(node, pod, container, name):
    with plugin_of(node, "a", "b", "c") as plugin:
        node.make(pod(name, containers=[wanting(container, 2)]))
        node.wait(f"pod/{name}", "condition=Ready")
        assert node.exec(name, "echo $NICS; ls /dev/a /dev/b; head -c 3 /dev/a | wc -c").split() == [
            "a", "b", "/dev/a", "/dev/b", "3",
        ]  # fmt: skip
        assert plugin.allocated == [["a", "b"]]
        assert list(held(node).values()) == [["a", "b"]]
        node(f"delete pod {name}")
        assert held(node) == {}


def test_fifty_pods_for_twenty_devices(own_node, pod, container):
    node = own_node
    ids = [f"d{number:02}" for number in range(20)]
    names = {f"p{number:02}" for number in range(50)}
    with plugin_of(node, *ids):
        node.make(*(pod(name, containers=[wanting(container)], terminationGracePeriodSeconds=1) for name in names))
        done = set()
        while len(done) < len(names):
            expected = min(20, len(names - done))
            node.eventually(lambda n=expected: list(phases(node).values()).count("Running") == n, f"{expected} run")
            assert set(phases(node).values()) <= {"Running", "Pending"}
            given = [id_ for item in held(node).values() for id_ in item]
            assert len(given) == len(set(given)) == expected
            running = {each for each, phase in phases(node).items() if phase == "Running"}
            node(f"delete pod {' '.join(sorted(running))}")
            done |= running
        assert held(node) == {}


def test_a_plugin_that_is_killed_takes_nothing_from_pods(own_node, pod, container, name):
    node = own_node
    with plugin_of(node, "a", "b") as plugin:
        node.make(pod(name, containers=[wanting(container)]))
        node.wait(f"pod/{name}", "condition=Ready")
        before = node.pid(name)
        plugin.kill()
        node.eventually(lambda: amounts(node) == ("2", "0"))
        node.make(pod("late", containers=[wanting(container)]))
        node.event_message("late", "FailedScheduling")
        comes(node, plugin)
        node.wait("pod/late", "condition=Ready")
        assert node.pid(name) == before
        assert sorted(held(node).values()) == [["a"], ["b"]]


def test_kubelet_and_plugin_die_together_and_pods_wait_instead_of_failing(own_node, pod, container):
    node = own_node
    with plugin_of(node, "a", "b") as plugin:
        node.make(pod("first", containers=[wanting(container)]))
        node.wait("pod/first", "condition=Ready")
        before = node.pid("first")
        node.kubelet.kill()
        plugin.kill()
        node.make(pod("second", nodeName="node", containers=[wanting(container)]))
        node.kubelet.start()
        assert "has not registered yet" in node.event_message("second", "WaitingForDevices")
        assert phases(node) == {"first": "Running", "second": "Pending"}
        comes(node, plugin)
        node.wait("pod/second", "condition=Ready")
        assert node.pid("first") == before
        assert sorted(held(node).values()) == [["a"], ["b"]]


def test_a_pod_deleted_while_the_kubelet_is_down_frees_its_device_once(own_node, pod, container):
    node = own_node
    with plugin_of(node, "a") as plugin:
        node.make(pod("first", containers=[wanting(container)]))
        node.wait("pod/first", "condition=Ready")
        node.kubelet.kill()
        node("delete pod first --grace-period=0 --force")
        node.make(pod("second", nodeName="node", containers=[wanting(container)]))
        node.kubelet.start()
        comes(node, plugin)
        node.wait("pod/second", "condition=Ready")
        (uid,) = held(node)
        assert uid == node.get("pod second")["metadata"]["uid"]
        node.eventually(lambda: not node.sandboxes("first"))


@pytest.mark.parametrize("point", SAMPLE)
def test_a_kubelet_that_is_killed_at_a_step_gives_no_device_twice(own_node, pod, container, point):
    node = own_node
    node.kubelet.kill()
    plan = node.prefix / "failpoints"
    plan.write_text("")
    node.kubelet.start(PODWIRE_FAILPOINTS_FILE=str(plan))
    with plugin_of(node, "a", "b") as plugin:
        plan.write_text(f"{point}=kill")
        node.make(pod("first", containers=[wanting(container)]))
        if point == "devices.released":
            node.wait("pod/first", "condition=Ready")
            node("delete pod first --wait=false")
        node.eventually(lambda: not node.kubelet.alive, "the kubelet's end")
        node.kubelet.start()
        comes(node, plugin)
        if point == "devices.released":
            node("wait pod/first --for=delete --timeout=60s")
            node.make(pod("first", containers=[wanting(container)]))
        node.make(pod("second", containers=[wanting(container)]))
        node.wait("pod/first pod/second", "condition=Ready")
        assert sorted(held(node).values()) == [["a"], ["b"]]
        assert {node.exec(name, "echo $NICS").strip() for name in ("first", "second")} == {"a", "b"}


def test_a_record_that_is_damaged_is_made_again_from_the_runtime(own_node, pod, container):
    node = own_node
    with plugin_of(node, "a", "b") as plugin:
        node.make(pod("first", containers=[wanting(container)]))
        node.wait("pod/first", "condition=Ready")
        node.kubelet.kill()
        (uid,) = held(node)
        (node.root / "devices" / uid).write_bytes(b"torn in two")
        node.kubelet.start()
        comes(node, plugin)
        node.make(pod("second", containers=[wanting(container)]))
        node.wait("pod/second", "condition=Ready")
        assert node.exec("second", "echo $NICS").strip() == "b"
        node.eventually(lambda: held(node).get(uid) == ["a"])


def test_a_link_device_moves_into_the_pod_and_returns_to_the_host(running, template, pod, container):
    with running(template, our_plugins=True) as node:
        macs = {f"nic{number}": f"02:00:5e:00:00:0{number}" for number in range(3)}
        for link, mac in macs.items():
            node.space.output("ip", "link", "add", link, "address", mac, "type", "veth", "peer", "name", f"far-{link}")
        addresses = {"type": "host-local", "subnet": "10.77.0.0/24", "dataDir": str(node.prefix / "leases")}
        taker = {"type": "host-device", "resourceName": NIC, "capabilities": {"deviceID": True}, "ipam": addresses}
        taker["dataDir"] = str(node.prefix / "attachments")
        node.runtime.configure({"cniVersion": "1.0.0", "name": "story", "plugins": [taker]})
        with plugin_of(node, *macs):
            node.make(*(pod(f"p{number}", containers=[wanting(container)]) for number in range(2)))
            node.wait("pod/p0 pod/p1", "condition=Ready")
            got = {node.exec(name, "echo $NICS; cat /sys/class/net/eth0/address") for name in ("p0", "p1")}
            assert len(got) == 2
            assert {tuple(item.split()) for item in got} <= set(macs.items())
            node("delete pod p0 p1")
            home = json.loads(node.space.output("ip", "-j", "link"))
            assert {item["ifname"]: item["address"] for item in home if item["ifname"] in macs} == macs
        for link in macs:
            node.space.output("ip", "link", "delete", link)


def test_a_pod_fails_when_its_devices_cannot_share_a_numa_node(running, template, pod, container):
    """By the node's policy; one that has to wait until there are enough waits."""
    with running(template, "--topology-manager-policy", "single-numa-node") as node:
        devices = [pb.Device(ID=name, health="Healthy") for name in ("a", "b", "c")]
        for device, numa in zip(devices, (0, 0, 1), strict=True):
            device.topology.nodes.add(ID=numa)
        with plugin_of(node, *devices):
            node.make(pod("far", containers=[wanting(container, 3)]))
            node.eventually(lambda: phases(node) == {"far": "Failed"}, "it fails")
            status = node.get("pod far")["status"]
            assert status["reason"] == "TopologyAffinityError"
            assert status["message"] == "Pod was rejected: Resources cannot be allocated with Topology locality"
            node.event_message("far", "TopologyAffinityError")
            assert held(node) == {}
            node.make(pod("near", containers=[wanting(container, 2)]))
            node.wait("pod/near", "condition=Ready")
            assert list(held(node).values()) == [["a", "b"]]
            node("delete pod far near")
