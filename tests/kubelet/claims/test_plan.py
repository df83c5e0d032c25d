"""Calls to drivers when a pod starts or ends."""

import msgspec
import pytest

from podwire.kubelet.claims import claim_info
from podwire.kubelet.claims.claim_info import ClaimUser, PreparedDevice
from podwire.kubelet.claims.errors import ClaimsNotReady
from podwire.kubelet.claims.plan import plan_prepare, plan_unprepare
from podwire.objects import claims

P, Q = ClaimUser(uid="p", name="p"), ClaimUser(uid="q", name="q")
DONE = (PreparedDevice(pool="n", name="eth2"),)
BOOT = "boot"


def claim(uid="1", name="mine", *drivers, device="eth2", users="pq"):
    results = [{"request": "r", "driver": driver, "pool": "n", "device": device} for driver in drivers or ("d",)]
    reserved = [{"resource": "pods", "name": user, "uid": user} for user in users]
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": reserved}
    return claims.read({"metadata": {"name": name, "namespace": "ns", "uid": uid}, "status": status})


def known(*found):
    return {item.uid: item for item in found}


def asked(batches):
    return {driver: [item.uid for item in found] for driver, found in batches.items()}


def test_of_a_new_pod_each_driver_is_asked_once_for_all_its_claims():
    plan = plan_prepare(P, [claim("1", "a", "d", "e"), claim("2", "b", "d")], {}, BOOT)
    assert asked(plan.batches) == {"d": ["1", "2"], "e": ["1"]}
    assert [(item.uid, item.users, item.drivers) for item in plan.noted] == [
        ("1", (P,), {"d": None, "e": None}),
        ("2", (P,), {"d": None}),
    ]


@pytest.mark.parametrize(
    ("drivers", "boot", "again"),
    [
        pytest.param({"d": DONE, "e": DONE}, BOOT, {}, id="all is there"),
        pytest.param({"d": DONE}, BOOT, {"e": ["1"]}, id="one has not answered"),
        pytest.param({"d": DONE, "e": DONE}, "earlier", {"d": ["1"], "e": ["1"]}, id="before a boot"),
    ],
)
def test_a_prepared_claim_is_prepared_again_only_after_a_boot(drivers, boot, again):
    before = claim_info.new_claim(claim("1", "a", "d", "e")).with_user(P).with_drivers(drivers, boot)
    plan = plan_prepare(P, [claim("1", "a", "d", "e")], known(before), BOOT)
    assert asked(plan.batches) == again
    assert (plan.noted, plan.joined) == ((before,), ())


def test_drivers_decide_whether_another_pod_shares_a_claim():
    before = claim_info.new_claim(claim("1", "a", "d", "e")).with_user(P).with_drivers({"d": DONE, "e": DONE}, BOOT)
    plan = plan_prepare(Q, [claim("1", "a", "d", "e")], known(before), BOOT)
    assert asked(plan.batches) == {"d": ["1"], "e": ["1"]}
    assert (plan.noted, [item.users for item in plan.joined]) == ((), [(P, Q)])


def test_after_a_boot_the_former_user_is_prepared_first():
    before = claim_info.new_claim(claim()).with_user(P).with_drivers({"d": DONE}, "earlier")
    with pytest.raises(ClaimsNotReady, match=r"mine is to be prepared again for pod p \(p\) before others use it"):
        plan_prepare(Q, [claim()], known(before), BOOT)


@pytest.mark.parametrize(
    ("before", "why"),
    [
        pytest.param(
            claim_info.new_claim(claim("0")),
            "old ResourceClaim with same name mine and different UID 0 still exists",
            id="old",
        ),
        pytest.param(
            msgspec.structs.replace(claim_info.new_claim(claim()).with_user(Q), leaving=True),
            "ResourceClaim mine is being unprepared for pod q (q)",
            id="leaving",
        ),
        pytest.param(
            claim_info.new_claim(claim(device="eth3")).with_user(Q),
            "ResourceClaim mine was allocated anew, and what it had before is still prepared for pod q (q)",
            id="allocated anew",
        ),
    ],
)
def test_a_pod_waits_for_the_unpreparation_of_an_older_claim(before, why):
    with pytest.raises(ClaimsNotReady) as reported:
        plan_prepare(P, [claim()], known(before), BOOT)
    assert str(reported.value) == why


def test_a_pod_waits_for_the_claims_of_a_force_deleted_one():
    before = claim_info.new_claim(claim()).with_user(Q).with_drivers({"d": DONE}, BOOT)
    with pytest.raises(ClaimsNotReady, match=r"mine is still prepared for pod q \(q\), which may not use it"):
        plan_prepare(P, [claim(users="p")], known(before), BOOT)


def test_a_claim_is_unprepared_with_its_last_user():
    shared = claim_info.new_claim(claim("1", "a", "d", "e")).with_user(P).with_user(Q)
    own = claim_info.new_claim(claim("2", "b", "d")).with_user(P)
    plan = plan_unprepare("p", [shared, own])
    assert asked(plan.batches) == {"d": ["2"]}
    assert [(item.uid, item.users) for item in plan.kept] == [("1", (Q,))]
    assert [(item.uid, item.users, item.leaving) for item in plan.leaving] == [("2", (P,), True)]
    assert asked(plan_unprepare("q", plan.kept).batches) == {"d": ["1"], "e": ["1"]}
