"""The plugin as `podwire manifests` deploys it: a DaemonSet with privileged pods, which enter their neighbours."""

import pytest

from tests.stories.network import daemon_sets

pytestmark = pytest.mark.timeout(400)

KUBECONFIG = "/var/lib/podwire/identities/nri-network.kubeconfig"


def test_it_runs_as_a_daemon_set_and_pods_that_need_it_start_once_it_does(network, a_pod, a_policy):
    cluster = network.cluster
    file = cluster.prefix / "etc/podwire/nri.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("{default_validator: {required_plugins: [nri-network]}, grace: 1s}")
    network.up(plugin=False)
    others, daemon_set = daemon_sets.printed("nri-network", KUBECONFIG)
    name = f"daemonset/{daemon_set['metadata']['name']}"
    cluster.apply(*others)
    cluster.apply(a_policy("shut", "{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress]}"))
    cluster.apply(a_pod("web", labels={"app": "web"}))
    cluster.eventually(lambda: "is required for pod default/web" in network.events("web"), "web waits for the plugin")
    cluster.apply(daemon_set)

    def log():
        return cluster.kubectl("logs", name, "-n", "kube-system").stdout

    def ready():
        return network.plugin.page("readyz") == (200, "ok")

    cluster.eventually(ready, "the plugin is there", log)
    cluster.output("rollout", "status", name, "-n", "kube-system", "--timeout=60s")
    web, other = network.peer("web"), network.run(a_pod("other"))["other"]
    web.listen(80)
    assert not other.may(web, 80)
    cluster.output("delete", "networkpolicy", "shut")
    cluster.eventually(lambda: other.may(web, 80), "without the policy it is open", log)
    cluster.delete_all()
    cluster.output("delete", name, "-n", "kube-system", "--cascade=foreground")
