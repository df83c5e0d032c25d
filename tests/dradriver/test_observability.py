"""The driver's devices as kubelets and operators see them: health, metrics, `explain`."""

import asyncio

import grpc
import pytest

from podwire.dradriver.claims.explanation import explained, seen_on_host
from podwire.dradriver.config import Config
from podwire.dradriver.inventory.config import config
from podwire.dradriver.names import CLAIMS
from podwire.protocols.dra import health_v1_pb2, health_v1alpha1_pb2
from podwire.protocols.grpc_status import RpcError

NET1 = {"name": "net1"}


async def test_metrics_have_requests_phases_and_traffic(driver_node):
    node = driver_node
    node.veth("lan1", "10.7.0.1/24")
    async with node.driving() as driver:
        assert "no kubelet: no kubelet has asked yet" in driver.not_ready()
        await node.kubelet.register()
        assert driver.not_ready() == []
        _, sandbox = await node.attached("lan1", interface=NET1)
        text = await driver.metrics()
        for name in (
            'podwire_network_driver_requests_total{method="NodePrepareResources",status="ok"} 1',
            'podwire_network_driver_phase_duration_seconds_count{phase="attach"} 1',
            "podwire_network_driver_attached_devices 1",
            'podwire_network_driver_interface_receive_bytes_total{namespace="default",pod="pod",claim="claim"',
        ):
            assert name in text
        await node.host.stop_pod_sandbox(sandbox)


async def test_kubelet_receives_the_health_of_devices(driver_node):
    node = driver_node
    node.veth("lan1")
    node.config = Config(offering=config({"patienceSeconds": 0}))
    async with node.driving():
        await node.offered("lan1")
        channel = grpc.aio.insecure_channel(
            f"unix:{node.root}/k/plugins/net.podwire.dev/dra.sock", options=[("grpc.default_authority", "localhost")]
        )
        async with channel:
            for version, messages in (("v1", health_v1_pb2), ("v1alpha1", health_v1alpha1_pb2)):
                stream = channel.unary_stream(
                    f"/{version}.DRAResourceHealth/NodeWatchResources",
                    request_serializer=lambda each: each.SerializeToString(),
                    response_deserializer=messages.NodeWatchResourcesResponse.FromString,
                )
                call = stream(messages.NodeWatchResourcesRequest(), wait_for_ready=True)
                await healthy(call, messages.HEALTHY)
                node.ip("link set lan1p down")
                sick = await healthy(call, messages.UNHEALTHY)
                assert "carrier" in sick.message
                assert sick.device.pool_name == "node-1"
                node.ip("link set lan1p up")
                await healthy(call, messages.HEALTHY)
                call.cancel()


async def healthy(call, wanted):
    """Read until the device is as wanted."""
    while True:
        found = {item.device.device_name: item for item in (await call.read()).devices}
        if "lan1" in found and found["lan1"].health == wanted:
            return found["lan1"]


async def test_explain_shows_the_stage_of_a_claim(driver_node):
    node = driver_node
    node.veth("lan1")
    async with node.driving():
        pod, claim = await node.claimed("lan1", interface=NET1)

        async def lines():
            found = await node.api.get(CLAIMS, "claim", "default")
            seen = await asyncio.to_thread(seen_on_host, node.root / "state", claim["metadata"]["uid"])
            return "\n".join(explained(found, pods=[pod], events=[], node="node-1", sight=seen))

        assert "lan1: not prepared" in await lines()
        await node.kubelet.prepare(claim)
        assert "lan1: prepared for pod default/pod, not attached: its sandbox has not started" in await lines()
        assert "lan1: on the host lan1, up, mtu 1500" in await lines()
        sandbox = node.sandbox(pod)
        node.inside(sandbox, "link add net1 type veth")
        with pytest.raises(RpcError):
            await node.host.run_pod_sandbox(sandbox)
        assert "not attached: " in await lines()
        assert "net1" in await lines()
        node.inside(sandbox, "link del net1")
        await node.host.run_pod_sandbox(sandbox)
        await node.reported(claim, "True", "Attached")
        assert "lan1: attached to pod default/pod as net1" in await lines()
        assert "lan1: Ready True, Attached: in pod pod" in await lines()
        await node.host.stop_pod_sandbox(sandbox)
