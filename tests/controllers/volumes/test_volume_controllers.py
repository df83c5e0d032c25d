"""The controllers of volumes on a real API server: binding, provisioning, protection, reclaim, expansion."""

import hashlib

import pytest

from podwire.controllers.kinds import ATTACHMENTS, EVENTS, NODES, PODS, STORAGE_CLASSES, VOLUME_CLAIMS, VOLUMES
from podwire.controllers.volumes.attachment import attachment_name
from podwire.objects.persistent_volumes import CLAIM_PROTECTION, LOCAL_PATH, SELECTED_NODE, VOLUME_PROTECTION
from podwire.protocols.k8sapi.client_side import Scope
from podwire.protocols.k8sapi.status import ApiError
from tests.controllers.volumes.objects import claim, storage_class, volume
from tests.eventually import eventually_async


def pod(name, *volumes, node=""):
    spec = {"containers": [{"name": "c", "image": "x"}], "volumes": list(volumes)}
    spec |= {"nodeName": node} if node else {}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def uses(name):
    return {"name": "data", "persistentVolumeClaim": {"claimName": name}}


async def phase(cluster, kind, name, expected, namespace=""):
    async def look():
        found = await cluster.api.get(kind, name, namespace)
        assert found["status"].get("phase") == expected, found
        return found

    return await eventually_async(look)


async def reasons(cluster, name):
    events = await cluster.api.list(EVENTS, Scope(namespace="default"))
    return {(row["reason"], row["message"]) for row in events.items if row["involvedObject"]["name"] == name}


async def reported(cluster, name, reason, text=""):
    async def look():
        found = await reasons(cluster, name)
        assert any(row[0] == reason and text in row[1] for row in found), found
        return True

    await eventually_async(look)


async def gone(cluster, kind, name, namespace=""):
    async def look():
        try:
            return (await cluster.api.get(kind, name, namespace)) is None
        except ApiError as error:
            return error.code == 404

    await eventually_async(look)


async def test_a_claim_is_bound_to_the_smallest_volume_and_both_say_so(cluster):
    await cluster.api.create(volume("large", "5Gi"))
    await cluster.api.create(volume("small", "2Gi"))
    await phase(cluster, VOLUMES, "large", "Available")
    await phase(cluster, VOLUMES, "small", "Available")
    await cluster.api.create(claim("data"))
    bound = await phase(cluster, VOLUME_CLAIMS, "data", "Bound", "default")
    assert bound["spec"]["volumeName"] == "small"
    assert bound["status"] == {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "2Gi"}}
    found = await phase(cluster, VOLUMES, "small", "Bound")
    assert found["spec"]["claimRef"]["uid"] == bound["metadata"]["uid"]
    assert found["status"]["lastPhaseTransitionTime"]
    assert (await cluster.api.get(VOLUMES, "large"))["status"]["phase"] == "Available"


async def test_a_claim_that_waits_is_bound_when_a_volume_appears(cluster):
    await cluster.api.create(claim("data"))
    await reported(cluster, "data", "FailedBinding", "no storage class is set")
    await cluster.api.create(volume("disk"))
    await phase(cluster, VOLUME_CLAIMS, "data", "Bound", "default")


async def test_many_claims_and_volumes_are_paired_one_to_one(cluster):
    for index in range(12):
        await cluster.api.create(volume(f"disk-{index}"))
        await cluster.api.create(claim(f"data-{index}"))
    names = [
        (await phase(cluster, VOLUME_CLAIMS, f"data-{index}", "Bound", "default"))["spec"]["volumeName"]
        for index in range(12)
    ]
    assert len(set(names)) == 12


async def test_a_volume_is_released_with_its_claim_and_kept_or_failed_by_its_policy(cluster):
    policies = {"kept": "Retain", "deleted": "Delete", "recycled": "Recycle"}
    for name, policy in policies.items():
        await cluster.api.create(volume(name, persistentVolumeReclaimPolicy=policy))
        await cluster.api.create(claim(name, volumeName=name))
        await phase(cluster, VOLUME_CLAIMS, name, "Bound", "default")
        await cluster.api.delete(VOLUME_CLAIMS, name, "default")
        await gone(cluster, VOLUME_CLAIMS, name, "default")
    await phase(cluster, VOLUMES, "kept", "Released")
    failed = await phase(cluster, VOLUMES, "recycled", "Failed")
    assert failed["status"]["message"] == "No recycler plugin found for the volume!"
    await phase(cluster, VOLUMES, "deleted", "Failed")
    await reported(cluster, "deleted", "VolumeFailedDelete")


async def test_a_bound_claim_whose_volume_disappears_is_lost(cluster):
    await cluster.api.create(volume("disk"))
    await cluster.api.create(claim("data"))
    await phase(cluster, VOLUME_CLAIMS, "data", "Bound", "default")
    found = await phase(cluster, VOLUMES, "disk", "Bound")
    await cluster.api.delete(VOLUMES, "disk")
    found = await cluster.api.get(VOLUMES, "disk")
    assert found["metadata"]["finalizers"] == [VOLUME_PROTECTION]  # it is bound: deleted, and still there
    found["metadata"]["finalizers"] = []
    await cluster.api.replace(found)
    await phase(cluster, VOLUME_CLAIMS, "data", "Lost", "default")
    await reported(cluster, "data", "ClaimLost")


async def test_a_claim_stays_while_a_pod_on_a_node_uses_it(cluster):
    await cluster.api.create(claim("data"))
    assert (await cluster.api.get(VOLUME_CLAIMS, "data", "default"))["metadata"]["finalizers"] == [CLAIM_PROTECTION]
    await cluster.api.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    made = await cluster.api.create(pod("web", uses("data"), node="n1"))
    await cluster.api.delete(VOLUME_CLAIMS, "data", "default")
    await cluster.api.create(claim("free"))
    await cluster.api.delete(VOLUME_CLAIMS, "free", "default")
    await gone(cluster, VOLUME_CLAIMS, "free", "default")
    kept = await cluster.api.get(VOLUME_CLAIMS, "data", "default")
    assert kept["metadata"]["deletionTimestamp"]
    await cluster.api.delete(PODS, "web", "default", grace_seconds=0, uid=made["metadata"]["uid"])
    await gone(cluster, VOLUME_CLAIMS, "data", "default")


async def test_an_ephemeral_volume_gets_a_claim_that_goes_with_its_pod(cluster):
    template = {"metadata": {"labels": {"app": "web"}}, "spec": claim()["spec"]}
    made = await cluster.api.create(pod("web", {"name": "tmp", "ephemeral": {"volumeClaimTemplate": template}}))
    found = await eventually_async(lambda: _find(cluster, VOLUME_CLAIMS, "web-tmp"))
    assert found["metadata"]["labels"] == {"app": "web"}
    owner = found["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Pod", made["metadata"]["uid"], True)
    await cluster.api.delete(PODS, "web", "default")
    await gone(cluster, VOLUME_CLAIMS, "web-tmp", "default")


async def test_an_ephemeral_volume_does_not_take_the_claim_of_somebody_else(cluster):
    await cluster.api.create(claim("web-tmp"))
    await cluster.api.create(
        pod("web", {"name": "tmp", "ephemeral": {"volumeClaimTemplate": {"spec": claim()["spec"]}}})
    )
    text = "ephemeral volume tmp: PVC default/web-tmp was not created for pod default/web (pod is not owner)"
    await reported(cluster, "web", "FailedBinding", text)


async def _find(cluster, kind, name):
    try:
        return await cluster.api.get(kind, name, "default")
    except ApiError:
        return None


async def local_class(cluster, **fields):
    given = {"volumeBindingMode": "WaitForFirstConsumer", "allowVolumeExpansion": True, **fields}
    await cluster.api.create(storage_class("local-path", LOCAL_PATH, default=True, **given))


async def provisioned(cluster):
    """A claim whose node was selected, and its volume."""
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": {"kubernetes.io/hostname": "n1"}}}
    await cluster.api.create(node)
    await local_class(cluster)
    await cluster.api.create(claim("data"))
    await reported(cluster, "data", "WaitForFirstConsumer")
    patch = {"metadata": {"annotations": {SELECTED_NODE: "n1"}}}
    await cluster.api.patch(VOLUME_CLAIMS, "data", patch, "default")
    bound = await phase(cluster, VOLUME_CLAIMS, "data", "Bound", "default")
    return bound, await phase(cluster, VOLUMES, bound["spec"]["volumeName"], "Bound")


async def test_a_directory_is_provisioned_on_the_selected_node_and_deleted_by_that_node(cluster):
    bound, made = await provisioned(cluster)
    name = f"pvc-{bound['metadata']['uid']}"
    assert made["metadata"]["name"] == name
    assert made["spec"]["local"] == {"path": f"/var/lib/podwire/volumes/{name}"}
    assert made["spec"]["storageClassName"] == "local-path"
    assert made["spec"]["persistentVolumeReclaimPolicy"] == "Delete"
    await reported(cluster, "data", "ProvisioningSucceeded", name)

    await cluster.api.delete(VOLUME_CLAIMS, "data", "default")

    async def look():
        found = await cluster.api.get(VOLUMES, name)
        assert found["metadata"].get("deletionTimestamp")
        assert found["metadata"]["finalizers"] == [LOCAL_PATH]
        return True

    await eventually_async(look)
    await cluster.api.delete(NODES, "n1")  # nobody is left who could remove the directory
    await gone(cluster, VOLUMES, name)


async def test_a_claim_grows_with_its_directory(cluster):
    _bound, made = await provisioned(cluster)
    patch = {"spec": {"resources": {"requests": {"storage": "3Gi"}}}}
    await cluster.api.patch(VOLUME_CLAIMS, "data", patch, "default")

    async def look():
        found = await cluster.api.get(VOLUME_CLAIMS, "data", "default")
        assert found["status"]["capacity"] == {"storage": "3Gi"}
        return True

    await eventually_async(look)
    assert (await cluster.api.get(VOLUMES, made["metadata"]["name"]))["spec"]["capacity"] == {"storage": "3Gi"}


@pytest.mark.parametrize(
    ("fields", "spec", "why"),
    [
        ({"volumeBindingMode": "Immediate"}, {}, "volumeBindingMode must be WaitForFirstConsumer"),
        ({"parameters": {"path": "/tmp"}}, {}, "unknown parameters: path"),
        ({}, {"accessModes": ["ReadWriteMany"]}, "access mode ReadWriteMany is not supported"),
        ({}, {"volumeMode": "Block"}, "volumeMode Block is not supported"),
        ({}, {"selector": {"matchLabels": {"a": "b"}}}, "claim.Spec.Selector is not supported"),
    ],
)
async def test_a_claim_that_no_directory_can_satisfy_is_refused_with_a_reason(cluster, fields, spec, why):
    await local_class(cluster, **fields)
    await cluster.api.create(claim("data", annotations={SELECTED_NODE: "n1"}, **spec))
    await reported(cluster, "data", "ProvisioningFailed", why)
    assert not (await cluster.api.list(VOLUMES)).items


def csi_volume(driver):
    return volume(driver.partition(".")[0], csi={"driver": driver, "volumeHandle": "h1"}, hostPath=None)


async def test_a_csi_volume_is_attached_to_the_node_of_its_pod_and_detached_after_it(cluster):
    driver = {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "free.example.com"}}
    await cluster.api.create({**driver, "spec": {"attachRequired": False}})
    await cluster.api.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    for name in ("disks.example.com", "free.example.com"):
        made = csi_volume(name)
        del made["spec"]["hostPath"]
        await cluster.api.create(made)
        await cluster.api.create(claim(made["metadata"]["name"], volumeName=made["metadata"]["name"]))
        await phase(cluster, VOLUME_CLAIMS, made["metadata"]["name"], "Bound", "default")
    await cluster.api.create(pod("free", uses("free"), node="n1"))
    await cluster.api.create(pod("web", uses("disks"), node="n1"))

    async def attachments():
        return (await cluster.api.list(ATTACHMENTS)).items

    found = await eventually_async(attachments)
    assert [row["spec"] for row in found] == [
        {"attacher": "disks.example.com", "nodeName": "n1", "source": {"persistentVolumeName": "disks"}}
    ]
    await reported(cluster, "web", "FailedAttachVolume", "timed out waiting for external-attacher of disks.example.com")
    patch = {"status": {"attached": True}}
    await cluster.api.patch(ATTACHMENTS, found[0]["metadata"]["name"], patch, subresource="status")
    await reported(cluster, "web", "SuccessfulAttachVolume", 'AttachVolume.Attach succeeded for volume "disks"')
    await cluster.api.delete(PODS, "web", "default", grace_seconds=0)
    await gone(cluster, ATTACHMENTS, found[0]["metadata"]["name"])


def test_the_name_of_an_attachment_is_the_one_that_kubelets_look_up():
    name = attachment_name("disks.example.com", "h1", "n1")
    assert name == "csi-" + hashlib.sha256(b"h1disks.example.comn1").hexdigest()


async def test_a_class_that_appears_later_serves_the_claims_that_wait_for_it(cluster):
    await cluster.api.create(claim("named", storageClassName="fast"))
    await reported(cluster, "named", "ProvisioningFailed", 'storageclass.storage.k8s.io "fast" not found')
    await cluster.api.create(claim("unnamed"))
    await cluster.api.create(storage_class(default=True))
    await reported(cluster, "named", "ExternalProvisioning")
    await reported(cluster, "unnamed", "ExternalProvisioning")
    found = await cluster.api.get(VOLUME_CLAIMS, "unnamed", "default")
    assert found["spec"]["storageClassName"] == "fast"
    assert (await cluster.api.list(STORAGE_CLASSES)).items
