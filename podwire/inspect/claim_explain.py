"""Explains the state of a claim: finds the cluster, the node to look at, and what is there."""

import asyncio
import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
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
from podwire.protocols.k8sapi.status import ApiError
from podwire.transports import credentials, http_client

BUSY_SECONDS = 5.0
"""Timeout for a driver that is working on claims."""
IN_A_POD = "KUBERNETES_SERVICE_HOST"
_HERE = Layout(Path("/"))


class NoCluster(Exception):
    """No cluster or node was found; says where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    name: str
    state: Path
    """Directory of its driver, as the node sees it."""
    kubelet: Path = KUBELET
    space: NodeNamespaces | None = None
    """None: this process is on the node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    access: Access
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class ApiObjects:
    """The objects of the API server that explain a claim."""

    claim: Object
    pods: Sequence[Object]
    events: Sequence[Object]


def cluster_of_options(options: Options) -> Cluster:
    """Returns the cluster of the options, or of the pod in which this runs: this node only. Raises BadKubeconfig."""
    node = Node(name=options.node, state=options.state, kubelet=options.kubelet)
    return Cluster(access=access_of(options), nodes=(node,))


def has_access(options: Options, environ: Mapping[str, str] = os.environ) -> bool:
    return options.kubeconfig is not None or IN_A_POD in environ


def find_cluster(prefix: Path, environ: Mapping[str, str] = os.environ) -> Cluster:
    """Returns the cluster of `podwire up`. Raises NoCluster, BadPrefix, NewerFormat, BrokenState, BadKubeconfig."""
    layout = layout_of(prefix)
    if layout.is_default and (name := environ.get(tracing.NODE)) and _identity(_HERE).exists():
        node = Node(name=name, state=_HERE.state / "network-driver")
        return Cluster(access=credentials.load(_identity(_HERE)), nodes=(node,))
    known = state.load(layout.record)
    if known is None:
        raise NoCluster(f"no cluster below {layout.prefix}; `podwire up` creates one, --kubeconfig names another")
    nodes = tuple(_node(layout, node) for node in known.nodes)
    return Cluster(access=credentials.load(layout.kubeconfig), nodes=nodes)


def _identity(layout: Layout) -> Path:
    return layout.identity("network-driver")


def _node(layout: Layout, record: NodeRecord) -> Node:
    inside = _HERE if record.own else layout
    space = NodeNamespaces(layout, record.name) if record.own else None
    return Node(name=record.name, state=inside.state / "network-driver", space=space)


def explain(cluster: Cluster, namespace: str, name: str, *, on: str = "") -> list[str]:
    """Returns lines for people; `on` is the node to look at (default: the node of the claim).

    Raises ApiError, ClientError, OSError, NoCluster. Blocks.
    """
    objects = asyncio.run(_read_objects(cluster.access, namespace, name))
    node = choose_node(cluster.nodes, objects, on)
    sight = _seen(node, objects.claim["metadata"]["uid"])
    return explained(objects.claim, pods=objects.pods, events=objects.events, node=node.name, sight=sight)


async def _read_objects(access: Access, namespace: str, name: str) -> ApiObjects:
    async with http_client.connect(access, user_agent=COMPONENT) as http:
        client = Client(http)
        claim = await client.get(CLAIMS, name, namespace)
        return await read_objects(client, claim, namespace)


async def read_objects(client: Client, claim: Object, namespace: str) -> ApiObjects:
    """Returns a claim with the pods and events of its namespace.

    A driver may not list them: of the pods it reads those that use the claim, and events are left out.
    """
    within = Scope(namespace=namespace)
    try:
        return ApiObjects(claim, (await client.list(PODS, within)).items, (await client.list(EVENTS, within)).items)
    except ApiError as error:
        if error.code != HTTPStatus.FORBIDDEN:
            raise
    reserved = (claim.get("status") or {}).get("reservedFor") or ()
    owners = (owner for owner in claim["metadata"].get("ownerReferences") or () if owner.get("kind") == "Pod")
    names = dict.fromkeys(reference["name"] for reference in (*reserved, *owners))
    pods = []
    for name in names:
        with contextlib.suppress(ApiError):  # deleted meanwhile
            pods.append(await client.get(PODS, name, namespace))
    return ApiObjects(claim, pods, ())


def choose_node(nodes: Sequence[Node], objects: ApiObjects, on: str) -> Node:
    """Returns the node of the claim's devices, else of its pods, else the first. Raises NoCluster."""
    by_name = {node.name: node for node in nodes}
    if on and on not in by_name:
        raise NoCluster(f"no node {on}; the nodes are {', '.join(by_name)}")
    allocation = (objects.claim.get("status") or {}).get("allocation") or {}
    reserved = {reference["uid"] for reference in (objects.claim.get("status") or {}).get("reservedFor") or ()}
    candidates = [
        on,
        *(
            result["pool"]
            for result in (allocation.get("devices") or {}).get("results") or ()
            if result["driver"] == DRIVER
        ),
        *(pod["spec"].get("nodeName") or "" for pod in objects.pods if pod["metadata"]["uid"] in reserved),
    ]
    return next((by_name[name] for name in candidates if name in by_name), nodes[0])


def _seen(node: Node, uid: str) -> Sight:
    """Raises OSError, NoCluster. Blocks."""
    if node.space is None:
        return asyncio.run(_look(node, uid))
    if not node.space.exists():
        raise NoCluster(f"the namespaces of {node.name} do not exist; `podwire up` creates them")
    return node.space.inside(lambda: asyncio.run(_look(node, uid)))


async def _look(node: Node, uid: str) -> Sight:
    """Runs in the calling thread, which is on the node."""
    try:
        async with InstanceLock(sockets(node.kubelet, DRIVER).lock).held(patience=BUSY_SECONDS):
            return seen_on_host(node.state, uid)
    except Busy as busy:
        return Sight(unknown=str(busy))
