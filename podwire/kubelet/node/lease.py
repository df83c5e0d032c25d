"""The node's lease: renewed while the node lives, so that whoever watches knows without reading its whole status."""

import asyncio
import logging

from podwire.interfaces import Clock
from podwire.kubelet.ports import Api
from podwire.objects.times import rfc3339_micro
from podwire.protocols.k8sapi.client_side import ClientError
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object

_log = logging.getLogger("podwire.kubelet.node")

NAMESPACE = "kube-node-lease"
LEASES = Kind(group="coordination.k8s.io", version="v1", resource="leases", kind="Lease")

DURATION, PERIOD = 40, 10.0
"""Seconds for which a renewal holds, and between renewals: three may fail."""
TIMEOUT = 10.0
"""A renewal without an answer is tried again."""
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0


def lease(name: str, node_uid: str, now: str) -> Object:
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node_uid}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": NAMESPACE, "ownerReferences": [owner]},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": DURATION, "renewTime": now},
    }


def renewed(found: Object, name: str, node_uid: str, now: str) -> Object:
    """Held by this node from now on, and gone with it; the rest stays as it is."""
    wanted = lease(name, node_uid, now)
    owners = wanted["metadata"]["ownerReferences"]
    return {
        **found,
        "metadata": {**found["metadata"], "ownerReferences": owners},
        "spec": {**(found.get("spec") or {}), **wanted["spec"]},
    }


class NodeLease:
    """Renews one lease; remembers it as the API has it, so that a renewal is one request."""

    def __init__(self, api: Api, clock: Clock, name: str) -> None:
        self._api = api
        self._clock = clock
        self._name = name
        self._held: Object | None = None

    async def renew(self, node_uid: str) -> None:
        """Returns when the API has the renewal, however long that takes."""
        pause = FIRST_PAUSE
        while True:
            try:
                async with asyncio.timeout(TIMEOUT):
                    self._held = await self._renew(node_uid)
            except (ApiError, ClientError, TimeoutError) as error:
                _log.info("lease not renewed", extra={"node": self._name, "why": str(error) or "no answer in time"})
                self._held = None
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
            else:
                return

    async def _renew(self, node_uid: str) -> Object:
        """The lease that is remembered, else the one that is there, else a new one; whoever else writes it loses."""
        now = rfc3339_micro(self._clock.wall())
        if self._held is not None:
            try:
                return await self._api.replace(renewed(self._held, self._name, node_uid, now))
            except ApiError as error:
                if error.code not in (404, 409):
                    raise
        try:
            return await self._api.create(lease(self._name, node_uid, now))
        except ApiError as error:
            if error.code != 409:
                raise
        found = await self._api.get(LEASES, self._name, NAMESPACE)
        return await self._api.replace(renewed(found, self._name, node_uid, now))
