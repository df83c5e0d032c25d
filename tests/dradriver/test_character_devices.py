"""The device plugin beside the driver, asked as a kubelet asks it."""

import contextlib

import grpc
import pytest

from podwire.dradriver import dra_hooks
from podwire.dradriver.claims import character_devices
from podwire.protocols.deviceplugin import deviceplugin_pb2 as pb
from podwire.protocols.grpc_status import RpcError
from podwire.protocols.nri import nri_pb2
from podwire.protocols.podresources import podresources_pb2 as resources
from podwire.protocols.podresources.methods import LIST
from podwire.transports import grpc_server
from tests.eventually import eventually_async

RESOURCE = "net.podwire.dev/chardev"


class FakePodResources:
    """Owners of the devices, by pod."""

    def __init__(self):
        self.pods = {}

    async def list(self, _request):
        answer = resources.ListPodResourcesResponse()
        for name, ids in self.pods.items():
            container = answer.pod_resources.add(name=name, namespace="default").containers.add(name="main")
            container.devices.add(resource_name=RESOURCE, device_ids=ids)
        return answer


@contextlib.asynccontextmanager
async def pod_resources(node):
    fake = FakePodResources()
    socket = node.kubelet.directory / "pod-resources/kubelet.sock"
    server = await grpc_server.serve(socket, [LIST], {"List": fake.list})
    try:
        yield fake
    finally:
        await server.close(0.1)


async def allocate(node, *ids):
    request = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=ids)])
    socket = node.kubelet.directory / "plugins/net.podwire.dev/chardev.sock"
    answer = await node.kubelet.call(socket, "/v1beta1.DevicePlugin/Allocate", request, pb.AllocateResponse)
    return answer.container_responses[0]


async def with_tap(node):
    """A pod, and its claim for a tap device of the host, as a whole."""
    node.ip("tuntap add dev tap9 mode tap")
    return await node.prepared("tap9", pod="router")


async def test_it_registers_as_a_device_plugin_of_many_places(driver_node):
    node = driver_node
    async with node.driving():
        found = await node.kubelet.register("net.podwire.dev-chardev-reg.sock")
        assert (found.type, found.name, list(found.supported_versions)) == ("DevicePlugin", RESOURCE, ["v1beta1"])
        channel = grpc.aio.insecure_channel(f"unix:{found.endpoint}", options=[("grpc.default_authority", "localhost")])
        async with channel:
            stream = channel.unary_stream(
                "/v1beta1.DevicePlugin/ListAndWatch",
                request_serializer=lambda each: each.SerializeToString(),
                response_deserializer=pb.ListAndWatchResponse.FromString,
            )
            call = stream(pb.Empty())
            result = await call.read()
            assert len(result.devices) == 256
            assert {device.health for device in result.devices} == {"Healthy"}
            registration = node.kubelet.directory / "plugins_registry/net.podwire.dev-chardev-reg.sock"
            before = made(registration)
            call.cancel()
        await eventually_async(lambda: made(registration) not in (None, before))  # it announces itself anew


def made(socket):
    """When a socket came."""
    try:
        return socket.stat().st_ctime_ns
    except FileNotFoundError:
        return None


async def test_a_container_gets_the_character_devices_of_its_pods_claim(driver_node):
    node = driver_node
    async with node.driving(), pod_resources(node) as kubelet:
        _, claim = await with_tap(node)
        kubelet.pods["router"] = ["chardev-3"]
        handed = await allocate(node, "chardev-3")
        assert [(device.host_path, device.permissions) for device in handed.devices] == [("/dev/net/tun", "rw")]
        assert handed.envs == {"PODWIRE_CHARACTER_DEVICES": "/dev/net/tun"}
        await node.kubelet.unprepare(claim)


REFUSED = {
    "nobody has the place": ("elsewhere", "the kubelet has no pod with chardev-3 yet"),
    "a pod without a claim": ("router", "no claim of pod default/router is prepared by this driver"),
}


@pytest.mark.parametrize(("holder", "why"), REFUSED.values(), ids=REFUSED)
async def test_without_a_prepared_claim_nothing_is_handed_out(driver_node, holder, why):
    node = driver_node
    async with node.driving(), pod_resources(node) as kubelet:
        kubelet.pods[holder] = ["chardev-3" if holder == "router" else "chardev-4"]
        with pytest.raises(grpc.aio.AioRpcError, match=why) as refused:
            await allocate(node, "chardev-3")
        assert refused.value.code() == grpc.StatusCode.FAILED_PRECONDITION


async def test_claim_without_character_devices_gets_none(driver_node):
    node = driver_node
    node.veth("lan1")
    async with node.driving(), pod_resources(node) as kubelet:
        _, claim = await node.prepared("lan1", pod="router")
        kubelet.pods["router"] = ["chardev-3"]
        with pytest.raises(grpc.aio.AioRpcError, match=r"what the pod claimed \(lan1\) has no character devices"):
            await allocate(node, "chardev-3")
        await node.kubelet.unprepare(claim)


async def test_containers_of_a_pod_get_its_character_devices_from_nri_too(driver_node):
    node = driver_node
    async with node.driving():
        pod, claim = await with_tap(node)
        sandbox = node.sandbox(pod)
        await node.host.run_pod_sandbox(sandbox)
        container = nri_pb2.Container(id="c1", pod_sandbox_id=sandbox.id)
        adjusted = await node.host.create_container(sandbox, container)
        assert [device.path for device in adjusted.adjust.linux.devices] == ["/dev/net/tun"]
        has = nri_pb2.Container(id="c2", pod_sandbox_id=sandbox.id)
        has.linux.devices.add(path="/dev/net/tun", type="c", major=10, minor=200)
        assert not (await node.host.create_container(sandbox, has)).adjust.linux.devices
        await node.host.stop_pod_sandbox(sandbox)
        assert await node.kubelet.unprepare(claim) == [""]


ASKS = {"name": "net1", "characterDevices": ["tun"]}


async def test_a_claim_can_ask_for_character_devices_beside_its_interface(driver_node):
    node = driver_node
    node.veth("lan1")
    async with pod_resources(node) as kubelet, node.driving():
        pod, _ = await node.prepared("lan1", interface=ASKS)
        kubelet.pods["pod"] = ["chardev-0"]
        answer = await allocate(node, "chardev-0")
        assert [(device.host_path, device.permissions) for device in answer.devices] == [("/dev/net/tun", "rw")]
        sandbox = node.sandbox(pod)
        await node.host.run_pod_sandbox(sandbox)
        container = nri_pb2.Container(id="c", pod_sandbox_id=sandbox.id)
        adjusted = await node.host.create_container(sandbox, container)
        assert [device.path for device in adjusted.adjust.linux.devices] == ["/dev/net/tun"]
        await node.host.stop_pod_sandbox(sandbox)


async def test_missing_character_device_is_refused_with_the_field(driver_node, monkeypatch):
    monkeypatch.setattr(dra_hooks, "is_character_device", lambda path: path != "/dev/net/tun")
    node = driver_node
    node.veth("lan1")
    async with node.driving():
        _, claim = await node.claimed("lan1", interface=ASKS)
        (answer,) = await node.kubelet.prepare(claim)
        field = "spec.devices.config[0].opaque.parameters.interface.characterDevices"
        assert f"{field}: there is no /dev/net/tun on this node" in answer.error


async def test_character_device_that_disappeared_is_refused_at_container_creation(driver_node, monkeypatch):
    node = driver_node
    node.veth("lan1")
    async with pod_resources(node) as kubelet, node.driving():
        pod, _ = await node.prepared("lan1", interface=ASKS)
        kubelet.pods["pod"] = ["chardev-0"]
        monkeypatch.setattr(character_devices, "is_character_device", lambda _path: False)
        with pytest.raises(grpc.aio.AioRpcError, match="/dev/net/tun: the pod's claim needs this character device"):
            await allocate(node, "chardev-0")
        sandbox = node.sandbox(pod)
        await node.host.run_pod_sandbox(sandbox)
        with pytest.raises(RpcError, match="/dev/net/tun: the pod's claim needs this character device"):
            await node.host.create_container(sandbox, nri_pb2.Container(id="c", pod_sandbox_id=sandbox.id))
        await node.host.stop_pod_sandbox(sandbox)
