"""The plugin among others, a bad moment to restart, and what is left when pods are gone: nothing."""

import signal
import subprocess

import pytest

pytestmark = pytest.mark.timeout(400)

WEB_FROM_GOOD = """
podSelector: {matchLabels: {app: web}}
ingress: [{from: [{podSelector: {matchLabels: {app: good}}}]}]
"""
ROUTE = "{podSelector: {}, routes: [{destinations: [10.70.0.0/16], via: 10.99.0.1, onLink: true}]}"
MESH = "{podSelector: {}, proxy: {uid: 1337}, outbound: {port: 15001, excludePorts: [80]}}"


class Logger:
    """Another plugin on the same runtime."""

    def __init__(self, network):
        self.log = network.directory / "logger.log"
        words = [network.cluster.program, "nri", "logger", "--socket", network.cluster.prefix / "run/nri/nri.sock"]
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(network.cluster.space.command(*words), stdout=log, stderr=log)
        network.cluster.eventually(lambda: "synchronized" in self.log.read_text(), "the logger is there")

    def close(self):
        self._child.kill()
        self._child.wait()


def test_a_plugin_restarted_while_the_api_server_is_stopped_opens_nothing(network, a_pod, a_policy):
    network.up()
    cluster = network.cluster
    cluster.apply(a_policy("web", WEB_FROM_GOOD))
    pods = [a_pod(name, labels={"app": name}) for name in ("web", "good", "other", "leaving")]
    web, good, other, _ = network.run(*pods).values()
    web.listen(80)
    assert good.may(web, 80, 30)
    assert not other.may(web, 80)
    [leaving] = cluster.sandboxes()["leaving"]
    held = network.content()["self4"]
    network.plugin.kill()
    for name in ("kubelet", "apiserver"):
        cluster.signal(name, signal.SIGSTOP)
    try:
        network.plugin.start(ready=False)
        cluster.eventually(lambda: network.plugin.page("healthz") == (200, "ok"), "it lives", network.plugin.log_tail)
        cluster.eventually(
            lambda: "no runtime" not in network.plugin.page("readyz")[1], "it is connected", network.plugin.log_tail
        )
        assert network.plugin.page("readyz")[0] == 503, "it has received nothing"
        cluster.cri("StopPodSandbox", pod_sandbox_id=leaving)
        assert network.content()["self4"] == held - 1, "what is freed is freed"
        assert not other.may(web, 80)
        assert good.may(web, 80, 30)
    finally:
        for name in ("kubelet", "apiserver"):
            cluster.signal(name, signal.SIGCONT)
    cluster.eventually(lambda: network.plugin.page("readyz") == (200, "ok"), "it is ready", network.plugin.log_tail)
    assert not other.may(web, 80)
    assert good.may(web, 80, 30)
    cluster.delete_all()


def test_two_plugins_in_one_chain_and_nothing_is_left_behind(network, a_pod, a_policy, a_resource):
    network.up()
    cluster = network.cluster
    logger = Logger(network)
    try:
        cluster.apply(a_policy("web", WEB_FROM_GOOD), a_resource("PodRoute", "all", ROUTE))
        cluster.apply(a_resource("PodMesh", "all", MESH))
        pods = [a_pod(name, labels={"app": name}) for name in ("web", "good", "other")]
        web, good, other = network.run(*pods).values()
        web.listen(80)
        assert good.may(web, 80, 30)
        assert not other.may(web, 80)
        assert "RunPodSandbox" in logger.log.read_text()
        verdicts = network.plugin.page("metrics")[1]
        assert 'verdicts_total{namespace="default",pod="web",direction="Ingress",verdict="denied"}' in verdicts
        for item in (web, good, other):
            item.close()
        cluster.delete_all()
        cluster.eventually(lambda: not network.left(), "no element is left in the kernel")
    finally:
        logger.close()
    assert network.plugin.stop() == 0
    cluster.empty()
    assert "podwire-policy" in network.tables()
    words = ["node", "exec", "--prefix", cluster.prefix, "node-1", "--", cluster.program, "nri-network", "--remove"]
    done = cluster.space.run(cluster.program, *words)
    assert done.stdout == "removed; namespaces: 1\n", done.stderr
    assert "podwire-policy" not in network.tables()
    cluster.down()
