"""Cache of claims, device classes and devices, with the allocations that are not confirmed by a watch yet.

An allocation counts from the moment of the decision (`reserve`). It stays pending until the watch delivers the claim
with that allocation, or until the pod is released (`release_pending`). So two pods that are decided on in a row never
get the same device.
"""

import copy
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from podwire.objects.claims import Allocation, ResourceClaim
from podwire.objects.device_classes import DeviceClass
from podwire.scheduler.claims.allocated_devices import AllocatedDevices
from podwire.scheduler.claims.devices import Inventory
from podwire.scheduler.claims.search_cache import SearchCache


@dataclass(frozen=True, slots=True)
class ClaimDecision:
    """A claim of a pod that got a node; `allocation` is None when the claim already has its devices."""

    claim: ResourceClaim
    allocation: Allocation | None


@dataclass(slots=True)
class _PendingAllocation:
    pod: str
    ref: str
    written: str = ""
    """The resourceVersion of the written allocation; empty while the write is in flight."""


class ClaimCache:
    def __init__(self) -> None:
        self.inventory = Inventory()
        self.allocated_devices = AllocatedDevices()
        self.search_cache = SearchCache()
        self.classes: dict[str, DeviceClass] = {}
        self.known = False
        """Whether claims, slices, classes and taint rules have all been listed."""
        self.unsupported_kinds: set[str] = set()
        """Kinds that the API server does not serve; there are no objects of them."""
        self.forbidden_kinds: dict[str, str] = {}
        """Why kinds that are served cannot be listed: the scheduler lacks permission."""
        self._claims: dict[str, ResourceClaim] = {}
        self._pending_allocations: dict[str, _PendingAllocation] = {}
        self._pending_of_pod: dict[str, set[str]] = {}
        """The uids of claims with pending allocations, by the uid of the pod."""

    def claim(self, ref: str) -> ResourceClaim | None:
        return self._claims.get(ref)

    def put_claim(self, claim: ResourceClaim) -> bool:
        """Stores the claim. Returns whether devices became free."""
        before = self._claims.get(claim.ref)
        freed = before is not None and before.uid != claim.uid and self._forget(before)
        self._claims[claim.ref] = claim
        pending = self._pending_allocations.get(claim.uid)
        if pending is not None:
            if not claim.allocated and not _at_least(claim.metadata.resource_version, pending.written):
                return freed
            self._drop_pending(claim.uid)
        return self.allocated_devices.put(claim.uid, claim.ref, claim.allocated) or freed

    def drop_claim(self, ref: str) -> bool:
        """Forgets the claim. Returns whether devices became free."""
        claim = self._claims.pop(ref, None)
        return claim is not None and self._forget(claim)

    def _forget(self, claim: ResourceClaim) -> bool:
        self._drop_pending(claim.uid)
        return self.allocated_devices.drop(claim.uid)

    def _drop_pending(self, claim: str) -> _PendingAllocation | None:
        pending = self._pending_allocations.pop(claim, None)
        if pending is not None:
            of_pod = self._pending_of_pod[pending.pod]
            of_pod.discard(claim)
            if not of_pod:
                del self._pending_of_pod[pending.pod]
        return pending

    def claims_of(self, pods: Collection[str]) -> list[str]:
        """Returns the uids of allocated claims that are reserved for these pods only, or are about to be."""
        return [
            *(uid for uid, pending in self._pending_allocations.items() if pending.pod in pods),
            *(
                claim.uid
                for claim in self._claims.values()
                if claim.allocated
                and claim.status.reserved_for
                and all(consumer.is_pod and consumer.uid in pods for consumer in claim.status.reserved_for)
            ),
        ]

    def without_pods(self, pods: Collection[str]) -> "ClaimCache":
        """Returns a cache for filters in which the claims of these pods hold no devices; itself if they have none."""
        claims = self.claims_of(pods)
        if not claims:
            return self
        hypothetical = copy.copy(self)
        hypothetical.search_cache = SearchCache()
        hypothetical.allocated_devices = self.allocated_devices.copy()
        for uid in claims:
            hypothetical.allocated_devices.drop(uid)
        return hypothetical

    def is_pending(self, claim: ResourceClaim) -> bool:
        """Returns whether an allocation for this claim is pending."""
        return claim.uid in self._pending_allocations

    def reserve(self, pod: str, decisions: Sequence[ClaimDecision]) -> None:
        """Counts the devices of these decisions as allocated."""
        for decision in decisions:
            if decision.allocation is not None:
                self._drop_pending(decision.claim.uid)
                self._pending_allocations[decision.claim.uid] = _PendingAllocation(pod, decision.claim.ref)
                self._pending_of_pod.setdefault(pod, set()).add(decision.claim.uid)
                self.allocated_devices.put(decision.claim.uid, decision.claim.ref, decision.allocation.devices.results)

    def mark_written(self, claim: ResourceClaim) -> None:
        """The API server has stored the allocation in this version."""
        pending = self._pending_allocations.get(claim.uid)
        if pending is not None:
            pending.written = claim.metadata.resource_version
            known = self._claims.get(claim.ref)
            if known is not None and _at_least(known.metadata.resource_version, pending.written):
                self.put_claim(known)

    def release_pending(self, pod: str) -> bool:
        """Releases the pod's allocations that were not written. Returns whether there were any."""
        lost = [uid for uid in self._pending_of_pod.get(pod, ()) if not self._pending_allocations[uid].written]
        for uid in lost:
            pending = self._drop_pending(uid)
            if pending is None:
                continue
            known = self._claims.get(pending.ref)
            current = known.allocated if known is not None and known.uid == uid else ()
            self.allocated_devices.put(uid, pending.ref, current)
        return bool(lost)


def _at_least(version: str, wanted: str) -> bool:
    """Compares resourceVersions; nothing is as new as an allocation that was not written yet."""
    if not wanted:
        return False
    return version == wanted or (version.isdigit() and wanted.isdigit() and int(version) >= int(wanted))
