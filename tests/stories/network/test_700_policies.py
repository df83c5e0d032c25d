"""NetworkPolicies on a cluster, with real connections between pods; `podwire policy explain` agrees with every one."""

import signal

import pytest

pytestmark = pytest.mark.timeout(400)

WEB_FROM_GOOD = """
podSelector: {matchLabels: {app: web}}
ingress: [{from: [{podSelector: {matchLabels: {app: good}}}], ports: [{port: 80}]}]
"""
NOBODY = "{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress]}"


@pytest.fixture
def agreed(network):
    """Asks the packet and the explanation, until both say what they should."""

    def ask(source, destination, port, *, allowed):
        what = f"{source.name} {'may' if allowed else 'may not'} reach {destination.name} at {port}"
        network.cluster.eventually(lambda: source.may(destination, port) is allowed, what, network.plugin.log_tail)
        assert network.explained(source.name, destination.name, port) is allowed, what

    return ask


def test_access_to_a_pod_follows_policies_labels_and_namespaces(network, agreed, a_pod, a_policy):
    network.up()
    network.cluster.apply(a_policy("web", WEB_FROM_GOOD))
    pods = [a_pod(name, labels={"app": name}) for name in ("web", "good", "other")]
    web, good, other = network.run(*pods).values()
    web.listen(80, 81)
    agreed(good, web, 80, allowed=True)
    for number, address in enumerate(web.ips):  # IPv6 too, where this machine has it
        assert good.may(address, 80, 30)
        assert not good.may(address, 81)
        assert not other.may(address, 80)
        assert network.explained(good.ips[number], address, 80)
        assert not network.explained("good", address, 81)
        assert not network.explained("other", address, 80)

    network.cluster.output("label", "pod", "other", "app=good", "--overwrite")
    agreed(other, web, 80, allowed=True)
    network.cluster.apply(a_policy("web", NOBODY))
    agreed(good, web, 80, allowed=False)
    network.cluster.output("delete", "networkpolicy", "web")
    agreed(good, web, 81, allowed=True)

    network.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "far"}})
    near = "ingress: [{from: [{namespaceSelector: {matchLabels: {near: 'yes'}}}]}]"
    near = f"{{podSelector: {{matchLabels: {{app: web}}}}, {near}}}"
    network.cluster.apply(a_policy("web", near))
    network.cluster.apply(a_pod("visitor", namespace="far"))
    visitor = network.peer("far/visitor")
    agreed(visitor, web, 80, allowed=False)
    network.cluster.output("label", "namespace", "far", "near=yes")
    agreed(visitor, web, 80, allowed=True)
    agreed(good, web, 80, allowed=False)

    network.cluster.delete_all()
    network.cluster.output("delete", "pod", "visitor", "-n", "far")
    network.cluster.eventually(lambda: not network.left(), "no address is left in the kernel")


def test_a_pod_is_isolated_from_its_first_packet_on(network, a_pod, a_policy):
    """Its own container tries as soon as it runs, again and again; nothing ever comes."""
    network.up()
    [target] = network.run(a_pod("target")).values()
    target.listen(80)
    network.cluster.apply(a_policy("shut", "{podSelector: {matchLabels: {app: shut}}, policyTypes: [Egress]}"))
    tries = f"for i in 1 2 3 4 5; do nc -w 1 {target.ip} 80 </dev/null && echo reached; done; echo over; sleep 10000"
    network.run(a_pod("shut", labels={"app": "shut"}, container={"command": ["sh", "-c", tries]}))
    network.run(a_pod("open", labels={"app": "open"}, container={"command": ["sh", "-c", tries]}))

    def logs(name):
        return network.cluster.output("logs", name)

    network.cluster.eventually(lambda: "over" in logs("shut"), "it has tried")
    network.cluster.eventually(lambda: "over" in logs("open"), "it has tried")
    assert "reached" in logs("open")
    assert "reached" not in logs("shut")
    network.cluster.delete_all()


def test_nothing_opens_when_the_api_server_is_away_or_plugin_and_runtime_start_again(network, agreed, a_pod, a_policy):
    network.up()
    cluster = network.cluster
    cluster.apply(a_policy("web", WEB_FROM_GOOD))
    pods = [a_pod(name, labels={"app": name}) for name in ("web", "good", "other")]
    web, good, other = network.run(*pods).values()
    web.listen(80)
    agreed(good, web, 80, allowed=True)
    kept = good.connect(web.ip, 80)

    cluster.signal("apiserver", signal.SIGSTOP)
    try:
        assert good.may(web, 80, 30)
        assert not other.may(web, 80)
    finally:
        cluster.signal("apiserver", signal.SIGCONT)

    network.plugin.kill()
    assert good.may(web, 80, 30)
    assert not other.may(web, 80)
    network.plugin.start()
    assert good.may(web, 80, 30)
    assert not other.may(web, 80)

    network.plugin.kill()
    cluster.apply(a_policy("web", WEB_FROM_GOOD.replace("good", "other")))
    network.plugin.start()
    agreed(other, web, 80, allowed=True)
    agreed(good, web, 80, allowed=False)
    kept.sendall(b"a connection from before goes on")
    assert kept.recv(64)
    kept.close()

    cluster.signal("runtime")
    assert not good.may(web, 80)
    cluster.eventually(cluster.is_up, "the runtime is back")
    cluster.eventually(lambda: network.plugin.page("readyz") == (200, "ok"), "the plugin is connected again")
    agreed(other, web, 80, allowed=True)
    agreed(good, web, 80, allowed=False)
    cluster.delete_all()
