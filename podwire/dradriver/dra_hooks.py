"""NodePrepareResources and NodeUnprepareResources: everything slow, before there is a sandbox.

1. Read the claims, side by side; judge each by itself.   2. Judge the interfaces of each pod together.
3. Reserve addresses, and see that the pod may have them.   4. Take the snapshot, make what has to be made.
5. Tell the containers by a CDI file.   Nothing is changed on the host before 4.
"""

import asyncio
import logging
from collections.abc import Awaitable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import msgspec

from podwire import logs
from podwire.dradriver.addresses.address_store import Unreadable
from podwire.dradriver.addresses.assignments import Exhausted
from podwire.dradriver.addresses.dhcp_client import NoLease
from podwire.dradriver.attach.attachments import AttachFailed, NotGivenBack
from podwire.dradriver.attach.records import PREPARED as PREPARED_STAGE
from podwire.dradriver.claims import resolution as judging
from podwire.dradriver.claims.allocations import ClaimRef, Order, PodRef, Refused
from podwire.dradriver.claims.cdi import device_id
from podwire.dradriver.claims.character_devices import is_character_device
from podwire.dradriver.claims.container_files import Describing
from podwire.dradriver.instances import PREPARE_PATIENCE
from podwire.dradriver.kit import Kit, orders_in
from podwire.dradriver.names import CLAIMS, PODS
from podwire.dradriver.publish.claim_status import DeviceState
from podwire.dradriver.publish.events import PREPARE_FAILED
from podwire.dradriver.rescuing import rescue
from podwire.dradriver.service import Ready
from podwire.failpoints import FailpointHit, declare, failpoint
from podwire.linux.proc.processes import boot_id
from podwire.objects import claims as claim_objects
from podwire.objects.claims import POD_CLAIM, ResourceClaim
from podwire.protocols.k8sapi.client_side import ClientError
from podwire.protocols.k8sapi.client_side.events import WARNING
from podwire.protocols.k8sapi.status import ApiError

_log = logging.getLogger("podwire.dradriver")

AT_ONCE = 8
"""Claims whose records are on their way to the disk."""

READ = declare("network-driver.claim-read", "a claim is read and judged, and nothing is reserved for it")
PREPARED = declare("network-driver.prepared", "a claim's devices are prepared, and its CDI file is not there yet")
UNPREPARED = declare("network-driver.unprepared", "a claim's devices are as before, and its CDI file is still there")

TROUBLES = (
    Refused,
    Exhausted,
    Unreadable,
    NoLease,
    AttachFailed,
    NotGivenBack,
    ApiError,
    ClientError,
    OSError,
    FailpointHit,
    msgspec.ValidationError,
)
"""What is told to a kubelet in its own words; anything else is a fault of the program."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A claim that was read. Without orders nothing of it is this driver's."""

    claim: ClaimRef
    orders: tuple[Order, ...] = ()
    pod_claim: str = ""
    """What its pod calls it, if it was made for that one."""
    anew: bool = False
    """Nothing of it was prepared before."""

    @property
    def pod(self) -> PodRef | None:
        return self.orders[0].pod if self.orders else None


class Coming(Protocol):
    """Which pods' sandboxes will come."""

    def expect(self, pod_uid: str) -> None: ...

    def forget(self, pod_uid: str) -> None: ...


class Preparing:
    """Implements service.Claims."""

    def __init__(self, kit: Kit, describing: Describing, coming: Coming) -> None:
        self._kit, self._describing, self._coming = kit, describing, coming
        self._boot = boot_id()
        self._disk = ThreadPoolExecutor(AT_ONCE, "podwire-disk")
        """For what waits for the disk while something else is done."""

    async def prepare(self, claims: Sequence[ClaimRef]) -> dict[str, tuple[Ready, ...] | str]:
        kit = self._kit
        asked = list({each.uid: each for each in claims}.values())
        try:
            async with kit.lock.held(PREPARE_PATIENCE), kit.turns.hold(*(f"claim {each.uid}" for each in asked)):
                with kit.meter.phase("read"):
                    read = await asyncio.gather(*(self._told(each, self._read(each)) for each in asked))
                wanted = [each for each in read if isinstance(each, Wanted)]
                async with kit.turns.hold(*(f"pod {each.pod.uid}" for each in wanted if each.pod)):
                    made = await asyncio.gather(*(self._told(each.claim, self._make(each, wanted)) for each in wanted))
        except OSError as error:  # another instance has the lock, or its file cannot be had
            return {each.uid: str(error) for each in asked}
        results: dict[str, tuple[Ready, ...] | str] = {
            ref.uid: each for ref, each in zip(asked, read, strict=True) if isinstance(each, str)
        }
        results |= {each.claim.uid: done for each, done in zip(wanted, made, strict=True)}
        self._tell_of_waiting([each for each in wanted if not isinstance(results[each.claim.uid], str)], results)
        for each in results.values():
            kit.meter.answered("NodePrepareResources", ok=not isinstance(each, str))
        return results

    async def unprepare(self, claims: Sequence[ClaimRef]) -> dict[str, str]:
        kit = self._kit
        asked = list({each.uid: each for each in claims}.values())
        try:
            async with kit.lock.held(PREPARE_PATIENCE), kit.turns.hold(*(f"claim {each.uid}" for each in asked)):
                done = await asyncio.gather(*(self._told(each, self._unprepare(each)) for each in asked))
        except OSError as error:
            return {each.uid: str(error) for each in asked}
        results = {each.uid: why or "" for each, why in zip(asked, done, strict=True)}
        for why in results.values():
            kit.meter.answered("NodeUnprepareResources", ok=not why)
        return results

    async def _told(self, claim: ClaimRef, work: Awaitable[T]) -> T | str:
        """What came of a claim, or why nothing did: one that fails keeps no other from being answered."""
        with logs.about(claim=f"{claim.namespace}/{claim.name}"):
            try:
                return await work
            except TROUBLES as error:
                _log.warning("a claim cannot be served", extra={"why": str(error)})
                return str(error)  # kubelets say of which claim
            except Exception as error:  # noqa: BLE001 - logged, and told to the kubelet: it is answered for every claim
                _log.exception("a claim cannot be served")
                return f"{type(error).__name__}: {error}"

    # What there is to do.

    async def _read(self, asked: ClaimRef) -> Wanted:
        """Raises TROUBLES."""
        found = await self._kit.api.get(CLAIMS, asked.name, asked.namespace)
        claim = claim_objects.read(found)
        judging.check_asked(claim, asked)
        if not judging.ours(claim):
            return Wanted(claim=asked)
        try:
            pod = judging.consumer_of(claim, self._outlived(claim.uid))
            before = orders_in(self._kit.attachments.of_claim(claim.uid))
            judging.check_same_pod(pod, before)
            anew = not judging.covers(before, claim)
            orders = self._orders(claim, pod) if anew else tuple(before)  # the same answer for the same question
        except Refused as error:
            self._refused(asked, _all_of(claim), str(error))
            raise
        failpoint(READ)
        named = claim.metadata.annotations.get(POD_CLAIM, "")
        return Wanted(claim=asked, orders=orders, pod_claim=named, anew=anew)

    def _outlived(self, claim_uid: str) -> set[str]:
        records = self._kit.attachments.of_claim(claim_uid)
        return {each.order.pod.uid for each in records if each.boot != self._boot}

    def _orders(self, claim: ResourceClaim, pod: PodRef) -> tuple[Order, ...]:
        """Raises Refused."""
        host = judging.Host(node=self._kit.node, find=self._kit.devices.find, present=is_character_device)
        return judging.orders_of(claim, pod, host)

    async def _check_pod(self, pod: PodRef) -> None:
        """Raises Refused, ApiError, ClientError."""
        found = await self._kit.api.get(PODS, pod.name, pod.namespace)
        if found["metadata"]["uid"] != pod.uid:
            raise Refused("status.reservedFor", f"pod {pod.namespace}/{pod.name} of uid {pod.uid} is gone")
        if found["spec"].get("hostNetwork"):
            reason = f"pod {pod.namespace}/{pod.name} is in the node's network, where no interface can be moved to"
            raise Refused("spec.hostNetwork", reason)

    async def _make(self, wanted: Wanted, beside: Sequence[Wanted]) -> tuple[Ready, ...]:
        """Raises TROUBLES."""
        kit, pod, orders = self._kit, wanted.pod, wanted.orders
        if pod is None:
            return ()
        try:
            self._judge_together(pod, wanted, beside)
            with kit.trace.works(pod.uid, "prepare devices"):
                addresses = await self._reserved(wanted, pod)
                leased = any(each.settings.dhcp for each in orders)
                await asyncio.to_thread(self._prepared, wanted, addresses, describe=not leased)
                if leased:
                    with kit.meter.phase("lease"):
                        await kit.addressing.lease(wanted.claim.uid)
                    await asyncio.to_thread(self._described, wanted)
        except Exception as error:
            devices = [(each.pool, each.offered.device, each.share_id) for each in orders]
            self._refused(wanted.claim, devices, str(error))
            if not kit.attachments.of_claim(wanted.claim.uid):
                await kit.addressing.release(wanted.claim.uid)
            await asyncio.to_thread(kit.devices.settle, wanted.claim.uid)
            raise
        self._coming.expect(pod.uid)
        return _ready(wanted.claim, orders)

    async def _reserved(self, wanted: Wanted, pod: PodRef) -> Any:
        """Devices and addresses are kept for it while the pod is looked at: if it must not have them they are let go
        before anything is done on the host. Raises TROUBLES."""
        look = asyncio.create_task(self._check_pod(pod)) if wanted.anew else None
        try:
            with self._kit.meter.phase("addresses"):
                return await asyncio.to_thread(self._keep, wanted.orders)
        finally:
            if look is not None:
                await look

    def _keep(self, orders: Sequence[Order]) -> Any:
        self._kit.devices.keep(orders)
        return self._kit.addressing.reserve(orders)

    def _prepared(self, wanted: Wanted, addresses: Any, *, describe: bool) -> None:
        """Raises TROUBLES."""
        attachments = self._kit.attachments
        with self._kit.meter.phase("prepare"):
            attachments.prepare(wanted.orders, addresses)
        durable = self._disk.submit(attachments.settle, wanted.claim.uid)
        try:
            if describe:
                self._described(wanted)
        finally:
            durable.result()

    def _described(self, wanted: Wanted) -> None:
        """Raises OSError."""
        failpoint(PREPARED)
        with self._kit.meter.phase("describe"):
            self._describing.prepared(wanted.claim, wanted.orders, wanted.pod_claim)
        self._kit.devices.settle(wanted.claim.uid)

    def _judge_together(self, pod: PodRef, wanted: Wanted, beside: Sequence[Wanted]) -> None:
        """With what this pod has already, and with what it is to have at the same time. Raises Refused."""
        before = [each for each in orders_in(self._kit.attachments.of_pod(pod.uid)) if each.claim != wanted.claim]
        known = {each.claim.uid for each in before}
        others = [
            order for each in beside if each is not wanted and each.claim.uid not in known for order in each.orders
        ]
        judging.check_pod(pod, wanted.orders, [*before, *others])

    async def _unprepare(self, claim: ClaimRef) -> str:
        """Raises TROUBLES."""
        kit = self._kit
        orders = orders_in(kit.attachments.of_claim(claim.uid))
        claim = orders[0].claim if orders else claim  # a kubelet whose record is damaged may know nothing but the uid
        pods = {each.pod.uid for each in orders}
        async with kit.turns.hold(*(f"pod {each}" for each in pods)):
            await kit.addressing.leave(claim.uid)
            for pod in pods:
                self._coming.forget(pod)
                with kit.trace.works(pod, "unprepare devices"), kit.meter.phase("unprepare"):
                    await asyncio.to_thread(self._taken_back, pod, claim.uid)
            failpoint(UNPREPARED)
            await kit.addressing.release(claim.uid)
            await asyncio.to_thread(self._describing.forgotten, claim)
        await asyncio.to_thread(self._without_damage, claim.uid)
        await asyncio.to_thread(kit.devices.settle, claim.uid)
        return ""

    def _taken_back(self, pod_uid: str, claim_uid: str) -> None:
        self._kit.attachments.unprepare(claim_uid)
        if all(each.stage == PREPARED_STAGE for each in self._kit.attachments.of_pod(pod_uid)):
            self._kit.pins.unpin(pod_uid)

    def _without_damage(self, claim_uid: str) -> None:
        kit = self._kit
        for each in kit.damage.found(claim_uid):
            rescue(each, kit.damage.state)
            kit.damage.forget(each)
            if not kit.attachments.of_pod(each.pod_uid):
                kit.pins.unpin(each.pod_uid)

    # What is told.

    def _tell_of_waiting(self, ready: Sequence[Wanted], results: Mapping[str, object]) -> None:
        """Those that are prepared for a pod that has to wait for others say so: nothing else would be told of them."""
        failed = sum(isinstance(each, str) for each in results.values())
        message = f"prepared; the pod waits for {failed} other claim{'s' if failed > 1 else ''}"
        for each in ready if failed else ():
            told = [
                DeviceState(
                    pool=order.pool,
                    device=order.offered.device,
                    share_id=order.share_id,
                    reason="Prepared",
                    message=message,
                )
                for order in each.orders
            ]
            self._kit.statuses.tell(each.claim, told)

    def _refused(self, claim: ClaimRef, devices: Sequence[tuple[str, str, str]], why: str) -> None:
        """At the claim: at the pod, kubelets tell what they were answered."""
        self._kit.events.tell([claim], WARNING, PREPARE_FAILED, why)
        if self._kit.attachments.of_claim(claim.uid):
            return  # a pod has it, and its devices are as they were told to be
        told = [
            DeviceState(pool=pool, device=device, share_id=share, reason="PrepareFailed", message=why)
            for pool, device, share in devices
        ]
        self._kit.statuses.tell(claim, told)


def _all_of(claim: ResourceClaim) -> list[tuple[str, str, str]]:
    return [(each.pool, each.device, each.share_id or "") for _, each in judging.ours(claim)]


def _ready(claim: ClaimRef, orders: Sequence[Order]) -> tuple[Ready, ...]:
    """Each request's CDI name comes with its first device: it stands for all of them."""
    seen: set[str] = set()
    answers = []
    for each in orders:
        names = () if each.request in seen else (device_id(claim.uid, each.request),)
        seen.add(each.request)
        answers.append(
            Ready(
                request=each.request,
                pool=each.pool,
                device=each.offered.device,
                share_id=each.share_id,
                cdi=names,
            )
        )
    return tuple(answers)
