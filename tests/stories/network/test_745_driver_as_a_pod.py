"""The network driver as `podwire manifests` deploys it: a DaemonSet whose pods publish what their node has, updated
without a moment in which nobody serves the kubelet."""

import json
import subprocess

import pytest

from tests.stories.network import daemon_sets

pytestmark = pytest.mark.timeout(400)

KUBECONFIG = "/var/lib/podwire/identities/network-driver.kubeconfig"
NAMESPACE = "podwire"


def test_it_runs_as_a_daemon_set_and_the_next_instance_is_ready_before_it_goes(network):
    cluster = network.cluster
    cluster.up()
    others, daemon_set = daemon_sets.printed("network-driver", KUBECONFIG)
    name = f"daemonset/{daemon_set['metadata']['name']}"
    labels = ",".join(f"{key}={value}" for key, value in daemon_set["spec"]["selector"]["matchLabels"].items())
    cluster.apply(*others, daemon_set)

    def log():
        return cluster.kubectl("logs", name, "-n", NAMESPACE).stdout

    def ready():
        """Returns the uids of the pods that are ready."""
        pods = cluster.get("pods", "-n", NAMESPACE, "-l", labels) or {"items": []}
        return {
            pod["metadata"]["uid"]
            for pod in pods["items"]
            for condition in pod["status"].get("conditions", ())
            if (condition["type"], condition["status"]) == ("Ready", "True")
        }

    def published():
        slices = cluster.get("resourceslices", "--field-selector", "spec.driver=net.podwire.dev")
        return [item["metadata"]["uid"] for item in slices["items"]] if slices else []

    cluster.output("rollout", "status", name, "-n", NAMESPACE, "--timeout=60s")
    cluster.eventually(published, "it has published a slice", log)
    [old] = ready()

    seen = []

    def replaced():
        seen.append(ready())
        return seen[-1] and old not in seen[-1]

    change = {"spec": {"template": {"metadata": {"annotations": {"example.com/update": "1"}}}}}
    cluster.output("patch", name, "-n", NAMESPACE, "-p", json.dumps(change))
    cluster.eventually(replaced, "the next instance has replaced it", log)
    cluster.output("rollout", "status", name, "-n", NAMESPACE, "--timeout=60s")
    assert all(seen), "an instance was ready at any time"
    assert published(), log()
    cluster.output("delete", name, "-n", NAMESPACE, "--cascade=foreground")


def test_it_runs_from_the_image_of_podwire_with_its_service_account(network):
    cluster = network.cluster
    cluster.up("--hardware", "sriov")
    words = [daemon_sets.PODWIRE, "image", "build-root", "--podwire", "--prefix", cluster.prefix]
    built = subprocess.run(words, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    words = [daemon_sets.PODWIRE, "manifests", "network-driver", "--image", "podwire.local/podwire:latest"]
    manifests = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    cluster.output("apply", "-f", "-", given=manifests)
    name = "daemonset/podwire-network-driver"
    cluster.output("rollout", "status", name, "-n", NAMESPACE, "--timeout=120s")

    def published():
        slices = cluster.get("resourceslices", "--field-selector", "spec.driver=net.podwire.dev")
        return [device["name"] for item in slices["items"] for device in item["spec"].get("devices", ())]

    cluster.eventually(published, "its devices are published", cluster.logs)
    version = cluster.output("exec", name, "-n", NAMESPACE, "--", "podwire", "--version")
    assert version.startswith("podwire ")
    cluster.output("delete", name, "-n", NAMESPACE, "--cascade=foreground")
