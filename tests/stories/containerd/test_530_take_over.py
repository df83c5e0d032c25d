"""A node whose containerd ran the reference CNI plugins runs ours, and the reference plugins again, while pods run."""

import json
import shutil

import pytest

from tests.eventually import eventually
from tests.stories.containerd.support import (
    PODWIRE,
    config_of_the_guide,
    has_accounts,
    machine_with_containerd,
    reference_plugins,
    watched,
)

BIN = "opt/cni/bin"
SERVE = "mkdir -p /www; echo hello from $HOSTNAME >/www/index.html; exec httpd -f -p 80 -h /www"
NETWORK = {
    "cniVersion": "1.0.0",
    "name": "pods",
    "plugins": [
        {
            "type": "bridge",
            "isDefaultGateway": True,
            "ipMasq": True,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.99.0.0/24"}]]},
        },
        {"type": "portmap", "capabilities": {"portMappings": True}},
        {"type": "firewall"},
    ],
}


def bring_reference(machine):
    (machine.root / BIN).mkdir(parents=True, exist_ok=True)
    for plugin in reference_plugins().iterdir():
        shutil.copy2(plugin, machine.root / BIN / f".{plugin.name}")
        (machine.root / BIN / f".{plugin.name}").rename(machine.root / BIN / plugin.name)


@pytest.fixture(scope="module")
def node(tmp_path_factory, programs_of):
    config = config_of_the_guide().replace("/var/lib/podwire/cni/bin", f"/{BIN}")
    with machine_with_containerd(config, tmp_path_factory.mktemp("taken-over")) as made, watched(made):
        bring_reference(made.machine)
        directory = made.machine.root / "etc/cni/net.d"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "10-pods.conflist").write_text(json.dumps(NETWORK))
        apiserver, *others = programs_of(made)
        apiserver.start()
        eventually(lambda: made.machine.run("kubectl", "get", "--raw", "/readyz").stdout == b"ok")
        for program in others:
            program.start()
        eventually(lambda: has_accounts(made))
        yield made


def serve(node, name, port):
    containers = [{"name": "c", "image": "podwire.local/busybox:latest", "command": ["sh", "-c", SERVE]}]
    containers[0] |= {"imagePullPolicy": "IfNotPresent", "ports": [{"containerPort": 80, "hostPort": port}]}
    pod = node.run(name=name, containers=containers)
    eventually(lambda: answer(node, port) == f"hello from {name}\n")
    return pod


def answer(node, port):
    return node.machine.run("curl", "-s", "--max-time", "2", f"http://127.0.0.1:{port}/").stdout.decode()


def left(node):
    """Rules of either, links of pods, and leases."""
    machine = node.machine
    rules = machine.output("iptables-save") + machine.output("nft", "list", "ruleset")
    leases = [path.name for path in (machine.root / "var/lib/cni/networks/pods").iterdir()]
    return (
        [line for line in rules.splitlines() if "CNI-" in line or "10.99.0." in line],
        sorted(name for name in machine.links() if name.startswith("veth")),
        [name for name in leases if name != "lock" and not name.startswith("last_reserved_ip")],
    )


def test_our_plugins_take_over_a_node_with_running_pods(node):
    bring_reference(node.machine)
    first, second = serve(node, "first", 18080), serve(node, "second", 18081)
    node.machine.output(PODWIRE, "cni", "install", f"/{BIN}", "--force")
    assert answer(node, 18080) == "hello from first\n"
    first.delete()
    assert answer(node, 18080) == ""
    third = serve(node, "third", 18080)
    assert answer(node, 18081) == "hello from second\n", "it was added by the reference plugins"
    second.delete()
    third.delete()
    assert left(node) == ([], [], [])


def test_the_reference_plugins_take_over_again(node):
    node.machine.output(PODWIRE, "cni", "install", f"/{BIN}", "--force")
    ended, running = serve(node, "ended", 18080), serve(node, "ours", 18081)
    bring_reference(node.machine)
    ended.delete()  # its rules stay
    done = node.machine.output(PODWIRE, "cni", "hand-over").splitlines()
    assert sorted(line.split(" pods ")[0] for line in done) == ["handed over", "released"]
    assert answer(node, 18081) == "hello from ours\n"
    theirs = serve(node, "theirs", 18080)
    assert node.machine.output(PODWIRE, "cni", "hand-over") == ""
    running.delete()
    assert answer(node, 18081) == ""
    assert answer(node, 18080) == "hello from theirs\n"
    theirs.delete()
    rules, links, leases = left(node)
    assert [line for line in rules if "10.99.0." in line or "CNI-DN-" in line] == []
    assert (links, leases) == ([], [])
    assert "podwire" not in node.machine.output("nft", "list", "tables")
