"""Attaches a pod's devices when its sandbox is there, and brings them back when that ends; tells what came of it.

What was begun is done to its end, also when the runtime does not wait for it.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from podwire.dradriver.addresses.keys import Key, key_of
from podwire.dradriver.attach.attachments import AttachFailed
from podwire.dradriver.attach.records import ATTACHED, PREPARED
from podwire.dradriver.claims.allocations import ClaimRef, Order, PodRef, Refused
from podwire.dradriver.claims.container_files import Describing, networks_of
from podwire.dradriver.dra_hooks import TROUBLES
from podwire.dradriver.kit import Kit, orders_in
from podwire.dradriver.ports import Attached, Record
from podwire.dradriver.publish.claim_status import DeviceState, Lack, Network
from podwire.dradriver.publish.events import (
    ATTACH_FAILED,
    DETACH_FAILED,
    HEALTHY,
    IS_ATTACHED,
    LEASE_LOST,
    LEASE_REGAINED,
    UNHEALTHY,
)
from podwire.failpoints import declare, failpoint
from podwire.protocols.k8sapi.client_side.events import NORMAL, WARNING

_log = logging.getLogger("podwire.dradriver")

MOVED = declare("network-driver.attached", "a pod's devices are attached, and nobody was told")
RETURNED = declare("network-driver.detached", "a pod's devices are as before, and nobody was told")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """A pod as its runtime tells of it."""

    id: str
    pod: PodRef
    netns: str
    """Empty for one in the node's own network."""


class NotAttached(Exception):
    """The pod must not start; says why."""


class Moving:
    def __init__(self, kit: Kit, describing: Describing) -> None:
        self._kit, self._describing = kit, describing
        self._sandboxes: dict[str, str] = {}
        """By pod: the sandbox that has its devices. An older one of the same pod that is stopped later has none."""
        self._why: dict[str, str] = {}
        """By pod: why it is not attached."""
        self._ill: Mapping[str, str] = {}
        """By device: what is wrong with it."""
        self._expected: set[str] = set()
        self._moved = asyncio.Event()

    def concerns(self, pod_uid: str) -> bool:
        """Whether anything is prepared for a pod; others are none of this driver's business."""
        return bool(self._kit.attachments.of_pod(pod_uid))

    def expect(self, pod_uid: str) -> None:
        """Its claims are prepared, so its sandbox will come soon."""
        self._expected.add(pod_uid)

    def forget(self, pod_uid: str) -> None:
        """Nothing is known of a pod, and nothing expected."""
        self._sandboxes.pop(pod_uid, None)
        self._why.pop(pod_uid, None)
        self._expected.discard(pod_uid)
        self._moved.set()

    async def settled(self) -> None:
        """Return when every pod that is expected has its devices."""
        while self._expected:
            self._moved.clear()
            await self._moved.wait()

    async def attach(self, sandbox: Sandbox, *, known: bool = False) -> None:
        """All that is prepared for the pod, or nothing; no event tells of what is `known`. Raises NotAttached."""
        kit, pod = self._kit, sandbox.pod
        async with kit.lock.held(), kit.turns.hold(f"pod {pod.uid}"):
            orders = orders_in(kit.attachments.of_pod(pod.uid))
            if not orders:
                return
            try:
                attached = await self._attached(sandbox, orders)
            except TROUBLES as error:
                self._failed(pod, orders, str(error))
                raise NotAttached(f"network devices of pod {pod.namespace}/{pod.name}: {error}") from error
        self.forget(pod.uid)
        self._sandboxes[pod.uid] = sandbox.id
        self._tell_attached(pod, orders, attached, known=known)

    async def _attached(self, sandbox: Sandbox, orders: Sequence[Order]) -> Sequence[Attached]:
        kit, uid = self._kit, sandbox.pod.uid
        if not sandbox.netns:
            raise Refused("spec.hostNetwork", "the pod is in the node's network, where no interface can be moved to")
        for each in orders:
            if each.settings.dhcp:
                await self._as_leased(key_of(each))
        with kit.trace.works(uid, "attach devices"), kit.meter.phase("attach"):
            attached = await asyncio.to_thread(self._moved_in, uid, sandbox.netns, orders)
        if any(each.settings.dhcp for each in orders):
            await kit.addressing.moved(uid)
        return attached

    def _moved_in(self, uid: str, netns: str, orders: Sequence[Order]) -> Sequence[Attached]:
        """And its containers' files say so."""
        kit = self._kit
        pinned = kit.pins.pin(uid, netns)
        try:
            attached = kit.attachments.attach(uid, pinned)
        except (Refused, AttachFailed):
            kit.pins.unpin(uid)  # nothing is in it
            raise
        failpoint(MOVED)
        networks = networks_of(attached)
        for claim, of in _by_claim(orders).items():
            self._describing.attached(claim, of, networks)
        return attached

    def _moved_out(self, uid: str, netns: str | None) -> None:
        self._kit.attachments.detach(uid, netns)
        self._kit.pins.unpin(uid)

    async def detach(self, sandbox: Sandbox) -> None:
        """Everything as it was before; what does not work is told, and tried again with the next occasion."""
        kit, pod = self._kit, sandbox.pod
        if self._sandboxes.get(pod.uid, sandbox.id) != sandbox.id:
            return
        async with kit.lock.held(), kit.turns.hold(f"pod {pod.uid}"):
            orders = orders_in(kit.attachments.of_pod(pod.uid))
            if not orders:
                return
            try:
                with kit.trace.works(pod.uid, "detach devices"), kit.meter.phase("detach"):
                    await asyncio.to_thread(self._moved_out, pod.uid, _living(sandbox.netns))
                if any(each.settings.dhcp for each in orders):
                    await kit.addressing.moved(pod.uid)
            except TROUBLES as error:
                _log.error("devices are not back", extra={"pod": pod.name, "why": str(error)})
                kit.events.tell([pod, *_by_claim(orders)], WARNING, DETACH_FAILED, str(error))
                self._tell(orders, "DetachFailed", str(error))
                return
        failpoint(RETURNED)
        self.forget(pod.uid)
        self._tell(orders, "Detached", f"not in pod {pod.name}, whose sandbox has ended")

    async def follow(self, key: Key) -> None:
        """A lease has changed: its pod has what is leased now, and all who were told of it are told again."""
        kit = self._kit
        try:
            records = await asyncio.to_thread(kit.attachments.of_claim, key.claim.uid)
            for pod in {each.order.pod for each in records if key_of(each.order) == key}:
                async with kit.lock.held(), kit.turns.hold(f"pod {pod.uid}"):
                    await self._followed(key, pod)
        except TROUBLES as error:
            _log.error("a pod has not what is leased", extra={"lease": str(key), "why": str(error)})

    async def _followed(self, key: Key, pod: PodRef) -> None:
        """Raises TROUBLES."""
        kit = self._kit
        if not await self._as_leased(key):
            return
        orders = [each.order for each in kit.attachments.of_pod(pod.uid) if each.order.claim == key.claim]
        attached = await asyncio.to_thread(kit.attachments.attached, pod.uid)
        if attached:
            await asyncio.to_thread(self._describing.attached, key.claim, orders, networks_of(attached))
            self._tell_states(pod, key.claim, orders, attached)

    async def _as_leased(self, key: Key) -> bool:
        """Whether that is a change; one that people are to know is told. Raises Refused, OSError."""
        terms, before = await self._kit.addressing.terms(key), self._record_of(key)
        changed = await asyncio.to_thread(self._kit.attachments.follow, key, terms)
        after = self._record_of(key)
        if before is not None and after is not None and bool(before.lapse) != bool(after.lapse):
            self._tell_lease(key, after)
        return changed

    def _record_of(self, key: Key) -> Record | None:
        return next((each for each in self._kit.attachments.of_claim(key.claim.uid) if key_of(each.order) == key), None)

    async def check(self, sandbox: Sandbox) -> None:
        """No container of a pod starts before all that it claimed is there. Raises NotAttached."""
        pod = sandbox.pod
        if not await asyncio.to_thread(self._kit.attachments.is_attached, pod.uid, sandbox.netns):
            why = self._why.get(pod.uid, "the driver has not seen its sandbox start")
            raise NotAttached(f"network devices of pod {pod.namespace}/{pod.name} are not attached: {why}")

    async def reconcile(self, sandboxes: Sequence[Sandbox]) -> None:
        """What happened while nobody was here: pods that ended, and pods whose sandboxes wait for their devices."""
        kit = self._kit
        there = {each.pod.uid: each for each in sandboxes if _living(each.netns)}
        records = kit.attachments.records()
        async with kit.lock.held(), kit.turns.hold(*(f"pod {each.order.pod.uid}" for each in records)):
            with kit.meter.phase("reconcile"):
                await asyncio.to_thread(self._reconciled, {uid: each.netns for uid, each in there.items()})
        begun = {each.order.pod.uid for each in records if each.stage != ATTACHED}
        for uid in {each.order.pod.uid for each in records} & there.keys():
            try:
                await self.attach(there[uid], known=uid not in begun)  # statuses are told again, in case they were not
            except NotAttached as error:
                _log.warning("a pod's sandbox has no devices", extra={"pod": there[uid].pod.name, "why": str(error)})

    def _reconciled(self, there: Mapping[str, str]) -> None:
        kit = self._kit
        wanted = {each.order.pod.uid for each in kit.attachments.records()}
        kit.attachments.reconcile({uid: kit.pins.pin(uid, netns) for uid, netns in there.items() if uid in wanted})
        away = {each.order.pod.uid for each in kit.attachments.records() if each.stage != PREPARED}
        kit.pins.settle(away | {each.pod_uid for each in kit.damage.found()})

    async def not_well(self, ill: Mapping[str, str]) -> None:
        """Devices, and what is wrong with them: who has one that was well before, or is so again, is told."""
        before, self._ill = self._ill, ill
        changed = {each for each in before.keys() | ill.keys() if before.get(each) != ill.get(each)}
        records = await asyncio.to_thread(self._kit.attachments.records) if changed else ()
        concerned = [each.order for each in records if each.order.offered.device in changed]
        for each in concerned:
            self._tell_health(each)
        for pod, claim in {(each.pod, each.claim) for each in concerned}:
            async with self._kit.turns.hold(f"pod {pod.uid}"):
                attached = await asyncio.to_thread(self._kit.attachments.attached, pod.uid)
                orders = [each for each in orders_in(self._kit.attachments.of_pod(pod.uid)) if each.claim == claim]
                if attached and orders:
                    self._tell_states(pod, claim, orders, attached)

    # What is told.

    def _tell_health(self, order: Order) -> None:
        device = order.offered.device
        if why := self._ill.get(device):
            told = why if why.startswith(device) else f"{device}: {why}"
            self._kit.events.tell([order.claim, order.pod], WARNING, UNHEALTHY, told)
        else:
            self._kit.events.tell([order.claim, order.pod], NORMAL, HEALTHY, f"{device} is well again")

    def _failed(self, pod: PodRef, orders: Sequence[Order], why: str) -> None:
        self._why[pod.uid] = why
        self._kit.events.tell([pod, *_by_claim(orders)], WARNING, ATTACH_FAILED, why)
        self._tell(orders, "AttachFailed", why)

    def _tell_lease(self, key: Key, record: Record) -> None:
        type_, reason = (WARNING, LEASE_LOST) if record.lapse else (NORMAL, LEASE_REGAINED)
        told = record.lapse or f"{', '.join(map(str, record.addresses or ()))} is leased"
        self._kit.events.tell([key.claim, record.order.pod], type_, reason, f"{key.device}: {told}")

    def _tell_attached(
        self, pod: PodRef, orders: Sequence[Order], attached: Sequence[Attached], *, known: bool
    ) -> None:
        networks = networks_of(attached)
        for claim, of in _by_claim(orders).items():
            self._tell_states(pod, claim, of, attached)
            if known:
                continue
            told = "; ".join(_sentence(each, networks.get((each.offered.device, each.share_id))) for each in of)
            self._kit.events.tell([claim, pod], NORMAL, IS_ATTACHED, told)

    def _tell_states(self, pod: PodRef, claim: ClaimRef, orders: Sequence[Order], attached: Sequence[Attached]) -> None:
        networks = networks_of(attached)
        lacks = {(each.device, each.share_id): _lack(each, self._ill.get(each.device, "")) for each in attached}
        states = []
        for each in orders:
            where = each.offered.device, each.share_id
            states.append(_state(each, "Attached", f"in pod {pod.name}", networks.get(where), lacks.get(where)))
        self._kit.statuses.tell(claim, states)

    def _tell(self, orders: Sequence[Order], reason: str, message: str) -> None:
        for claim, of in _by_claim(orders).items():
            self._kit.statuses.tell(claim, [_state(each, reason, message) for each in of])


def _lack(attached: Attached, illness: str) -> Lack | None:
    if illness:
        return Lack(reason="Unhealthy", message=illness)
    if not attached.lapse:
        return None
    return Lack(reason="LeaseNotApplied" if attached.ips else "LeaseLost", message=attached.lapse)


def _living(netns: str) -> str | None:
    """Runtimes tell where a namespace was, also when it is gone."""
    return netns if netns and Path(netns).exists() else None


def _by_claim(orders: Sequence[Order]) -> dict[ClaimRef, list[Order]]:
    found: dict[ClaimRef, list[Order]] = {}
    for each in orders:
        found.setdefault(each.claim, []).append(each)
    return found


def _state(
    order: Order, reason: str, message: str, network: Network | None = None, lack: Lack | None = None
) -> DeviceState:
    return DeviceState(
        pool=order.pool,
        device=order.offered.device,
        share_id=order.share_id,
        reason=reason,
        message=message,
        network=network,
        lack=lack,
    )


def _sentence(order: Order, network: Network | None) -> str:
    where = network.interface if network is not None else order.settings.name
    ips = f" with {', '.join(network.ips)}" if network is not None and network.ips else ""
    return f"{order.offered.device} is {where}{ips}"
