"""Pods and their network: the host's, ports of it, names and addresses; and what happens when there is none."""

import json
import stat

import pytest

SERVE = "mkdir -p /www; echo hello from $HOSTNAME >/www/index.html; exec httpd -f -p {} -h /www"


@pytest.fixture(scope="module")
def node(template, running):
    with running(template, our_plugins=True) as made:
        yield made


def served(node, address):
    return node.space.output("curl", "-s", "--retry", "20", "--retry-connrefused", "--retry-delay", "1", address)


def test_pods_reach_each_other(node, pod, container, name):
    probe = {"httpGet": {"port": 8080}, "periodSeconds": 1}
    node.make(pod(name, containers=[container("c", SERVE.format(8080), readinessProbe=probe)]), pod(f"{name}-client"))
    node.wait(f"pod/{name} pod/{name}-client", "condition=Ready")
    ip = node.get(f"pod {name}")["status"]["podIP"]
    assert node.exec(f"{name}-client", f"wget -q -O - http://{ip}:8080/") == f"hello from {name}\n"


def test_a_pod_on_the_hosts_network_has_the_hosts_addresses(node, pod, name):
    node.make(pod(name, SERVE.format(8123), hostNetwork=True, dnsPolicy="Default"))
    node.wait(f"pod/{name}", "condition=Ready")
    status = node.get(f"pod {name}")["status"]
    assert status["podIP"] == status["hostIP"] == "192.0.2.10"
    assert served(node, "http://192.0.2.10:8123/").startswith("hello from")
    assert set(node.exec(name, "ls /sys/class/net").split()) == node.space.links()


def test_a_host_port_leads_into_the_pod(node, pod, container, name):
    ports = [{"containerPort": 8080, "hostPort": 18080}]
    node.make(pod(name, containers=[container("c", SERVE.format(8080), ports=ports)]))
    node.wait(f"pod/{name}", "condition=Ready")
    assert served(node, "http://192.0.2.10:18080/") == f"hello from {name}\n"


def test_a_pod_knows_its_name_and_its_servers(node, pod, name):
    aliases = [{"ip": "192.0.2.77", "hostnames": ["far", "away"]}]
    config = {"searches": ["example.com"], "options": [{"name": "ndots", "value": "2"}]}
    node.make(pod(name, hostname="me", subdomain="us", hostAliases=aliases, dnsConfig=config))
    node.wait(f"pod/{name}", "condition=Ready")
    ip = node.get(f"pod {name}")["status"]["podIP"]
    hosts = node.exec(name, "hostname; cat /etc/hosts").splitlines()
    assert hosts[0] == "me"
    assert f"{ip}\tme.us.default.svc.cluster.local\tme" in hosts
    assert "192.0.2.77\tfar\taway" in hosts
    resolver = node.exec(name, "cat /etc/resolv.conf").splitlines()
    assert "nameserver 10.96.0.10" in resolver
    (search,) = [line.split() for line in resolver if line.startswith("search")]
    assert search[1:4] == ["default.svc.cluster.local", "svc.cluster.local", "cluster.local"]
    assert search[-1] == "example.com"
    assert any("ndots:2" in line for line in resolver)


@pytest.fixture
def no_network(node):
    """Until the end of the story the node has no network configuration."""
    (config,) = node.networks.iterdir()
    text = config.read_text()
    config.unlink()
    node.wait("node/node", "condition=Ready=False")
    yield lambda: config.write_text(text)
    config.write_text(text)
    node.wait("node/node", "condition=Ready")


def test_without_a_network_the_node_is_not_ready_and_pods_wait(node, pod, name, no_network):
    assert "NetworkReady=false" in node("get node node -o json")
    given = pod(name, nodeName="node")
    node.make(given, pod(f"{name}-host", nodeName="node", hostNetwork=True, dnsPolicy="Default"))
    assert "network is not ready" in node.event_message(name, "NetworkNotReady")
    node.wait(f"pod/{name}-host", "condition=Ready")
    assert node.get(f"pod {name}")["status"]["phase"] == "Pending"
    no_network()
    node.wait(f"pod/{name}", "condition=Ready")
    node.wait("node/node", "condition=Ready")


def test_a_syntax_error_in_a_configuration_is_an_event_of_the_node(node, pod, name):
    (config,) = node.networks.iterdir()
    text = config.read_text()
    config.write_text(text[: len(text) // 2])
    try:
        message = node.event_message("node", "InvalidNetworkConfiguration")
        assert message.startswith(f"{config}: not valid JSON (")
        assert message.endswith("(its last valid content is used)")
        node.make(pod(name))
        node.wait(f"pod/{name}", "condition=Ready")
    finally:
        config.write_text(text)


@pytest.fixture
def plugin(node):
    """Replace the bridge plugin; it is put back at the end."""
    file = node.plugins / "bridge"
    good = file.read_bytes()

    def replace(script=None):
        file.unlink()
        file.write_bytes(good if script is None else script.encode())
        file.chmod(file.stat().st_mode | stat.S_IEXEC)

    yield replace
    replace()


def test_a_plugin_failure_is_reported_and_a_fixed_plugin_is_used_at_once(node, pod, name, plugin):
    error = {"cniVersion": "1.0.0", "code": 11, "msg": "the cable is loose", "details": "pull harder"}
    plugin(f"#!/bin/sh\ncat >/dev/null\n[ $CNI_COMMAND = ADD ] || exit 0\necho '{json.dumps(error)}'\nexit 1\n")
    node.make(pod(name))
    message = node.event_message(name, "FailedCreatePodSandBox")
    assert message.startswith("Failed to create pod sandbox: ")
    assert "the cable is loose" in message
    # Statuses and events are written independently of each other.
    [status] = node.eventually(lambda: node.get(f"pod {name}")["status"].get("containerStatuses"), "a status")
    assert status["state"]["waiting"]["reason"] == "ContainerCreating"
    plugin()
    node.wait(f"pod/{name}", "condition=Ready")
    node(f"delete pod {name}")
    assert node.sandboxes(name) == []


def test_a_pod_whose_network_teardown_fails_ends_once_it_succeeds(node, pod, name, plugin):
    plugin("#!/bin/sh\nexit 1\n")
    node.make(pod(name))
    node.event_message(name, "FailedCreatePodSandBox")
    node(f"delete pod {name} --wait=false")
    plugin()
    node.wait(f"pod/{name}", "delete")
    assert node.sandboxes(name) == []
