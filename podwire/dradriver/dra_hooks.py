"""NodePrepareResources and NodeUnprepareResources: all slow work, before the sandbox exists. NRI does the fast rest.

Crash order. Each step is durable before the next one begins, so an instance that starts after a crash finds one of
these states, and the kubelet's next call (both calls are idempotent) continues from it:

| NodePrepareResources | killed after it: what exists | removed by |
|---|---|---|
| 1. read the claims, resolve them to allocations | nothing | - |
| 2. check all interfaces of the pod together | nothing | - |
| 3. hold the devices, reserve addresses | addresses without a record | AddressManager.reconcile |
| 4. write the record with the link's snapshot | record; link unchanged | unprepare |
| 5. make the interface that waits for DHCP; get a lease | record, tagged link on the host, lease | unprepare |
| 6. fsync the record; write CDI and metadata files | record, files | unprepare |
| 7. answer the kubelet | the kubelet's checkpoint, too | unprepare |

NodeUnprepareResources goes the other way: release leases (while there is an interface to send from), restore the link,
remove the record, release addresses, remove the files. A crash in between leaves a record or files, and the kubelet
calls again until it is answered without an error.

The host is not changed before step 4. A failure up to there is reported in the claim's status and as an Event.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from functools import partial
from types import ModuleType
from typing import Any, Protocol

from podwire import logs
from podwire.dradriver.attach.pods import PodAttacher
from podwire.dradriver.attach.records import PREPARED
from podwire.dradriver.claims.allocations import ClaimRef, PodRef, Refused
from podwire.dradriver.claims.cdi import device_id
from podwire.dradriver.claims.character_devices import is_character_device
from podwire.dradriver.claims.resolution import (
    NodeView,
    ResolvedClaim,
    check_asked,
    check_pod,
    check_same_pod,
    consumer_of,
    covers,
    ours,
    resolve_allocations,
)
from podwire.dradriver.dependencies import EXPECTED_ERRORS, Dependencies, allocations_in
from podwire.dradriver.names import CLAIMS, PODS
from podwire.failpoints import declare, failpoint
from podwire.objects import claims as claim_objects
from podwire.objects.claims import POD_CLAIM
from podwire.protocols.dra import dra_v1_pb2, dra_v1beta1_pb2, health_v1_pb2, health_v1alpha1_pb2
from podwire.protocols.dra.methods import (
    PLUGIN_V1,
    PLUGIN_V1BETA1,
    PREPARE_V1,
    PREPARE_V1BETA1,
    UNPREPARE_V1,
    UNPREPARE_V1BETA1,
    WATCH_HEALTH_V1,
    WATCH_HEALTH_V1ALPHA1,
)
from podwire.protocols.grpc_methods import Handler, Method

_log = logging.getLogger("podwire.dradriver")

TABLE: tuple[Method, ...] = (*PLUGIN_V1, *PLUGIN_V1BETA1, WATCH_HEALTH_V1, WATCH_HEALTH_V1ALPHA1)
FSYNCS = 8
"""Claims whose records are fsynced concurrently."""

READ = declare("network-driver.claim-read", "a claim is read and validated, and nothing is reserved for it")
RECORDED = declare("network-driver.prepared", "a claim's devices are prepared, and its CDI file does not exist yet")
UNPREPARED = declare("network-driver.unprepared", "a claim's devices are restored, and its CDI file still exists")


class NodeClaims(Protocol):
    """The DRA service without its messages. Results are by the claims' uids; an error is a text."""

    async def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, ResolvedClaim | str]: ...

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, str]: ...


class HealthStream(Protocol):
    def stream(self, pb: ModuleType) -> AsyncIterator[Any]: ...


Count = Callable[[str, bool], None]
"""Counts a claim of a call: the method, and whether it succeeded."""


def handlers(
    claims: NodeClaims, health: HealthStream, count: Count = lambda _method, _ok: None
) -> Mapping[str, Handler]:
    """Handlers by path, because both versions have methods of the same names. A kubelet that gives up asks again; the
    server completes the call meanwhile."""

    async def prepare(pb: ModuleType, request: Any) -> Any:
        results = await claims.prepare(_refs(request))
        for result in results.values():
            count("NodePrepareResources", not isinstance(result, str))
        return _prepare_response(pb, results)

    async def unprepare(pb: ModuleType, request: Any) -> Any:
        results = await claims.unprepare(_refs(request))
        response = pb.NodeUnprepareResourcesResponse()
        for uid, error in results.items():
            response.claims[uid].error = error
            count("NodeUnprepareResources", not error)
        return response

    return {
        PREPARE_V1.path: partial(prepare, dra_v1_pb2),
        PREPARE_V1BETA1.path: partial(prepare, dra_v1beta1_pb2),
        UNPREPARE_V1.path: partial(unprepare, dra_v1_pb2),
        UNPREPARE_V1BETA1.path: partial(unprepare, dra_v1beta1_pb2),
        WATCH_HEALTH_V1.path: lambda _request: health.stream(health_v1_pb2),
        WATCH_HEALTH_V1ALPHA1.path: lambda _request: health.stream(health_v1alpha1_pb2),
    }


def _refs(request: Any) -> list[ClaimRef]:
    return [ClaimRef(namespace=claim.namespace, name=claim.name, uid=claim.uid) for claim in request.claims]


def _prepare_response(pb: ModuleType, results: Mapping[str, ResolvedClaim | str]) -> Any:
    """Each request's CDI name comes with its first device and stands for all of them. v1beta1 has no shares."""
    response = pb.NodePrepareResourcesResponse()
    for uid, result in results.items():
        answer = response.claims[uid]
        if isinstance(result, str):
            answer.error = result
            continue
        named: set[str] = set()
        for allocation in result.allocations:
            device = answer.devices.add(
                request_names=[allocation.request],
                pool_name=allocation.pool,
                device_name=allocation.device.name,
                cdi_device_ids=() if allocation.request in named else (device_id(uid, allocation.request),),
            )
            named.add(allocation.request)
            if allocation.share_id and pb is dra_v1_pb2:
                device.share_id = allocation.share_id
    return response


class DraHooks:
    """Implements NodeClaims. Every claim is answered by itself: one that fails does not affect the others."""

    def __init__(self, dependencies: Dependencies, pods: PodAttacher, *, patience: float = 5.0) -> None:
        """`patience` are the seconds that a claim waits for the claim that had its device before."""
        self._dependencies, self._pods, self._patience = dependencies, pods, patience
        self._unprepared = asyncio.Event()
        """Set, and replaced, whenever a claim was unprepared."""
        self._fsyncs = ThreadPoolExecutor(FSYNCS, "podwire-fsync")
        """fsync takes long and must not use up the threads that do the other work."""

    async def prepare(self, claims: Sequence[ClaimRef]) -> dict[str, ResolvedClaim | str]:
        lock, locks = self._dependencies.instance_lock, self._dependencies.locks
        asked = {claim.uid: claim for claim in claims}
        results: dict[str, ResolvedClaim | str] = {}
        try:
            async with lock.held(lock.limits.prepare), locks.hold(*(f"claim {uid}" for uid in asked)):
                read = await asyncio.gather(*map(self.resolve, asked.values()), return_exceptions=True)
                resolved = {
                    uid: claim for uid, claim in zip(asked, read, strict=True) if isinstance(claim, ResolvedClaim)
                }
                async with locks.hold(*(f"pod {claim.pod.uid}" for claim in resolved.values() if claim.pod)):
                    preparing = (self._prepare_claim(claim, resolved.values()) for claim in resolved.values())
                    errors = await asyncio.gather(*preparing, return_exceptions=True)
        except OSError as error:  # another instance has the lock, or the lock file cannot be used
            return dict.fromkeys(asked, str(error))
        outcomes = dict(zip(asked, read, strict=True)) | dict(zip(resolved, errors, strict=True))
        for uid, outcome in outcomes.items():
            results[uid] = self._error_text(asked[uid], outcome) or resolved[uid]
        failed = sum(isinstance(result, str) for result in results.values())
        for uid, claim in resolved.items() if failed else ():
            if not isinstance(results[uid], str):
                self._dependencies.reports.waits_for_others(claim.ref, claim.allocations, failed)
        return results

    async def unprepare(self, claims: Sequence[ClaimRef]) -> dict[str, str]:
        lock, locks = self._dependencies.instance_lock, self._dependencies.locks
        asked = {claim.uid: claim for claim in claims}
        try:
            async with lock.held(lock.limits.prepare), locks.hold(*(f"claim {uid}" for uid in asked)):
                outcomes = await asyncio.gather(*map(self._unprepare_claim, asked.values()), return_exceptions=True)
        except OSError as error:
            return dict.fromkeys(asked, str(error))
        return {uid: self._error_text(asked[uid], outcome) for uid, outcome in zip(asked, outcomes, strict=True)}

    def _error_text(self, claim: ClaimRef, outcome: object) -> str:
        """The text for the kubelet, which adds the claim's name; empty for success."""
        if not isinstance(outcome, BaseException):
            return ""
        with logs.about(claim=f"{claim.namespace}/{claim.name}"):
            if isinstance(outcome, EXPECTED_ERRORS):
                _log.warning("cannot serve claim", extra={"error": str(outcome)})
                return str(outcome) or type(outcome).__name__
            _log.error("cannot serve claim because of a bug", exc_info=outcome)
            return f"{type(outcome).__name__}: {outcome}"

    async def resolve(self, asked: ClaimRef) -> ResolvedClaim:
        """Reads a claim and resolves it to allocations; those of a prepared claim do not change. EXPECTED_ERRORS."""
        dependencies = self._dependencies
        claim = claim_objects.read(await dependencies.client.get(CLAIMS, asked.name, asked.namespace))
        check_asked(claim, asked)
        if not ours(claim):
            return ResolvedClaim(ref=asked)
        records = dependencies.attachments.of_claim(claim.uid)
        prepared = tuple(allocations_in(records))
        try:
            # After a boot the pod that had the claim is asked for first, however many pods wait for it.
            boot = dependencies.attachments.boot
            pod = consumer_of(claim, {record.allocation.pod.uid for record in records if record.boot != boot})
            check_same_pod(pod, prepared)
            is_new = not covers(prepared, claim)
            if is_new:
                node = NodeView(name=dependencies.node, find=dependencies.devices.find, present=is_character_device)
                prepared = resolve_allocations(claim, pod, node)
        except Refused as error:
            # A claim with records is in a pod, and its status says so.
            devices = (
                [] if records else [(result.pool, result.device, result.share_id or "") for _, result in ours(claim)]
            )
            dependencies.reports.prepare_failed(asked, devices, str(error))
            raise
        failpoint(READ)
        pod_claim = claim.metadata.annotations.get(POD_CLAIM, "")
        return ResolvedClaim(ref=asked, allocations=prepared, pod_claim=pod_claim, is_new=is_new)

    async def _prepare_claim(self, claim: ResolvedClaim, all_claims: Iterable[ResolvedClaim]) -> None:
        """Steps 2 to 6 of the table above. Raises EXPECTED_ERRORS."""
        dependencies, pod, allocations = self._dependencies, claim.pod, claim.allocations
        if pod is None:
            return
        uses_dhcp = any(allocation.settings.dhcp for allocation in allocations)
        async with AsyncExitStack() as stack:
            stack.push_async_exit(lambda _type, error, _traceback: self._finish_prepare(claim, error))
            self._check_together(pod, claim, all_claims)
            # The pod is read while devices and addresses are reserved: if it must not have them, they are released
            # before the host is changed.
            pod_read = asyncio.create_task(self._check_pod(pod)) if claim.is_new else None
            try:
                # A pod that is deleted without grace is gone from the API server before its sandbox has ended,
                # and its device is allocated to the next pod at once. That pod waits here rather than for the
                # kubelet's next attempt.
                with contextlib.suppress(TimeoutError):  # `prepare` names the claim that has it
                    async with asyncio.timeout(self._patience):
                        while self._dependencies.devices.are_held_by_others(allocations):
                            await self._unprepared.wait()
                await asyncio.to_thread(dependencies.devices.reserve, allocations)
                addresses = await asyncio.to_thread(dependencies.addresses.reserve, allocations)
            finally:
                if pod_read is not None:
                    await pod_read
            await asyncio.to_thread(dependencies.attachments.prepare, allocations, addresses)
            loop = asyncio.get_running_loop()
            fsync = loop.run_in_executor(self._fsyncs, dependencies.attachments.fsync_claim, claim.ref.uid)
            try:
                if not uses_dhcp:
                    await asyncio.to_thread(self._write_files, claim)
            finally:
                await fsync
            if uses_dhcp:
                await dependencies.addresses.lease(claim.ref.uid)
                await asyncio.to_thread(self._write_files, claim)
        self._pods.expect(pod.uid)

    def _write_files(self, claim: ResolvedClaim) -> None:
        failpoint(RECORDED)
        self._dependencies.files.write_prepared(claim.ref, claim.allocations, claim.pod_claim)

    async def _finish_prepare(self, claim: ResolvedClaim, error: BaseException | None) -> bool:
        """Ends the hold of devices without records; after a failure also releases addresses without records."""
        dependencies, uid = self._dependencies, claim.ref.uid
        if error is not None:
            recorded = dependencies.attachments.of_claim(uid)
            devices = [
                (allocation.pool, allocation.device.name, allocation.share_id) for allocation in claim.allocations
            ]
            dependencies.reports.prepare_failed(claim.ref, [] if recorded else devices, str(error))
            if not recorded:
                await dependencies.addresses.release(uid)
        await asyncio.to_thread(dependencies.devices.sync_claim, uid)
        return False

    async def _check_pod(self, pod: PodRef) -> None:
        """Raises Refused, ApiError, ClientError."""
        present = await self._dependencies.client.get(PODS, pod.name, pod.namespace)
        if present["metadata"]["uid"] != pod.uid:
            raise Refused("status.reservedFor", f"pod {pod.namespace}/{pod.name} with uid {pod.uid} is gone")
        if present["spec"].get("hostNetwork"):
            reason = f"pod {pod.namespace}/{pod.name} uses the node's network, where no interface can be moved to"
            raise Refused("spec.hostNetwork", reason)

    def _check_together(self, pod: PodRef, claim: ResolvedClaim, all_claims: Iterable[ResolvedClaim]) -> None:
        """Checks the claim's interfaces with those that the pod has and those that it gets now. Raises Refused."""
        records = self._dependencies.attachments.of_pod(pod.uid)
        prepared = [allocation for allocation in allocations_in(records) if allocation.claim.uid != claim.ref.uid]
        known = {allocation.claim.uid for allocation in prepared} | {claim.ref.uid}
        others = [allocation for other in all_claims if other.ref.uid not in known for allocation in other.allocations]
        check_pod(pod, claim.allocations, [*prepared, *others])

    async def _unprepare_claim(self, claim: ClaimRef) -> None:
        """Raises EXPECTED_ERRORS."""
        dependencies = self._dependencies
        allocations = allocations_in(dependencies.attachments.of_claim(claim.uid))
        if allocations:
            claim = allocations[0].claim  # a kubelet whose checkpoint is damaged may know nothing but the uid
        pods = {allocation.pod.uid for allocation in allocations}
        async with dependencies.locks.hold(*(f"pod {uid}" for uid in pods)):
            await dependencies.addresses.release_leases(claim.uid)
            for pod_uid in pods:
                self._pods.forget(pod_uid)
            await asyncio.to_thread(self._restore_devices, claim.uid, pods)
            failpoint(UNPREPARED)
            await dependencies.addresses.release(claim.uid)
            await asyncio.to_thread(dependencies.files.remove, claim)
        await asyncio.to_thread(self._discard_damaged, claim.uid)
        await asyncio.to_thread(dependencies.devices.sync_claim, claim.uid)
        self._unprepared.set()
        self._unprepared = asyncio.Event()

    def _restore_devices(self, claim_uid: str, pods: set[str]) -> None:
        attachments = self._dependencies.attachments
        if pods:
            attachments.unprepare(claim_uid)
        for pod_uid in pods:
            if all(record.stage == PREPARED for record in attachments.of_pod(pod_uid)):
                self._dependencies.pins.unpin(pod_uid)

    def _discard_damaged(self, claim_uid: str) -> None:
        """Recovers the links of damaged records before the pods' namespaces end, then removes the records."""
        dependencies, orphans = self._dependencies, self._dependencies.attachments.orphans
        for damaged in dependencies.damaged.list(claim_uid):
            pin = dependencies.pins.list().get(damaged.pod_uid, "")
            for orphan in (*orphans.on_host(), *(orphans.in_pod(pin) if pin else ())):
                if orphan.claim_uid == claim_uid and orphans.recover(orphan):
                    dependencies.reports.link_recovered(orphan.device)
            dependencies.damaged.discard(damaged)
            if not dependencies.attachments.of_pod(damaged.pod_uid):
                dependencies.pins.unpin(damaged.pod_uid)
