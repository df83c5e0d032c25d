"""The pod that nearly every pod is: a token, the cluster's root certificate, the namespace."""

import asyncio
import base64
import json
import stat

import pytest

from podwire.kubelet.volumes import VolumesNotReady


async def common(node, name="web", **rest):
    if name == "web":
        await node.make("ConfigMap", "kube-root-ca.crt", data={"ca.crt": "PEM"})
    return await node.pod(name, automountServiceAccountToken=True, **rest)


def volume(node, pod):
    [only] = pod.spec.volumes
    return node.volume(pod, only.name, "projected")


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def claims(token):
    body = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))


async def test_the_common_pod_finds_its_token_its_certificate_and_its_namespace(node):
    pod = await common(node)
    await node.volumes.prepare(pod)
    [mount] = await node.mounts(pod)
    assert (mount.container_path, mount.readonly) == ("/var/run/secrets/kubernetes.io/serviceaccount", True)
    there = volume(node, pod)
    assert str(there) == mount.host_path
    assert {path.name for path in there.iterdir() if not path.name.startswith("..")} == {"ca.crt", "namespace", "token"}
    assert (there / "namespace").read_text() == "default"
    assert (there / "ca.crt").read_text() == "PEM"
    assert {mode(path) for path in there.iterdir() if path.is_file()} == {0o644}
    said = claims((there / "token").read_text())
    assert said["kubernetes.io"]["pod"] == {"name": "web", "uid": pod.uid}
    assert said["sub"] == "system:serviceaccount:default:default"
    assert node.volumes.uids() == {pod.uid}


async def test_nothing_secret_touches_the_disk_and_all_pods_share_one_mount(node):
    first, second = await common(node), await common(node, "other")
    await asyncio.gather(node.volumes.prepare(first), node.volumes.prepare(second))
    [only] = [item for item in node.kernel.list() if item.target.startswith(f"{node.root}/")]
    assert (only.target, only.kind) == (f"{node.root}/secrets", "tmpfs")
    assert {"nosuid", "nodev"} <= set(only.options)
    assert mode(node.root / "secrets") == 0o700
    for pod in (first, second):
        assert (volume(node, pod) / "token").stat().st_dev == (node.root / "secrets").stat().st_dev
        assert list((node.root / "pods" / pod.uid).iterdir()) == []
        assert mode(node.root / "pods" / pod.uid) == 0o750


async def test_preparing_twice_is_preparing_once(node):
    pod = await common(node)
    await asyncio.gather(*(node.volumes.prepare(pod) for _ in range(5)))
    shown = (volume(node, pod) / "..data").readlink()
    await node.volumes.prepare(pod)
    await node.volumes.refresh(pod)
    assert (volume(node, pod) / "..data").readlink() == shown
    assert node.api.tokens == 1


async def test_a_restarted_kubelet_uses_existing_volumes(node):
    pod = await common(node)
    await node.volumes.prepare(pod)
    again = node.another()
    await again.prepare(pod)
    assert len(node.below()) == 1
    assert (volume(node, pod) / "token").read_text()
    assert len([path for path in volume(node, pod).iterdir() if path.name.startswith("..2")]) == 1


async def test_after_a_reboot_the_memory_is_empty_and_is_filled_again(node):
    pod = await common(node)
    await node.volumes.prepare(pod)
    node.kernel.unmount(node.root / "secrets")
    await node.another().prepare(pod)
    assert (volume(node, pod) / "namespace").read_text() == "default"
    assert node.below() == [f"{node.root}/secrets"]


async def test_removal_is_complete_and_idempotent(node):
    pod = await common(node)
    await node.volumes.prepare(pod)
    await node.volumes.remove(pod.uid)
    assert node.volumes.uids() == set()
    assert list((node.root / "secrets").iterdir()) == []
    await node.volumes.remove(pod.uid)
    await node.volumes.prepare(pod)
    assert (volume(node, pod) / "token").exists()


async def test_a_node_that_ends_gives_its_memory_back_once_it_is_empty(node):
    pod = await common(node)
    await node.volumes.prepare(pod)
    await node.volumes.close()
    assert len(node.below()) == 1
    await node.volumes.remove(pod.uid)
    await node.volumes.close()
    assert node.below() == []
    await node.volumes.close()
    await node.volumes.prepare(pod)
    assert len(node.below()) == 1


async def test_a_pod_waits_for_the_root_certificate(node):
    pod = await node.pod(automountServiceAccountToken=True)
    [only] = pod.spec.volumes
    with pytest.raises(VolumesNotReady) as refused:
        await node.volumes.prepare(pod)
    assert str(refused.value) == (
        f'MountVolume.SetUp failed for volume "{only.name}" : configmap "kube-root-ca.crt" not found'
    )
    await node.make("ConfigMap", "kube-root-ca.crt", data={"ca.crt": "PEM"})
    assert await node.changed() == {pod.uid}
    await node.volumes.prepare(pod)
    assert (volume(node, pod) / "ca.crt").read_text() == "PEM"


@pytest.mark.parametrize(
    ("security", "owner", "group", "bits"),
    [
        pytest.param({}, 0, 0, 0o644, id="everybody reads a token"),
        pytest.param({"runAsUser": 1000}, 1000, 0, 0o600, id="who runs as somebody has it for himself"),
        pytest.param({"fsGroup": 2000}, 0, 2000, 0o640, id="a group reads what is its own"),
        pytest.param({"runAsUser": 1000, "fsGroup": 2000}, 1000, 2000, 0o640, id="both"),
    ],
)
async def test_a_token_is_readable_by_the_users_of_the_pod(node, security, owner, group, bits):
    pod = await common(node, securityContext=security)
    await node.volumes.prepare(pod)
    token = (volume(node, pod) / "token").resolve()
    status = token.stat()
    assert (status.st_uid, status.st_gid, mode(token)) == (owner, group, bits)
    if "fsGroup" in security:
        assert (mode(token.parent), token.parent.stat().st_gid) == (0o2755, 2000)
        assert (mode(volume(node, pod)), volume(node, pod).stat().st_gid) == (0o2777, 2000)


async def test_a_cancelled_prepare_is_over_when_the_next_call_begins(node):
    pod = await common(node)
    preparing = asyncio.create_task(node.volumes.prepare(pod))
    for _ in range(8):
        await asyncio.sleep(0)
    preparing.cancel()
    await asyncio.gather(preparing, return_exceptions=True)
    await node.volumes.remove(pod.uid)
    assert node.volumes.uids() == set()
