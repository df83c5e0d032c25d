"""Decides whom to ask for what when a pod comes or goes: values, before any of it is done. Pure."""

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
    """Claims of the pod, as they must be on disk before anybody is asked."""
    joined: tuple[ClaimInfo, ...]
    """Claims that others use already, as they are on disk when all their drivers agree."""
    batches: Batches


@dataclass(frozen=True, slots=True)
class UnpreparePlan:
    kept: tuple[ClaimInfo, ...]
    """Others use them."""
    leaving: tuple[ClaimInfo, ...]
    batches: Batches


def plan_prepare(
    user: ClaimUser, claims: Sequence[ResourceClaim], known: Mapping[str, ClaimInfo], boot: str
) -> PreparePlan:
    """ClaimsNotReady as long as what was there before has not gone.

    `known` is by uid; `boot` is the machine's: what was prepared in an earlier one may have gone with it, so drivers
    are asked again. They are also asked whether one more pod may use what they have prepared: an interface is in one
    pod only. Since they are not told which pod it is for, those that have it already come first after a boot.
    """
    names = {(each.namespace, each.name): each for each in known.values()}
    noted, joined, batches = list[ClaimInfo](), list[ClaimInfo](), Batches()
    for claim in claims:
        _check(claim, names.get((claim.namespace, claim.name)))
        before = known.get(claim.uid, claim_info.new(claim))
        joins, record = bool(before.users) and not before.used_by(user.uid), before.with_user(user)
        (joined if joins else noted).append(record)
        for driver, prepared in record.drivers.items():
            if joins and prepared is not None and not record.ready(driver, boot):
                why = f"is to be prepared again for {_named(before.users)} before others use it"
                raise ClaimsNotReady(f"ResourceClaim {claim.name} {why}")
            if joins or not record.ready(driver, boot):
                batches.setdefault(driver, []).append(record)
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
    if ended := [each for each in record.users if not claim.reserved_for(each.uid)]:
        # It was prepared for those: whoever deleted them by force did not wait for drivers to let go.
        raise ClaimsNotReady(f"ResourceClaim {claim.name} is still prepared for {_named(ended)}, which may not use it")


def _named(users: Iterable[ClaimUser]) -> str:
    return ", ".join(f"pod {each.name} ({each.uid})" for each in users) or "nobody"


def plan_unprepare(uid: str, used: Iterable[ClaimInfo]) -> UnpreparePlan:
    """Of the claims that a pod uses, drivers let go of those that nobody else does."""
    kept, leaving, batches = [], [], Batches()
    for each in used:
        if len(each.users) > 1:
            kept.append(each.without_user(uid))
            continue
        record = msgspec.structs.replace(each, leaving=True)
        leaving.append(record)
        for driver in record.drivers:
            batches.setdefault(driver, []).append(record)
    return UnpreparePlan(tuple(kept), tuple(leaving), batches)
