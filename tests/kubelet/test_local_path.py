"""Directories of a node that are volumes: created once, removed safely, and only after the volume."""

import asyncio
import contextlib
import os

import pytest

from podwire.cluster.apiserver import Options, running
from podwire.cluster.loopback import LoopbackHttp
from podwire.controllers.kinds import VOLUMES
from podwire.controllers.volumes.local_path import volume_for
from podwire.kubelet.local_path import LocalPathLimits, LocalPathVolumes, VolumeDirectories, is_here, is_over
from podwire.linux.errors import LinuxError
from podwire.objects.persistent_volumes import LOCAL_PATH, VOLUME_PROTECTION
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.client_side.recorder import Recorder
from podwire.protocols.k8sapi.server_side import Certificate
from podwire.protocols.k8sapi.status import ApiError
from podwire.transports.clock import SystemClock
from tests.controllers.volumes.objects import claim, storage_class
from tests.eventually import eventually_async

ADMIN = Certificate("admin", ("system:masters",))
NODE = Certificate("system:podwire:local-path:n1", ("system:podwire:local-path",))


@pytest.fixture
def root(tmp_path):
    made = tmp_path / "volumes"
    made.mkdir(0o700)
    return made


def mode(path):
    return path.stat().st_mode & 0o7777


def test_a_directory_is_open_to_the_users_of_its_pods_and_made_once(root):
    directories = VolumeDirectories(root)
    before = os.umask(0o077)
    try:
        directories.create("pvc-1")
    finally:
        os.umask(before)
    assert mode(root / "pvc-1") == 0o777
    (root / "pvc-1").chmod(0o700)
    directories.create("pvc-1")
    assert mode(root / "pvc-1") == 0o700  # what a container has changed stays


def test_a_creation_that_was_interrupted_is_repeated(root):
    (root / ".pvc-1.new").mkdir(0o700)
    VolumeDirectories(root).create("pvc-1")
    assert [path.name for path in root.iterdir()] == ["pvc-1"]
    assert mode(root / "pvc-1") == 0o777


def test_a_symlink_is_neither_used_nor_followed(root, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("x")
    (root / "pvc-1").symlink_to(outside)
    with pytest.raises((OSError, LinuxError)):
        VolumeDirectories(root).create("pvc-1")
    VolumeDirectories(root).remove("pvc-1")
    assert not os.path.lexists(root / "pvc-1")
    assert (outside / "file").read_text() == "x"


def test_removing_follows_no_link_inside_and_is_repeatable(root, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    VolumeDirectories(root).create("pvc-1")
    (root / "pvc-1/deep/er").mkdir(parents=True)
    (root / "pvc-1/deep/link").symlink_to(outside)
    VolumeDirectories(root).remove("pvc-1")
    VolumeDirectories(root).remove("pvc-1")
    assert list(root.iterdir()) == []
    assert outside.is_dir()


def test_a_missing_or_open_root_is_refused(root, tmp_path):
    with pytest.raises(OSError, match="missing"):
        VolumeDirectories(tmp_path / "missing").create("pvc-1")
    root.chmod(0o777)
    with pytest.raises(LinuxError):
        VolumeDirectories(root).create("pvc-1")


def made(uid="c1", node="n1", **changes):
    given = claim("data", uid=uid)
    volume = volume_for(given, storage_class("local", LOCAL_PATH, reclaimPolicy="Delete"), node)
    volume["spec"] |= changes
    return volume


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda _volume: None, True),
        (lambda volume: volume["spec"].update(local={"path": "/etc"}), False),
        (lambda volume: volume["spec"].update(local={"path": "/var/lib/podwire/volumes/../../etc"}), False),
        (lambda volume: volume["metadata"].update(name="other"), False),
        (lambda volume: volume["metadata"].update(finalizers=[]), False),
        (lambda volume: volume["metadata"].update(annotations={}), False),
        (lambda volume: volume["spec"].update(nodeAffinity=made(node="n2")["spec"]["nodeAffinity"]), False),
        (lambda volume: volume["spec"].pop("nodeAffinity"), False),
    ],
)
def test_only_volumes_of_this_node_with_their_own_path_are_touched(change, expected):
    volume = made()
    change(volume)
    assert is_here(volume, "n1") is expected


def test_a_volume_is_over_when_it_is_deleted_and_no_longer_protected():
    volume = made()
    assert not is_over(volume)
    volume["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    volume["metadata"]["finalizers"] = [LOCAL_PATH, VOLUME_PROTECTION]
    assert not is_over(volume)
    volume["metadata"]["finalizers"] = [LOCAL_PATH]
    assert is_over(volume)


@pytest.fixture
async def node(tmp_path, root):
    """A server without controllers, and the keeper of a node's directories with the rights that it has in a cluster."""
    options = Options(data_dir=tmp_path / "api", port=0, store_url="memory://", controllers=frozenset())
    async with running(options) as server:
        handler = server.assembled.server.handle
        own = Client(LoopbackHttp(handler, NODE))
        recorder = Recorder(own, SystemClock(), component=LOCAL_PATH)
        limits = LocalPathLimits(backoff=(0.05, 60.0))
        task = asyncio.create_task(LocalPathVolumes(own, recorder, "n1", root, limits).run())
        try:
            yield Client(LoopbackHttp(handler, ADMIN))
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def unprotect(api, name):
    found = await api.get(VOLUMES, name)
    found["metadata"]["finalizers"] = [LOCAL_PATH]
    await api.replace(found)


async def gone(api, name):
    async def look():
        try:
            return (await api.get(VOLUMES, name)) is None
        except ApiError as error:
            return error.code == 404

    await eventually_async(look)


async def test_a_directory_comes_and_goes_with_its_volume(node, root):
    await node.create(made())
    await node.create(made("c2", node="n2"))
    await eventually_async(lambda: _listed(root, ["pvc-c1"]))
    (root / "pvc-c1/file").write_text("x")
    await node.delete(VOLUMES, "pvc-c1")
    await unprotect(node, "pvc-c1")
    await gone(node, "pvc-c1")
    assert list(root.iterdir()) == []


async def test_a_retained_directory_outlives_its_volume(node, root):
    await node.create(made(persistentVolumeReclaimPolicy="Retain"))
    await eventually_async(lambda: _listed(root, ["pvc-c1"]))
    await node.delete(VOLUMES, "pvc-c1")
    await unprotect(node, "pvc-c1")
    await gone(node, "pvc-c1")
    assert [path.name for path in root.iterdir()] == ["pvc-c1"]


async def test_a_directory_that_cannot_be_created_is_tried_again(node, root):
    root.chmod(0o777)  # not trusted
    await node.create(made())
    kind = node.kind_of({"apiVersion": "v1", "kind": "Event"})

    async def reported():
        return [row for row in (await node.list(kind)).items if row["reason"] == "ProvisioningFailed"]

    found = await eventually_async(reported)
    assert "writable by others" in found[0]["message"]
    root.chmod(0o700)
    await eventually_async(lambda: _listed(root, ["pvc-c1"]))


async def _listed(root, names):
    return [path.name for path in root.iterdir()] == names
