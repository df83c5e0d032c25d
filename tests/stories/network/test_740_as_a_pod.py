"""The plugin as `podwire manifests` deploys it: a privileged pod on the host's network, which enters its neighbours."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from podwire.runtime.images.build import ROOT_REFERENCE

pytestmark = pytest.mark.timeout(400)

KUBECONFIG = "/var/lib/podwire/identities/nri-network.kubeconfig"
PODWIRE = Path(sys.executable).with_name("podwire")
PROJECT = Path(__file__).parents[3]


def host_directories():
    """Where this interpreter and podwire are: the pod has them from the host, in the place of an image."""
    found = {"/usr": "/usr", "/lib": "/usr/lib", "/lib64": "/usr/lib64", str(PROJECT): str(PROJECT)}
    for each in (sys.prefix, sys.base_prefix):
        if not any(Path(each).is_relative_to(known) for known in found):
            found[each] = each
    return found


def as_a_pod(daemon_set):
    """What a controller makes of a DaemonSet, for the one node that there is."""
    template = daemon_set["spec"]["template"]
    spec = template["spec"] | {"nodeName": "node-1", "automountServiceAccountToken": False}
    [container] = spec["containers"]
    container |= {"image": ROOT_REFERENCE, "command": [sys.executable, str(PODWIRE), "nri-network"]}
    for index, (inside, path) in enumerate(host_directories().items()):
        name = f"host-{index}"
        spec["volumes"].append({"name": name, "hostPath": {"path": path}})
        container["volumeMounts"].append({"name": name, "mountPath": inside, "readOnly": True})
    meta = {"name": "plugin", "namespace": daemon_set["metadata"]["namespace"], **template["metadata"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def test_it_runs_as_a_pod_and_pods_that_need_it_start_once_it_does(network, a_pod, a_policy):
    cluster = network.cluster
    file = cluster.prefix / "etc/podwire/nri.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("{default_validator: {required_plugins: [nri-network]}, grace: 1s}")
    network.up(plugin=False)
    done = subprocess.run(
        [PODWIRE, "manifests", "nri-network", "--kubeconfig", KUBECONFIG], capture_output=True, text=True, check=True
    )
    manifests = list(yaml.safe_load_all(done.stdout))
    [daemon_set] = [manifest for manifest in manifests if manifest["kind"] == "DaemonSet"]
    cluster.apply(*manifests)
    cluster.apply(a_policy("shut", "{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress]}"))
    cluster.apply(a_pod("web", labels={"app": "web"}))
    cluster.eventually(lambda: "is required for pod default/web" in network.events("web"), "web waits for the plugin")
    cluster.apply(as_a_pod(daemon_set))

    def log():
        return cluster.kubectl("logs", "plugin", "-n", "kube-system").stdout

    def ready():
        return network.plugin.page("readyz") == (200, "ok")

    cluster.eventually(ready, "the plugin is there", lambda: log() + network.events("plugin", "kube-system"))
    web, other = network.peer("web"), network.run(a_pod("other"))["other"]
    web.listen(80)
    assert not other.may(web, 80)
    cluster.output("delete", "networkpolicy", "shut")
    cluster.eventually(lambda: other.may(web, 80), "without the policy it is open", log)
    cluster.delete_all()
    cluster.output("delete", "pod", "plugin", "-n", "kube-system", "--grace-period=5")
