"""Persistent volumes on a node: claims that are not bound, hostPath and local volumes, fsGroup, access by one pod."""

import os
import stat

import pytest

from podwire.kubelet.volumes import VolumesNotReady
from podwire.objects import nodes, pods
from podwire.protocols.k8sapi.builtin import BUILTIN

CLAIM = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
MOUNT = {"name": "v", "mountPath": "/data"}


async def make_claim(node, name="data", *, volume="pv-1", phase="Bound", meta=None, mode="Filesystem"):
    spec = {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "",
        "volumeMode": mode, **({"volumeName": volume} if volume else {}),
    }  # fmt: skip
    meta = {"name": name, "namespace": "default", **(meta or {})}
    object_ = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec}
    claim = await node.api.create(object_)
    kind = BUILTIN.of_kind("v1", "PersistentVolumeClaim")
    await node.api.patch(kind, name, {"status": {"phase": phase}}, "default", subresource="status")
    return claim


async def make_volume(node, claim=None, *, name="pv-1", **spec):
    meta = (claim or {}).get("metadata", {})
    reference = {"namespace": "default", "name": meta.get("name"), "uid": meta.get("uid")}
    given = {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Retain",
        **({"claimRef": reference} if claim else {}), **spec,
    }  # fmt: skip
    return await node.api.create(
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": given}
    )


def on(*names):
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": list(names)}]}
    return {"required": {"nodeSelectorTerms": [term]}}


def local(path, *names):
    return {"local": {"path": str(path)}, "nodeAffinity": on(*(names or ("node-1",)))}


@pytest.fixture
def labelled():
    labels = {"kubernetes.io/hostname": "node-1"}
    return nodes.read({"metadata": {"name": "node-1", "labels": labels}})


async def refused(node, pod):
    with pytest.raises(VolumesNotReady) as error:
        await node.volumes.prepare(pod)
    return error.value.failures


async def test_a_claim_that_is_missing_or_not_bound_is_named_in_upstreams_words(node):
    pod = await node.pod(volumes=[CLAIM], mounts=[MOUNT])
    words = "Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[], "
    words += "failed to process volumes=[v]: error processing PVC default/data: "
    [failure] = await refused(node, pod)
    assert failure == words + 'failed to fetch PVC from API server: persistentvolumeclaims "data" not found'
    claim = await make_claim(node, phase="Pending", volume="")
    assert await refused(node, pod) == (words + "PVC is not bound",)
    patch = {"status": {"phase": "Bound"}}
    kind = BUILTIN.of_kind("v1", "PersistentVolumeClaim")
    await node.api.patch(kind, "data", patch, "default", subresource="status")
    assert await refused(node, pod) == (words + "PVC has empty pvc.Spec.VolumeName",)
    await node.api.patch(kind, "data", {"spec": {"volumeName": "pv-1"}}, "default")
    [failure] = await refused(node, pod)
    assert failure == words + 'failed to fetch PV pv-1 from API server: persistentvolumes "pv-1" not found'
    await make_volume(node, {"metadata": {"name": "data", "uid": "another"}}, hostPath={"path": "/srv"})
    [failure] = await refused(node, pod)
    uid = claim["metadata"]["uid"]
    end = f"its pv.Spec.ClaimRef.UID another does not point to claim.UID {uid}"
    assert failure == f"{words}found PV object pv-1 but {end}"


async def test_a_host_path_volume_is_the_path_of_the_node(node, tmp_path):
    await make_volume(node, await make_claim(node), hostPath={"path": f"{tmp_path}/made", "type": "DirectoryOrCreate"})
    source = {"claimName": "data", "readOnly": True}
    pod = await node.pod(volumes=[{"name": "v", "persistentVolumeClaim": source}], mounts=[MOUNT])
    await node.volumes.prepare(pod)
    [mount] = await node.mounts(pod)
    assert (mount.host_path, mount.readonly) == (f"{tmp_path}/made", True)
    await node.volumes.remove(pod.uid)
    assert (tmp_path / "made").is_dir()


async def test_a_local_volume_is_bind_mounted_and_its_files_stay_when_the_pod_goes(node, tmp_path, labelled):
    node.node = labelled
    disk = tmp_path / "disk"
    disk.mkdir()
    (disk / "file").write_text("kept")
    (disk / "sub").mkdir()
    await make_volume(node, await make_claim(node), **local(disk))
    pod = await node.pod(volumes=[CLAIM], mounts=[MOUNT, {**MOUNT, "mountPath": "/sub", "subPath": "sub/new"}])
    await node.volumes.prepare(pod)
    whole, sub = await node.mounts(pod)
    assert whole.host_path == f"{node.root}/pods/{pod.uid}/volumes/kubernetes.io~local-volume/pv-1"
    assert (disk / "sub/new").samefile(sub.host_path)
    usage = (await node.volumes.usage(pod))["v"]
    assert (usage.claim, usage.capacity > 0) == ("data", True)
    await node.another().prepare(pod)  # a kubelet that starts again mounts nothing twice
    assert node.below().count(whole.host_path) == 1
    await node.volumes.remove(pod.uid)
    assert (disk / "file").read_text() == "kept"
    assert node.below() == []


async def test_a_local_volume_of_another_node_is_refused(node, tmp_path, labelled):
    node.node = labelled
    await make_volume(node, await make_claim(node), **local(tmp_path, "node-2"))
    pod = await node.pod(volumes=[CLAIM], mounts=[MOUNT])
    words = 'MountVolume.NodeAffinity check failed for volume "pv-1" : no matching NodeSelectorTerms'
    assert await refused(node, pod) == (words,)


async def test_a_local_volume_without_a_directory_is_refused_and_mounted_when_it_exists(node, tmp_path, labelled):
    node.node = labelled
    await make_volume(node, await make_claim(node), **local(tmp_path / "disk"))
    pod = await node.pod(volumes=[CLAIM], mounts=[MOUNT])
    words = f'MountVolume.NewMounter initialization failed for volume "pv-1" : path "{tmp_path}/disk" does not exist'
    assert await refused(node, pod) == (words,)
    (tmp_path / "disk").mkdir()
    await node.volumes.prepare(pod)
    await node.volumes.remove(pod.uid)


async def test_files_of_a_local_volume_are_given_to_the_fs_group_and_links_are_not_followed(node, tmp_path, labelled):
    node.node = labelled
    disk, outside = tmp_path / "disk", tmp_path / "outside"
    (disk / "below").mkdir(parents=True)
    outside.write_text("x")
    outside.chmod(0o600)
    (disk / "below/file").write_text("x")
    (disk / "below/file").chmod(0o600)
    (disk / "link").symlink_to(outside)
    await make_volume(node, await make_claim(node), **local(disk))
    pod = await node.pod(volumes=[CLAIM], mounts=[MOUNT], securityContext={"fsGroup": 4321})
    await node.volumes.prepare(pod)
    for path, mode in ((disk, 0o2775), (disk / "below", 0o2775), (disk / "below/file", 0o660)):
        status = path.stat()
        assert (status.st_gid, stat.S_IMODE(status.st_mode)) == (4321, mode), path
    assert (outside.stat().st_gid, stat.S_IMODE(outside.stat().st_mode)) == (0, 0o600)
    await node.volumes.remove(pod.uid)


async def test_on_root_mismatch_leaves_files_alone_when_the_root_fits(node, tmp_path, labelled):
    node.node = labelled
    disk = tmp_path / "disk"
    disk.mkdir()
    os.chown(disk, -1, 4321)
    disk.chmod(0o2770)
    (disk / "file").write_text("x")
    os.chown(disk / "file", -1, 1)
    await make_volume(node, await make_claim(node), **local(disk))
    security = {"fsGroup": 4321, "fsGroupChangePolicy": "OnRootMismatch"}
    pod = await node.pod(volumes=[CLAIM], mounts=[MOUNT], securityContext=security)
    await node.volumes.prepare(pod)
    assert (disk / "file").stat().st_gid == 1
    await node.volumes.remove(pod.uid)


async def test_a_volume_for_one_pod_only_is_refused_to_the_second_until_the_first_is_removed(node, tmp_path):
    claim = await make_claim(node)
    await make_volume(node, claim, accessModes=["ReadWriteOncePod"], hostPath={"path": str(tmp_path)})
    first = await node.pod("first", volumes=[CLAIM], mounts=[MOUNT])
    second = await node.pod("second", volumes=[CLAIM], mounts=[MOUNT])
    await node.volumes.prepare(first)
    words = "volume uses the ReadWriteOncePod access mode and is already in use by another pod"
    assert await refused(node, second) == (f'MountVolume.SetUp failed for volume "pv-1" : {words}',)
    await node.volumes.remove(first.uid)
    await node.volumes.prepare(second)


async def test_a_restarted_kubelet_knows_which_running_pod_has_a_volume(node, tmp_path):
    claim = await make_claim(node)
    await make_volume(node, claim, accessModes=["ReadWriteOncePod"], hostPath={"path": str(tmp_path)})
    first = await node.pod("first", volumes=[CLAIM], mounts=[MOUNT])
    second = await node.pod("second", volumes=[CLAIM], mounts=[MOUNT])
    node.volumes = node.another()
    await node.volumes.refresh(first)
    [failure] = await refused(node, second)
    assert "already in use by another pod" in failure


async def test_an_ephemeral_volume_uses_a_claim_that_the_pod_owns(node, tmp_path):
    template = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
    volume = {"name": "v", "ephemeral": {"volumeClaimTemplate": template}}
    pod = await node.pod(volumes=[volume], mounts=[MOUNT])
    claim = await make_claim(node, "web-v")
    await make_volume(node, claim, hostPath={"path": str(tmp_path)})
    [failure] = await refused(node, pod)
    assert failure.endswith("PVC default/web-v was not created for pod default/web (pod is not owner)")
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": pod.uid, "controller": True}
    kind = BUILTIN.of_kind("v1", "PersistentVolumeClaim")
    await node.api.patch(kind, "web-v", {"metadata": {"ownerReferences": [owner]}}, "default")
    await node.volumes.prepare(pod)
    [mount] = await node.mounts(pod)
    assert mount.host_path == str(tmp_path)


@pytest.mark.parametrize(("text", "groups"), [("1234", (1234,)), ("wheel", ()), ("99999999999", ())])
async def test_the_group_of_a_volume_is_a_supplementary_group_of_its_pods(node, tmp_path, text, groups):
    await make_volume(node, await make_claim(node), hostPath={"path": str(tmp_path)})
    patch = {"metadata": {"annotations": {"pv.beta.kubernetes.io/gid": text}}}
    await node.api.patch(BUILTIN.of_kind("v1", "PersistentVolume"), "pv-1", patch)
    pod = await node.pod(volumes=[CLAIM], mounts=[MOUNT])
    await node.volumes.prepare(pod)
    assert node.volumes.groups(pod) == groups


async def test_a_volume_that_no_container_mounts_is_not_waited_for(node):
    await node.volumes.prepare(await node.pod(volumes=[CLAIM]))


async def test_a_block_volume_is_a_device_and_not_a_mount(node, labelled):
    node.node = labelled
    claim = await make_claim(node, mode="Block")
    await make_volume(node, claim, volumeMode="Block", **local("/dev/null"))
    pod = await node.pod(volumes=[CLAIM], mounts=[MOUNT])
    [failure] = await refused(node, pod)
    assert failure.endswith("volume v has volumeMode Block, but is specified in volumeMounts")
    object_ = {
        "metadata": {"name": "raw", "namespace": "default", "uid": "raw"},
        "spec": {
            "volumes": [CLAIM],
            "containers": [{"name": "c", "volumeDevices": [{"name": "v", "devicePath": "/dev/raw"}]}],
        },
    }
    words = 'MapVolume.MapPodDevice failed for volume "pv-1" : /dev/null is not a block device'
    assert await refused(node, pods.read(object_)) == (words,)


async def test_a_persistent_volume_of_an_unsupported_type_is_refused_by_name(node):
    await make_volume(node, await make_claim(node), nfs={"server": "x", "path": "/"})
    pod = await node.pod(volumes=[CLAIM], mounts=[MOUNT])
    words = "persistent volumes of type nfs are not supported by podwire"
    assert await refused(node, pod) == (f'MountVolume.SetUp failed for volume "pv-1" : {words}',)
