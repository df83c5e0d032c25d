"""Has drivers prepare and unprepare claims: one pod at a time on each claim, recorded before and after.

    prepare                                            unprepare
    1. checkpoint: the pod uses the claims             1. checkpoint: the claims are leaving
    2. every driver is asked once, concurrently        2. every driver is asked once, concurrently
    3. checkpoint: what drivers have prepared          3. the records of unprepared claims are removed

A crash between any two steps leaves a record that names every driver which may have prepared something, and both calls
are idempotent, so the next attempt repeats them. What succeeded stays done when another driver fails.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from podwire.durable.files import Durability
from podwire.failpoints import declare, failpoint
from podwire.kubelet.claims.checkpoint import ClaimCheckpoint, NotWritten
from podwire.kubelet.claims.claim_info import ClaimInfo, ClaimUser, PreparedDevice
from podwire.kubelet.claims.errors import ClaimsNotReady, NotUnprepared
from podwire.kubelet.claims.plan import PreparePlan, UnpreparePlan, plan_prepare, plan_unprepare
from podwire.kubelet.claims.responses import DriverResults
from podwire.objects.claims import ResourceClaim
from podwire.tasks.keyed_locks import KeyedLocks
from podwire.tasks.uncancelled import Uncancelled

NOTED = declare("claims.noted", "it is on disk that a pod uses its claims; no driver was asked yet")
ANSWERED = declare("claims.prepared", "all drivers have prepared a pod's claims; that is not recorded yet")
WRITTEN = declare("claims.written", "the prepared devices are recorded; nothing is started with them yet")
LEAVING = declare("claims.leaving", "it is on disk that claims are to be unprepared; no driver was asked yet")
LET_GO = declare("claims.unprepared", "drivers have unprepared claims; that is not on disk yet")
DROPPED = declare("claims.dropped", "the records of claims are removed; nobody was notified yet")

T = TypeVar("T")


class DriverCalls(Protocol):
    """Calls drivers by name; `Drivers` does."""

    async def prepare(self, name: str, claims: Sequence[ClaimInfo]) -> DriverResults[tuple[PreparedDevice, ...]]: ...

    async def unprepare(self, name: str, claims: Sequence[ClaimInfo]) -> DriverResults[None]: ...


class ClaimPreparation:
    """`boot` is the boot id of the machine: what drivers have prepared since then exists, whichever kubelet asked."""

    def __init__(self, checkpoint: ClaimCheckpoint, drivers: DriverCalls, boot: str, hand_over: float = 2.0) -> None:
        self._checkpoint = checkpoint
        self._drivers = drivers
        self._boot = boot
        self._hand_over = hand_over
        self._locks = KeyedLocks()
        self._uncancelled = Uncancelled()

    async def close(self) -> None:
        """Leave calls in flight: the next kubelet repeats them."""
        await self._uncancelled.drain(0.0)

    async def prepare(self, user: ClaimUser, claims: Sequence[ResourceClaim]) -> None:
        """Raises ClaimsNotReady.

        A pod may be deleted meanwhile: the claims stay locked until their drivers have answered, so that a driver is
        not asked to unprepare what it is about to prepare. A driver that hangs is waited for only `hand_over` seconds.
        """
        preparing = self._uncancelled.start(self._prepare(user, claims))
        try:
            error = await self._uncancelled.result(preparing)
        finally:
            if not preparing.done():
                asyncio.get_running_loop().call_later(self._hand_over, preparing.cancel)
        if error is not None:
            raise error

    async def _prepare(self, user: ClaimUser, claims: Sequence[ResourceClaim]) -> ClaimsNotReady | None:
        async with self._locks.hold(*(claim.uid for claim in claims)):
            plan = plan_prepare(user, claims, self._checkpoint.claims, self._boot)
            try:
                await gather(self._checkpoint.put(claim) for claim in plan.noted)
                failpoint(NOTED)
                failures = await self._ask_prepare(plan)
            except NotWritten as error:
                return ClaimsNotReady(f"checkpoint ResourceClaim state: {error}")
            if failures:
                return ClaimsNotReady("; ".join(failures))
            failpoint(WRITTEN)
        return None

    async def _ask_prepare(self, plan: PreparePlan) -> list[str]:
        results = await _by_driver({name: self._drivers.prepare(name, claims) for name, claims in plan.batches.items()})
        failpoint(ANSWERED)
        for claim in (*plan.noted, *plan.joined):
            done = {name: result.done[claim.uid] for name, result in results.items() if claim.uid in result.done}
            joined = claim in plan.joined
            if joined and done.keys() != claim.drivers.keys():
                continue
            # What drivers prepare does not outlive the machine; that one more pod uses it does.
            durability = Durability.POWER_LOSS if joined else Durability.PROCESS_DEATH
            await self._checkpoint.put(claim.with_drivers(done, self._boot), durability)
        return _failures(results)

    async def unprepare(self, uid: str) -> bool:
        """Returns whether the pod used any claims. Raises NotUnprepared."""
        used = {claim.uid for claim in self._checkpoint.of_pod(uid)}
        if not used:
            return False
        async with self._locks.hold(*used):
            plan = plan_unprepare(uid, self._checkpoint.of_pod(uid))
            try:
                await gather(self._checkpoint.note(claim) for claim in (*plan.kept, *plan.leaving))
                failpoint(LEAVING)
                failures = await self._ask_unprepare(plan)
            except NotWritten as error:
                raise NotUnprepared(f"checkpoint ResourceClaim state: {error}") from error
            if failures:
                raise NotUnprepared("; ".join(failures))
            failpoint(DROPPED)
        return True

    async def _ask_unprepare(self, plan: UnpreparePlan) -> list[str]:
        results = await _by_driver(
            {name: self._drivers.unprepare(name, claims) for name, claims in plan.batches.items()}
        )
        failpoint(LET_GO)
        for claim in plan.leaving:
            rest = claim.without_drivers(name for name, result in results.items() if claim.uid in result.done)
            await (self._checkpoint.note(rest) if rest.drivers else self._checkpoint.remove(rest.uid))
        return _failures(results)

    async def unprepare_damaged(self, uid: str, drivers: Iterable[str]) -> None:
        """Unprepare a claim whose record is damaged and that no pod uses. Raises NotUnprepared.

        If its drivers are unknown, all `drivers` are asked: unprepare of an unknown claim succeeds.
        """
        async with self._locks.hold(uid):
            claim = self._checkpoint.damaged[uid]
            if uid not in self._checkpoint.claims:
                names = claim.drivers or dict.fromkeys(drivers)
                results = await _by_driver({name: self._drivers.unprepare(name, [claim]) for name in names})
                if failures := _failures(results):
                    raise NotUnprepared("; ".join(failures))
                if not results:
                    raise NotUnprepared("no DRA driver is registered")
            try:
                await self._checkpoint.discard_damaged(uid)
            except NotWritten as error:
                raise NotUnprepared(f"checkpoint ResourceClaim state: {error}") from error


def _failures(results: Mapping[str, DriverResults[T]]) -> list[str]:
    return [failure for name in sorted(results) for failure in results[name].failures]


async def _by_driver(calls: Mapping[str, Coroutine[None, None, DriverResults[T]]]) -> dict[str, DriverResults[T]]:
    return dict(zip(calls, await gather(calls.values()), strict=True))


async def gather(works: Iterable[Coroutine[None, None, T]]) -> list[T]:
    """Results in order. The first error is raised and cancels the others."""
    todo = list(works)
    if len(todo) == 1:
        return [await todo[0]]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in todo]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]
