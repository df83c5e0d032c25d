"""Claims that a pod refers to, their admission, and the devices that its containers get."""

import pytest

from podwire.kubelet.claims.claim_info import ClaimInfo, PreparedDevice
from podwire.kubelet.claims.errors import ClaimsNotReady
from podwire.kubelet.claims.pod_claims import (
    PodClaimRef,
    cdi_devices,
    check,
    claim_refs,
    device_requests,
    uses_claims,
    version,
)
from podwire.objects import claims, pods

NAMED = {"name": "a", "resourceClaimName": "mine"}
MADE = {"name": "b", "resourceClaimTemplateName": "fast"}


def pod(entries=(), statuses=(), extended=None, **container):
    status = {"resourceClaimStatuses": list(statuses)}
    if extended is not None:
        status["extendedResourceClaimStatus"] = extended
    return pods.read(
        {
            "metadata": {"name": "p", "namespace": "default", "uid": "u"},
            "spec": {"containers": [{"name": "c", "image": "i", **container}], "resourceClaims": list(entries)},
            "status": status,
        }
    )


def claim(owner="", reserved="u", allocated=True):
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner, "controller": True}] if owner else []
    results = [{"request": "nic", "driver": "d", "pool": "n", "device": "eth2"}]
    return claims.read(
        {
            "metadata": {"name": "mine", "namespace": "default", "uid": "1", "ownerReferences": owners},
            "status": {
                **({"allocation": {"devices": {"results": results}}} if allocated else {}),
                "reservedFor": [{"resource": "pods", "name": "p", "uid": reserved}] if reserved else [],
            },
        }
    )


EXTENDED = {
    "resourceClaimName": "p-extended-resources-x",
    "requestMappings": [{"containerName": "c", "resourceName": "example.org/nic", "requestName": "r0"}],
}


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        pytest.param(pod(), (), id="none"),
        pytest.param(pod([NAMED]), (PodClaimRef("mine", False),), id="by name"),
        pytest.param(
            pod([MADE], [{"name": "b", "resourceClaimName": "p-b-x"}]), (PodClaimRef("p-b-x", True),), id="made for it"
        ),
        pytest.param(pod([MADE], [{"name": "b"}]), (), id="none needed after all"),
        pytest.param(pod([NAMED, {**NAMED, "name": "z"}]), (PodClaimRef("mine", False),), id="named twice"),
        pytest.param(
            pod(extended=EXTENDED), (PodClaimRef("p-extended-resources-x", True),), id="of an extended resource"
        ),
    ],
)
def test_a_pod_uses_each_claim_once(asked, found):
    assert claim_refs(asked) == found
    assert uses_claims(asked) is bool(asked.spec.resource_claims or found)


def test_a_claim_that_was_not_made_yet_is_waited_for():
    with pytest.raises(ClaimsNotReady, match=r'^pod "default/p": ResourceClaim not created yet$'):
        claim_refs(pod([MADE]))


@pytest.mark.parametrize(
    ("use", "found", "why"),
    [
        pytest.param(PodClaimRef("mine", False), claim(), "", id="reserved"),
        pytest.param(PodClaimRef("mine", True), claim(owner="u"), "", id="its own"),
        pytest.param(
            PodClaimRef("mine", True),
            claim(owner="other"),
            "ResourceClaim default/mine was not created for pod default/p (pod is not owner)",
            id="another's own",
        ),
        pytest.param(
            PodClaimRef("mine", False),
            claim(reserved="other"),
            "pod p (u) is not allowed to use ResourceClaim mine (1)",
            id="reserved for another",
        ),
        pytest.param(
            PodClaimRef("mine", False),
            claim(allocated=False),
            "ResourceClaim mine: not allocated",
            id="without devices",
        ),
    ],
)
def test_a_pod_may_use_a_claim_that_is_reserved_for_it(use, found, why):
    if not why:
        check(pod([NAMED]), use, found)
        return
    with pytest.raises(ClaimsNotReady) as reported:
        check(pod([NAMED]), use, found)
    assert str(reported.value) == why


def record(**drivers):
    return ClaimInfo(uid="1", namespace="default", name="mine", allocation="", drivers=drivers)


TWO = record(
    d=(
        PreparedDevice(pool="n", name="a", requests=("x",), cdi=("d/nic=a",)),
        PreparedDevice(pool="n", name="b", cdi=("d/nic=b",)),
    ),
    e=(PreparedDevice(pool="n", name="c", requests=("y", "z"), cdi=("e/gpu=c", "d/nic=b")),),
)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        pytest.param([], (), id="a container that names none gets nothing"),
        pytest.param([{"name": "a"}], ("d/nic=a", "d/nic=b", "e/gpu=c"), id="the whole claim, each device once"),
        pytest.param([{"name": "a", "request": "x"}], ("d/nic=a", "d/nic=b"), id="one request, and what is for all"),
        pytest.param([{"name": "a", "request": "z"}], ("d/nic=b", "e/gpu=c"), id="one of several requests"),
        pytest.param(
            [{"name": "a", "request": "z"}, {"name": "a", "request": "x"}],
            ("d/nic=b", "e/gpu=c", "d/nic=a"),
            id="two requests",
        ),
    ],
)
def test_a_container_gets_the_devices_of_the_claims_it_names(asked, found):
    wanting = pod([NAMED], resources={"claims": asked})
    assert cdi_devices(device_requests(wanting, wanting.spec.containers[0]), {"mine": TWO}) == found


def test_a_container_gets_the_devices_of_its_extended_resource():
    one = record(d=(PreparedDevice(pool="n", name="a", requests=("r0",), cdi=("d/nic=a",)),))
    wanting = pod(extended=EXTENDED)
    assert cdi_devices(device_requests(wanting, wanting.spec.containers[0]), {"p-extended-resources-x": one}) == (
        "d/nic=a",
    )


def test_a_claim_has_changed_when_something_of_it_that_counts_has():
    marks = [version(item) for item in (claim(), claim(owner="u"), claim(reserved="v"), claim(allocated=False))]
    assert len(set(marks)) == len(marks)
    assert version(claim()) == marks[0]


def test_a_claim_that_was_not_made_yet_gives_a_container_nothing():
    wanting = pod([MADE], resources={"claims": [{"name": "b"}]})
    assert list(device_requests(wanting, wanting.spec.containers[0])) == []
