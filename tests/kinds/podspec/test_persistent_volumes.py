"""PersistentVolumes, claims and storage classes: what is refused, in upstream's words."""

import copy

import pytest

from podwire.kinds.podspec import persistent_volume_rules as rules
from tests.controllers.volumes.objects import claim, storage_class, volume

HERE = {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}}


def texts(errors):
    return [str(error) for error in errors]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, []),
        ({"accessModes": []}, ["spec.accessModes: Required value"]),
        (
            {"accessModes": ["ReadWriteOnce", "ReadWriteOncePod"]},
            ["spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes"],
        ),
        ({"capacity": {"storage": "0"}}, ['spec.capacity[storage]: Invalid value: "0": must be greater than zero']),
        ({"hostPath": None}, ["spec: Required value: must specify a volume type"]),
        ({"hostPath": {"path": "/a/../b"}}, ["must not contain '..'"]),
        ({"csi": {"driver": "a", "volumeHandle": "b"}}, ["may not specify more than 1 volume type"]),
        (
            {"hostPath": None, "local": {"path": "/disk"}},
            ["spec.nodeAffinity: Required value: Local volume requires node affinity"],
        ),
        ({"hostPath": None, "local": {"path": "/disk"}, "nodeAffinity": HERE}, []),
        (
            {"nodeAffinity": {}},
            ["spec.nodeAffinity.required: Required value: must specify required node constraints"],
        ),
        ({"hostPath": None, "csi": {"driver": "a"}}, ["spec.csi.volumeHandle: Required value"]),
        ({"persistentVolumeReclaimPolicy": "Burn"}, ['Unsupported value: "Burn"']),
        (
            {"persistentVolumeReclaimPolicy": "Recycle", "hostPath": {"path": "/"}},
            ["may not be 'recycle' for a hostPath mount of '/'"],
        ),
        ({"volumeMode": "Tape"}, ['spec.volumeMode: Unsupported value: "Tape"']),
    ],
)
def test_a_volume_says_what_is_wrong_with_it(spec, expected):
    found = texts(rules.volume(volume(**spec)))
    assert len(found) == len(expected), found
    assert all(part in text for part, text in zip(expected, found, strict=True)), found


def test_the_source_of_a_volume_never_changes():
    old, new = volume(), volume(hostPath={"path": "/other"})
    text = "spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation"
    assert texts(rules.volume_update(new, old)) == [text]
    grown = volume(size="9Gi", persistentVolumeReclaimPolicy="Delete", claimRef={"name": "x"})
    assert rules.volume_update(grown, old) == []


@pytest.mark.parametrize(
    ("change", "bound", "expected"),
    [
        ({"volumeName": "disk"}, False, ""),
        ({"storageClassName": "fast"}, False, ""),
        ({"accessModes": ["ReadOnlyMany"]}, False, "spec is immutable after creation except"),
        ({"resources": {"requests": {"storage": "2Gi"}}}, False, "spec is immutable after creation except"),
        ({"resources": {"requests": {"storage": "2Gi"}}}, True, ""),
        ({"resources": {"requests": {"storage": "1Mi"}}}, True, "field can not be less than status.capacity"),
        ({"resources": {"requests": {}}}, True, "spec.resources[storage]: Required value"),
    ],
)
def test_a_claim_changes_little_after_its_creation(change, bound, expected):
    old = claim(phase="Bound" if bound else "Pending")
    old["status"]["capacity"] = {"storage": "1Gi"} if bound else {}
    new = copy.deepcopy(old)
    new["spec"] |= change
    found = texts(rules.claim_update(new, old))
    assert any(expected in text for text in found) if expected else found == []


def test_the_volume_and_class_of_a_claim_are_set_once():
    old = claim(volumeName="disk", storageClassName="fast", phase="Bound")
    for change in ({"volumeName": "other"}, {"storageClassName": "slow"}):
        new = copy.deepcopy(old)
        new["spec"] |= change
        assert "spec is immutable" in texts(rules.claim_update(new, old))[0]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ""),
        ({"provisioner": ""}, "provisioner: Required value"),
        ({"provisioner": "a b"}, "provisioner: Invalid value"),
        ({"reclaimPolicy": "Recycle"}, 'reclaimPolicy: Unsupported value: "Recycle"'),
        ({"volumeBindingMode": "Later"}, 'volumeBindingMode: Unsupported value: "Later"'),
        ({"parameters": {"": "x"}}, "field can not be empty."),
        ({"parameters": {"a": "x" * 300_000}}, "parameters: Too long"),
    ],
)
def test_a_class_says_what_is_wrong_with_it(fields, expected):
    found = texts(rules.storage_class({**storage_class(), **fields}))
    assert any(expected in text for text in found) if expected else found == []


def test_a_class_keeps_its_provisioner():
    new = storage_class(provisioner="other.example.com")
    assert "provisioner" in texts(rules.storage_class_update(new, storage_class()))[0]
    assert rules.storage_class_update({**storage_class(), "allowVolumeExpansion": True}, storage_class()) == []
