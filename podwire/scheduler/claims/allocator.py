"""Devices for all claims of a pod on one node: depth first, the first solution, all or nothing. Pure.

Devices are tried in the order in which drivers list them. What turns out to be in the way of later requests is given
back, and the next one is tried.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from podwire.objects import device_taints
from podwire.objects.nodes import Node
from podwire.scheduler.claims import capacities, constraints, selectors
from podwire.scheduler.claims.allocated_devices import Ledger
from podwire.scheduler.claims.capacities import Amounts
from podwire.scheduler.claims.claim_requests import MOST_DEVICES, Needs, Request, Way
from podwire.scheduler.claims.devices import Candidate, Identity, Pool

MOST_STEPS = 100_000
"""Devices tried for one pod before the search is given up; some questions have more answers than anybody can try."""


class Aborted(Exception):
    """An expression failed on a device: nobody knows whether it would have done, so the pod waits."""


class GivenUp(Exception):
    """After so many tries."""


@dataclass(slots=True)
class Budget:
    """Steps that are left for a pod, on whatever node."""

    left: int = MOST_STEPS

    def spend(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise GivenUp(f"no solution within {MOST_STEPS} tries")


@dataclass(frozen=True, slots=True)
class Pick:
    """A device for a request; `amounts` of it when it is shared."""

    way: Way
    candidate: Candidate
    amounts: Amounts | None = None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a search looks at."""

    node: Node
    pools: Sequence[Pool]
    ledger: Ledger
    budget: Budget


Picks = tuple[Pick, ...]


def search(needs: Sequence[Needs], around: Surroundings) -> tuple[Picks, ...] | None:
    """The devices of each claim; None when they cannot all be had. Raises Aborted and GivenUp."""
    attempt = _Attempt(needs, around)
    return tuple(tuple(each) for each in attempt.picks) if attempt.claim(0) else None


def _offered(way: Way, around: Surroundings) -> list[Candidate]:
    """The devices that a request may look at, met expressions or failed ones, in order."""
    found: list[Candidate] = []
    for pool in around.pools:
        if not pool.problem:
            found += _near(selectors.sifted(pool, way.selectors), pool, around.node)
    return found


def _near(devices: Sequence[Candidate], pool: Pool, node: Node) -> Sequence[Candidate]:
    if pool.node:
        return devices if pool.node == node.name else ()
    return [each for each in devices if each.reach.reaches(node)]


class _Attempt:
    def __init__(self, needs: Sequence[Needs], around: Surroundings) -> None:
        self._needs = needs
        self._around = around
        self.picks: list[list[Pick]] = [[] for _ in needs]
        self._taken: set[Identity] = set()
        self._shares: dict[Identity, list[Amounts]] = {}

    def claim(self, index: int) -> bool:
        return index == len(self._needs) or self._request(index, 0)

    def _request(self, claim: int, index: int) -> bool:
        needs = self._needs[claim]
        if index == len(needs.requests):
            return self.claim(claim + 1)
        request: Request = needs.requests[index]
        return any(self._way(claim, index, way) for way in request.ways)

    def _way(self, claim: int, index: int, way: Way) -> bool:
        if way.count == 0:
            return self._all(claim, index, way)
        room = MOST_DEVICES - len(self.picks[claim])
        return way.count <= room and self._next(claim, index, way, self._free(way), way.count, 0)

    def _all(self, claim: int, index: int, way: Way) -> bool:
        """Every device that matches, none of them missing or taken; at least one."""
        if any(pool.problem for pool in self._around.pools):
            return False
        devices = _offered(way, self._around)
        begun = len(self.picks[claim])
        if not devices or begun + len(devices) > MOST_DEVICES:
            return False
        for each in devices:
            self._check(each, way)
            if not self._usable(each, way) or not self._take(claim, way, each):
                break
        else:
            if self._request(claim, index + 1):
                return True
        while len(self.picks[claim]) > begun:
            self._give_back(claim)
        return False

    def _free(self, way: Way) -> list[Candidate]:
        devices = _offered(way, self._around)
        if way.admin:
            return devices
        held, taken = self._around.ledger.held, self._taken
        return [each for each in devices if each.identity not in held and each.identity not in taken]

    def _next(self, claim: int, index: int, way: Way, devices: Sequence[Candidate], left: int, start: int) -> bool:
        """Devices of one request are alike, so they are taken in order: no set is tried twice."""
        if left == 0:
            return self._request(claim, index + 1)
        for at in range(start, len(devices)):
            device = devices[at]
            if len(devices) - at < left and not device.shared:
                continue
            self._around.budget.spend()
            self._check(device, way)
            if not self._usable(device, way) or not self._take(claim, way, device):
                continue
            again = at if device.shared and not way.admin else at + 1
            if self._next(claim, index, way, devices, left - 1, again):
                return True
            self._give_back(claim)
        return False

    def _check(self, device: Candidate, way: Way) -> None:
        if isinstance(why := selectors.matches(device, way.selectors), str):
            raise Aborted(f"request {way.name}: device {'/'.join(device.identity)}: {why}")

    def _usable(self, device: Candidate, way: Way) -> bool:
        """Whatever else has been picked."""
        return not device.refused and not (
            device.taints and any(device_taints.untolerated(device.taints, way.tolerations))
        )

    def _take(self, claim: int, way: Way, device: Candidate) -> bool:
        shared = device.shared and not way.admin
        amounts = self._share(device, way) if shared else None
        had = amounts is not None if shared else self._whole(claim, way, device)
        if not had or not self._goes_with(claim, way, device):
            return False
        self.picks[claim].append(Pick(way, device, amounts))
        if amounts is not None:
            self._shares.setdefault(device.identity, []).append(amounts)
        elif not way.admin:
            self._taken.add(device.identity)
        return True

    def _whole(self, claim: int, way: Way, device: Candidate) -> bool:
        """Whether a device can be had alone; or looked at, by admins, whoever has it."""
        identity = device.identity
        if way.admin:
            return all(each.candidate.identity != identity for each in self.picks[claim])
        if identity in self._taken or self._around.ledger.holders(identity):
            return False
        return not way.amounts or not isinstance(capacities.taken(device, way), str)

    def _share(self, device: Candidate, way: Way) -> Amounts | None:
        amounts = capacities.taken(device, way)
        if isinstance(amounts, str) or device.identity in self._around.ledger.held:
            return None  # held whole, from the time before it was shared
        held = dict(self._around.ledger.shares(device.identity))
        for each in self._shares.get(device.identity, ()):
            for name, amount in each.items():
                held[name] = held.get(name, 0) + amount
        return None if capacities.lacking(device, amounts, held) else amounts

    def _goes_with(self, claim: int, way: Way, device: Candidate) -> bool:
        for each in self._needs[claim].constraints:
            if constraints.concerns(each, way.name):
                bound = [pick.candidate for pick in self.picks[claim] if constraints.concerns(each, pick.way.name)]
                if constraints.broken(each, bound, device):
                    return False
        return True

    def _give_back(self, claim: int) -> None:
        pick = self.picks[claim].pop()
        identity = pick.candidate.identity
        if pick.amounts is not None:
            self._shares[identity].pop()
        elif not pick.way.admin:
            self._taken.discard(identity)
