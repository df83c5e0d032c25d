"""Waits, by a watch, until a node says that it is ready."""

from pathlib import Path

from podwire.objects import nodes
from podwire.protocols.k8sapi.client_side import Client, Scope
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.watch import Added, Object, Updated
from podwire.transports import credentials, http_client

NODES = Kind(group="", version="v1", resource="nodes", kind="Node", namespaced=False)


async def until_ready(kubeconfig: Path, name: str) -> None:
    access = credentials.load(kubeconfig)
    async with http_client.connect(access, user_agent="podwire-up") as http:
        scope = Scope(field_selector=f"metadata.name={name}")
        async with Client(http).informer(NODES, scope) as informer:
            async for change in informer:
                if isinstance(change, Added | Updated) and is_ready(change.object):
                    return


def is_ready(object_: Object) -> bool:
    condition = nodes.read(object_).condition("Ready")
    return condition is not None and condition.status == "True"
