"""Nothing of a pod is left, whatever was there; and nothing that is not the pod's is touched."""

import pytest

from podwire.kubelet.volumes.errors import VolumeError

EMPTY = {"name": "v", "emptyDir": {}}


async def test_a_mount_inside_a_volume_is_unmounted_and_not_deleted(node, tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("kept")
    pod = await node.pod(volumes=[EMPTY])
    await node.volumes.prepare(pod)
    inside = node.volume(pod, "v", "empty-dir") / "mnt"
    inside.mkdir()
    node.kernel.bind(precious, inside)
    node.kernel.mount("tmpfs", inside, "tmpfs")
    assert len(node.below()) == 2
    await node.volumes.remove(pod.uid)
    assert (precious / "file").read_text() == "kept"
    assert node.below() == []
    assert node.volumes.uids() == set()


async def test_a_mount_among_secrets_is_unmounted(node, tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("kept")
    await node.make("Secret", "keys", data={})
    pod = await node.pod(volumes=[{"name": "v", "secret": {"secretName": "keys"}}])
    await node.volumes.prepare(pod)
    node.kernel.bind(tmp_path / "precious", node.root / "secrets" / pod.uid / "v")
    await node.volumes.remove(pod.uid)
    assert (tmp_path / "precious" / "file").read_text() == "kept"
    assert node.below() == [f"{node.root}/secrets"]


async def test_a_mount_that_is_in_use_is_taken_away_nevertheless(node):
    pod = await node.pod(volumes=[{"name": "v", "emptyDir": {"medium": "Memory"}}])
    await node.volumes.prepare(pod)
    with (node.volume(pod, "v", "empty-dir") / "open").open("w"):
        await node.volumes.remove(pod.uid)
    assert node.below() == []


async def test_symlinks_are_not_followed_by_the_removal(node, tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("kept")
    pod = await node.pod(volumes=[EMPTY])
    await node.volumes.prepare(pod)
    (node.volume(pod, "v", "empty-dir") / "link").symlink_to(precious)
    await node.volumes.remove(pod.uid)
    assert (precious / "file").read_text() == "kept"


async def test_a_pod_that_a_killed_kubelet_left_is_found_and_removed(node):
    pod = await node.pod(volumes=[EMPTY], mounts=[{"name": "v", "mountPath": "/v", "subPath": "a"}])
    await node.volumes.prepare(pod)
    await node.mounts(pod)
    (node.root / "pods" / pod.uid / "etc-hosts").touch()
    again = node.another()
    assert again.uids() == {pod.uid}
    await again.remove(pod.uid)
    assert again.uids() == set()
    assert node.below() == []


async def test_other_pods_are_not_touched(node):
    first, second = await node.pod("a", volumes=[EMPTY]), await node.pod("b", volumes=[EMPTY])
    for item in (first, second):
        await node.volumes.prepare(item)
    await node.volumes.remove(first.uid)
    assert node.volumes.uids() == {second.uid}
    assert node.volume(second, "v", "empty-dir").is_dir()


@pytest.mark.parametrize("uid", ["..", "a/b", ""])
async def test_an_invalid_uid_is_not_removed(node, uid):
    (node.root / "pods").mkdir(parents=True)
    with pytest.raises(VolumeError, match="is not a name of a directory"):
        await node.volumes.remove(uid)
    assert (node.root / "pods").is_dir()
