"""The CSI drivers of this node in the API: the object CSINode, and topology labels of the Node."""

import asyncio
from collections.abc import Callable, Mapping

from podwire.objects.nodes import Node
from podwire.protocols.csi import csi_pb2 as pb
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object

CSI_NODES = Kind(group="storage.k8s.io", version="v1", resource="csinodes", kind="CSINode", namespaced=False)
NODES = Kind(group="", version="v1", resource="nodes", kind="Node", namespaced=False)
MAX_COUNT = 2**31 - 1
_ATTEMPTS = 5


class NodeInfo:
    """`node` is the Node as the API has it; `registered` is set when it has been there."""

    def __init__(self, api: Client, name: str, node: Callable[[], Node | None], registered: asyncio.Event) -> None:
        self._api = api
        self._name = name
        self._node = node
        self._registered = registered
        self._lock = asyncio.Lock()

    async def add_driver(self, driver: str, info: pb.NodeGetInfoResponse) -> None:
        """Label the Node, then list the driver. Raises ApiError, ClientError; ValueError for labels that differ."""
        await self._registered.wait()
        topology = dict(info.accessible_topology.segments)
        entry: Object = {"name": driver, "nodeID": info.node_id, "topologyKeys": sorted(topology) or None}
        if info.max_volumes_per_node > 0:
            entry["allocatable"] = {"count": min(info.max_volumes_per_node, MAX_COUNT)}
        async with self._lock:
            await self._label(topology)
            await self._update(lambda drivers: [*_others(drivers, driver), entry])

    async def remove_driver(self, driver: str) -> None:
        """Labels stay, as upstream's do: volumes may need them. Raises ApiError, ClientError."""
        async with self._lock:
            await self._update(lambda drivers: _others(drivers, driver))

    async def _label(self, topology: Mapping[str, str]) -> None:
        node = self._node()
        labels: Mapping[str, str] = node.metadata.labels if node is not None else {}
        for key, value in topology.items():
            if labels.get(key, value) != value:
                raise ValueError(
                    f'detected topology value collision: driver reported "{key}":"{value}" '
                    f'but existing label is "{key}":"{labels[key]}"'
                )
        if topology.items() - labels.items():
            await self._api.patch(NODES, self._name, {"metadata": {"labels": dict(topology)}})

    async def _update(self, change: Callable[[list[Object]], list[Object]]) -> None:
        """Read, change and write the CSINode; again if another client changed it meanwhile."""
        for attempt in range(_ATTEMPTS):
            try:
                await self._update_once(change)
            except ApiError as error:
                if error.code != 409 or attempt == _ATTEMPTS - 1:
                    raise
            else:
                return

    async def _update_once(self, change: Callable[[list[Object]], list[Object]]) -> None:
        node = self._node()
        owner = {"apiVersion": "v1", "kind": "Node", "name": self._name, "uid": node.metadata.uid if node else ""}
        try:
            stored = await self._api.get(CSI_NODES, self._name)
        except ApiError as error:
            if error.code != 404:
                raise
            if drivers := change([]):
                meta = {"name": self._name, **({"ownerReferences": [owner]} if node else {})}
                object_ = {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": meta}
                await self._api.create({**object_, "spec": {"drivers": drivers}})
            return
        before = (stored.get("spec") or {}).get("drivers") or []
        owners = [owner] if node else stored["metadata"].get("ownerReferences")
        drivers = change(before)
        if _comparable(before) == _comparable(drivers) and owners == stored["metadata"].get("ownerReferences"):
            return
        metadata = {**stored["metadata"], "ownerReferences": owners}
        await self._api.replace({**stored, "metadata": metadata, "spec": {"drivers": drivers}})


def _others(drivers: list[Object], name: str) -> list[Object]:
    return [driver for driver in drivers if driver["name"] != name]


def _comparable(drivers: list[Object]) -> list[Object]:
    """Independent of the order, and of whether empty fields are written."""
    filled = [{key: value for key, value in driver.items() if value} for driver in drivers]
    return sorted(filled, key=lambda driver: str(driver["name"]))
