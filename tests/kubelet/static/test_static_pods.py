"""Static pods in a whole kubelet, between a real API server and a runtime in memory."""

import pytest

from podwire.kubelet.pods.observed import UID
from podwire.kubelet.pods.status_manager import PODS
from podwire.protocols.k8sapi.status import ApiError
from tests.eventually import eventually_async

MANIFEST = """
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  terminationGracePeriodSeconds: 7
  containers: [{{name: c, image: i, imagePullPolicy: Never, args: ["{arg}"]}}]
"""


@pytest.fixture
async def node(world, tmp_path):
    """A kubelet with a directory of static pods; `world.manifests` is the directory."""
    await world.stop()
    world.manifests = tmp_path / "manifests"
    world.manifests.mkdir()
    world.start()
    return world


def write(world, name, arg="1", text=None):
    path = world.manifests / f"{name}.yaml"
    path.write_text(text or MANIFEST.format(name=name, arg=arg))
    return path


def uids(world):
    return {sandbox.labels[UID] for sandbox in world.runtime.sandboxes.values()}


async def absent(world, name):
    with pytest.raises(ApiError) as raised:
        await world.api.get(PODS, name, "default")
    assert raised.value.code == 404


async def test_a_file_becomes_a_running_pod_and_a_mirror(node):
    write(node, "web")
    mirror = await node.running("web-n")
    meta = mirror["metadata"]
    (uid,) = uids(node)
    assert meta["annotations"]["kubernetes.io/config.mirror"] == uid != meta["uid"]
    assert meta["annotations"]["kubernetes.io/config.hash"] == uid
    assert meta["annotations"]["kubernetes.io/config.source"] == "file"
    (owner,) = meta["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("Node", "n", True)
    assert mirror["status"]["containerStatuses"][0]["ready"]
    assert mirror["status"]["podIP"] == "10.0.0.9"


async def test_a_deleted_mirror_comes_back_and_the_pod_goes_on(node):
    write(node, "web")
    before = await node.running("web-n")
    containers = set(node.runtime.containers)
    await node.api.delete(PODS, "web-n", "default")
    after = await node.until(
        lambda each: (
            each and each["metadata"]["uid"] != before["metadata"]["uid"] and each["status"].get("phase") == "Running"
        ),
        "web-n",
    )
    assert after["status"]["containerStatuses"][0]["restartCount"] == 0
    assert set(node.runtime.containers) == containers


async def test_a_changed_file_is_another_pod_after_the_first_has_ended(node):
    write(node, "web")
    await node.running("web-n")
    (old,) = uids(node)
    write(node, "web", arg="2")
    mirror = await node.until(
        lambda each: (
            each
            and each["metadata"]["annotations"]["kubernetes.io/config.hash"] != old
            and each["status"].get("phase") == "Running"
        ),
        "web-n",
    )
    assert uids(node) == {mirror["metadata"]["annotations"]["kubernetes.io/config.mirror"]}
    assert node.runtime.graces[0] == 7
    calls = [call for call in node.runtime.calls if call in ("RunPodSandbox", "RemovePodSandbox")]
    assert calls == ["RunPodSandbox", "RemovePodSandbox", "RunPodSandbox"]


async def test_a_removed_file_ends_its_pod_and_its_mirror(node):
    path = write(node, "web")
    await node.running("web-n")
    path.unlink()
    await node.gone("web-n")
    await eventually_async(lambda: not node.runtime.sandboxes)


async def test_a_bad_file_is_reported_and_stops_nothing(node):
    write(node, "bad", text="apiVersion: v1\nkind: Pod\nmetadata: {name: bad}\nspec: {containers: [{name: c}], x: 1}\n")
    write(node, "web")
    await node.running("web-n")
    assert 'bad.yaml: unknown field "spec.x"' in await node.event("InvalidStaticPod")
    write(node, "web", text="apiVersion: [")
    await node.event("InvalidStaticPod", "web.yaml")
    assert node.runtime.sandboxes  # the pod that the file had goes on


async def test_a_pod_survives_the_kubelet_and_a_foreign_mirror_does_not(node):
    write(node, "web")
    await node.running("web-n")
    calls = len(node.runtime.calls)
    await node.stop()
    stale = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "old-n", "namespace": "default", "annotations": {"kubernetes.io/config.mirror": "x"}},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]},
    }
    await node.api.create(stale)
    node.start()
    await node.gone("old-n")
    assert (await node.running("web-n"))["status"]["containerStatuses"][0]["restartCount"] == 0
    assert "RunPodSandbox" not in node.runtime.calls[calls:]


async def test_static_pods_run_and_change_without_an_api_server(world, tmp_path):
    await world.stop()
    world.manifests = tmp_path / "manifests"
    world.manifests.mkdir()
    write(world, "web")
    world.line.wire.down = True
    world.start()
    await eventually_async(lambda: any(status.state == 1 for status in world.runtime.containers.values()))
    (first,) = uids(world)
    write(world, "web", arg="2")
    await eventually_async(lambda: world.runtime.sandboxes and first not in uids(world))
    await absent(world, "web-n")
    world.line.wire.down = False
    await world.running("web-n")


async def test_a_file_may_come_before_its_directory(world, tmp_path):
    await world.stop()
    world.manifests = tmp_path / "manifests"
    world.start()
    await world.make("p")
    await world.running("p")
    world.manifests.mkdir()
    write(world, "web")
    await world.running("web-n")
