"""The node's Lease, renewed while the kubelet runs: the heartbeat that the node controller watches."""

import asyncio
import logging

from podwire.interfaces import Clock
from podwire.kubelet.node.settings import NodeLimits
from podwire.objects.times import rfc3339_micro
from podwire.protocols.k8sapi.client_side import Client, ClientError
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object
from podwire.tasks.backoff import Pauses

_log = logging.getLogger("podwire.kubelet.node")

NAMESPACE = "kube-node-lease"
LEASES = Kind(group="coordination.k8s.io", version="v1", resource="leases", kind="Lease")


def lease(name: str, node_uid: str, now: str, duration: int) -> Object:
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node_uid}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": NAMESPACE, "ownerReferences": [owner]},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": duration, "renewTime": now},
    }


def renewed(stored: Object, name: str, node_uid: str, now: str, duration: int) -> Object:
    """The stored Lease held by this node from now on, and deleted with it; other fields stay."""
    fresh = lease(name, node_uid, now, duration)
    owners = fresh["metadata"]["ownerReferences"]
    return {
        **stored,
        "metadata": {**stored["metadata"], "ownerReferences": owners},
        "spec": {**(stored.get("spec") or {}), **fresh["spec"]},
    }


class NodeLease:
    """Caches the Lease as the API has it, so that a renewal is one request."""

    def __init__(self, api: Client, clock: Clock, name: str, limits: NodeLimits) -> None:
        self._api = api
        self._clock = clock
        self._name = name
        self._limits = limits
        self._stored: Object | None = None

    async def renew(self, node_uid: str) -> None:
        """Returns when the API has the renewal, however long that takes."""
        pauses = Pauses(*self._limits.backoff)
        while True:
            try:
                async with asyncio.timeout(self._limits.renew_timeout):
                    self._stored = await self._renew(node_uid)
            except (ApiError, ClientError, TimeoutError) as error:
                _log.info("cannot renew node lease", extra={"node": self._name, "error": str(error) or "timeout"})
                self._stored = None
                await asyncio.sleep(pauses.next())
            else:
                return

    async def _renew(self, node_uid: str) -> Object:
        """Renew the cached Lease, else create one, else take over the one that exists."""
        now, duration = rfc3339_micro(self._clock.wall()), self._limits.lease_duration
        if self._stored is not None:
            try:
                return await self._api.replace(renewed(self._stored, self._name, node_uid, now, duration))
            except ApiError as error:
                if error.code not in (404, 409):
                    raise
        try:
            return await self._api.create(lease(self._name, node_uid, now, duration))
        except ApiError as error:
            if error.code != 409:
                raise
        stored = await self._api.get(LEASES, self._name, NAMESPACE)
        return await self._api.replace(renewed(stored, self._name, node_uid, now, duration))
