"""Leader election by a Lease: of several processes with the same controllers, one acts.

The lease of the controllers that upstream has, too, is the one of kube-controller-manager, in its form. So a stock
controller-manager beside ours waits while ours leads, and ours waits while it leads. The controllers that only we have
are elected by a lease of their own: they act under any leader of the others. The holder renews the lease; others take
it when they have not seen it change for its duration, measured on their own clock. A holder that cannot renew it in
time stops all controllers before others may take it.
"""

import asyncio
import hashlib
import logging
from dataclasses import dataclass

from podwire.controllers.kinds import LEASES
from podwire.interfaces import Clock
from podwire.objects.times import rfc3339_micro
from podwire.protocols.k8sapi.client_side import Client, ClientError
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object

log = logging.getLogger(__name__)


STOCK_LEASE, OWN_LEASE = "kube-controller-manager", "podwire-controllers"
PREFIX = "podwire_"
"""Our identities begin with this: others can tell our controllers from a stock kube-controller-manager."""
RELEASE_SECONDS = 1.0


def identity_of(host: str, key: str) -> str:
    """Returns the identity of a process. One with the same key is its successor and takes over at once."""
    return f"{PREFIX}{host}_{hashlib.sha256(key.encode()).hexdigest()[:16]}"


class LostLease(Exception):
    """The lease could not be renewed in time, or somebody else has taken it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Election:
    """The candidate, and times in seconds. After a crash of the leader, another one acts within five seconds."""

    identity: str
    name: str = STOCK_LEASE
    namespace: str = "kube-system"
    lease_seconds: float = 4.0
    renew_deadline: float = 3.0
    """The holder gives up when no renewal has succeeded for this long; shorter than the lease. Infinite where nobody
    else can write while we cannot: on a full disk, the controllers go on to delete."""
    retry_seconds: float = 1.0
    """Between two renewals, or two attempts to become the leader."""


def holder_of(lease: Object | None) -> str:
    return str(((lease or {}).get("spec") or {}).get("holderIdentity") or "")


def taken(lease: Object | None, election: Election, now: float) -> Object:
    """Returns the lease as held by us: renewed, taken over, or new."""
    spec = dict((lease or {}).get("spec") or {})
    moment = rfc3339_micro(now)
    if holder_of(lease) != election.identity:
        spec["acquireTime"] = moment
        spec["leaseTransitions"] = (spec.get("leaseTransitions") or 0) + (1 if lease is not None else 0)
    spec |= {
        "holderIdentity": election.identity,
        "leaseDurationSeconds": int(election.lease_seconds),
        "renewTime": moment,
    }
    metadata = {"name": election.name, "namespace": election.namespace}
    base = lease or {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
    return {**base, "spec": spec}


class LeaderElector:
    """Acquires and renews the lease."""

    def __init__(self, api: Client, clock: Clock, election: Election) -> None:
        self._api = api
        self._clock = clock
        self._election = election
        self._lease: Object | None = None
        self._seen = ""
        """The resourceVersion that was seen last, and since when."""
        self._since = 0.0

    async def acquire(self) -> None:
        """Returns when the lease is ours."""
        reported = ""
        while not await self._attempt():
            holder = holder_of(self._lease)
            if holder and holder != reported:
                log.info("another process leads", extra={"holder": holder, "lease": self._election.name})
                reported = holder
            await asyncio.sleep(self._election.retry_seconds)
        log.info(
            "controllers of this process lead",
            extra={"identity": self._election.identity, "lease": self._election.name},
        )

    async def hold(self) -> None:
        """Renews the lease until it is lost. Raises LostLease."""
        renewed = self._clock.monotonic()
        while True:
            await asyncio.sleep(min(self._election.retry_seconds, self._left(renewed)))
            started = self._clock.monotonic()
            try:  # an answer after the deadline would come when another process may already lead
                async with asyncio.timeout(min(self._election.lease_seconds / 2, self._left(renewed))):
                    held = await self._attempt()
            except TimeoutError:
                held = False
            if held:
                renewed = started  # others count from when they see it, which is later
            elif holder_of(self._lease) not in ("", self._election.identity):
                raise LostLease(f"lease was taken by {holder_of(self._lease)}")
            elif not self._left(renewed):
                raise LostLease("lease could not be renewed in time")

    def _left(self, renewed: float) -> float:
        """Returns the seconds in which the lease must be renewed."""
        return max(0.0, renewed + self._election.renew_deadline - self._clock.monotonic())

    async def release(self) -> None:
        """Gives the lease up, so that another process need not wait for its end."""
        if holder_of(self._lease) != self._election.identity or self._lease is None:
            return
        spec = {**self._lease["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                await self._api.replace({**self._lease, "spec": spec})
        except (ApiError, ClientError, TimeoutError) as error:
            log.info("cannot release the lease", extra={"error": str(error)})

    async def _attempt(self) -> bool:
        """Takes or renews the lease, if it is ours or expired. A failed request is a failed attempt."""
        try:
            if holder_of(self._lease) != self._election.identity:
                await self._look()
                if not self._is_free():
                    return False
            new = taken(self._lease, self._election, self._clock.wall())
            self._lease = await (self._api.create(new) if self._lease is None else self._api.replace(new))
        except (ApiError, ClientError) as error:
            if isinstance(error, ApiError) and error.code in (404, 409):
                self._lease = None  # somebody was quicker: look again
            else:
                log.info("cannot update the lease", extra={"error": str(error)})
            return False
        return True

    async def _look(self) -> None:
        try:
            self._lease = await self._api.get(LEASES, self._election.name, self._election.namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            self._lease = None
        version = self._lease["metadata"]["resourceVersion"] if self._lease is not None else ""
        if version != self._seen:
            self._seen, self._since = version, self._clock.monotonic()

    def _is_free(self) -> bool:
        holder = holder_of(self._lease)
        if self._lease is None or holder in ("", self._election.identity):
            return True
        duration = float(self._lease["spec"].get("leaseDurationSeconds") or self._election.lease_seconds)
        return self._clock.monotonic() - self._since > duration
