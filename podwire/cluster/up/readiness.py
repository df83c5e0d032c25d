"""Waits, by a watch, until a node says that it is ready."""

from pathlib import Path

from podwire.objects import nodes, times
from podwire.objects.nodes import Condition
from podwire.protocols.k8sapi.client_side import Client, Scope
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.watch import Added, Updated
from podwire.transports import credentials, http_client

NODES = Kind(group="", version="v1", resource="nodes", kind="Node", namespaced=False)


async def until_ready(kubeconfig: Path, name: str, since: float) -> None:
    """`since` is when its kubelet was started: what the node said before that is old."""
    access = credentials.load(kubeconfig)
    async with http_client.connect(access, user_agent="podwire-up") as http:
        scope = Scope(field_selector=f"metadata.name={name}")
        async with Client(http).informer(NODES, scope) as informer:
            async for change in informer:
                if isinstance(change, Added | Updated):
                    found = nodes.read(change.object).condition("Ready")
                    if is_ready(found, since, seen_before=isinstance(change, Added)):
                        return


def is_ready(condition: Condition | None, since: float, *, seen_before: bool) -> bool:
    """Whether it is ready now. What was there when the watch began counts if it is as young as the kubelet; what has
    changed since then counts whatever the clocks say."""
    if condition is None or condition.status != "True":
        return False
    if not seen_before:
        return True
    told = condition.last_heartbeat_time
    return told is not None and times.parse(told) >= int(since)
