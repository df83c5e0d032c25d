"""Allocator: finds devices for all claims of a pod on one node. Depth-first, first solution, all or nothing. Pure.

Devices are tried in the order in which drivers list them. When a later request fails, the last pick is undone and the
next device is tried (backtracking).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from podwire.objects import device_taints
from podwire.objects.nodes import Node
from podwire.scheduler.claims import capacities, constraints, selectors
from podwire.scheduler.claims.allocated_devices import AllocatedDevices
from podwire.scheduler.claims.capacities import Amounts
from podwire.scheduler.claims.claim_requests import MAX_DEVICES, ClaimRequests, Request, Subrequest
from podwire.scheduler.claims.devices import Candidate, Identity, Pool

MAX_STEPS = 100_000
"""Devices tried for one pod before the search stops; some requests have more combinations than can be tried."""


class Aborted(Exception):
    """A CEL expression failed on a device, so it is unknown whether the device matches; the pod waits."""


class BudgetExceeded(Exception):
    """The search used up its budget."""


@dataclass(slots=True)
class Budget:
    """Search steps that are left for a pod, over all nodes."""

    left: int = MAX_STEPS

    def spend(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise BudgetExceeded(f"no solution within {MAX_STEPS} tries")


@dataclass(frozen=True, slots=True)
class Pick:
    """A device for a request; `amounts` of it when it is shared."""

    subrequest: Subrequest
    candidate: Candidate
    amounts: Amounts | None = None


@dataclass(frozen=True, slots=True)
class SearchContext:
    """The inputs of a search."""

    node: Node
    pools: Sequence[Pool]
    allocated_devices: AllocatedDevices
    budget: Budget


Picks = tuple[Pick, ...]


def search(claim_requests: Sequence[ClaimRequests], context: SearchContext) -> tuple[Picks, ...] | None:
    """Returns the devices of each claim; None when they cannot all be allocated. Raises Aborted and BudgetExceeded."""
    attempt = _Search(claim_requests, context)
    return tuple(tuple(pick) for pick in attempt.picks) if attempt.claim(0) else None


def _offered(subrequest: Subrequest, context: SearchContext) -> list[Candidate]:
    """Returns the devices whose expressions match or failed, in order."""
    found: list[Candidate] = []
    for pool in context.pools:
        if pool.problem or (pool.node and pool.node != context.node.name):
            continue
        devices = selectors.matching(pool, subrequest.selectors)
        found += devices if pool.node else [device for device in devices if device.node_scope.includes(context.node)]
    return found


class _Search:
    def __init__(self, claim_requests: Sequence[ClaimRequests], context: SearchContext) -> None:
        self._claims = claim_requests
        self._context = context
        self.picks: list[list[Pick]] = [[] for _ in claim_requests]
        self._taken: set[Identity] = set()
        self._shares: dict[Identity, list[Amounts]] = {}

    def claim(self, index: int) -> bool:
        return index == len(self._claims) or self._request(index, 0)

    def _request(self, claim: int, index: int) -> bool:
        claim_requests = self._claims[claim]
        if index == len(claim_requests.requests):
            return self.claim(claim + 1)
        request: Request = claim_requests.requests[index]
        return any(self._subrequest(claim, index, subrequest) for subrequest in request.subrequests)

    def _subrequest(self, claim: int, index: int, subrequest: Subrequest) -> bool:
        if subrequest.count == 0:
            return self._all(claim, index, subrequest)
        if subrequest.count > MAX_DEVICES - len(self.picks[claim]):
            return False
        devices = _offered(subrequest, self._context)
        if not subrequest.admin:
            held, taken = self._context.allocated_devices.held, self._taken
            devices = [device for device in devices if device.identity not in held and device.identity not in taken]
        return self._next(claim, index, subrequest, devices, subrequest.count, 0)

    def _all(self, claim: int, index: int, subrequest: Subrequest) -> bool:
        """Allocates every matching device (allocationMode All); fails if one is missing or taken, or if there is
        none."""
        if any(pool.problem for pool in self._context.pools):
            return False
        devices = _offered(subrequest, self._context)
        begun = len(self.picks[claim])
        if not devices or begun + len(devices) > MAX_DEVICES:
            return False
        for device in devices:
            self._check(device, subrequest)
            if not self._usable(device, subrequest) or not self._take(claim, subrequest, device):
                break
        else:
            if self._request(claim, index + 1):
                return True
        while len(self.picks[claim]) > begun:
            self._give_back(claim)
        return False

    def _next(
        self, claim: int, index: int, subrequest: Subrequest, devices: Sequence[Candidate], left: int, start: int
    ) -> bool:
        """Devices of one request are interchangeable, so they are taken in order and no set is tried twice."""
        if left == 0:
            return self._request(claim, index + 1)
        for at in range(start, len(devices)):
            device = devices[at]
            if len(devices) - at < left and not device.shared:
                continue
            self._context.budget.spend()
            self._check(device, subrequest)
            if not self._usable(device, subrequest) or not self._take(claim, subrequest, device):
                continue
            again = at if device.shared and not subrequest.admin else at + 1
            if self._next(claim, index, subrequest, devices, left - 1, again):
                return True
            self._give_back(claim)
        return False

    def _check(self, device: Candidate, subrequest: Subrequest) -> None:
        if isinstance(why := selectors.matches(device, subrequest.selectors), str):
            raise Aborted(f"request {subrequest.name}: device {'/'.join(device.identity)}: {why}")

    def _usable(self, device: Candidate, subrequest: Subrequest) -> bool:
        """Returns whether a device can be used at all: supported, and its taints tolerated."""
        return not device.refused and not (
            device.taints and any(device_taints.untolerated(device.taints, subrequest.tolerations))
        )

    def _take(self, claim: int, subrequest: Subrequest, device: Candidate) -> bool:
        shared = device.shared and not subrequest.admin
        amounts = self._share(device, subrequest) if shared else None
        had = amounts is not None if shared else self._whole(claim, subrequest, device)
        if not had or not self._goes_with(claim, subrequest, device):
            return False
        self.picks[claim].append(Pick(subrequest, device, amounts))
        if amounts is not None:
            self._shares.setdefault(device.identity, []).append(amounts)
        elif not subrequest.admin:
            self._taken.add(device.identity)
        return True

    def _whole(self, claim: int, subrequest: Subrequest, device: Candidate) -> bool:
        """Returns whether a device is free; with admin access, whether this claim has not picked it already."""
        identity = device.identity
        if subrequest.admin:
            return all(pick.candidate.identity != identity for pick in self.picks[claim])
        if identity in self._taken or self._context.allocated_devices.holders(identity):
            return False
        return not subrequest.amounts or not isinstance(capacities.taken(device, subrequest), str)

    def _share(self, device: Candidate, subrequest: Subrequest) -> Amounts | None:
        amounts = capacities.taken(device, subrequest)
        if isinstance(amounts, str) or device.identity in self._context.allocated_devices.held:
            return None  # held exclusively since before it became shareable
        held = dict(self._context.allocated_devices.shares(device.identity))
        for share in self._shares.get(device.identity, ()):
            for name, amount in share.items():
                held[name] = held.get(name, 0) + amount
        return None if capacities.lacking(device, amounts, held) else amounts

    def _goes_with(self, claim: int, subrequest: Subrequest, device: Candidate) -> bool:
        for constraint in self._claims[claim].constraints:
            if constraints.concerns(constraint, subrequest.name):
                bound = [
                    pick.candidate
                    for pick in self.picks[claim]
                    if constraints.concerns(constraint, pick.subrequest.name)
                ]
                if constraints.broken(constraint, bound, device):
                    return False
        return True

    def _give_back(self, claim: int) -> None:
        pick = self.picks[claim].pop()
        identity = pick.candidate.identity
        if pick.amounts is not None:
            self._shares[identity].pop()
        elif not pick.subrequest.admin:
            self._taken.discard(identity)
