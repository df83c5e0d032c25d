"""The network driver as `podwire manifests` deploys it: a privileged pod that publishes what its node has, updated
without a moment in which there is none."""

import copy
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from podwire.runtime.images.build import ROOT_REFERENCE

pytestmark = pytest.mark.timeout(400)

KUBECONFIG = "/var/lib/podwire/identities/network-driver.kubeconfig"
PODWIRE = Path(sys.executable).with_name("podwire")
PROJECT = Path(__file__).parents[3]
NAMESPACE = "podwire"


def host_directories():
    """Where this interpreter and podwire are: the pod has them from the host, in the place of an image."""
    found = {"/usr": "/usr", "/lib": "/usr/lib", "/lib64": "/usr/lib64", str(PROJECT): str(PROJECT)}
    for each in (sys.prefix, sys.base_prefix):
        if not any(Path(each).is_relative_to(known) for known in found):
            found[each] = each
    return found


def as_a_pod(daemon_set, name):
    """What a controller makes of a DaemonSet, for the one node that there is."""
    template = copy.deepcopy(daemon_set["spec"]["template"])
    spec = template["spec"] | {"nodeName": "node-1", "automountServiceAccountToken": False}
    [container] = spec["containers"]
    container |= {"image": ROOT_REFERENCE, "command": [sys.executable, str(PODWIRE), "network-driver"]}
    for index, (inside, path) in enumerate(host_directories().items()):
        volume = f"host-{index}"
        spec["volumes"].append({"name": volume, "hostPath": {"path": path}})
        container["volumeMounts"].append({"name": volume, "mountPath": inside, "readOnly": True})
    meta = {"name": name, "namespace": NAMESPACE, **template["metadata"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def test_it_runs_as_a_pod_and_the_next_instance_is_ready_before_it_goes(network):
    cluster = network.cluster
    cluster.up()
    done = subprocess.run(
        [PODWIRE, "manifests", "network-driver", "--kubeconfig", KUBECONFIG], capture_output=True, text=True, check=True
    )
    manifests = list(yaml.safe_load_all(done.stdout))
    [daemon_set] = [manifest for manifest in manifests if manifest["kind"] == "DaemonSet"]
    cluster.apply(*manifests)

    def log(name):
        return lambda: cluster.kubectl("logs", name, "-n", NAMESPACE).stdout + network.events(name, NAMESPACE)

    def ready(name):
        pod = cluster.get("pod", name, "-n", NAMESPACE) or {"status": {}}
        conditions = {condition["type"]: condition["status"] for condition in pod["status"].get("conditions", ())}
        return conditions.get("Ready") == "True"

    def published():
        found = cluster.get("resourceslices", "--field-selector", "spec.driver=net.podwire.dev")
        return [item["metadata"]["uid"] for item in found["items"]] if found else []

    cluster.apply(as_a_pod(daemon_set, "old"))
    cluster.eventually(lambda: ready("old"), "the driver is ready", log("old"))
    cluster.eventually(published, "it has published a slice", log("old"))
    cluster.apply(as_a_pod(daemon_set, "new"))
    cluster.eventually(lambda: ready("new"), "the next instance is ready beside it", log("new"))
    assert ready("old"), log("old")()
    cluster.output("delete", "pod", "old", "-n", NAMESPACE)
    assert ready("new"), log("new")()
    assert published(), log("new")()
    cluster.output("delete", "pod", "new", "-n", NAMESPACE, "--grace-period=5")
