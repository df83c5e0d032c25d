"""Where `podwire network-driver explain` finds the cluster and the node, without a flag."""

import tempfile
from pathlib import Path

import pytest

from podwire.cluster.network_driver import Options
from podwire.cluster.up import state
from podwire.cluster.up.layout import Layout
from podwire.cluster.up.state import NodeRecord, State
from podwire.inspect import claim_explain
from podwire.inspect.claim_explain import ApiObjects, NoCluster, Node, choose_node, read_objects
from podwire.protocols.k8sapi.status import ApiError, Reason

NODES = tuple(Node(name=name, state=Path("/state")) for name in ("node-1", "node-2"))
KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: it
contexts: [{name: it, context: {cluster: it, user: me}}]
clusters: [{name: it, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: me, user: {token: t}}]
"""


@pytest.fixture
def prefix():
    """A cluster's prefix must be short."""
    with tempfile.TemporaryDirectory(prefix="pw-", dir="/tmp") as directory:
        yield Path(directory)


def explanation(*, pool="", driver="net.podwire.dev", bound=""):
    result = {"driver": driver, "pool": pool, "device": "lan1"}
    status = {"allocation": {"devices": {"results": [result]}}} if pool else {}
    pod = {"metadata": {"uid": "p1"}, "spec": {"nodeName": bound}}
    return ApiObjects({"status": {**status, "reservedFor": [{"uid": "p1"}]}}, [pod], ())


CHOICES = {
    "where its device is": (explanation(pool="node-2"), "", "node-2"),
    "where its pod is": (explanation(bound="node-2"), "", "node-2"),
    "of another driver's device the pod counts": (
        explanation(pool="gpu-1", driver="gpu", bound="node-2"),
        "",
        "node-2",
    ),
    "nobody knows": (explanation(), "", "node-1"),
    "on a node of another cluster": (explanation(pool="elsewhere"), "", "node-1"),
    "as it is asked": (explanation(pool="node-2"), "node-1", "node-1"),
}


@pytest.mark.parametrize(("about", "on", "node"), CHOICES.values(), ids=CHOICES)
def test_it_looks_where_the_claim_is(about, on, node):
    assert choose_node(NODES, about, on).name == node


def test_an_unknown_node_is_refused_with_the_known_nodes():
    with pytest.raises(NoCluster, match="no node node-9; the nodes are node-1, node-2"):
        choose_node(NODES, explanation(), "node-9")


def test_without_a_cluster_the_error_names_the_prefix(prefix):
    with pytest.raises(NoCluster, match=f"no cluster below {prefix}; `podwire up` creates one"):
        claim_explain.find_cluster(prefix, {})


def test_it_finds_the_nodes_of_a_cluster_with_its_prefix(prefix):
    layout = Layout(prefix)
    state.save(layout.record, State(slot=1, nodes=(NodeRecord(name="node-1", number=1, own=False),)))
    layout.kubeconfig.write_text(KUBECONFIG)
    cluster = claim_explain.find_cluster(prefix, {})
    assert cluster.access.server == "http://127.0.0.1:1"
    assert cluster.nodes == (Node(name="node-1", state=prefix / "var/lib/podwire/network-driver"),)


@pytest.mark.parametrize(
    ("options", "environ", "named"),
    [
        (Options(node="n"), {}, False),
        (Options(node="n", kubeconfig=Path("/k")), {}, True),
        (Options(node="n"), {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, True),
    ],
    ids=["nothing is said", "a kubeconfig", "in a pod"],
)
def test_flags_and_the_pods_own_account_come_first(options, environ, named):
    assert claim_explain.has_access(options, environ) is named


class Restricted:
    """A client that may get pods and not list them, as a driver."""

    async def list(self, _kind, _scope):
        raise ApiError(Reason.FORBIDDEN, "pods is forbidden")

    async def get(self, _kind, name, _namespace):
        if name == "gone":
            raise ApiError(Reason.NOT_FOUND, "gone")
        return {"metadata": {"name": name}}


async def test_with_the_identity_of_a_driver_the_pods_of_the_claim_are_read_one_by_one():
    owner = {"kind": "Pod", "name": "owner"}
    reserved = [{"name": "user"}, {"name": "gone"}]
    claim = {"metadata": {"ownerReferences": [owner]}, "status": {"reservedFor": reserved}}

    objects = await read_objects(Restricted(), claim, "default")

    assert [pod["metadata"]["name"] for pod in objects.pods] == ["user", "owner"]
    assert objects.events == ()
