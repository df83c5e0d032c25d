"""Decisions about claims and volumes, as tables."""

import pytest

from podwire.controllers.volumes import decisions
from podwire.controllers.volumes.decisions import (
    Bind,
    ClaimContext,
    DecideClaim,
    Lose,
    Mismatch,
    Provision,
    Retry,
    SetPhase,
    TakeDefaultClass,
    Unbind,
    Wait,
)
from podwire.objects.persistent_volumes import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    PROVISIONED_BY,
    SELECTED_NODE,
    STORAGE_PROVISIONERS,
)
from tests.controllers.volumes.objects import claim, reference, storage_class, volume

OURS = {BOUND_BY_CONTROLLER: "yes"}
DONE = {BIND_COMPLETED: "yes"}
LATER = storage_class("later", volumeBindingMode="WaitForFirstConsumer")


def decide(given, *volumes, classes=(), pods=()):
    by_name = {row["metadata"]["name"]: row for row in volumes}
    return decisions.decide_claim(given, ClaimContext(by_name.get, volumes, classes, pods))


def shown(decision):
    """A decision in short: its name, and what it names."""
    match decision:
        case Bind(found):
            return "Bind", found["metadata"]["name"]
        case Wait(None):
            return ("Wait",)
        case Wait(event) | Lose(event) | Retry(event):
            return type(decision).__name__, event.reason, event.message
        case Provision(provisioner, event):
            return "Provision", provisioner, event.reason
        case TakeDefaultClass(name):
            return "TakeDefaultClass", name
        case SetPhase(phase, event):
            return "SetPhase", phase, event.reason if event else ""
    return type(decision).__name__ if decision is not None else None


FREE = {"phase": "Available"}


@pytest.mark.parametrize(
    ("given", "volumes", "expected"),
    [
        pytest.param(
            claim(uid="c1"), [volume("a", "5Gi", **FREE), volume("b", "2Gi", **FREE)], ("Bind", "b"), id="smallest"
        ),
        pytest.param(
            claim(uid="c1"),
            [volume("a", "2Gi", **FREE, accessModes=["ReadWriteOnce", "ReadOnlyMany"]), volume("b", "5Gi", **FREE)],
            ("Bind", "b"),
            id="fewest access modes first",
        ),
        pytest.param(
            claim(uid="c1"),
            [volume("a", "1Gi", **FREE), volume("b", "9Gi", claimRef=reference(uid=""))],
            ("Bind", "b"),
            id="a volume that names the claim comes first",
        ),
        pytest.param(
            claim(uid="c1", selector={"matchLabels": {"tier": "ssd"}}),
            [volume("a", **FREE), volume("b", **FREE, labels={"tier": "ssd"})],
            ("Bind", "b"),
            id="selector",
        ),
        pytest.param(
            claim(uid="c1", storageClassName="fast"),
            [volume("a", **FREE), volume("b", **FREE, storageClassName="fast")],
            ("Bind", "b"),
            id="class",
        ),
    ],
)
def test_an_unbound_claim_gets_the_volume_that_fits_best(given, volumes, expected):
    assert shown(decide(given, *volumes)) == expected


NONE_SET = ("Wait", "FailedBinding", "no persistent volumes available for this claim and no storage class is set")


@pytest.mark.parametrize(
    "offered",
    [
        pytest.param(volume(size="1023Mi", **FREE), id="too small"),
        pytest.param(volume(**FREE, accessModes=["ReadOnlyMany"]), id="other access mode"),
        pytest.param(volume(**FREE, volumeMode="Block"), id="other volume mode"),
        pytest.param(volume(**FREE, storageClassName="fast"), id="of a class"),
        pytest.param(volume(phase="Released", claimRef=reference(uid="old")), id="released"),
        pytest.param(volume(phase="Pending"), id="not available yet"),
        pytest.param(volume(**FREE, deleted=True), id="deleted"),
        pytest.param(volume(**FREE, claimRef=reference("other")), id="of another claim"),
        pytest.param(volume(**FREE, volumeAttributesClassName="gold"), id="other attributes class"),
    ],
)
def test_a_volume_that_does_not_fit_is_not_bound(offered):
    assert shown(decide(claim(uid="c1"), offered)) == NONE_SET


def test_an_invalid_selector_matches_no_volume():
    selector = {"matchExpressions": [{"key": "a", "operator": "Near", "values": ["x"]}]}
    assert shown(decide(claim(uid="c1", selector=selector), volume(**FREE))) == NONE_SET


@pytest.mark.parametrize(
    ("offered", "why"),
    [
        (volume(size="1Mi"), "requested PV is too small"),
        (volume(storageClassName="fast"), "storageClassName does not match"),
        (volume(volumeMode="Block"), "incompatible volumeMode"),
        (volume(accessModes=["ReadOnlyMany"]), "incompatible accessMode"),
        (volume(deleted=True), 'the volume is marked for deletion "disk"'),
        (volume(volumeAttributesClassName="gold"), "volumeAttributesClassName does not match"),
    ],
)
def test_a_claim_that_names_an_unsuitable_volume_says_why(offered, why):
    expected = ("Wait", "VolumeMismatch", f'Cannot bind to requested volume "disk": {why}')
    assert shown(decide(claim(uid="c1", volumeName="disk"), offered)) == expected


ELSEWHERE = 'volume "disk" already bound to a different claim.'


@pytest.mark.parametrize(
    ("given", "volumes", "expected"),
    [
        pytest.param(claim(uid="c1", volumeName="disk"), [], ("Wait",), id="volume does not exist yet"),
        pytest.param(claim(uid="c1", volumeName="disk"), [volume()], ("Bind", "disk"), id="free, of any phase"),
        pytest.param(
            claim(uid="c1", volumeName="disk"), [volume(claimRef=reference(uid=""))], ("Bind", "disk"), id="pre-bound"
        ),
        pytest.param(
            claim(uid="c1", volumeName="disk"),
            [volume(claimRef=reference(uid="c2"))],
            ("Wait", "FailedBinding", ELSEWHERE),
            id="named by the user, taken",
        ),
        pytest.param(
            claim(uid="c1", volumeName="disk", annotations=OURS),
            [volume(claimRef=reference(uid="c2"))],
            ("Retry", "FailedBinding", ELSEWHERE),
            id="named by a controller, taken",
        ),
    ],
)
def test_a_claim_that_names_its_volume(given, volumes, expected):
    assert shown(decide(given, *volumes)) == expected


@pytest.mark.parametrize(
    ("given", "volumes", "expected"),
    [
        (claim(uid="c1", annotations=DONE, volumeName="disk"), [volume(claimRef=reference())], ("Bind", "disk")),
        (claim(uid="c1", annotations=DONE, volumeName="disk"), [volume()], ("Bind", "disk")),
        (
            claim(uid="c1", annotations=DONE),
            [],
            ("Lose", "ClaimLost", "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!"),
        ),
        (
            claim(uid="c1", annotations=DONE, volumeName="disk"),
            [],
            ("Lose", "ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!"),
        ),
        (
            claim(uid="c1", annotations=DONE, volumeName="disk"),
            [volume(claimRef=reference(uid="c2"))],
            ("Lose", "ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly"),
        ),
    ],
)
def test_a_claim_whose_binding_was_completed(given, volumes, expected):
    assert shown(decide(given, *volumes)) == expected


FIRST = "waiting for first consumer to be created before binding"


@pytest.mark.parametrize(
    ("given", "classes", "pods", "expected"),
    [
        pytest.param({}, [storage_class(default=True)], (), ("TakeDefaultClass", "fast"), id="default class"),
        pytest.param({"storageClassName": ""}, [storage_class(default=True)], (), NONE_SET, id="explicitly none"),
        pytest.param(
            {"storageClassName": "fast"},
            [storage_class()],
            (),
            ("Provision", "disks.example.com", "ExternalProvisioning"),
            id="external provisioner",
        ),
        pytest.param(
            {"storageClassName": "gone"},
            [storage_class()],
            (),
            ("Wait", "ProvisioningFailed", 'storageclass.storage.k8s.io "gone" not found'),
            id="class does not exist",
        ),
        pytest.param(
            {"storageClassName": "fast"},
            [storage_class(provisioner="kubernetes.io/no-provisioner")],
            (),
            ("Wait", "ProvisioningFailed", "no volume plugin matched name: kubernetes.io/no-provisioner"),
            id="no provisioner",
        ),
        pytest.param(
            {"storageClassName": "later"}, [LATER], (), ("Wait", "WaitForFirstConsumer", FIRST), id="no pod yet"
        ),
        pytest.param(
            {"storageClassName": "later"},
            [LATER],
            ("web",),
            ("Wait", "WaitForPodScheduled", "waiting for pod web to be scheduled"),
            id="a pod without a node",
        ),
        pytest.param(
            {"storageClassName": "later"},
            [LATER],
            ("a", "b"),
            ("Wait", "WaitForPodScheduled", "waiting for pods a,b to be scheduled"),
            id="two pods without a node",
        ),
        pytest.param(
            {"storageClassName": "later", "annotations": {SELECTED_NODE: "n1"}},
            [LATER],
            (),
            ("Provision", "disks.example.com", "ExternalProvisioning"),
            id="node was selected",
        ),
    ],
)
def test_a_claim_without_a_volume_waits_or_is_provisioned(given, classes, pods, expected):
    assert shown(decide(claim(uid="c1", **given), classes=classes, pods=pods)) == expected


def test_a_free_volume_is_left_to_the_scheduler_where_the_class_waits_for_a_pod():
    given = claim(uid="c1", storageClassName="later")
    free = volume(**FREE, storageClassName="later")
    assert shown(decide(given, free, classes=[LATER])) == ("Wait", "WaitForFirstConsumer", FIRST)
    named = volume("named", **FREE, storageClassName="later", claimRef=reference())
    assert shown(decide(given, free, named, classes=[LATER])) == ("Bind", "named")


def test_of_two_default_classes_the_newest_counts_and_then_the_name():
    old, new = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"
    classes = [
        storage_class("a", default=True, created=old),
        storage_class("c", default=True, created=new),
        storage_class("b", default=True, created=new),
    ]
    assert shown(decide(claim(uid="c1"), classes=classes)) == ("TakeDefaultClass", "b")


PROVISIONED = {PROVISIONED_BY: "disks.example.com"}


@pytest.mark.parametrize(
    ("given", "owner", "expected"),
    [
        pytest.param(volume(), None, ("SetPhase", "Available", ""), id="new"),
        pytest.param(volume(phase="Available"), None, None, id="available"),
        pytest.param(volume(claimRef=reference(uid="")), None, ("SetPhase", "Available", ""), id="pre-bound"),
        pytest.param(volume(phase="Bound", claimRef=reference()), None, ("SetPhase", "Released", ""), id="claim gone"),
        pytest.param(
            volume(phase="Bound", claimRef=reference()),
            claim(uid="c2"),
            ("SetPhase", "Released", ""),
            id="another claim of the same name",
        ),
        pytest.param(volume(claimRef=reference()), claim(uid="c1"), "DecideClaim", id="claim not bound yet"),
        pytest.param(volume(claimRef=reference(), volumeMode="Block"), claim(uid="c1"), "Mismatch", id="modes differ"),
        pytest.param(
            volume(claimRef=reference()), claim(uid="c1", volumeName="disk"), ("SetPhase", "Bound", ""), id="bound"
        ),
        pytest.param(
            volume(claimRef=reference(), annotations=OURS), claim(uid="c1", volumeName="b"), "Unbind", id="superfluous"
        ),
        pytest.param(
            volume(claimRef=reference(), annotations=PROVISIONED, persistentVolumeReclaimPolicy="Delete"),
            claim(uid="c1", volumeName="b"),
            ("SetPhase", "Released", ""),
            id="provisioned twice",
        ),
    ],
)
def test_the_phase_of_a_volume_follows_its_claim(given, owner, expected):
    assert shown(decisions.decide_volume(given, owner)) == expected


@pytest.mark.parametrize(
    ("policy", "annotations", "expected"),
    [
        ("Retain", {}, None),
        ("Recycle", {}, ("SetPhase", "Failed", "VolumeFailedRecycle")),
        ("Delete", {}, ("SetPhase", "Failed", "VolumeFailedDelete")),
        ("Delete", PROVISIONED, None),
        ("Burn", {}, ("SetPhase", "Failed", "VolumeUnknownReclaimPolicy")),
    ],
)
def test_a_released_volume_is_reclaimed_by_its_policy(policy, annotations, expected):
    released = volume(
        phase="Released", claimRef=reference(), annotations=annotations, persistentVolumeReclaimPolicy=policy
    )
    assert shown(decisions.decide_volume(released, None)) == expected


def test_the_writes_of_a_binding_are_left_out_when_they_are_done():
    bound = decisions.bound_claim(claim(uid="c1"), "disk")
    assert bound["spec"]["volumeName"] == "disk"
    assert bound["metadata"]["annotations"] == {BIND_COMPLETED: "yes", BOUND_BY_CONTROLLER: "yes"}
    assert decisions.bound_claim(bound, "disk") is None
    by_user = decisions.bound_claim(claim(uid="c1", volumeName="disk"), "disk")
    assert by_user["metadata"]["annotations"] == {BIND_COMPLETED: "yes"}


def test_unbinding_keeps_a_reference_that_a_user_wrote():
    ours = decisions.unbound(volume(claimRef=reference(), annotations=OURS))
    assert "claimRef" not in ours["spec"]
    assert ours["metadata"]["annotations"] == {}
    assert decisions.unbound(volume(claimRef=reference()))["spec"]["claimRef"] == reference(uid="")


def test_the_status_of_a_bound_claim_shows_what_its_volume_offers():
    modes = ["ReadWriteOnce", "ReadOnlyMany"]
    status = decisions.claim_status(claim(uid="c1", phase="Pending"), "Bound", volume(size="5Gi", accessModes=modes))
    assert status == {"phase": "Bound", "accessModes": modes, "capacity": {"storage": "5Gi"}}
    lost = decisions.claim_status({**claim(uid="c1"), "status": status}, "Lost", None)
    assert lost == {"phase": "Lost"}


def test_a_provisioner_is_asked_by_two_annotations_once():
    asked = decisions.with_provisioner(claim(uid="c1"), "disks.example.com")
    assert asked["metadata"]["annotations"] == dict.fromkeys(STORAGE_PROVISIONERS, "disks.example.com")
    assert decisions.with_provisioner(asked, "disks.example.com") is None


def test_both_objects_report_a_mismatch():
    found = decisions.decide_volume(volume(claimRef=reference(), volumeMode="Block"), claim(uid="c1"))
    assert isinstance(found, Mismatch)
    assert found.of_volume.message == (
        'Cannot bind PersistentVolume to requested PersistentVolumeClaim "data" due to incompatible volumeMode.'
    )
    assert found.of_claim.message == (
        'Cannot bind PersistentVolume "disk" to requested PersistentVolumeClaim due to incompatible volumeMode.'
    )
    assert isinstance(decisions.decide_volume(volume(claimRef=reference()), claim(uid="c1")), DecideClaim)
    assert isinstance(
        decisions.decide_volume(volume(claimRef=reference()), claim(uid="c1", volumeName="other")), Unbind
    )
