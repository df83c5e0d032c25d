"""Decisions about claims."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.controllers import claim_rules
from podwire.objects import claims, names, pods
from podwire.objects.claims import FINALIZER, PodClaim

WEB = {"resource": "pods", "name": "web", "uid": "p-1"}
DB = {"resource": "pods", "name": "db", "uid": "p-2"}
ALLOCATION = {"devices": {"results": [{"request": "nic", "driver": "d", "pool": "n1", "device": "eth2"}]}}


def pod(*, phase="Pending", node="", deleting=False, uid="p-1"):
    metadata = {"name": "web", "namespace": "shop", "uid": uid}
    if deleting:
        metadata["deletionTimestamp"] = "2027-01-01T00:00:00Z"
    return pods.read({"metadata": metadata, "spec": {"nodeName": node}, "status": {"phase": phase}})


def claim(*holders, allocated=True, finalizers=(FINALIZER,), deleting=False, owner=""):
    metadata = {"name": "c", "namespace": "shop", "uid": "c-1", "finalizers": list(finalizers)}
    if deleting:
        metadata["deletionTimestamp"] = "2027-01-01T00:00:00Z"
    if owner:
        metadata["ownerReferences"] = [
            {"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": owner, "controller": True}
        ]
    status = {"reservedFor": list(holders)} if holders else {}
    if allocated:
        status["allocation"] = ALLOCATION
    return {"metadata": metadata, "spec": {"devices": {}}, "status": status}


def test_a_claim_from_a_template_belongs_to_its_pod():
    spec = {"devices": {"requests": [{"name": "nic", "exactly": {"deviceClassName": "nics"}}]}}
    template = {"spec": {"metadata": {"labels": {"a": "b"}, "annotations": {"x": "y"}}, "spec": spec}}

    made = claim_rules.generated(pod(), PodClaim(name="nic", resource_claim_template_name="t"), template)

    assert made["metadata"] == {
        "generateName": "web-nic-",
        "namespace": "shop",
        "ownerReferences": [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": "web",
                "uid": "p-1",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
        "annotations": {"x": "y", "resource.kubernetes.io/pod-claim-name": "nic"},
        "finalizers": ["resource.kubernetes.io/delete-protection"],
        "labels": {"a": "b"},
    }
    assert made["spec"] == spec
    assert claims.read(made).owner == ("web", "p-1")


label = st.from_regex("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)
subdomain = st.lists(label, min_size=1, max_size=4).map(".".join).filter(lambda text: len(text) <= 253)


@given(pod_name=subdomain, entry=label)
def test_a_generated_name_is_a_name_and_shows_both_that_it_is_from(pod_name, entry):
    base = claim_rules.base_name(pod_name, entry)

    assert not names.dns_subdomain(f"{base}x2v4q")
    assert len(base) + 5 <= 63 or len(pod_name) + len(entry) + 2 <= claim_rules.LONGEST_BASE
    shown, _, _ = base.partition("-")
    assert pod_name.startswith(shown)


@pytest.mark.parametrize(
    ("given_", "is_over"),
    [
        pytest.param(pod(), False, id="pending"),
        pytest.param(pod(phase="Running", node="n1"), False, id="running"),
        pytest.param(pod(phase="Running", node="n1", deleting=True), False, id="ending"),
        pytest.param(pod(deleting=True), True, id="deleted before it was bound"),
        pytest.param(pod(phase="Succeeded", node="n1"), True, id="succeeded"),
        pytest.param(pod(phase="Failed", node="n1"), True, id="failed"),
    ],
)
def test_a_pod_is_over(given_, is_over):
    assert claim_rules.is_over(given_) is is_over


@pytest.mark.parametrize(
    ("before", "gone", "after"),
    [
        pytest.param(claim(WEB), set(), None, id="nobody is gone"),
        pytest.param(claim(WEB, DB), {"p-1"}, {"reservedFor": [DB], "allocation": ALLOCATION}, id="one of two"),
        pytest.param(claim(WEB), {"p-1"}, {"reservedFor": []}, id="the last takes the devices along"),
        pytest.param(
            claim(WEB, finalizers=()),
            {"p-1"},
            {"reservedFor": [], "allocation": ALLOCATION},
            id="devices that somebody else allocated",
        ),
        pytest.param(claim(), set(), None, id="allocated, and nobody has used it yet"),
        pytest.param(claim(deleting=True), set(), {}, id="deleted, and nobody uses it"),
        pytest.param(claim(WEB, deleting=True), set(), None, id="deleted, and somebody uses it"),
        pytest.param(claim(allocated=False), {"p-1"}, None, id="nothing to release"),
    ],
)
def test_a_claim_loses_reservations_of_deleted_pods(before, gone, after):
    kept = copy.deepcopy(before)

    changed = claim_rules.released(before, gone)

    assert (changed["status"] if changed else None) == after
    assert before == kept


@pytest.mark.parametrize(
    ("before", "was_released", "left"),
    [
        pytest.param(claim(allocated=False), False, None, id="a scheduler is about to allocate"),
        pytest.param(claim(allocated=False), True, [], id="released"),
        pytest.param(claim(allocated=False, finalizers=("x/y", FINALIZER)), True, ["x/y"], id="others keep theirs"),
        pytest.param(claim(allocated=False, deleting=True), False, [], id="deleted"),
        pytest.param(claim(deleting=True), False, None, id="deleted, but it holds devices"),
        pytest.param(claim(allocated=False, finalizers=(), deleting=True), False, None, id="never protected"),
    ],
)
def test_a_claim_that_holds_nothing_may_go(before, was_released, left):
    changed = claim_rules.unprotected(before, was_released=was_released)
    assert (changed["metadata"]["finalizers"] if changed else None) == left


@pytest.mark.parametrize(
    ("before", "holders"),
    [
        pytest.param(claim(), ["p-1"], id="for the first"),
        pytest.param(claim(DB), ["p-2", "p-1"], id="for one more"),
        pytest.param(claim(WEB), None, id="it is"),
        pytest.param(claim(allocated=False), None, id="there is nothing to reserve"),
        pytest.param(claim(deleting=True), None, id="it is going"),
        pytest.param(claim(*({**DB, "uid": f"u{number}"} for number in range(256))), None, id="it is full"),
    ],
)
def test_a_claim_is_reserved_for_a_bound_pod(before, holders):
    changed = claim_rules.reserved(before, pod(node="n1"))
    assert ([item["uid"] for item in changed["status"]["reservedFor"]] if changed else None) == holders


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        pytest.param(claim(owner="p-1"), True, id="made for it"),
        pytest.param(claim(), False, id="made by somebody"),
        pytest.param(claim(owner="p-2"), False, id="made for another"),
        pytest.param(claim(DB, owner="p-1"), False, id="somebody else uses it"),
        pytest.param(claim(owner="p-1", deleting=True), False, id="it is going"),
    ],
)
def test_a_claim_that_was_made_for_a_pod_goes_with_it(given_, expected):
    assert claim_rules.superfluous(claims.read(given_), {"p-1"}) is expected
