"""Two clusters on one machine: neither reaches pods, nodes or API server of the other; the host reaches both."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.stories.machine_support import Cluster, Machine

CONNECTED, REFUSED, TIMED_OUT = 0, 7, 28
"""Exit codes of curl."""


@pytest.fixture(scope="module")
def clusters() -> Iterator[tuple[Cluster, Cluster]]:
    with ExitStack() as stack:
        machine = Machine()
        stack.callback(machine.close)
        one, other = Cluster(machine), Cluster(machine)
        for cluster in (one, other):
            stack.callback(cluster.close)
            cluster.up()
            cluster.run_pod()
        yield one, other


def addresses(cluster: Cluster) -> dict[str, list[str]]:
    """The addresses of a cluster with a port that somebody listens on."""
    status, pods = cluster.status(), cluster.kubectl("get", "pod", "web", "-o", "jsonpath={.status.podIPs[*].ip}")
    node = status["nodes"][0]["addresses"]
    port = int(status["apiServer"].rpartition(":")[2])
    return {
        "pod": [url("http", ip, 80) for ip in pods.split()],
        "kubelet": [url("https", ip, 10250) for ip in node],
        "API server": [url("https", gateway(ip), port) for ip in node],
    }


def gateway(node: str) -> str:
    """The host's address on the bridge of a cluster, from that of its first node."""
    return node.removesuffix("2") + "1"


def url(scheme: str, ip: str, port: int) -> str:
    return f"{scheme}://[{ip}]:{port}/" if ":" in ip else f"{scheme}://{ip}:{port}/"


def reaches(cluster: Cluster, where: str, target: str) -> bool:
    """Whether packets arrive: a connection is made or refused. Where is the host, the node, or the pod's netns."""
    words = ["curl", "-sk", "-o", "/dev/null", "-m", "2", target]
    script = 'exec nsenter --net="$(ls /run/netns/* | head -n 1)" "$@"'
    entered = words if where == "node" else ["sh", "-c", script, "sh", *words]
    on_host = where == "host"
    done = cluster.machine.run(*words) if on_host else cluster.podwire("node exec", "node-1", "--", *entered)
    assert done.returncode in (CONNECTED, REFUSED, TIMED_OUT), done
    return done.returncode != TIMED_OUT


@pytest.mark.parametrize("kind", ["pod", "kubelet", "API server"])
def test_a_cluster_does_not_reach_the_other_and_reaches_itself(clusters: tuple[Cluster, Cluster], kind: str):
    for one, other in (clusters, clusters[::-1]):
        assert len(addresses(one)[kind]) == 2, "of both families"
        for target in addresses(one)[kind]:
            assert reaches(one, "host", target), f"the host reaches {target}"
            assert reaches(one, "node", target), f"its own node reaches {target}"
            assert reaches(one, "pod", target), f"its own pod reaches {target}"
            assert not reaches(other, "node", target), f"a node of the other cluster reaches {target}"
            assert not reaches(other, "pod", target), f"a pod of the other cluster reaches {target}"


def test_a_cluster_that_leaves_does_not_open_the_other(clusters: tuple[Cluster, Cluster]):
    one, other = clusters
    target = addresses(one)["pod"][0]
    other.down()
    other.up()
    other.run_pod()
    assert not reaches(other, "pod", target)
    assert reaches(one, "host", target)
