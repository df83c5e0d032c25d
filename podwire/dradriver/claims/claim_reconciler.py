"""Unprepares claims that no kubelet will ask for any more, and prepares claims again whose records are damaged.

A kubelet asks to unprepare what its checkpoint has. When the checkpoint is lost, or the pod and its claim are deleted
by force while the driver is down, nobody asks, and the device would stay prepared for a pod that is gone. So the driver
compares its records with the API server: when it starts, when a runtime has listed its sandboxes, and from time to
time. A claim is unprepared here when all of these are true:

| condition | why |
|---|---|
| the pod with the record's uid is gone from the API server | until then its kubelet asks |
| the claim is gone, or is not reserved for that pod | its controller has noticed, too |
| no sandbox of the pod runs | a link is not taken out of a running pod; the end of its sandbox detaches it |

Kubelets do not ask again for what is prepared. So a claim whose record is damaged before its pod has started is
prepared again here, from the API server's claim and the link on the host. The record of a running pod cannot be made
anew: what the link was like on the host is not known any more.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from podwire.dradriver.attach.pods import PodAttacher
from podwire.dradriver.attach.records import PREPARED, Record
from podwire.dradriver.claims.allocations import ClaimRef, PodRef
from podwire.dradriver.claims.damaged_records import DamagedRecord
from podwire.dradriver.dependencies import Dependencies
from podwire.dradriver.names import CLAIMS, PODS
from podwire.objects import claims as claim_objects
from podwire.protocols.k8sapi.client_side import ClientError
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError

_log = logging.getLogger("podwire.dradriver")


class NodeClaims(Protocol):
    """NodePrepareResources and NodeUnprepareResources: errors by the claims' uids; empty, or no text, for success."""

    async def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, object]: ...

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, str]: ...


class ClaimReconciler:
    def __init__(self, dependencies: Dependencies, pods: PodAttacher, hooks: NodeClaims, interval: float) -> None:
        self._dependencies, self._pods, self._hooks, self._interval = dependencies, pods, hooks, interval

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.reconcile()
            self._pods.synchronized.clear()
            try:
                async with asyncio.timeout(self._interval):
                    await self._pods.synchronized.wait()
            except TimeoutError:
                continue

    async def reconcile(self) -> None:
        """1. Unprepare orphaned claims.  2. Recover links whose records are lost.  3. Remove files of devices that no
        claim holds.  4. Prepare claims again whose records are damaged. What cannot be checked or done now is tried
        again later."""
        by_claim: dict[ClaimRef, list[Record]] = {}
        for record in await asyncio.to_thread(self._dependencies.attachments.records):
            by_claim.setdefault(record.allocation.claim, []).append(record)
        for claim, records in by_claim.items():
            try:
                if all([await self._is_orphaned(record) for record in records]):
                    await self._unprepare_orphan(claim)
            except (ApiError, ClientError) as error:
                _log.debug("cannot check claim of a record", extra={"claim": claim.name, "error": str(error)})
        try:
            await self._pods.recover_orphans()
        except OSError as error:
            _log.warning("cannot look for orphaned links", extra={"error": str(error)})
        try:
            async with self._dependencies.instance_lock.held():
                await asyncio.to_thread(self._dependencies.devices.remove_unused)
        except OSError as error:
            _log.warning("cannot remove files of unused devices", extra={"error": str(error)})
        for damaged in await asyncio.to_thread(self._dependencies.damaged.list):
            try:
                await self._repair(damaged)
            except (ApiError, ClientError) as error:
                _log.debug("cannot check claim of damaged record", extra={"error": str(error)})

    async def _repair(self, damaged: DamagedRecord) -> None:
        """Raises ApiError, ClientError."""
        claim = await asyncio.to_thread(self._dependencies.files.find_claim, damaged.claim_uid)
        if claim is None or self._pods.may_run(damaged.pod_uid, attached=True):
            return
        object_ = await self._get(CLAIMS, claim)
        if object_ is None:
            await self._unprepare_orphan(claim)
        elif claim_objects.read(object_).reserved_for(damaged.pod_uid):
            error = (await self._hooks.prepare([claim]))[claim.uid]
            if not isinstance(error, str):  # else its status and an event say why
                await asyncio.to_thread(self._dependencies.damaged.discard, damaged)
                _log.warning("prepared claim of damaged record again", extra={"claim": claim.name})

    async def _is_orphaned(self, record: Record) -> bool:
        """Raises ApiError, ClientError."""
        pod, claim = record.allocation.pod, record.allocation.claim
        if self._pods.may_run(pod.uid, attached=record.stage != PREPARED) or await self._get(PODS, pod) is not None:
            return False
        object_ = await self._get(CLAIMS, claim)
        return object_ is None or not claim_objects.read(object_).reserved_for(pod.uid)

    async def _get(self, kind: Kind, ref: PodRef | ClaimRef) -> dict[str, Any] | None:
        try:
            object_ = await self._dependencies.client.get(kind, ref.name, ref.namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            return None
        return object_ if object_["metadata"]["uid"] == ref.uid else None

    async def _unprepare_orphan(self, claim: ClaimRef) -> None:
        fields = {"claim": f"{claim.namespace}/{claim.name}", "uid": claim.uid}
        error = (await self._hooks.unprepare([claim]))[claim.uid]
        if error:
            _log.warning("cannot unprepare orphaned claim", extra=fields | {"error": error})
        else:
            _log.warning("unprepared orphaned claim: its pod is gone, and no kubelet asked", extra=fields)
