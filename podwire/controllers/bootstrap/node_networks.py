"""node-ipam-controller: gives each Node without one a network for its pods, out of those of the cluster.

A Node that has a network keeps it. One worker decides, so that no network is given twice; what it has
given counts until the graph shows it. A Node that is deleted gives its networks back.
"""

import logging
from typing import ClassVar

from podwire.controllers.context import Context
from podwire.controllers.kinds import NODES
from podwire.controllers.metadata import PartialObject
from podwire.controllers.reconciler import Reconciler
from podwire.objects.pod_networks import Network, networks_of
from podwire.protocols.k8sapi.client_side.events import Reference
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError

log = logging.getLogger(__name__)


class NodeNetworks(Reconciler):
    name: ClassVar[str] = "node-ipam-controller"
    kind: ClassVar[Kind] = NODES
    workers: ClassVar[int] = 1

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._networks = context.pod_networks
        self._given: dict[str, list[Network]] = {}

    def forget(self, uid: str) -> None:
        super().forget(uid)
        self._given.pop(uid, None)

    async def reconcile(self, owner: PartialObject) -> None:
        node = owner.object()
        if networks_of(node):
            self._given.pop(owner.uid, None)
            return
        given = self._given.get(owner.uid) or self._choose()
        if len(given) < len(self._networks):
            log.warning("no network is left for the pods of a node", extra={"node": owner.name})
            about = Reference("Node", owner.name, uid=owner.uid)
            self.recorder.tell(about, "Warning", "CIDRNotAvailable", "no network is left for the pods of this node")
            return
        self._given[owner.uid] = given
        texts = [str(network) for network in given]
        metadata = {"uid": owner.uid, "resourceVersion": node["metadata"]["resourceVersion"]}
        try:
            await self.api.patch(
                NODES, owner.name, {"metadata": metadata, "spec": {"podCIDR": texts[0], "podCIDRs": texts}}
            )
        except ApiError as error:
            if error.code not in (404, 422):  # gone, or it has another one by now, which stays
                raise
            self._given.pop(owner.uid, None)
            return
        log.info("node got a network for its pods", extra={"node": owner.name, "networks": ", ".join(texts)})

    def _choose(self) -> list[Network]:
        taken = [network for seen in self.graph.everywhere(NODES) for network in networks_of(seen.object())]
        taken += [network for networks in self._given.values() for network in networks]
        return [free for network in self._networks if (free := network.free(taken)) is not None]
