"""Attaches a pod's devices when its sandbox runs, and detaches them when it ends.

Crash order, per pod. What was begun is completed, also when the runtime does not wait for it; after a crash `reconcile`
repeats it, because every step can be repeated:

| attach                                      | killed after it                 | detach                           |
|---------------------------------------------|---------------------------------|----------------------------------|
| 1. apply the present terms of DHCP leases   | nothing changed                 | 5. unpin the namespace           |
| 2. pin the pod's namespace                  | a pin without devices: unpinned | 4. records PREPARED              |
| 3. records ATTACHING                        | restored, then attached again   | 3. restore the links on the host |
| 4. move or make the links; records ATTACHED | attached again                  | 2. move the links to the host    |
| 5. write STATE/attached/POD                 | containers may start            | 1. remove STATE/attached/POD     |
| 6. write metadata; report status and events | reported again after a restart  | 6. report                        |

STATE/attached/POD is the commit mark: it is written last and removed first, and every check of the fail-closed
attachment (see nri_hooks) reads it.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from podwire.dradriver.addresses.keys import Key, key_of
from podwire.dradriver.attach.attachments import Attached, AttachFailed
from podwire.dradriver.attach.orphans import Orphan
from podwire.dradriver.attach.records import ATTACHED, PREPARED, Record
from podwire.dradriver.claims.allocations import Allocation, PodRef, Refused, by_claim
from podwire.dradriver.dependencies import EXPECTED_ERRORS, Dependencies, allocations_in
from podwire.dradriver.instances import Busy
from podwire.dradriver.publish.claim_reports import networks_of
from podwire.failpoints import declare, failpoint

_log = logging.getLogger("podwire.dradriver")

MOVED = declare("network-driver.attached", "a pod's devices are attached, and no status was reported")
RETURNED = declare("network-driver.detached", "a pod's devices are restored, and no status was reported")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """A pod sandbox as the runtime describes it."""

    id: str
    pod: PodRef
    netns: str
    """Empty for a pod in the node's own network."""


class NotAttached(Exception):
    """The pod must not start; says why."""


class PodAttacher:
    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies
        self._sandboxes: dict[str, str] = {}
        """By pod: the sandbox that has its devices. An older sandbox of the pod that stops later does not have them."""
        self._failures: dict[str, str] = {}
        """By pod: why it is not attached."""
        self._awaited: set[str] = set()
        """Pods whose claims are prepared, and whose sandboxes will come soon."""
        self._changed = asyncio.Event()
        self._running: set[str] | None = None
        """Pods with claims whose sandboxes run; None until a runtime has listed its sandboxes."""
        self._with_orphans: set[str] = set()
        """Running pods that have links whose records are lost, see orphans."""
        self.synchronized = asyncio.Event()
        """Set when a runtime has listed its sandboxes; cleared by the task that waits for it."""

    def has_claims(self, pod_uid: str) -> bool:
        """Whether anything is prepared for a pod; hooks return at once for all other pods."""
        return bool(self._dependencies.attachments.of_pod(pod_uid))

    def has_orphans(self, pod_uid: str) -> bool:
        """Whether a running pod has links whose records are lost."""
        return pod_uid in self._with_orphans

    def expect(self, pod_uid: str) -> None:
        """The pod's claims are prepared, so its sandbox will come soon."""
        self._awaited.add(pod_uid)

    def forget(self, pod_uid: str) -> None:
        """Drops what is known of a pod."""
        self._sandboxes.pop(pod_uid, None)
        self._failures.pop(pod_uid, None)
        self._awaited.discard(pod_uid)
        self._changed.set()

    def may_run(self, pod_uid: str, *, attached: bool) -> bool:
        """Whether a sandbox of a pod may be running. While no runtime is known, one that has devices may."""
        return attached if self._running is None else pod_uid in self._running

    async def idle(self) -> None:
        """Waits until every awaited pod has its devices."""
        while self._awaited:
            self._changed.clear()
            await self._changed.wait()

    async def attach(self, sandbox: Sandbox) -> None:
        """Attaches all that is prepared for the pod, or nothing. Raises NotAttached, Busy.

        When another instance works for longer than a hook may take, it may have attached the devices meanwhile.
        """
        if self._running is not None:
            self._running.add(sandbox.pod.uid)
        lock = self._dependencies.instance_lock
        try:
            async with lock.held(lock.limits.hook):
                await self._attach(sandbox, is_new=True)
        except Busy as busy:
            try:
                await self.check(sandbox)
            except NotAttached:
                raise busy from None

    async def _attach(self, sandbox: Sandbox, *, is_new: bool) -> None:
        """Raises NotAttached."""
        dependencies, pod = self._dependencies, sandbox.pod
        async with dependencies.instance_lock.held(), dependencies.locks.hold(f"pod {pod.uid}"):
            allocations = allocations_in(dependencies.attachments.of_pod(pod.uid))
            if not allocations:
                return
            uses_dhcp = [allocation for allocation in allocations if allocation.settings.dhcp]
            try:
                if not sandbox.netns:
                    reason = "the pod uses the node's network, where no interface can be moved to"
                    raise Refused("spec.hostNetwork", reason)
                for allocation in uses_dhcp:
                    await self._apply_lease(key_of(allocation))
                attached = await asyncio.to_thread(self._move_in, pod.uid, sandbox.netns, allocations)
                if uses_dhcp:
                    await dependencies.addresses.locate(pod.uid)
            except EXPECTED_ERRORS as error:
                self._failures[pod.uid] = str(error)
                dependencies.reports.attach_failed(pod, allocations, str(error))
                raise NotAttached(f"network devices of pod {pod.namespace}/{pod.name}: {error}") from error
        self.forget(pod.uid)
        self._sandboxes[pod.uid] = sandbox.id
        dependencies.reports.attached(pod, allocations, attached, is_new=is_new)

    def _move_in(self, pod_uid: str, netns: str, allocations: Sequence[Allocation]) -> Sequence[Attached]:
        dependencies = self._dependencies
        pin = dependencies.pins.pin(pod_uid, netns)
        try:
            attached = dependencies.attachments.attach(pod_uid, pin)
        except (Refused, AttachFailed):
            dependencies.pins.unpin(pod_uid)  # no device is in it
            raise
        failpoint(MOVED)
        networks = networks_of(attached)
        for claim, of_claim in by_claim(allocations).items():
            dependencies.files.write_attached(claim, of_claim, networks)
        return attached

    async def detach(self, sandbox: Sandbox) -> None:
        """Restores the pod's devices on the host. A failure is reported, and retried at the next hook. Raises Busy."""
        dependencies, pod = self._dependencies, sandbox.pod
        if self._sandboxes.get(pod.uid, sandbox.id) != sandbox.id:
            return
        if self._running is not None:
            self._running.discard(pod.uid)
        lock = dependencies.instance_lock
        if self.has_orphans(pod.uid):
            self._with_orphans.discard(pod.uid)
            orphans = await asyncio.to_thread(dependencies.attachments.orphans.in_pod, sandbox.netns)
            await self._recover(orphans, lock.limits.hook)
        async with lock.held(lock.limits.hook), dependencies.locks.hold(f"pod {pod.uid}"):
            allocations = allocations_in(dependencies.attachments.of_pod(pod.uid))
            if not allocations:
                return
            try:
                await asyncio.to_thread(self._move_out, pod.uid, _existing(sandbox.netns))
                if any(allocation.settings.dhcp for allocation in allocations):
                    await dependencies.addresses.locate(pod.uid)
            except EXPECTED_ERRORS as error:
                _log.error("cannot detach devices", extra={"pod": pod.name, "error": str(error)})
                dependencies.reports.detach_failed(pod, allocations, str(error))
                return
        failpoint(RETURNED)
        self.forget(pod.uid)
        dependencies.reports.detached(pod, allocations)

    def _move_out(self, pod_uid: str, netns: str | None) -> None:
        self._dependencies.attachments.detach(pod_uid, netns)
        self._dependencies.pins.unpin(pod_uid)

    async def check(self, sandbox: Sandbox) -> None:
        """No container of a pod starts before all claimed devices are in it. Raises NotAttached."""
        pod = sandbox.pod
        if not await asyncio.to_thread(self._dependencies.attachments.is_attached, pod.uid, sandbox.netns):
            reason = self._failures.get(pod.uid, "the driver has not seen its sandbox start")
            raise NotAttached(f"network devices of pod {pod.namespace}/{pod.name} are not attached: {reason}")

    async def follow_lease(self, key: Key) -> None:
        """A lease changed: applies its terms in the pod, and updates the metadata and the status."""
        dependencies = self._dependencies
        try:
            records = await asyncio.to_thread(dependencies.attachments.of_claim, key.claim.uid)
            for pod in {record.allocation.pod for record in records if record.key == key}:
                async with dependencies.instance_lock.held(), dependencies.locks.hold(f"pod {pod.uid}"):
                    if await self._apply_lease(key):
                        await self._update_network(pod, key)
        except EXPECTED_ERRORS as error:
            _log.error("cannot apply lease in pod", extra={"lease": str(key), "error": str(error)})

    async def _update_network(self, pod: PodRef, key: Key) -> None:
        dependencies = self._dependencies
        allocations = allocations_in(dependencies.attachments.of_pod(pod.uid))
        of_claim = [allocation for allocation in allocations if allocation.claim == key.claim]
        attached = await asyncio.to_thread(dependencies.attachments.attached, pod.uid)
        if attached:
            await asyncio.to_thread(dependencies.files.write_attached, key.claim, of_claim, networks_of(attached))
            dependencies.reports.network_changed(pod, key.claim, of_claim, attached)

    async def _apply_lease(self, key: Key) -> bool:
        """Whether the lease's terms changed; losing or regaining a lease is reported. Raises Refused, OSError."""
        dependencies = self._dependencies
        terms, before = await dependencies.addresses.terms(key), self._record_of(key)
        changed = await asyncio.to_thread(dependencies.attachments.apply_terms, key, terms)
        after = self._record_of(key)
        if before is not None and after is not None and bool(before.lapse) != bool(after.lapse):
            dependencies.reports.lease_changed(key, after)
        return changed

    def _record_of(self, key: Key) -> Record | None:
        records = self._dependencies.attachments.of_claim(key.claim.uid)
        return next((record for record in records if record.key == key), None)

    async def reconcile(self, sandboxes: Sequence[Sandbox]) -> None:
        """Catches up after the driver was down: detaches pods that ended, attaches those that wait for devices."""
        dependencies = self._dependencies
        running = {sandbox.pod.uid: sandbox for sandbox in sandboxes if _existing(sandbox.netns)}
        self._running = set(running)
        records = dependencies.attachments.records()
        pods = {record.allocation.pod.uid for record in records}
        async with dependencies.instance_lock.held(), dependencies.locks.hold(*(f"pod {uid}" for uid in pods)):
            await asyncio.to_thread(self._reconcile, {uid: sandbox.netns for uid, sandbox in running.items()})
        unfinished = {record.allocation.pod.uid for record in records if record.stage != ATTACHED}
        for uid in pods & running.keys():
            try:
                await self._attach(running[uid], is_new=uid in unfinished)
            except NotAttached as error:
                _log.warning("cannot attach devices of running pod", extra={"pod": uid, "error": str(error)})
        self.synchronized.set()

    def _reconcile(self, running: Mapping[str, str]) -> None:
        """Keeps the pins of all namespaces that devices are in, also those without records."""
        dependencies, orphans = self._dependencies, self._dependencies.attachments.orphans
        pods = {record.allocation.pod.uid for record in dependencies.attachments.records()}
        pins = {uid: dependencies.pins.pin(uid, netns) for uid, netns in running.items() if uid in pods}
        dependencies.attachments.reconcile({**running, **pins})
        self._with_orphans = {uid for uid, netns in running.items() if orphans.in_pod(netns)}
        records = dependencies.attachments.records()
        in_use = {record.allocation.pod.uid for record in records if record.stage != PREPARED}
        in_use |= {damaged.pod_uid for damaged in dependencies.damaged.list()}
        dependencies.pins.keep_only(
            in_use | {uid for uid, pin in dependencies.pins.list().items() if orphans.in_pod(pin)}
        )

    async def recover_orphans(self) -> None:
        """Brings back links that have a tag and no record: on the host (hardware leaves a pod by itself), and in pinned
        namespaces of pods that are gone. Raises OSError."""
        dependencies, orphans = self._dependencies, self._dependencies.attachments.orphans
        await self._recover(await asyncio.to_thread(orphans.on_host))
        pins = await asyncio.to_thread(dependencies.pins.list)
        recorded = {record.allocation.pod.uid for record in dependencies.attachments.records()}
        for pod_uid in pins.keys() - recorded:
            if not self.may_run(pod_uid, attached=True):
                await self._recover(await asyncio.to_thread(orphans.in_pod, pins[pod_uid]))
                if not any(damaged.pod_uid == pod_uid for damaged in dependencies.damaged.list()):
                    dependencies.pins.unpin(pod_uid)

    async def _recover(self, orphans: Sequence[Orphan], patience: float | None = None) -> None:
        dependencies = self._dependencies
        for orphan in orphans:
            claim = f"claim {orphan.claim_uid}"
            async with dependencies.instance_lock.held(patience), dependencies.locks.hold(claim):
                if await asyncio.to_thread(dependencies.attachments.orphans.recover, orphan):
                    dependencies.reports.link_recovered(orphan.device)

    async def report_health(self, unhealthy: Mapping[str, str]) -> None:
        """Takes the messages of all unhealthy devices; pods and claims that have a device whose health changed get an
        event and a new status."""
        dependencies = self._dependencies
        changed = dependencies.reports.set_unhealthy(unhealthy)
        records = await asyncio.to_thread(dependencies.attachments.records) if changed else ()
        allocations = [allocation for allocation in allocations_in(records) if allocation.device.name in changed]
        for allocation in allocations:
            dependencies.reports.health_changed(allocation)
        for pod, claim in {(allocation.pod, allocation.claim) for allocation in allocations}:
            async with dependencies.locks.hold(f"pod {pod.uid}"):
                attached = await asyncio.to_thread(dependencies.attachments.attached, pod.uid)
                present = allocations_in(dependencies.attachments.of_pod(pod.uid))
                of_claim = [allocation for allocation in present if allocation.claim == claim]
                if attached and of_claim:
                    dependencies.reports.network_changed(pod, claim, of_claim, attached)


def _existing(netns: str) -> str | None:
    """Runtimes name the namespace of a sandbox also when it is gone."""
    return netns if netns and Path(netns).exists() else None
