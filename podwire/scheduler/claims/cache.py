"""All that is known of claims, classes and devices, and which claims are being allocated right now.

A claim that has been decided on counts as allocated at once; it stays in flight until the watch tells as much, or until
its pod is given up.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from podwire.objects.claims import Allocation, ResourceClaim
from podwire.objects.device_classes import DeviceClass
from podwire.scheduler.claims.allocated_devices import Ledger
from podwire.scheduler.claims.devices import Inventory
from podwire.scheduler.claims.search_cache import AnswerBook


@dataclass(frozen=True, slots=True)
class Decided:
    """A claim of a pod that was given a node: with the devices it is to get, or None when it has them already."""

    claim: ResourceClaim
    allocation: Allocation | None


@dataclass(slots=True)
class _Flight:
    pod: str
    ref: str
    written: str = ""
    """The resourceVersion that has the allocation; empty while it is on its way."""


class Book:
    def __init__(self) -> None:
        self.inventory = Inventory()
        self.ledger = Ledger()
        self.answers = AnswerBook()
        self.classes: dict[str, DeviceClass] = {}
        self.known = False
        """Whether everything has been listed."""
        self.unserved: set[str] = set()
        """Kinds that the API server does not know; of these there are none."""
        self._claims: dict[str, ResourceClaim] = {}
        self._flights: dict[str, _Flight] = {}

    def claim(self, ref: str) -> ResourceClaim | None:
        return self._claims.get(ref)

    def put_claim(self, claim: ResourceClaim) -> bool:
        """A claim as it is now. Whether that made devices free."""
        before = self._claims.get(claim.ref)
        freed = before is not None and before.uid != claim.uid and self._forget(before)
        self._claims[claim.ref] = claim
        flight = self._flights.get(claim.uid)
        if flight is not None:
            if not claim.allocated and not _reached(claim.metadata.resource_version, flight.written):
                return freed
            del self._flights[claim.uid]
        return self.ledger.put(claim.uid, claim.ref, claim.allocated) or freed

    def drop_claim(self, ref: str) -> bool:
        """Whether that made devices free."""
        claim = self._claims.pop(ref, None)
        return claim is not None and self._forget(claim)

    def _forget(self, claim: ResourceClaim) -> bool:
        self._flights.pop(claim.uid, None)
        return self.ledger.drop(claim.uid)

    def in_flight(self, claim: ResourceClaim) -> bool:
        """Whether it is being allocated for some pod."""
        return claim.uid in self._flights

    def reserve(self, pod: str, decided: Sequence[Decided]) -> None:
        """The devices are taken from now on."""
        for each in decided:
            if each.allocation is not None:
                self._flights[each.claim.uid] = _Flight(pod, each.claim.ref)
                self.ledger.put(each.claim.uid, each.claim.ref, each.allocation.devices.results)

    def wrote(self, claim: ResourceClaim) -> None:
        """The server has the allocation in this version."""
        flight = self._flights.get(claim.uid)
        if flight is not None:
            flight.written = claim.metadata.resource_version
            known = self._claims.get(claim.ref)
            if known is not None and _reached(known.metadata.resource_version, flight.written):
                self.put_claim(known)

    def give_up(self, pod: str) -> bool:
        """The pod's claims that were not written are free again. Whether there were any."""
        lost = [uid for uid, each in self._flights.items() if each.pod == pod and not each.written]
        for uid in lost:
            flight = self._flights.pop(uid)
            known = self._claims.get(flight.ref)
            current = known.allocated if known is not None and known.uid == uid else ()
            self.ledger.put(uid, flight.ref, current)
        return bool(lost)


def _reached(version: str, wanted: str) -> bool:
    """Whether a version is as new as another one, or newer; nothing is as new as what was not written yet."""
    if not wanted:
        return False
    return version == wanted or (version.isdigit() and wanted.isdigit() and int(version) >= int(wanted))
