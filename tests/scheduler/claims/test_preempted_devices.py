"""Preemption for devices: the claims of victims are counted as free in the dry run, and waited for afterwards."""

import pytest

from podwire.objects import claims, nodes
from podwire.scheduler import Unschedulable, choose, pod_info
from podwire.scheduler.snapshot import Snapshot


def pod(name, claim, priority=0):
    resource_claims = [{"name": "nic", "resourceClaimName": claim}]
    spec = {"containers": [{"name": "c", "image": "i"}], "resourceClaims": resource_claims, "priority": priority}
    return pod_info.read({"metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"}, "spec": spec})


def held(words, name, device, *consumers):
    reserved = [{"resource": "pods", "name": consumer, "uid": f"uid-{consumer}"} for consumer in consumers]
    return words.claim(name, status={**words.allocated(device), "reservedFor": reserved})


@pytest.fixture
def snapshot(words):
    """A node with two devices, one of a pod alone, one of two pods of different priority."""
    made = Snapshot()
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    made.put_node(nodes.read({"metadata": {"name": "n1"}, "status": {"allocatable": allocatable}}))
    made.claims = words.claim_cache(
        slices_=[words.slice("n1", [words.device("a"), words.device("b")])],
        claims_=[held(words, "one", "a", "low"), held(words, "both", "b", "low2", "high"), words.claim("nic")],
    )
    for info in (pod("low", "one"), pod("low2", "both"), pod("high", "both", 5000)):
        made.put_pod(info, "n1")
    return made


def victims(info, snapshot):
    result = choose(info, snapshot)
    assert isinstance(result, Unschedulable)
    return [victim.pod.name for victim in result.preemption.victims] if result.preemption else result.message


def test_a_pod_preempts_the_one_that_holds_its_device(snapshot):
    before = dict(snapshot.claims.allocated_devices.held)
    assert victims(pod("web", "nic", 1000), snapshot) == ["low"]
    assert snapshot.claims.allocated_devices.held == before


def test_a_claim_that_a_pod_of_higher_priority_shares_stays(snapshot, words):
    snapshot.drop_pod("uid-low")
    assert "1 cannot allocate all claims." in victims(pod("web", "nic", 1000), snapshot).partition("preemption: ")[2]


def test_with_all_consumers_of_lower_priority_a_shared_claim_becomes_free(snapshot):
    snapshot.drop_pod("uid-low")
    assert victims(pod("web", "nic", 9000), snapshot) == ["high", "low2"]


def test_the_claims_of_victims_that_are_gone_are_waited_for(snapshot, words):
    info = pod("web", "nic", 1000)
    snapshot.nominations.put(info, "n1")
    snapshot.victims.add("uid-low")
    snapshot.drop_pod("uid-low")  # the claim is released later
    assert "not eligible due to a terminating pod on the nominated node" in victims(info, snapshot)
    snapshot.claims.put_claim(claims.read(words.claim("one")))
    assert not isinstance(choose(info, snapshot), Unschedulable)
