"""Plans which drivers are asked to prepare or unprepare which claims of a pod. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from podwire.kubelet.claims import claim_info
from podwire.kubelet.claims.claim_info import ClaimInfo, ClaimUser
from podwire.kubelet.claims.errors import ClaimsNotReady
from podwire.objects.claims import ResourceClaim

Batches = dict[str, list[ClaimInfo]]
"""By driver: the claims of one call."""


@dataclass(frozen=True, slots=True)
class PreparePlan:
    noted: tuple[ClaimInfo, ...]
    """Claims as they must be on disk before a driver is asked."""
    joined: tuple[ClaimInfo, ...]
    """Claims that other pods use already, as they are recorded when all their drivers agree."""
    batches: Batches


@dataclass(frozen=True, slots=True)
class UnpreparePlan:
    kept: tuple[ClaimInfo, ...]
    """Claims that other pods use."""
    leaving: tuple[ClaimInfo, ...]
    batches: Batches


def plan_prepare(
    user: ClaimUser, claims: Sequence[ResourceClaim], known: Mapping[str, ClaimInfo], boot: str
) -> PreparePlan:
    """Raises ClaimsNotReady as long as an earlier state of a claim is not unprepared.

    `known` is by uid; `boot` is the machine's boot id. What was prepared in an earlier boot may not exist any more, so
    drivers are asked again. They are also asked when one more pod is to use a prepared claim, and may refuse: a network
    interface is in one pod only. The call does not name the pod, so after a boot the pods that used the claim before
    come first.
    """
    names = {(claim.namespace, claim.name): claim for claim in known.values()}
    noted, joined, batches = list[ClaimInfo](), list[ClaimInfo](), Batches()
    for claim in claims:
        _check(claim, names.get((claim.namespace, claim.name)))
        before = known.get(claim.uid, claim_info.new_claim(claim))
        joins, info = bool(before.users) and not before.used_by(user.uid), before.with_user(user)
        (joined if joins else noted).append(info)
        for driver, prepared in info.drivers.items():
            if joins and prepared is not None and not info.ready(driver, boot):
                why = f"is to be prepared again for {_named(before.users)} before others use it"
                raise ClaimsNotReady(f"ResourceClaim {claim.name} {why}")
            if joins or not info.ready(driver, boot):
                batches.setdefault(driver, []).append(info)
    return PreparePlan(tuple(noted), tuple(joined), batches)


def _check(claim: ResourceClaim, record: ClaimInfo | None) -> None:
    if record is None:
        return
    if record.uid != claim.uid:
        why = f"old ResourceClaim with same name {claim.name} and different UID {record.uid} still exists"
        raise ClaimsNotReady(why)
    if record.leaving:
        raise ClaimsNotReady(f"ResourceClaim {claim.name} is being unprepared for {_named(record.users)}")
    if record.allocation != claim_info.fingerprint(claim.allocated):
        why = f"was allocated anew, and what it had before is still prepared for {_named(record.users)}"
        raise ClaimsNotReady(f"ResourceClaim {claim.name} {why}")
    if ended := [user for user in record.users if not claim.reserved_for(user.uid)]:
        # Those pods were deleted by force, before drivers have unprepared the claim.
        raise ClaimsNotReady(f"ResourceClaim {claim.name} is still prepared for {_named(ended)}, which may not use it")


def _named(users: Iterable[ClaimUser]) -> str:
    return ", ".join(f"pod {user.name} ({user.uid})" for user in users) or "no pod"


def plan_unprepare(uid: str, used: Iterable[ClaimInfo]) -> UnpreparePlan:
    """Claims that no other pod uses are unprepared."""
    kept, leaving, batches = [], [], Batches()
    for claim in used:
        if len(claim.users) > 1:
            kept.append(claim.without_user(uid))
            continue
        last = msgspec.structs.replace(claim, leaving=True)
        leaving.append(last)
        for driver in last.drivers:
            batches.setdefault(driver, []).append(last)
    return UnpreparePlan(tuple(kept), tuple(leaving), batches)
