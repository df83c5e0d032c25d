"""Empty directories and paths of the node, on the real kernel."""

import os
import socket
import stat

import pytest

from podwire.kubelet.config.fields import NodeFacts
from podwire.kubelet.volumes import VolumesNotReady, host_paths
from podwire.kubelet.volumes.errors import VolumeError
from podwire.kubelet.volumes.steps import memory_size
from podwire.objects import pods
from podwire.objects.volumes import EmptyDir, HostPath


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


async def test_an_empty_directory_is_everybodys(node):
    pod = await node.pod(volumes=[{"name": "v", "emptyDir": {}}], mounts=[{"name": "v", "mountPath": "/v"}])
    await node.volumes.prepare(pod)
    [mount] = await node.mounts(pod)
    there = node.volume(pod, "v", "empty-dir")
    assert (mount.host_path, mount.readonly, mode(there)) == (str(there), False, 0o777)
    assert node.below() == []


async def test_an_empty_directory_belongs_to_the_pods_group(node):
    pod = await node.pod(volumes=[{"name": "v", "emptyDir": {}}], securityContext={"fsGroup": 3000})
    await node.volumes.prepare(pod)
    there = node.volume(pod, "v", "empty-dir")
    assert (mode(there), there.stat().st_gid) == (0o2777, 3000)


async def test_changes_by_a_container_survive_a_kubelet_restart(node):
    pod = await node.pod(volumes=[{"name": "v", "emptyDir": {}}])
    await node.volumes.prepare(pod)
    there = node.volume(pod, "v", "empty-dir")
    there.chmod(0o700)
    (there / "file").write_text("kept")
    await node.another().prepare(pod)
    assert (mode(there), (there / "file").read_text()) == (0o700, "kept")


async def test_a_directory_in_memory_is_a_tmpfs_as_large_as_it_may_be(node):
    volume = {"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}
    pod = await node.pod(volumes=[volume], securityContext={"fsGroup": 3000})
    await node.volumes.prepare(pod)
    there = node.volume(pod, "v", "empty-dir")
    [mount] = [item for item in node.kernel.list() if item.target == str(there)]
    assert mount.kind == "tmpfs"
    assert os.statvfs(there).f_blocks * os.statvfs(there).f_frsize == 2**20
    assert (mode(there), there.stat().st_gid) == (0o3777, 3000)
    with pytest.raises(OSError, match="No space left"):
        (there / "much").write_bytes(bytes(2**20 + 1))


async def test_a_directory_in_memory_is_found_again_and_removed(node):
    pod = await node.pod(volumes=[{"name": "v", "emptyDir": {"medium": "Memory"}}])
    await node.volumes.prepare(pod)
    (node.volume(pod, "v", "empty-dir") / "file").write_text("kept")
    again = node.another()
    await again.prepare(pod)
    assert (node.volume(pod, "v", "empty-dir") / "file").read_text() == "kept"
    assert len(node.below()) == 1
    await again.remove(pod.uid)
    assert node.below() == []
    assert again.uids() == set()


def limited(*limits):
    containers = [{"name": "c", "resources": {"limits": {"memory": limit} if limit else {}}} for limit in limits]
    return pods.read({"metadata": {"name": "x"}, "spec": {"containers": containers}})


@pytest.mark.parametrize(
    ("pod", "limit", "allocatable", "size"),
    [
        pytest.param(limited(None), None, {}, 0, id="nobody says"),
        pytest.param(limited(None), None, {"memory": "1Gi"}, 2**30, id="the node"),
        pytest.param(limited("1Mi", "2Mi"), None, {"memory": "1Gi"}, 3 * 2**20, id="the containers together"),
        pytest.param(limited("1Mi", None), None, {"memory": "1Gi"}, 2**30, id="one container has no limit"),
        pytest.param(limited("1Mi"), "5Ki", {"memory": "1Gi"}, 5 * 2**10, id="the volume"),
        pytest.param(limited("1Mi"), "5Gi", {"memory": "1Gi"}, 2**20, id="the least of all"),
    ],
)
def test_memory_is_as_large_as_the_least_that_is_allowed(pod, limit, allocatable, size):
    facts = NodeFacts(name="n", ips=(), allocatable=allocatable)
    assert memory_size(pod, EmptyDir(medium="Memory", size_limit=limit), facts) == size


@pytest.fixture
def things(tmp_path):
    """One of each kind."""
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("directory")
    (tmp_path / "dangling").symlink_to("nowhere")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        yield {path.name: str(path) for path in tmp_path.iterdir()} | {
            "null": "/dev/null",
            "missing": str(tmp_path / "missing"),
            "deep": str(tmp_path / "a" / "b"),
        }


WORDS = {
    "Directory": "a directory",
    "DirectoryOrCreate": "a directory",
    "File": "a file",
    "FileOrCreate": "a file",
    "Socket": "a socket file",
    "CharDevice": "a character device",
    "BlockDevice": "a block device",
}
RIGHT = {
    "Directory": {"directory", "link"},
    "DirectoryOrCreate": {"directory", "link", "missing", "deep"},
    "File": {"file"},
    "FileOrCreate": {"file", "missing"},
    "Socket": {"socket"},
    "CharDevice": {"null"},
    "BlockDevice": set(),
    "": {"directory", "link", "missing", "deep", "file", "socket", "null", "dangling"},
}


@pytest.mark.parametrize("name", ["directory", "link", "missing", "deep", "file", "socket", "null", "dangling"])
@pytest.mark.parametrize("kind", RIGHT)
def test_a_host_path_has_the_type_that_it_declares(things, kind, name):
    source = HostPath(path=things[name], type=kind)
    if name in RIGHT[kind]:
        host_paths.check(source)
        return
    with pytest.raises(VolumeError) as refused:
        host_paths.check(source)
    made = kind == "FileOrCreate" and name == "deep"
    result = "No such file or directory" if made else f"is not {WORDS[kind]}"
    assert str(refused.value) == f"hostPath type check failed: {things[name]}{':' if made else ''} {result}"


def test_created_host_paths_have_the_usual_modes(things, tmp_path):
    host_paths.check(HostPath(path=things["deep"], type="DirectoryOrCreate"))
    host_paths.check(HostPath(path=things["missing"], type="FileOrCreate"))
    assert mode(tmp_path / "a" / "b") == 0o755
    assert mode(tmp_path / "missing") == 0o644


@pytest.mark.parametrize(
    ("path", "kind", "words"),
    [("/a/../b", "", r"must not contain '\.\.'"), ("/a", "Sockets", "Sockets is an invalid volume type")],
)
def test_a_host_path_that_makes_no_sense_is_refused(path, kind, words):
    with pytest.raises(VolumeError, match=words):
        host_paths.check(HostPath(path=path, type=kind))


async def test_a_path_of_the_node_is_shown_itself(node, tmp_path):
    source = {"path": str(tmp_path), "type": "Directory"}
    mounts = [{"name": "v", "mountPath": "/v", "readOnly": True, "mountPropagation": "HostToContainer"}]
    pod = await node.pod(volumes=[{"name": "v", "hostPath": source}], mounts=mounts)
    await node.volumes.prepare(pod)
    [mount] = await node.mounts(pod)
    assert (mount.host_path, mount.container_path, mount.readonly, mount.propagation) == (str(tmp_path), "/v", True, 1)


async def test_a_mount_of_a_volume_that_is_not_there_is_refused(node):
    pod = await node.pod()
    stranger = pods.read(
        {
            "metadata": {"name": "x", "uid": pod.uid},
            "spec": {"containers": [{"name": "c", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]},
        }
    )
    with pytest.raises(VolumesNotReady, match='cannot find volume "v" to mount into container "c"'):
        await node.mounts(stranger)
