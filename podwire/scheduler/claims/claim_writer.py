"""Claims written before a pod is bound: kept from deletion, then devices and consumer in one write."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec

from podwire.failpoints import declare, failpoint
from podwire.interfaces import Clock
from podwire.objects import claims
from podwire.objects.claims import FINALIZER, Consumer, ResourceClaim
from podwire.objects.pods import Pod
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.client_side import ClientError
from podwire.protocols.k8sapi.status import ApiError
from podwire.scheduler.claims.cache import Book, Decided
from podwire.scheduler.kinds import CLAIMS
from podwire.scheduler.ports import Api
from podwire.scheduler.queue import FIRST_PAUSE, LONGEST_PAUSE

log = logging.getLogger("podwire.scheduler")

_Answer = TypeVar("_Answer")

ATTEMPTS = 5
"""Against others who write to the same claim."""

PROTECTED = declare("scheduler.claim-protected", "a claim has the finalizer; its devices are not written yet")
ALLOCATED = declare("scheduler.claim-allocated", "a claim's devices are written; its pod is not bound yet")


class Lost(Exception):
    """The claim is not what it was when its pod was decided on."""


class ClaimWriter:
    def __init__(self, api: Api, clock: Clock, book: Book) -> None:
        self._api = api
        self._clock = clock
        self._book = book

    async def reserve(self, pod: Pod, decided: Sequence[Decided]) -> None:
        """One claim after the other; whichever was written stays the pod's. Raises Lost and ApiError."""
        for each in decided:
            claim = await self._retried(pod, each)
            if each.allocation is not None:
                self._book.wrote(claim)
                failpoint(ALLOCATED)

    async def deallocate(self, claim: ResourceClaim) -> None:
        """Its devices are free for others; raises ApiError when it has changed meanwhile."""
        await self._patch(claim, {"allocation": None, "reservedFor": None})

    async def _retried(self, pod: Pod, decided: Decided) -> ResourceClaim:
        claim = decided.claim
        for left in reversed(range(ATTEMPTS)):
            if why := _lost(claim, decided):
                raise Lost(why)
            try:
                return await _answered(partial(self._write, claim, pod, decided))
            except ApiError as error:
                if error.code != 409 or not left:
                    raise
            claim = claims.read(await _answered(partial(self._api.get, CLAIMS, claim.name, claim.namespace)))
        raise AssertionError("the last attempt raises")

    async def _write(self, claim: ResourceClaim, pod: Pod, decided: Decided) -> ResourceClaim:
        if claim.allocated and claim.reserved_for(pod.uid):
            return claim
        if decided.allocation is not None and FINALIZER not in claim.metadata.finalizers:
            patch = {**_as_seen(claim), "finalizers": [*claim.metadata.finalizers, FINALIZER]}
            object_ = await self._api.patch(CLAIMS, claim.name, {"metadata": patch}, claim.namespace)
            claim = claims.read(object_)
            failpoint(PROTECTED)
        return await self._patch(claim, self._status(claim, pod, decided))

    def _status(self, claim: ResourceClaim, pod: Pod, decided: Decided) -> dict[str, Any]:
        consumer = Consumer(resource="pods", name=pod.name, uid=pod.uid)
        status: dict[str, Any] = {"reservedFor": msgspec.to_builtins((*claim.status.reserved_for, consumer))}
        if decided.allocation is not None:
            stamped = msgspec.structs.replace(decided.allocation, allocation_timestamp=rfc3339(self._clock.wall()))
            status["allocation"] = msgspec.to_builtins(stamped)
        return status

    async def _patch(self, claim: ResourceClaim, status: dict[str, Any]) -> ResourceClaim:
        patch = {"metadata": _as_seen(claim), "status": status}
        object_ = await self._api.patch(CLAIMS, claim.name, patch, claim.namespace, subresource="status")
        return claims.read(object_)


async def _answered(ask: Callable[[], Awaitable[_Answer]]) -> _Answer:
    """The same asked again until there is an answer: only then it is known whether devices were written, and a write
    that is still on its way somewhere comes too late once this one has been through. Raises ApiError."""
    pause = FIRST_PAUSE
    while True:
        try:
            return await ask()
        except ClientError as error:
            log.info("claim not written yet", extra={"why": str(error)})
        await asyncio.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE)


def _as_seen(claim: ResourceClaim) -> dict[str, Any]:
    return {"uid": claim.uid, "resourceVersion": claim.metadata.resource_version}


def _lost(claim: ResourceClaim, decided: Decided) -> str:
    if claim.uid != decided.claim.uid:
        return f"claim {claim.ref} got deleted in the meantime"
    if claim.deleting:
        return f"claim {claim.ref} is being deleted"
    if decided.allocation is not None and claim.allocated not in ((), decided.allocation.devices.results):
        return f"claim {claim.ref} got allocated elsewhere in the meantime"
    if decided.allocation is None and not claim.allocated:
        return f"claim {claim.ref} is not allocated any more"
    return ""
