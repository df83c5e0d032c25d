"""Approves certificates that nodes request for themselves: those of a kubelet's server, and those of node components.

Upstream leaves serving certificates to an administrator. Here the API server verifies kubelets by the cluster's CA, so
a node that joined could not be asked for logs until somebody approved. A serving certificate is approved if its names
and addresses are those of the requesting Node, and of no other Node.
"""

import logging
from collections.abc import Iterable
from typing import ClassVar

from podwire.controllers.certificates.requests import Requests, content, has, is_issued
from podwire.controllers.kinds import NODES
from podwire.controllers.metadata import PartialObject
from podwire.objects.times import parse
from podwire.protocols.k8sapi.watch import Object

log = logging.getLogger(__name__)

KUBELET_SERVING, NODE_COMPONENT = "kubernetes.io/kubelet-serving", "podwire.dev/node-component"
NODE_PREFIX, NODES_GROUP = "system:node:", "system:nodes"
RETRY_SECONDS, PATIENCE_SECONDS = 2.0, 300.0
"""A new Node may report its addresses after its request; an older request waits for an administrator."""


def addresses_of(node: Object) -> set[str]:
    return {str(row.get("address")) for row in (node.get("status") or {}).get("addresses") or ()}


def may_serve(names: Iterable[str], node: Object, others: Iterable[Object]) -> bool:
    """Returns whether all names and addresses of a serving certificate belong to a Node, and to no other one."""
    wanted, own = set(names), addresses_of(node) | {node["metadata"]["name"]}
    foreign = {name for other in others for name in (addresses_of(other) | {other["metadata"]["name"]})}
    return bool(wanted) and wanted <= own and not wanted & foreign


class NodeCertificates(Requests):
    name: ClassVar[str] = "node-certificate-approving-controller"

    async def reconcile(self, owner: PartialObject) -> None:
        request, signer = owner.object(), self.context.signer
        spec = request["spec"]
        signer_name, user = spec.get("signerName"), spec.get("username") or ""
        if signer is None or signer_name not in (KUBELET_SERVING, NODE_COMPONENT):
            return
        if has(request, "Approved", "Denied") or is_issued(request):
            return
        if not user.startswith(NODE_PREFIX) or NODES_GROUP not in (spec.get("groups") or ()):
            return
        node = user.removeprefix(NODE_PREFIX)
        if signer_name == NODE_COMPONENT:
            if signer.is_for_component(content(request), spec.get("usages") or (), node):
                await self._approve(request, "certificate of a component of the requesting node")
            return
        names = signer.serving_names(content(request), spec.get("usages") or (), user)
        if names and self._may_serve(names, node):
            await self._approve(request, "serving certificate with the addresses of the requesting node")
        elif names and self.clock.wall() - parse(request["metadata"]["creationTimestamp"]) < PATIENCE_SECONDS:
            self.enqueue_after(owner.uid, RETRY_SECONDS)

    def _may_serve(self, names: Iterable[str], node: str) -> bool:
        nodes = [seen.object() for seen in self.graph.everywhere(NODES)]
        own = next((seen for seen in nodes if seen["metadata"]["name"] == node), None)
        return own is not None and may_serve(names, own, [seen for seen in nodes if seen is not own])

    async def _approve(self, request: Object, what: str) -> None:
        message = f"Auto approving {what}."
        conditions = self.with_condition(request, "Approved", "AutoApproved", message)
        await self.write(request, "approval", conditions=conditions)
