"""CSI volumes with a real driver process, on a real API server, with the rights of a node: registration, life of a
volume, faults, and both sides killed in the middle."""

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from podwire.apiserver import Settings, assemble
from podwire.cluster.kubelet_plugins import PluginSockets
from podwire.cluster.loopback import LoopbackHttp
from podwire.kubelet.config.fields import NodeFacts
from podwire.kubelet.plugin_manager import PluginLimits, PluginManager
from podwire.kubelet.referenced_objects import ReferencedObjects
from podwire.kubelet.volumes import VolumeManager, VolumesNotReady
from podwire.kubelet.volumes.csi.drivers import CsiDrivers, CsiLimits
from podwire.kubelet.volumes.csi.node_info import NodeInfo
from podwire.kubelet.volumes.csi.volumes import CsiVolumes
from podwire.linux.fs.mounts import KernelMounts
from podwire.objects import nodes, pods
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.client_side.recorder import Recorder
from podwire.protocols.k8sapi.server_side import Certificate
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.registration.methods import CSI_PLUGIN
from podwire.store.memory import MemoryStore
from podwire.transports.clock import SystemClock
from tests.eventually import eventually_async

ADMIN = Certificate("kubernetes-admin", ("system:masters",))
NODE = Certificate("system:node:node-1", ("system:nodes",))
REPOSITORY = Path(__file__).parents[3]
DRIVER = "dir.csi.example"
CLAIM = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
MOUNT = {"name": "v", "mountPath": "/data"}


def kind(name, group="v1"):
    return BUILTIN.of_kind(group, name)


class Kubelet:
    """The kubelet's parts for volumes; another one is a kubelet that starts again."""

    def __init__(self, api, root, mounts, limits):
        self.node = None
        self.woken = []
        registered = asyncio.Event()
        registered.set()
        sockets, clock = PluginSockets(), SystemClock()
        self.recorder = Recorder(api, clock, component="kubelet", host="node-1")
        node_info = NodeInfo(api, "node-1", lambda: self.node, registered)
        drivers = CsiDrivers(sockets, node_info, limits, self.registered)
        self.drivers = drivers
        self.references = ReferencedObjects(api, lambda _uids: None)
        self.volumes = VolumeManager(
            root, self.references, api, mounts, clock,
            node=lambda: NodeFacts(name="node-1", ips=("10.0.0.1",), allocatable={}),
            node_object=lambda: self.node, wake=self.woken.append,
            csi=lambda paths, tokens: CsiVolumes(api, drivers, paths, mounts, tokens, self.recorder, "node-1", limits),
        )  # fmt: skip
        self.plugins = PluginManager(sockets, root / "plugins_registry", {CSI_PLUGIN: drivers}, PluginLimits())
        self.tasks = []

    def registered(self, name):
        self.volumes.driver_registered(name)

    async def start(self, api):
        self.node = nodes.read(await api.get(kind("Node"), "node-1"))
        parts = (self.recorder.run(), self.references.run(), self.volumes.run(), self.plugins.run())
        self.tasks = [asyncio.ensure_future(part) for part in parts]

    async def kill(self):
        for task in self.tasks:
            task.cancel()
        ended = await asyncio.gather(*self.tasks, return_exceptions=True)
        assert all(isinstance(item, asyncio.CancelledError) for item in ended), ended
        self.tasks = []


class CsiNode:
    def __init__(self, handle, directory):
        self.api = Client(LoopbackHttp(handle, ADMIN))
        self.own = Client(LoopbackHttp(handle, NODE))
        self.root, self.state = directory / "k", directory / "s"
        self.state.mkdir()
        self.mounts = KernelMounts()
        self.limits = CsiLimits(call=20.0, republish=0.2)
        self.processes = []
        self.kubelet = None

    async def start_kubelet(self):
        if self.kubelet is not None:
            await self.kubelet.kill()
        self.kubelet = Kubelet(self.own, self.root, self.mounts, self.limits)
        await self.kubelet.start(self.own)

    @property
    def volumes(self):
        return self.kubelet.volumes

    async def start_driver(self, *options, wait=True):
        command = [sys.executable, "-m", "tests.csi_driver", "--kubelet", str(self.root), "--state", str(self.state)]
        before = len(self.calls("registered"))
        process = await asyncio.to_thread(
            subprocess.Popen, [*command, "--node", "node-1", *options], cwd=REPOSITORY, env=os.environ
        )
        self.processes.append(process)
        if wait:
            await eventually_async(lambda: len(self.calls("registered")) > before)
        return process

    def calls(self, *names):
        path = self.state / "calls"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [line for line in lines if not names or line["call"] in names]

    def reported(self):
        """Calls that change something, in their order."""
        boring = ("NodeGetInfo", "NodeGetCapabilities", "registered")
        return [call["call"] for call in self.calls() if call["call"] not in boring]

    def fault(self, call, **fault):
        (self.state / "faults").write_text(json.dumps({call: fault}))

    async def make_driver(self, **spec):
        given = {"attachRequired": False, **spec}
        meta = {"name": DRIVER}
        object_ = {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": meta, "spec": given}
        await self.api.create(object_)

    async def make_volume(self, name="data", *, handle="vol-1", size="1Gi", modes=("ReadWriteOnce",), **csi):
        spec = {
            "accessModes": list(modes), "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "",
            "volumeName": f"pv-{name}",
        }  # fmt: skip
        meta = {"name": name, "namespace": "default"}
        claim = await self.api.create(
            {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec}
        )
        status = {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": list(modes)}
        await self.api.patch(kind("PersistentVolumeClaim"), name, {"status": status}, "default", subresource="status")
        source = {"driver": DRIVER, "volumeHandle": handle, **csi}
        reference = {"namespace": "default", "name": name, "uid": claim["metadata"]["uid"]}
        volume = {"capacity": {"storage": size}, "accessModes": list(modes), "csi": source, "claimRef": reference}
        meta = {"name": f"pv-{name}"}
        await self.api.create({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": meta, "spec": volume})

    async def pod(self, name="web", volumes=(CLAIM,), mounts=(MOUNT,), **spec):
        containers = [{"name": "c", "image": "busybox:1.36", "volumeMounts": list(mounts)}]
        given = {
            "containers": containers, "nodeName": "node-1", "automountServiceAccountToken": False,
            "volumes": list(volumes), **spec,
        }  # fmt: skip
        meta = {"name": name, "namespace": "default"}
        object_ = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": given}
        pod = pods.read(await self.api.create(object_))

        async def related():
            """The node authorizer knows the pod, as it does before a kubelet's watch reports it."""
            with contextlib.suppress(ApiError):
                return bool(await self.own.get(kind("Pod"), name, "default"))
            return False

        await eventually_async(related)
        return pod

    async def path(self, pod):
        [mount] = await self.volumes.mounts(pod, pod.spec.containers[0], {})
        return Path(mount.host_path)

    def below(self):
        return [mount.target for mount in self.mounts.list() if mount.target.startswith(f"{self.root}/")]

    async def refused(self, pod):
        with pytest.raises(VolumesNotReady) as error:
            await self.volumes.prepare(pod)
        return error.value.failures


@pytest.fixture
def node(pki):
    """Enters `async with node() as n`; a short path, because of its sockets."""

    @contextlib.asynccontextmanager
    async def enter():
        directory = Path(tempfile.mkdtemp(prefix="csi"))
        assembled = assemble(MemoryStore(), pki, SystemClock(), Settings())
        await assembled.start()
        server = asyncio.create_task(assembled.run())
        made = CsiNode(assembled.server.handle, directory)
        meta = {"name": "default", "namespace": "default"}
        await made.api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})
        await made.own.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}})
        await made.start_kubelet()
        try:
            yield made
        finally:
            await made.kubelet.kill()
            for process in made.processes:
                process.kill()
                await asyncio.to_thread(process.wait)
            server.cancel()
            await asyncio.gather(server, return_exceptions=True)
            for target in reversed(made.below()):
                made.mounts.unmount(target, lazily=True)
            shutil.rmtree(directory)

    return enter


async def test_a_driver_is_listed_in_its_csi_node_and_its_topology_labels_the_node(node):
    driver = await node.start_driver()
    object_ = await node.api.get(kind("CSINode", "storage.k8s.io/v1"), "node-1")
    key = f"topology.{DRIVER}/node"
    expected = {"name": DRIVER, "nodeID": "id-of-node-1", "topologyKeys": [key], "allocatable": {"count": 8}}
    assert object_["spec"]["drivers"] == [expected]
    assert object_["metadata"]["ownerReferences"][0]["kind"] == "Node"
    assert (await node.api.get(kind("Node"), "node-1"))["metadata"]["labels"][key] == "node-1"
    driver.terminate()

    async def gone():
        listed = await node.api.get(kind("CSINode", "storage.k8s.io/v1"), "node-1")
        return not listed["spec"].get("drivers")

    await eventually_async(gone)


@pytest.mark.parametrize("version", ["2.0.0", "none"])
async def test_a_driver_of_another_version_is_refused_by_name(node, version):
    await node.start_driver("--version", version, wait=False)
    await eventually_async(lambda: node.calls("registered"))
    [status] = node.calls("registered")
    assert not status.get("ok")
    assert f'None of the versions specified ["{version}"] are supported' in status["error"]


async def test_a_volume_is_staged_published_and_undone_with_upstreams_paths(node):
    await node.make_driver()
    await node.make_volume(volumeAttributes={"color": "blue"})
    await node.start_driver()
    pod = await node.pod()
    await node.volumes.prepare(pod)
    path = await node.path(pod)
    assert path == node.root / f"pods/{pod.uid}/volumes/kubernetes.io~csi/pv-data/mount"
    assert (path / "context-color").read_text() == "blue"
    [staging] = [Path(target) for target in node.below() if target.endswith("/globalmount")]
    assert staging.parent.parent == node.root / f"plugins/kubernetes.io/csi/{DRIVER}"
    data = json.loads((path.parent / "vol_data.json").read_text())
    assert data["specVolID"] == "pv-data"
    assert (data["volumeHandle"], data["driverName"], data["nodeName"]) == ("vol-1", DRIVER, "node-1")
    assert data["volumeLifecycleMode"] == "Persistent"
    await node.volumes.remove(pod.uid)
    assert node.reported() == ["NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"]
    assert node.below() == []
    assert (node.state / "volumes/vol-1/context-color").exists()
    assert not (node.root / "pods" / pod.uid).exists()
    assert not staging.parent.exists()


async def test_two_pods_share_a_staged_volume_and_the_last_one_unstages_it(node):
    await node.make_driver()
    await node.make_volume()
    await node.start_driver()
    first, second = await node.pod("first"), await node.pod("second")
    await node.volumes.prepare(first)
    await node.volumes.prepare(second)
    await node.volumes.remove(first.uid)
    assert node.reported().count("NodeStageVolume") == 1
    assert "NodeUnstageVolume" not in node.reported()
    await node.volumes.remove(second.uid)
    assert node.reported()[-1] == "NodeUnstageVolume"


async def test_pods_wait_for_a_driver_and_are_woken_when_it_registers(node):
    await node.make_driver()
    await node.make_volume()
    pod = await node.pod()
    [failure] = await node.refused(pod)
    words = f"driver name {DRIVER} not found in the list of registered CSI drivers"
    prefix = "kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient: "
    assert failure == f'MountVolume.MountDevice failed for volume "pv-data" : {prefix}{words}'
    await node.start_driver()
    await eventually_async(lambda: frozenset({pod.uid}) in node.kubelet.woken)
    await node.volumes.prepare(pod)
    await node.volumes.remove(pod.uid)


async def test_a_pod_that_never_had_its_driver_is_removed_without_it(node):
    await node.make_driver()
    await node.make_volume()
    pod = await node.pod()
    await node.refused(pod)
    await node.volumes.remove(pod.uid)


@pytest.mark.parametrize(("call", "operation"), [("NodeStageVolume", "MountDevice"), ("NodePublishVolume", "SetUp")])
async def test_a_call_that_fails_is_reported_in_upstreams_words_and_repeated(node, call, operation):
    await node.make_driver()
    await node.make_volume()
    await node.start_driver()
    node.fault(call, code=13, message="no disk")
    pod = await node.pod()
    words = "rpc error: code = Internal desc = no disk"
    assert await node.refused(pod) == (f'MountVolume.{operation} failed for volume "pv-data" : {words}',)
    await node.volumes.prepare(pod)
    await node.volumes.remove(pod.uid)
    assert node.below() == []


async def test_a_call_of_unknown_outcome_is_undone_with_the_pod(node):
    await node.make_driver()
    await node.make_volume()
    await node.start_driver()
    node.fault("NodePublishVolume", code=4, message="slow", times=1)
    pod = await node.pod()
    await node.refused(pod)
    await node.volumes.remove(pod.uid)
    assert node.reported()[-2:] == ["NodeUnpublishVolume", "NodeUnstageVolume"]
    assert node.below() == []


async def test_a_driver_that_is_killed_while_it_publishes_is_called_again_by_a_restarted_kubelet(node):
    await node.make_driver()
    await node.make_volume()
    driver = await node.start_driver()
    node.fault("NodePublishVolume", hang=True)
    pod = await node.pod()
    preparing = asyncio.ensure_future(node.volumes.prepare(pod))
    await eventually_async(lambda: node.calls("NodePublishVolume"))
    driver.kill()
    with pytest.raises(VolumesNotReady, match="rpc error: code = Unavailable"):
        await preparing
    (node.state / "faults").unlink()
    await node.start_kubelet()
    await node.start_driver()
    await node.volumes.prepare(pod)
    assert str(await node.path(pod)) in node.below()
    await node.volumes.remove(pod.uid)
    assert node.below() == []


async def test_volumes_of_a_pod_that_went_while_the_kubelet_was_dead_are_unpublished(node):
    await node.make_driver()
    await node.make_volume()
    driver = await node.start_driver()
    pod = await node.pod()
    await node.volumes.prepare(pod)
    driver.kill()
    await node.start_kubelet()
    assert pod.uid in node.volumes.uids()
    with pytest.raises(OSError, match="not found in the list of registered CSI drivers"):
        await node.volumes.remove(pod.uid)
    await node.start_driver()
    await node.volumes.remove(pod.uid)
    assert node.below() == []
    assert node.reported()[-2:] == ["NodeUnpublishVolume", "NodeUnstageVolume"]


async def test_a_pod_stays_until_its_volume_is_unstaged(node):
    await node.make_driver()
    await node.make_volume()
    await node.start_driver()
    node.fault("NodeUnstageVolume", code=13, message="busy")
    pod = await node.pod()
    await node.volumes.prepare(pod)
    words = "attacher.UnmountDevice failed: rpc error: code = Internal desc = busy"
    with pytest.raises(OSError, match=words):
        await node.volumes.remove(pod.uid)
    assert pod.uid in node.volumes.uids()
    await node.volumes.remove(pod.uid)
    assert node.below() == []
    assert node.volumes.uids() == set()


async def test_a_staged_volume_that_no_pod_has_is_unstaged_when_the_driver_is_back(node):
    await node.make_driver()
    await node.make_volume()
    driver = await node.start_driver()
    pod = await node.pod()
    await node.volumes.prepare(pod)
    await node.kubelet.kill()
    driver.kill()
    published = node.root / f"pods/{pod.uid}/volumes/kubernetes.io~csi/pv-data/mount"
    node.mounts.unmount(published)
    shutil.rmtree(node.root / "pods" / pod.uid)  # as somebody does who cleans up by hand
    await node.start_kubelet()
    await node.start_driver()
    await eventually_async(lambda: not node.below())


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"driverName": "../../x", "volumeHandle": "y"}', '{"driverName": 7, "volumeHandle": 8}']
)
async def test_a_volume_whose_file_is_damaged_is_unmounted_without_its_driver(node, text):
    await node.make_driver()
    await node.make_volume()
    await node.start_driver("--capabilities", "")
    pod = await node.pod()
    await node.volumes.prepare(pod)
    published = (await node.path(pod)).parent
    (published / "vol_data.json").write_text(text)
    await node.volumes.remove(pod.uid)
    assert node.below() == []
    assert (node.state / "volumes/vol-1").is_dir()


async def test_a_running_pod_keeps_its_volume_when_the_kubelet_starts_again(node):
    await node.make_driver()
    await node.make_volume()
    await node.start_driver()
    pod = await node.pod()
    await node.volumes.prepare(pod)
    before = node.reported()
    await node.start_kubelet()
    await node.volumes.refresh(pod)
    assert node.reported() == before
    await eventually_async(lambda: DRIVER in node.kubelet.drivers)
    await node.volumes.remove(pod.uid)


async def test_secrets_pod_information_and_tokens_reach_the_driver(node):
    requests = [{"audience": "vault", "expirationSeconds": 600}]
    await node.make_driver(podInfoOnMount=True, tokenRequests=requests)
    meta = {"name": "keys", "namespace": "default"}
    await node.api.create({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": {"password": "x"}})
    secret = {"name": "keys", "namespace": "default"}
    await node.make_volume(nodeStageSecretRef=secret, nodePublishSecretRef=secret)
    await node.start_driver()
    pod = await node.pod()
    await node.volumes.prepare(pod)
    [staged], [published] = node.calls("NodeStageVolume"), node.calls("NodePublishVolume")
    assert staged["secrets"] == published["secrets"] == {"password": "x"}
    context = published["volume_context"]
    assert context["csi.storage.k8s.io/pod.uid"] == pod.uid
    assert context["csi.storage.k8s.io/ephemeral"] == "false"
    tokens = json.loads(context["csi.storage.k8s.io/serviceAccount.tokens"])
    assert tokens["vault"]["token"].count(".") == 2
    assert tokens["vault"]["expirationTimestamp"]
    await node.volumes.remove(pod.uid)


async def test_a_secret_that_is_missing_is_named(node):
    await node.make_driver()
    await node.make_volume(nodeStageSecretRef={"name": "keys", "namespace": "default"})
    await node.start_driver()
    [failure] = await node.refused(await node.pod())
    words = 'MountVolume.MountDevice failed for volume "pv-data" : fetching NodeStageSecretRef default/keys failed: '
    assert failure.startswith(words)


async def test_an_inline_volume_needs_a_driver_that_allows_it(node):
    volume = {"name": "v", "csi": {"driver": DRIVER, "volumeAttributes": {"color": "red"}}}
    await node.start_driver()
    pod = await node.pod(volumes=[volume])
    [failure] = await node.refused(pod)
    assert failure.endswith(f'volume mode "Ephemeral" not supported by driver {DRIVER} (no CSIDriver object)')
    await node.make_driver(volumeLifecycleModes=["Persistent", "Ephemeral"])
    await node.volumes.prepare(pod)
    path = await node.path(pod)
    assert path.parent.name == "v"
    assert (path / "context-color").read_text() == "red"
    [published] = node.calls("NodePublishVolume")
    assert published["volume_id"].startswith("csi-")
    assert "NodeStageVolume" not in node.reported()
    await node.volumes.remove(pod.uid)
    assert node.reported()[-1] == "NodeUnpublishVolume"


@pytest.mark.parametrize(
    ("policy", "options", "given"),
    [("File", (), True), ("None", (), False), ("File", ("--capabilities", "VOLUME_MOUNT_GROUP"), False)],
)
async def test_the_fs_group_is_applied_by_kubelet_or_driver_as_the_policy_says(node, policy, options, given):
    await node.make_driver(fsGroupPolicy=policy)
    await node.make_volume()
    await node.start_driver(*options)
    pod = await node.pod(securityContext={"fsGroup": 4321})
    await node.volumes.prepare(pod)
    assert ((node.state / "volumes/vol-1").stat().st_gid == 4321) is given
    [published] = node.calls("NodePublishVolume")
    group = published["volume_capability"]["mount"].get("volume_mount_group")
    assert group == ("4321" if options else None)
    await node.volumes.remove(pod.uid)


async def test_a_driver_that_needs_attachment_waits_for_it_and_gets_its_metadata(node):
    await node.make_driver(attachRequired=True)
    await node.make_volume()
    await node.start_driver()
    pod = await node.pod()
    [failure] = await node.refused(pod)
    assert failure.startswith('MountVolume.WaitForAttach failed for volume "pv-data" : volume vol-1 has GET error')
    assert "attachRequired: false" in failure
    name = failure.partition("volume attachment ")[2].partition(":")[0]
    spec = {"attacher": DRIVER, "nodeName": "node-1", "source": {"persistentVolumeName": "pv-data"}}
    attachment = {"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": name}}
    await node.api.create({**attachment, "spec": spec})

    async def not_attached():
        [message] = await node.refused(pod)
        return f"volume vol-1 is not attached for volume attachment {name}" in message

    await eventually_async(not_attached)
    status = {"status": {"attached": True, "attachmentMetadata": {"device": "/dev/x"}}}
    attachments = kind("VolumeAttachment", "storage.k8s.io/v1")
    await node.api.patch(attachments, name, status, subresource="status")
    await node.volumes.prepare(pod)
    [staged], [published] = node.calls("NodeStageVolume"), node.calls("NodePublishVolume")
    assert staged["publish_context"] == published["publish_context"] == {"device": "/dev/x"}
    await node.volumes.remove(pod.uid)


async def test_a_driver_that_wants_it_is_asked_to_publish_again(node):
    await node.make_driver(requiresRepublish=True)
    await node.make_volume()
    await node.start_driver()
    pod = await node.pod()
    await node.volumes.prepare(pod)
    await eventually_async(lambda: len(node.calls("NodePublishVolume")) >= 3)
    node.fault("NodePublishVolume", code=13, message="not now", times=2)

    async def reported():
        events = (await node.api.list(kind("Event"))).items
        return any(event["reason"] == "FailedMount" and "not now" in event["message"] for event in events)

    await eventually_async(reported)
    assert str(await node.path(pod)) in node.below()
    await node.volumes.remove(pod.uid)


async def test_a_volume_that_became_larger_is_expanded_and_the_claim_says_so(node):
    await node.make_driver()
    await node.make_volume()
    await node.start_driver()
    pod = await node.pod()
    await node.volumes.prepare(pod)
    assert "NodeExpandVolume" not in node.reported()
    await node.api.patch(kind("PersistentVolume"), "pv-data", {"spec": {"capacity": {"storage": "2Gi"}}})

    async def shown():
        claim = await node.api.get(kind("PersistentVolumeClaim"), "data", "default")
        return claim["status"]["capacity"]["storage"] == "2Gi"

    await eventually_async(shown)
    assert ((await node.path(pod)) / "size").read_text() == str(2 << 30)
    await node.volumes.remove(pod.uid)


async def test_a_volume_of_a_pod_that_has_ended_is_unpublished_while_the_pod_is_kept(node):
    await node.make_driver()
    await node.make_volume()
    await node.start_driver()
    pod = await node.pod(mounts=[{**MOUNT, "subPath": "below"}])
    await node.volumes.prepare(pod)
    await node.path(pod)
    await node.volumes.release(pod)
    assert node.below() == []
    assert node.reported()[-2:] == ["NodeUnpublishVolume", "NodeUnstageVolume"]
    await node.volumes.release(pod)
    await node.volumes.remove(pod.uid)


async def test_a_node_cannot_read_a_volume_that_none_of_its_pods_uses(node):
    await node.make_volume()
    with pytest.raises(ApiError, match="no relationship found"):
        await node.own.get(kind("PersistentVolume"), "pv-data")


async def test_statistics_come_from_the_driver(node):
    await node.make_driver()
    await node.make_volume()
    await node.start_driver()
    pod = await node.pod()
    await node.volumes.prepare(pod)
    (await node.path(pod) / "file").write_bytes(b"x" * 77)
    usage = (await node.volumes.usage(pod))["v"]
    assert (usage.used, usage.available, usage.capacity, usage.claim) == (77, 1000, 1077, "data")
    await node.volumes.remove(pod.uid)
