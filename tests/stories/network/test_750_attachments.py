"""However a pod hangs on its node, its policies hold: on a bridge, by a link of its own, without a link of the node."""

import json
import subprocess

import pytest

pytestmark = pytest.mark.timeout(400)

WEB_FROM_GOOD = """
podSelector: {matchLabels: {app: web}}
ingress: [{from: [{podSelector: {matchLabels: {app: good}}}], ports: [{port: 80}]}]
"""
CALLS = "net.bridge.bridge-nf-call-iptables"
IPAM = {"type": "host-local", "ranges": [[{"subnet": "10.111.0.0/24"}]], "dataDir": "/var/lib/podwire/cni/networks"}
PTP = {"type": "ptp", "ipam": {**IPAM, "routes": [{"dst": "0.0.0.0/0"}]}}
MACVLAN = {"type": "macvlan", "mode": "bridge", "ipam": IPAM}


@pytest.fixture
def three(network, a_pod, a_policy):
    """A pod that only one of two others may reach."""

    def run():
        network.cluster.apply(a_policy("web", WEB_FROM_GOOD))
        pods = [a_pod(name, labels={"app": name}) for name in ("web", "good", "other")]
        web, good, other = network.run(*pods).values()
        web.listen(80, 81)
        assert good.may(web, 80, 30)
        assert not good.may(web, 81)
        assert not other.may(web, 80)
        verdicts = [
            network.explained(*item) for item in (("good", "web", 80), ("good", "web", 81), ("other", "web", 80))
        ]
        assert verdicts == [True, False, False]
        return web, good, other

    return run


def on_the_node(network, *words):
    return subprocess.run(
        ["nsenter", f"--net={network.plugin.node}", *words], capture_output=True, text=True, check=True
    )


def configure(network, plugin):
    directory = network.cluster.prefix / "etc/cni/net.d"
    directory.mkdir(parents=True)
    network_config = {"cniVersion": "1.0.0", "name": "own", "plugins": [plugin]}
    (directory / "05-own.conflist").write_text(json.dumps(network_config))


def test_bridges_that_do_not_call_the_rules_are_made_to_again(network, three):
    network.up()
    web, good, other = three()
    assert on_the_node(network, "sysctl", "-n", CALLS).stdout == "1\n"
    on_the_node(network, "sysctl", "-w", f"{CALLS}=0")
    network.cluster.eventually(
        lambda: on_the_node(network, "sysctl", "-n", CALLS).stdout == "1\n", "it is set again", network.plugin.log_tail
    )
    assert not other.may(web, 80)
    assert good.may(web, 80, 30)
    network.cluster.delete_all()


def test_policies_of_a_pod_with_its_own_link_apply_where_the_node_forwards(network, three):
    configure(network, PTP)
    network.up()
    three()
    network.cluster.delete_all()


def test_policies_of_a_pod_without_a_node_link_apply_inside_and_are_reported(network, three):
    configure(network, MACVLAN)
    network.up()
    web, good, other = three()
    network.cluster.eventually(
        lambda: "NetworkPolicyUndoable" in network.events("web"), "its events say so", network.plugin.log_tail
    )
    assert "where NET_ADMIN could undo them" in network.events("web")
    assert "NetworkPolicyUndoable" not in network.events("good"), "nothing isolates it"
    network.cluster.output("label", "pod", "other", "app=good", "--overwrite")
    network.cluster.eventually(lambda: other.may(web, 80), "a change reaches the pod's own rules")
    network.plugin.kill()
    assert not good.may(web, 81)
    network.plugin.start()
    assert not good.may(web, 81)
    assert good.may(web, 80, 30)
    network.cluster.delete_all()
