"""Waits, with a watch, until nodes are Ready."""

from collections.abc import Collection, Iterable
from pathlib import Path

from podwire.objects import nodes, times
from podwire.objects.nodes import Condition
from podwire.protocols.k8sapi.client_side import Client, Scope
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.watch import Added, Updated
from podwire.transports import credentials, http_client

NODES = Kind(group="", version="v1", resource="nodes", kind="Node", namespaced=False)


async def until_ready(kubeconfig: Path, names: Iterable[str], since: float) -> None:
    """`since` is when the kubelets were started: an older status of a node does not count."""
    access, left = credentials.load(kubeconfig), set(names)
    async with (
        http_client.connect(access, user_agent="podwire-up") as http,
        Client(http).informer(NODES, _scope(left)) as informer,
    ):
        async for change in informer:
            if isinstance(change, Added | Updated):
                node = nodes.read(change.object)
                if is_ready(node.condition("Ready"), since, seen_before=isinstance(change, Added)):
                    left.discard(node.name)
            if not left:
                return


def _scope(names: Collection[str]) -> Scope:
    """Selects one node, or all."""
    return Scope(field_selector=f"metadata.name={next(iter(names))}") if len(names) == 1 else Scope()


def is_ready(condition: Condition | None, since: float, *, seen_before: bool) -> bool:
    """Whether the condition is current and true.

    A node that existed when the watch began counts if its heartbeat is as recent as the kubelet; later changes always
    count, whatever the clocks say.
    """
    if condition is None or condition.status != "True":
        return False
    if not seen_before:
        return True
    heartbeat = condition.last_heartbeat_time
    return heartbeat is not None and times.parse(heartbeat) >= int(since)
