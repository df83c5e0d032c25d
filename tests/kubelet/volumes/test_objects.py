"""Volumes that show objects: set up, missing, changed, gone; on a real API server."""

import asyncio
import base64
import stat
import subprocess
from pathlib import Path

import pytest

from podwire.kubelet.volumes import VolumesNotReady
from podwire.objects import pods
from podwire.protocols.k8sapi.builtin import BUILTIN

CONFIG = {"name": "v", "configMap": {"name": "settings"}}
SECRET = {"name": "v", "secret": {"secretName": "keys"}}
DOWNWARD = {
    "name": "v",
    "downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]},
}


def encoded(text):
    return base64.b64encode(text.encode()).decode()


def files(directory):
    return {path.name: path.read_text() for path in directory.iterdir() if not path.name.startswith("..")}


async def refused(node, pod):
    with pytest.raises(VolumesNotReady) as error:
        await node.volumes.prepare(pod)
    return error.value.failures


async def test_a_config_map_is_shown_on_disk_and_a_secret_in_memory(node):
    await node.make("ConfigMap", "settings", data={"a": "1"}, binaryData={"b": encoded("2")})
    await node.make("Secret", "keys", data={"c": encoded("3")})
    secret = {"name": "s", "secret": {"secretName": "keys", "defaultMode": 0o400}}
    pod = await node.pod(volumes=[CONFIG, secret])
    await node.volumes.prepare(pod)
    config_map, shown = node.volume(pod, "v", "configmap"), node.volume(pod, "s", "secret")
    assert files(config_map) == {"a": "1", "b": "2"}
    assert files(shown) == {"c": "3"}
    assert stat.S_IMODE((shown / "c").stat().st_mode) == 0o400


@pytest.mark.parametrize(
    ("volume", "words"),
    [
        pytest.param(CONFIG, 'configmap "settings" not found', id="configMap"),
        pytest.param(SECRET, 'secret "keys" not found', id="secret"),
        pytest.param(
            {
                "name": "v",
                "projected": {"sources": [{"secret": {"name": "keys"}}, {"configMap": {"name": "settings"}}]},
            },
            '[secret "keys" not found, configmap "settings" not found]',
            id="every source of a projected volume",
        ),
    ],
)
async def test_an_object_that_is_missing_is_named(node, volume, words):
    pod = await node.pod(volumes=[volume])
    assert await refused(node, pod) == (f'MountVolume.SetUp failed for volume "v" : {words}',)


async def test_every_volume_that_fails_is_named_and_the_others_are_there(node):
    await node.make("ConfigMap", "settings", data={})
    volumes = [
        {"name": "one", "configMap": {"name": "settings", "items": [{"key": "k", "path": "k"}]}},
        {"name": "two", "secret": {"secretName": "keys"}},
        {"name": "three", "hostPath": {"path": "/nowhere/at/all", "type": "Directory"}},
        {"name": "four", "emptyDir": {}},
    ]
    pod = await node.pod(volumes=volumes)
    assert set(await refused(node, pod)) == {
        'MountVolume.SetUp failed for volume "one" : references non-existent config key: k',
        'MountVolume.SetUp failed for volume "two" : secret "keys" not found',
        'MountVolume.SetUp failed for volume "three" : hostPath type check failed: /nowhere/at/all is not a directory',
    }
    assert node.volume(pod, "four", "empty-dir").is_dir()


@pytest.mark.parametrize(
    "volume",
    [
        {"name": "v", "configMap": {"name": "settings", "optional": True}},
        {"name": "v", "secret": {"secretName": "keys", "optional": True, "items": [{"key": "k", "path": "k"}]}},
        {"name": "v", "projected": {"sources": [{"configMap": {"name": "settings", "optional": True}}]}},
    ],
    ids=["configMap", "secret", "projected"],
)
async def test_a_missing_optional_object_is_empty(node, volume):
    pod = await node.pod(volumes=[volume], mounts=[{"name": "v", "mountPath": "/v"}])
    await node.volumes.prepare(pod)
    [mount] = await node.mounts(pod)
    assert files(Path(mount.host_path)) == {}


async def test_a_change_of_the_object_is_shown_after_a_refresh(node):
    await node.make("ConfigMap", "settings", data={"a": "1", "old": "x"})
    pod = await node.pod(volumes=[CONFIG])
    await node.volumes.prepare(pod)
    await node.patch("ConfigMap", "settings", {"data": {"a": "2", "old": None, "new": "y"}})
    assert await node.changed() == {pod.uid}
    await node.volumes.refresh(pod)
    assert files(node.volume(pod, "v", "configmap")) == {"a": "2", "new": "y"}


async def test_a_deleted_object_keeps_its_last_files_and_is_reported(node):
    await node.make("ConfigMap", "settings", data={"a": "1"})
    pod = await node.pod(volumes=[CONFIG])
    await node.volumes.prepare(pod)
    await node.api.delete(BUILTIN.of_kind("v1", "ConfigMap"), "settings", "default")
    assert await node.changed() == {pod.uid}
    with pytest.raises(VolumesNotReady, match='configmap "settings" not found'):
        await node.volumes.refresh(pod)
    assert files(node.volume(pod, "v", "configmap")) == {"a": "1"}


async def test_new_labels_are_shown_after_a_refresh(node):
    pod = await node.pod(volumes=[DOWNWARD], meta={"labels": {"a": "1"}})
    await node.volumes.prepare(pod)
    assert files(node.volume(pod, "v", "downward-api")) == {"labels": 'a="1"'}
    patched = pods.read(await node.patch("Pod", "web", {"metadata": {"labels": {"b": "2"}}}))
    await node.volumes.refresh(patched)
    assert files(node.volume(pod, "v", "downward-api")) == {"labels": 'a="1"\nb="2"'}


async def test_a_refresh_of_a_pod_that_has_no_volumes_yet_writes_nothing(node):
    await node.make("ConfigMap", "settings", data={"a": "1"})
    pod = await node.pod(volumes=[CONFIG])
    await node.volumes.refresh(pod)
    assert node.volumes.uids() == set()


async def test_projected_sources_lie_in_one_directory(node):
    await node.make("ConfigMap", "settings", data={"a": "1"})
    await node.make("Secret", "keys", data={"b": encoded("2")})
    sources = [
        {"configMap": {"name": "settings", "items": [{"key": "a", "path": "config/a", "mode": 0o600}]}},
        {"secret": {"name": "keys"}},
        {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
        {"serviceAccountToken": {"path": "tokens/vault", "audience": "vault", "expirationSeconds": 700}},
    ]
    pod = await node.pod(volumes=[{"name": "v", "projected": {"sources": sources, "defaultMode": 0o440}}])
    await node.volumes.prepare(pod)
    shown = node.volume(pod, "v", "projected")
    assert ((shown / "config/a").read_text(), (shown / "b").read_text(), (shown / "name").read_text()) == (
        "1",
        "2",
        "web",
    )
    assert stat.S_IMODE((shown / "config/a").stat().st_mode) == 0o600
    assert stat.S_IMODE((shown / "b").stat().st_mode) == 0o440
    body = (shown / "tokens/vault").read_text().split(".")[1]
    assert '"aud":["vault"]' in base64.urlsafe_b64decode(body + "==").decode()


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"nfs": {"server": "x", "path": "/"}}, "volumes of type nfs are not supported"),
        ({"rbd": {"monitors": ["x"], "image": "y"}}, "volumes of this type are not supported"),
        ({"emptyDir": {"medium": "HugePages"}}, 'an emptyDir of medium "HugePages" is not supported'),
        (
            {"projected": {"sources": [{"clusterTrustBundle": {"name": "x", "path": "y"}}]}},
            "projected sources of clusterTrustBundle are not supported",
        ),
    ],
    ids=lambda each: next(iter(each)) if isinstance(each, dict) else "",
)
async def test_an_unsupported_volume_type_is_rejected_by_name(node, source, words):
    object_ = {
        "metadata": {"name": "x", "namespace": "default", "uid": "u"},
        "spec": {"volumes": [{"name": "v"} | source]},
    }
    [reported] = await refused(node, pods.read(object_))
    assert reported == f'MountVolume.SetUp failed for volume "v" : {words} by podwire'


async def test_a_script_in_a_secret_can_be_run(node):
    await node.make("Secret", "keys", data={"run": encoded("#!/bin/sh\necho ran\n")})
    pod = await node.pod(volumes=[{"name": "v", "secret": {"secretName": "keys", "defaultMode": 0o555}}])
    await node.volumes.prepare(pod)
    script = node.volume(pod, "v", "secret") / "run"
    done = await asyncio.to_thread(subprocess.run, [str(script)], capture_output=True, text=True, check=True)
    assert done.stdout == "ran\n"


async def test_a_full_disk_is_reported_and_leaves_nothing_behind(node):
    node.root.mkdir(exist_ok=True)
    node.kernel.mount("tmpfs", node.root, "tmpfs", ["size=65536"])
    await node.make("ConfigMap", "settings", data={"a": "1" * 100, "much": "x" * 100_000})
    pod = await node.pod(volumes=[CONFIG])
    for _ in range(3):
        [reported] = await refused(node, pod)
        assert reported == 'MountVolume.SetUp failed for volume "v" : No space left on device'
    assert list(node.volume(pod, "v", "configmap").iterdir()) == []
    await node.patch("ConfigMap", "settings", {"data": {"much": None}})
    await node.changed()
    await node.volumes.prepare(pod)
    assert files(node.volume(pod, "v", "configmap")) == {"a": "1" * 100}


@pytest.mark.parametrize("path", ["../../out", "/etc/out", "..data"])
async def test_an_item_never_leaves_its_volume(node, path):
    await node.make("ConfigMap", "settings", data={"a": "1"})
    volume = {"name": "v", "configMap": {"name": "settings", "items": [{"key": "a", "path": path}]}}
    meta = {"name": "x", "namespace": "default", "uid": "u"}
    [reported] = await refused(node, pods.read({"metadata": meta, "spec": {"volumes": [volume]}}))
    assert reported.startswith('MountVolume.SetUp failed for volume "v" : invalid path: ')


@pytest.mark.parametrize(("uid", "name"), [("../x", "v"), ("u", ".."), ("u", "a/b")])
async def test_no_name_leads_out_of_the_volume(node, uid, name):
    meta = {"name": "x", "namespace": "default", "uid": uid}
    pod = pods.read({"metadata": meta, "spec": {"volumes": [{"name": name, "emptyDir": {}}]}})
    [reported] = await refused(node, pod)
    assert "is not a name of a directory" in reported
    assert node.volumes.uids() <= {"u"}


async def test_an_api_server_without_an_answer_is_reported_in_time(node, monkeypatch):
    node.references._sync = 0.01

    class Silent:
        async def __aenter__(self):
            return self

        async def __aexit__(self, *_):
            pass

        def __aiter__(self):
            return self

        async def __anext__(self):
            await asyncio.Event().wait()

    monkeypatch.setattr(node.api, "informer", lambda *_: Silent())
    pod = await node.pod(volumes=[CONFIG])
    [reported] = await refused(node, pod)
    assert reported.endswith("failed to sync configmap cache: timed out waiting for the condition")
