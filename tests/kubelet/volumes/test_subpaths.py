"""A part of a volume: made, found again, and never anything outside of it."""

import threading
from pathlib import Path

import pytest

from podwire.kubelet.volumes import VolumesNotReady, subpaths
from podwire.kubelet.volumes.errors import VolumeError
from podwire.linux.fs.mounts import KernelMounts

EMPTY = {"name": "v", "emptyDir": {}}


async def scratch(node, *subs, volume=EMPTY, **rest):
    mounts = [{"name": "v", "mountPath": f"/m{number}", **each} for number, each in enumerate(subs)]
    pod = await node.pod(volumes=[volume], mounts=mounts, **rest)
    await node.volumes.prepare(pod)
    return pod, node.volume(pod, "v", "empty-dir")


def read(mount, name=""):
    return Path(mount.host_path, name).read_text()


def names(directory):
    return [path.name for path in Path(directory).iterdir()]


async def test_a_part_that_is_not_there_is_made_with_the_rights_of_the_volume(node):
    pod, volume = await scratch(node, {"subPath": "a/b"}, securityContext={"fsGroup": 3000})
    [mount] = await node.mounts(pod)
    assert mount.host_path == f"{node.root}/pods/{pod.uid}/volume-subpaths/v/c/0"
    assert (volume / "a/b").stat().st_mode & 0o7777 == 0o2777
    assert (volume / "a/b").stat().st_gid == 3000
    (volume / "a/b/file").write_text("there")
    assert read(mount, "file") == "there"


async def test_a_file_of_a_config_map_can_be_shown_alone(node):
    await node.make("ConfigMap", "settings", data={"a.conf": "1"})
    volume = {"name": "v", "configMap": {"name": "settings"}}
    pod, _ = await scratch(node, {"subPath": "a.conf"}, volume=volume)
    [mount] = await node.mounts(pod)
    assert read(mount) == "1"
    assert mount.readonly


async def test_a_restarted_container_gets_the_present_target_of_the_path(node):
    pod, volume = await scratch(node, {"subPath": "a"})
    [first] = await node.mounts(pod)
    assert await node.mounts(pod) == (first,)
    assert len(node.below()) == 1
    (volume / "a").rename(volume / "old")
    (volume / "a").write_text("a file now")
    await node.mounts(pod)
    assert read(first) == "a file now"
    assert len(node.below()) == 1


async def test_variables_expand_in_a_subpath(node):
    pod, volume = await scratch(node, {"subPathExpr": "logs/$(NAME)$$"})
    await node.mounts(pod, {"NAME": "web-0"})
    assert (volume / "logs/web-0$").is_dir()


@pytest.mark.parametrize(
    ("sub", "env", "words"),
    [
        pytest.param({"subPathExpr": "$(NAME)"}, {}, 'missing value for "NAME"', id="a variable that is not there"),
        pytest.param({"subPathExpr": "$(NAME)"}, {"NAME": "/etc"}, "must not be an absolute path", id="absolute"),
        pytest.param({"subPathExpr": "$(NAME)"}, {"NAME": "../x"}, r"must not contain '\.\.'", id="upwards"),
    ],
)
async def test_a_part_that_cannot_be_is_refused(node, sub, env, words):
    pod, _ = await scratch(node, sub)
    with pytest.raises(VolumesNotReady, match=words) as refused:
        await node.mounts(pod, env)
    assert str(refused.value).startswith('failed to prepare subPath for volumeMount "v" of container "c": ')


@pytest.mark.parametrize(
    "target", ["/etc", "../../../../../../../../../../etc", "../other"], ids=["absolute", "upwards", "beside"]
)
@pytest.mark.parametrize("sub", ["way", "way/deeper"])
async def test_a_link_out_of_the_volume_is_refused(node, target, sub):
    pod, volume = await scratch(node, {"subPath": sub})
    (volume / "way").symlink_to(target)
    with pytest.raises(VolumesNotReady, match=f'subpath "{sub}" not within volume path "{volume}"'):
        await node.mounts(pod)
    assert node.below() == []
    assert "deeper" not in names("/etc")


async def test_a_link_inside_the_volume_is_followed(node):
    pod, volume = await scratch(node, {"subPath": "way/deeper"})
    (volume / "real").mkdir()
    (volume / "way").symlink_to("real")
    await node.mounts(pod)
    assert (volume / "real/deeper").is_dir()


async def test_a_link_that_leads_nowhere_is_refused(node):
    pod, volume = await scratch(node, {"subPath": "way"})
    (volume / "way").symlink_to("nowhere")
    with pytest.raises(VolumesNotReady, match="failed to prepare subPath for volumeMount"):
        await node.mounts(pod)


async def test_a_bound_subpath_stays_when_its_path_is_swapped(node, tmp_path):
    secret = tmp_path / "outside"
    secret.mkdir()
    (secret / "key").write_text("secret")
    pod, volume = await scratch(node, {"subPath": "way"})
    [mount] = await node.mounts(pod)
    (volume / "way").rename(volume / "moved")
    (volume / "way").symlink_to(secret)
    assert names(mount.host_path) == []


async def test_links_that_are_swapped_all_the_time_never_lead_out(node, tmp_path):
    volume, outside, target = tmp_path / "volume", tmp_path / "outside", tmp_path / "target"
    for item in (volume / "inside", outside):
        item.mkdir(parents=True)
    (volume / "inside" / "mark").write_text("inside")
    (outside / "mark").write_text("outside")
    link, other, done = volume / "link", volume / "other", threading.Event()
    link.symlink_to("inside")

    def attack() -> None:
        while not done.is_set():
            for where in ("inside", str(outside)):
                other.unlink(missing_ok=True)
                other.symlink_to(where)
                other.replace(link)

    attacker = threading.Thread(target=attack)
    attacker.start()
    found = set()
    try:
        for _ in range(400):
            try:
                subpaths.bind(volume, "link", target, KernelMounts())
            except VolumeError as error:
                found.add(type(error))
            else:
                mark = target / "mark"
                found.add(mark.read_text() if mark.exists() else "made")
    finally:
        done.set()
        attacker.join()
    assert "outside" not in found
    assert not (outside / "link").exists()


async def test_a_volume_with_parts_is_removed_whole(node):
    pod, _ = await scratch(node, {"subPath": "a"}, {"subPath": "b"}, {})
    made = await node.mounts(pod)
    assert [Path(item.host_path).name for item in made] == ["0", "1", "v"]
    assert len(node.below()) == 2
    await node.volumes.remove(pod.uid)
    assert node.below() == []
    assert node.volumes.uids() == set()
