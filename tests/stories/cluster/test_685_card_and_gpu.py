"""Devices of two drivers together: `matchAttribute` on the PCIe root gives a pod a card and a GPU that belong together.

The hardware is simulated; the drivers, the scheduler, the kubelet and the packets are not.
"""

import json

import pytest

from podwire.runtime.images.build import ROOT_REFERENCE

NET, GPU = "net.podwire.dev", "gpu.podwire.dev"
ROOT = "resource.kubernetes.io/pcieRoot"
CARDS = 8
SERVING = 'mkdir /www && echo "$HOSTNAME" >/www/index.html && exec httpd -f -p 80 -h /www'
pytestmark = pytest.mark.timeout(400)

CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "rails"},
    "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{NET}" && device.attributes["{NET}"].rdma'}}]},
}


def claim(number):
    """A card and a GPU below one root; the card is `net1` in the pod."""
    parameters = {
        "apiVersion": "net.podwire.dev/v1alpha1",
        "kind": "InterfaceParameters",
        "interface": {"name": "net1", "addresses": [f"192.0.2.{number + 1}/24"]},
    }
    devices = {
        "requests": [
            {"name": "nic", "exactly": {"deviceClassName": "rails"}},
            {"name": "gpu", "exactly": {"deviceClassName": GPU}},
        ],
        "constraints": [{"requests": ["nic", "gpu"], "matchAttribute": ROOT}],
        "config": [{"requests": ["nic"], "opaque": {"driver": NET, "parameters": parameters}}],
    }
    meta = {"name": f"pair-{number}"}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": meta,
        "spec": {"devices": devices},
    }


def pod(number):
    container = {
        "name": "main",
        "image": ROOT_REFERENCE,
        "command": ["sh", "-c", SERVING],
        "resources": {"claims": [{"name": "pair"}]},
    }
    spec = {
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "resourceClaims": [{"name": "pair", "resourceClaimName": f"pair-{number}"}],
        "containers": [container],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"pod-{number}"}, "spec": spec}


def devices(cluster):
    """Devices offered: attributes by driver and name."""
    found = cluster.get("resourceslices") or {"items": []}
    return {
        (item["spec"]["driver"], device["name"]): device["attributes"]
        for item in found["items"]
        for device in item["spec"].get("devices") or ()
    }


def given(cluster, number):
    """The devices of a claim, by request."""
    status = cluster.get("resourceclaim", f"pair-{number}")["status"]
    return {
        result["request"]: (result["driver"], result["device"]) for result in status["allocation"]["devices"]["results"]
    }


def links(cluster):
    words = ("node", "exec", "--prefix", cluster.prefix, "node-1", "--", "ip", "-j", "link")
    done = cluster.space.run(cluster.program, *words)
    assert done.returncode == 0, done.stderr
    return {item["ifname"]: item["address"] for item in json.loads(done.stdout) if item["ifname"].startswith("rail")}


def test_each_pod_has_a_card_and_a_gpu_below_the_same_root(cluster):
    cluster.up("--hardware", "two-numa", "--network-driver")
    cluster.eventually(lambda: len(devices(cluster)) == 2 * CARDS, "both drivers offer", cluster.logs)
    offered, before = devices(cluster), links(cluster)
    numbers = range(CARDS)
    cluster.apply(CLASS, *map(claim, numbers), *map(pod, numbers))
    cluster.running(CARDS)
    roots = set()
    for number in numbers:
        has = given(cluster, number)
        nic, gpu = offered[has["nic"]], offered[has["gpu"]]
        assert (has["nic"][0], has["gpu"][0]) == (NET, GPU)
        assert nic[ROOT] == gpu[ROOT]
        roots.add(nic[ROOT]["string"])
        said = cluster.output("exec", f"pod-{number}", "--", "sh", "-c", "env; cat /sys/class/net/net1/address")
        index = has["gpu"][1].rpartition("-")[2]
        assert f"PODWIRE_GPU_{index}={gpu['uuid']['string']}\n" in said
        assert said.split()[-1] == nic["mac"]["string"]
    assert len(roots) == CARDS
    assert links(cluster) == {}
    page = cluster.output("exec", "pod-0", "--", "wget", "-qO-", "http://192.0.2.8/")
    assert page.strip() == "pod-7", "packets go from card to card"
    cluster.delete_all()
    cluster.eventually(lambda: links(cluster) == before, "all cards are back", cluster.logs)
    cluster.down()
