"""Has claims prepared for pods, and let go of: one pod at a time on each claim, written down before and after."""

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from podwire.failpoints import declare, failpoint
from podwire.kubelet.claims.checkpoint import ClaimCheckpoint, NotWritten
from podwire.kubelet.claims.claim_info import ClaimInfo, ClaimUser, PreparedDevice
from podwire.kubelet.claims.errors import ClaimsNotReady, NotUnprepared
from podwire.kubelet.claims.plan import PreparePlan, UnpreparePlan, plan_prepare, plan_unprepare
from podwire.kubelet.claims.responses import DriverResults
from podwire.objects.claims import ResourceClaim
from podwire.tasks.keyed_locks import KeyedLocks

NOTED = declare("claims.noted", "it is on disk that a pod uses its claims; no driver was asked yet")
ANSWERED = declare("claims.prepared", "all drivers have prepared a pod's claims; that is not written yet")
WRITTEN = declare("claims.written", "what drivers have prepared is written; nothing is started with it yet")
LEAVING = declare("claims.leaving", "it is on disk that drivers are to let go of claims; none was asked yet")
LET_GO = declare("claims.unprepared", "drivers have let go of claims; that is not on disk yet")
DROPPED = declare("claims.dropped", "claims are off the disk; nobody was told yet")

T = TypeVar("T")


class Asked(Protocol):
    """Drivers, by their names."""

    async def prepare(self, name: str, claims: Sequence[ClaimInfo]) -> DriverResults[tuple[PreparedDevice, ...]]: ...

    async def unprepare(self, name: str, claims: Sequence[ClaimInfo]) -> DriverResults[None]: ...


class ClaimPreparation:
    """`boot` is the machine's: what drivers have prepared since then is there, whichever kubelet asked for it."""

    def __init__(self, ledger: ClaimCheckpoint, drivers: Asked, boot: str) -> None:
        self._ledger = ledger
        self._drivers = drivers
        self._boot = boot
        self._turns = KeyedLocks()

    async def prepare(self, user: ClaimUser, claims: Sequence[ResourceClaim]) -> None:
        """ClaimsNotReady; then what was done stays done, and the next try does the rest.

        1. On disk: who uses what.  2. Each driver is asked once, all at the same time.  3. Written: what they said.
        """
        async with self._turns.hold(*(each.uid for each in claims)):
            plan = plan_prepare(user, claims, self._ledger.records, self._boot)
            try:
                await gather(self._ledger.put(each) for each in plan.noted)
                failpoint(NOTED)
                failures = await self._ask(plan)
            except NotWritten as error:
                raise ClaimsNotReady(f"checkpoint ResourceClaim state: {error}") from error
            if failures:
                raise ClaimsNotReady("; ".join(failures))
            failpoint(WRITTEN)

    async def _ask(self, plan: PreparePlan) -> list[str]:
        """Why it did not work. NotWritten."""
        judged = await _answers({name: self._drivers.prepare(name, claims) for name, claims in plan.batches.items()})
        failpoint(ANSWERED)
        for record in (*plan.noted, *plan.joined):
            done = {name: each.done[record.uid] for name, each in judged.items() if record.uid in each.done}
            if record in plan.joined and done.keys() != record.drivers.keys():
                continue
            # What drivers made does not outlive the machine; that one more pod uses it does.
            await self._ledger.put(record.with_drivers(done, self._boot), durably=record in plan.joined)
        return [each for name in sorted(judged) for each in judged[name].failures]

    async def unprepare(self, uid: str) -> bool:
        """Whether the pod had any claims. NotUnprepared; then the next try does the rest.

        1. On disk: what is to go.  2. Each driver is asked once, all at the same time.  3. Off the disk: what is gone.
        """
        used = {each.uid for each in self._ledger.of_pod(uid)}
        if not used:
            return False
        async with self._turns.hold(*used):
            plan = plan_unprepare(uid, self._ledger.of_pod(uid))
            try:
                await gather(self._ledger.put(each) for each in (*plan.kept, *plan.leaving))
                failpoint(LEAVING)
                failures = await self._part(plan)
            except NotWritten as error:
                raise NotUnprepared(f"checkpoint ResourceClaim state: {error}") from error
            if failures:
                raise NotUnprepared("; ".join(failures))
            failpoint(DROPPED)
        return True

    async def let_go_of_lost(self, uid: str, drivers: Iterable[str]) -> None:
        """Of a claim whose record is damaged, and that no pod uses. NotUnprepared.

        If it is not known whose devices it has, all `drivers` are asked: who knows nothing of it has nothing to do.
        """
        async with self._turns.hold(uid):
            record = self._ledger.lost[uid]
            asked = record.drivers or dict.fromkeys(drivers)
            if uid not in self._ledger.records:
                judged = await _answers({name: self._drivers.unprepare(name, [record]) for name in asked})
                if failures := [each for name in sorted(judged) for each in judged[name].failures]:
                    raise NotUnprepared("; ".join(failures))
                if not judged:
                    raise NotUnprepared("no driver is there that could be asked")
            try:
                await self._ledger.forget_lost(uid)
            except NotWritten as error:
                raise NotUnprepared(f"checkpoint ResourceClaim state: {error}") from error

    async def _part(self, plan: UnpreparePlan) -> list[str]:
        judged = await _answers({name: self._drivers.unprepare(name, claims) for name, claims in plan.batches.items()})
        failpoint(LET_GO)
        for record in plan.leaving:
            done = [name for name, each in judged.items() if record.uid in each.done]
            rest = record.without_drivers(done)
            await (self._ledger.put(rest) if rest.drivers else self._ledger.drop(rest.uid))
        return [each for name in sorted(judged) for each in judged[name].failures]


async def _answers(calls: Mapping[str, Coroutine[None, None, DriverResults[T]]]) -> dict[str, DriverResults[T]]:
    return dict(zip(calls, await gather(calls.values()), strict=True))


async def gather(works: Iterable[Coroutine[None, None, T]]) -> list[T]:
    """What they give, in their order. The first that fails fails for all; the others are given up."""
    todo = list(works)
    if len(todo) == 1:
        return [await todo[0]]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in todo]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [each.result() for each in tasks]
