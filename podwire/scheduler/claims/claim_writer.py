"""Writes claims before their pod is bound: first the finalizer, then allocation and consumer in one status patch."""

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
from podwire.protocols.k8sapi.client_side import Client, ClientError
from podwire.protocols.k8sapi.status import ApiError
from podwire.scheduler.claims.cache import ClaimCache, ClaimDecision
from podwire.scheduler.kinds import CLAIMS
from podwire.scheduler.queue import Limits
from podwire.tasks.backoff import Pauses
from podwire.tasks.retry import retry

log = logging.getLogger("podwire.scheduler")

_Result = TypeVar("_Result")

ATTEMPTS = 5
"""Attempts against concurrent writers of the same claim."""

PROTECTED = declare("scheduler.claim-protected", "a claim has the finalizer; its devices are not written yet")
ALLOCATED = declare("scheduler.claim-allocated", "a claim's devices are written; its pod is not bound yet")


class ClaimChanged(Exception):
    """The claim has changed since its pod was decided on."""


class ClaimWriter:
    def __init__(self, api: Client, clock: Clock, claim_cache: ClaimCache, limits: Limits) -> None:
        self._api = api
        self._clock = clock
        self._claim_cache = claim_cache
        self._limits = limits

    async def reserve(self, pod: Pod, decisions: Sequence[ClaimDecision]) -> None:
        """Writes the claims one after the other; those that are written stay reserved for the pod. Raises ClaimChanged,
        ApiError."""
        for decision in decisions:
            claim = await self._retried(pod, decision)
            if decision.allocation is not None:
                self._claim_cache.mark_written(claim)
                failpoint(ALLOCATED)

    async def deallocate(self, claim: ResourceClaim) -> None:
        """Releases the devices of a claim; raises ApiError when the claim has changed meanwhile."""
        await self._patch(claim, {"allocation": None, "reservedFor": None})

    async def _retried(self, pod: Pod, decision: ClaimDecision) -> ResourceClaim:
        claim = decision.claim
        for left in reversed(range(ATTEMPTS)):
            if why := _changed_since(claim, decision):
                raise ClaimChanged(why)
            try:
                return await self._until_answered(partial(self._write, claim, pod, decision))
            except ApiError as error:
                if error.code != 409 or not left:
                    raise
            claim = claims.read(await self._until_answered(partial(self._api.get, CLAIMS, claim.name, claim.namespace)))
        raise AssertionError("the last attempt raises")

    async def _until_answered(self, ask: Callable[[], Awaitable[_Result]]) -> _Result:
        """Repeats a request until there is an answer. Raises ApiError.

        Only an answer tells whether devices were written. An earlier attempt that is still under way fails afterwards
        with a conflict, because each write names the resourceVersion.
        """
        pauses = Pauses(self._limits.initial_backoff, self._limits.max_backoff)
        return await retry(ask, pauses, ClientError, on_failure=_log_failure)

    async def _write(self, claim: ResourceClaim, pod: Pod, decision: ClaimDecision) -> ResourceClaim:
        if claim.allocated and claim.reserved_for(pod.uid):
            return claim
        if decision.allocation is not None and FINALIZER not in claim.metadata.finalizers:
            patch = {**_as_seen(claim), "finalizers": [*claim.metadata.finalizers, FINALIZER]}
            object_ = await self._api.patch(CLAIMS, claim.name, {"metadata": patch}, claim.namespace)
            claim = claims.read(object_)
            failpoint(PROTECTED)
        return await self._patch(claim, self._status(claim, pod, decision))

    def _status(self, claim: ResourceClaim, pod: Pod, decision: ClaimDecision) -> dict[str, Any]:
        consumer = Consumer(resource="pods", name=pod.name, uid=pod.uid)
        status: dict[str, Any] = {"reservedFor": msgspec.to_builtins((*claim.status.reserved_for, consumer))}
        if decision.allocation is not None:
            stamped = msgspec.structs.replace(decision.allocation, allocation_timestamp=rfc3339(self._clock.wall()))
            status["allocation"] = msgspec.to_builtins(stamped)
        return status

    async def _patch(self, claim: ResourceClaim, status: dict[str, Any]) -> ResourceClaim:
        patch = {"metadata": _as_seen(claim), "status": status}
        object_ = await self._api.patch(CLAIMS, claim.name, patch, claim.namespace, subresource="status")
        return claims.read(object_)


def _log_failure(error: BaseException, _pause: float) -> None:
    log.info("cannot write claim yet", extra={"error": str(error)})


def _as_seen(claim: ResourceClaim) -> dict[str, Any]:
    return {"uid": claim.uid, "resourceVersion": claim.metadata.resource_version}


def _changed_since(claim: ResourceClaim, decision: ClaimDecision) -> str:
    if claim.uid != decision.claim.uid:
        return f"claim {claim.ref} got deleted in the meantime"
    if claim.deleting:
        return f"claim {claim.ref} is being deleted"
    if decision.allocation is not None and claim.allocated not in ((), decision.allocation.devices.results):
        return f"claim {claim.ref} got allocated elsewhere in the meantime"
    if decision.allocation is None and not claim.allocated:
        return f"claim {claim.ref} is not allocated any more"
    return ""
