"""From a claim to allocations, as tables; nothing is touched."""

import pytest

from podwire.dradriver.claims import resolution
from podwire.dradriver.claims.allocations import ClaimRef, Device, PodRef, Refused
from podwire.linux.net.sysfs import Hardware
from podwire.objects import claims

POD = PodRef(namespace="default", name="pod", uid="p1")


def offered(device="lan1", *, shared=False):
    return Device(
        name=device,
        link=device,
        ifindex=3,
        kind="veth",
        mac="02:00:00:00:00:01",
        mtu=1500,
        shared=shared,
        hardware=Hardware(),
    )


def claim(*results, name="lan", uid="u1", reserved=("pod",)):
    made = [
        {"request": "nic", "driver": "net.podwire.dev", "pool": "node-1", "device": "lan1", **result}
        for result in results
    ]
    consumers = [
        {"resource": "pods", "name": item, "uid": f"uid of {item}"} if isinstance(item, str) else item
        for item in reserved
    ]
    status = {"allocation": {"devices": {"results": made}}, "reservedFor": consumers} if results else {}
    meta = {"name": name, "namespace": "default", "uid": uid}
    return claims.read({"metadata": meta, "spec": {}, "status": status})


def ordered(claim_, pod=POD, present=lambda _path: True, **devices):
    known = devices or {"lan1": offered()}
    return resolution.resolve_allocations(
        claim_, pod, resolution.NodeView(name="node-1", find=known.get, present=present)
    )


REFUSED = {
    "not allocated": (claim(), "status.allocation: the claim is not allocated"),
    "for nobody": (claim({}, reserved=()), "status.reservedFor: the claim is not reserved for a pod"),
    "for two": (claim({}, reserved=("a", "b")), "status.reservedFor: a, b: a network interface is in one pod"),
    "for no pod": (
        claim({}, reserved=({"apiGroup": "batch", "resource": "jobs", "name": "j", "uid": "j"},)),
        "status.reservedFor: jobs j is not a pod",
    ),
    "another node's": (claim({"pool": "node-2"}), r"results\[0\].pool: node-2 is not the pool of this node, node-1"),
    "an administrator's": (claim({"adminAccess": True}), r"results\[0\].adminAccess"),
    "nowhere": (claim({"device": "lan9"}), r"results\[0\].device: lan9 is not a device of this node"),
}


@pytest.mark.parametrize(("claim_", "why"), REFUSED.values(), ids=REFUSED)
def test_a_claim_that_cannot_be_served_names_the_field(claim_, why):
    with pytest.raises(Refused, match=why):
        served(claim_)


def served(claim_):
    resolution.check_asked(claim_, ClaimRef(namespace="default", name="lan", uid="u1"))
    resolution.consumer_of(claim_)
    return ordered(claim_)


def test_of_two_pods_the_one_that_had_it_before_the_machine_was_started_has_it_again():
    both = claim({}, reserved=("a", "b"))
    assert resolution.consumer_of(both, {"uid of b"}).name == "b"
    with pytest.raises(Refused, match="a, b: a network interface is in one pod"):
        resolution.consumer_of(both, {"uid of one that is gone"})


def test_recreated_claim_is_another_claim():
    with pytest.raises(Refused, match="is u2, not u1: the claim was deleted and created again"):
        resolution.check_asked(claim({}, uid="u2"), ClaimRef(namespace="default", name="lan", uid="u1"))


def test_devices_of_other_drivers_are_left_out():
    found = resolution.ours(claim({"driver": "gpu.example.com", "device": "gpu-0"}, {}))
    assert [(field, each.device) for field, each in found] == [("status.allocation.devices.results[1]", "lan1")]


def test_an_alternative_is_known_by_its_request():
    (allocation,) = ordered(claim({"request": "nic/fast", "shareID": "s1"}))
    assert (allocation.request, allocation.share_id, allocation.pod) == ("nic", "s1", POD)


def test_prepared_devices_cover_a_claim_only_completely():
    both = claim({}, {"device": "lan2"})
    prepared = ordered(both, lan1=offered(), lan2=offered("lan2"))
    assert resolution.covers(prepared, both)
    assert not resolution.covers(prepared[:1], both)
    assert not resolution.covers(prepared, claim({}))
    assert not resolution.covers([], claim({"driver": "gpu.example.com"}))


def test_interfaces_of_one_pod_are_checked_together_without_those_of_other_pods():
    mine = ordered(claim({}))
    same_pod = ordered(claim({"device": "lan1"}, name="other", uid="u2"))
    elsewhere = ordered(claim({}, name="other", uid="u2"), PodRef(namespace="default", name="x", uid="p2"))
    resolution.check_pod(POD, mine, elsewhere)
    with pytest.raises(Refused, match='has "lan1" in this pod too'):
        resolution.check_pod(POD, mine, same_pod)


def test_a_claim_is_not_handed_to_another_pod_while_it_is_prepared():
    prepared = ordered(claim({}))
    resolution.check_same_pod(POD, prepared)
    with pytest.raises(Refused, match="still prepared for pod default/pod"):
        resolution.check_same_pod(PodRef(namespace="default", name="next", uid="p2"), prepared)
