"""What became of a claim, asked for by hand: where the cluster is, on which node to look, what is seen there."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from podwire.cluster import tracing
from podwire.cluster.network_driver import KUBELET, Options, access_of
from podwire.cluster.up import state
from podwire.cluster.up.layout import Layout, layout_of
from podwire.cluster.up.node_namespaces import NodeNamespaces
from podwire.cluster.up.state import NodeRecord
from podwire.dradriver.claims.explanation import Object, Sight, explained, seen_on_host
from podwire.dradriver.instances import Busy, InstanceLock
from podwire.dradriver.names import CLAIMS, COMPONENT, DRIVER, EVENTS, PODS
from podwire.dradriver.publish.sockets import sockets
from podwire.protocols.k8sapi.client_side import Client, Scope
from podwire.protocols.k8sapi.kubeconfig import Access
from podwire.transports import credentials, http_client

BUSY_SECONDS = 5.0
"""How long whoever works for claims is waited for."""
IN_A_POD = "KUBERNETES_SERVICE_HOST"
_HERE = Layout(Path("/"))


class NoCluster(Exception):
    """There is nobody to ask; says what was looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    name: str
    state: Path
    """Of its driver, as the node sees it."""
    kubelet: Path = KUBELET
    space: NodeNamespaces | None = None
    """None: this process is on the node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    access: Access
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Told:
    """What the API server has."""

    claim: Object
    pods: Sequence[Object]
    events: Sequence[Object]


def named(options: Options) -> Cluster:
    """By flags, or by the pod that this is: this node alone. Raises BadKubeconfig."""
    node = Node(name=options.node, state=options.state, kubelet=options.kubelet)
    return Cluster(access=access_of(options), nodes=(node,))


def is_named(options: Options, environ: Mapping[str, str] = os.environ) -> bool:
    return options.kubeconfig is not None or IN_A_POD in environ


def found(prefix: Path, environ: Mapping[str, str] = os.environ) -> Cluster:
    """Of `podwire up`. Raises NoCluster, BadPrefix, NewerState, BrokenState, BadKubeconfig."""
    layout = layout_of(prefix)
    if layout.is_default and (name := environ.get(tracing.NODE)) and _identity(_HERE).exists():
        node = Node(name=name, state=_HERE.state / "network-driver")
        return Cluster(access=credentials.load(_identity(_HERE)), nodes=(node,))
    known = state.load(layout.record)
    if known is None:
        raise NoCluster(
            f"there is no cluster below {layout.prefix}; `podwire up` makes one, --kubeconfig names another"
        )
    nodes = tuple(_node(layout, node) for node in known.nodes)
    return Cluster(access=credentials.load(layout.kubeconfig), nodes=nodes)


def _identity(layout: Layout) -> Path:
    return layout.identity("network-driver")


def _node(layout: Layout, record: NodeRecord) -> Node:
    inside = _HERE if record.own else layout
    space = NodeNamespaces(layout, record.name) if record.own else None
    return Node(name=record.name, state=inside.state / "network-driver", space=space)


def explain(cluster: Cluster, namespace: str, name: str, *, on: str = "") -> list[str]:
    """Lines for people; `on` is the node to look at, without it the one that the claim is on.

    Raises ApiError, ClientError, OSError, NoCluster. Blocks.
    """
    told = asyncio.run(_told(cluster.access, namespace, name))
    node = chosen(cluster.nodes, told, on)
    sight = _seen(node, told.claim["metadata"]["uid"])
    return explained(told.claim, pods=told.pods, events=told.events, node=node.name, sight=sight)


async def _told(access: Access, namespace: str, name: str) -> Told:
    async with http_client.connect(access, user_agent=COMPONENT) as http:
        client, within = Client(http), Scope(namespace=namespace)
        claim = await client.get(CLAIMS, name, namespace)
        return Told(claim, (await client.list(PODS, within)).items, (await client.list(EVENTS, within)).items)


def chosen(nodes: Sequence[Node], told: Told, on: str) -> Node:
    """Where the claim's devices are, else where its pods are; if nobody knows, the first. Raises NoCluster."""
    by_name = {node.name: node for node in nodes}
    if on and on not in by_name:
        raise NoCluster(f"there is no node {on}; there is {', '.join(by_name)}")
    allocation = (told.claim.get("status") or {}).get("allocation") or {}
    reserved = {reference["uid"] for reference in (told.claim.get("status") or {}).get("reservedFor") or ()}
    wanted = [
        on,
        *(
            result["pool"]
            for result in (allocation.get("devices") or {}).get("results") or ()
            if result["driver"] == DRIVER
        ),
        *(pod["spec"].get("nodeName") or "" for pod in told.pods if pod["metadata"]["uid"] in reserved),
    ]
    return next((by_name[name] for name in wanted if name in by_name), nodes[0])


def _seen(node: Node, uid: str) -> Sight:
    """Raises OSError, NoCluster. Blocks."""
    if node.space is None:
        return asyncio.run(_look(node, uid))
    if not node.space.stands():
        raise NoCluster(f"the namespaces of {node.name} are not there; `podwire up` makes them")
    return node.space.inside(lambda: asyncio.run(_look(node, uid)))


async def _look(node: Node, uid: str) -> Sight:
    """In the calling thread, which is on the node."""
    try:
        async with InstanceLock(sockets(node.kubelet, DRIVER).lock).held(patience=BUSY_SECONDS):
            return seen_on_host(node.state, uid)
    except Busy as busy:
        return Sight(unknown=str(busy))
