"""`podwire device-plugin` beside `podwire kubelet`: each dies and comes back, and pods keep their links."""

import json

import pytest

from tests.stories.kubelet.support import Daemon

LINK, FILE = "net.podwire.dev/links", "net.podwire.dev/zero"
pytestmark = pytest.mark.timeout(400)

POOLS = {
    "pools": [
        {"name": "links", "make": {"kind": "veth", "parent": "yard", "count": 3}},
        {"name": "zero", "files": {"paths": ["/dev/zero"], "permissions": "r", "count": 5}},
    ]
}


@pytest.fixture
def plugged(running, template):
    """A node whose pods get a link of the pool as their eth0, and the plugin that brings it."""
    with running(template, our_plugins=True) as node:
        node.space.output("ip", "link", "add", "yard", "up", "type", "bridge")
        addresses = {"type": "host-local", "subnet": "10.77.0.0/24"}
        taker = {"type": "host-device", "resourceName": LINK, "capabilities": {"deviceID": True}, "ipam": addresses}
        taker["dataDir"] = str(node.prefix / "attachments")
        node.runtime.configure({"cniVersion": "1.0.0", "name": "story", "plugins": [taker]})
        file = node.prefix / "pools.yaml"
        file.write_text(json.dumps(POOLS))
        words = ["--config", file, "--kubelet-dir", node.root]
        words += ["--state-dir", node.prefix / "device-plugin", "--cdi-dir", node.prefix / "run/cdi"]
        plugin = Daemon(node, "device-plugin", *words)
        plugin.start()
        try:
            node.eventually(lambda: allocatable(node) == ("3", "5"), "its devices are there")
            yield node, plugin
            node.clean()
        finally:
            assert plugin.stop() == 0
        node.space.output("ip", "link", "delete", "yard")


def allocatable(node):
    has = node.get("node node")["status"]["allocatable"]
    return has.get(LINK), has.get(FILE)


def links_of(node, *names):
    """The device that each pod was given, and what its eth0 is."""
    return {
        name: tuple(node.exec(name, "echo $PODWIRE_DEVICE_LINKS; cat /sys/class/net/eth0/address").split())
        for name in names
    }


def test_pods_keep_their_links_whichever_component_dies(plugged, pod, container):
    node, plugin = plugged
    wanting = container("c0", resources={"limits": {LINK: "1", FILE: "1"}})
    node.make(*(pod(name, containers=[wanting]) for name in ("a", "b")))
    node.wait("pod/a pod/b", "condition=Ready")
    assert node.exec("a", "head -c 5 /dev/zero | wc -c").strip() == "5"
    before = links_of(node, "a", "b")
    assert len(set(before.values())) == 2
    plugin.kill()
    node.eventually(lambda: allocatable(node) == ("0", "0"))
    node.kubelet.kill()
    node.kubelet.start()
    node.make(pod("c", nodeName="node", containers=[wanting]))
    node.event_message("c", "WaitingForDevices")
    plugin.start()
    node.wait("pod/c", "condition=Ready")
    now = links_of(node, "a", "b", "c")
    assert before.items() <= now.items()
    assert len({name for name, _ in now.values()}) == 3
    node.kubelet.kill()
    node.kubelet.start()  # the plugin notices by itself that its sockets are gone
    node.eventually(
        lambda: plugin.log.read_text().count("deviceplugin: registered pool with kubelet") == 6, "the plugin is back"
    )
    node.eventually(lambda: allocatable(node) == ("3", "5"), "its devices are back")
    assert links_of(node, "a", "b", "c") == now
    node("delete pod a b c")
    node.make(pod("d", containers=[wanting]))
    node.wait("pod/d", "condition=Ready")
