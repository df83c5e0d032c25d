"""Events on pods and claims, each once."""

from podwire.dradriver.config import Config
from podwire.dradriver.inventory.config import config
from tests.eventually import eventually_async

NET1 = {"name": "net1"}


async def test_health_of_a_device_is_reported_to_its_claim_and_pod(driver_node):
    node = driver_node
    node.veth("lan1")
    node.veth("lan2")
    node.config = Config(offering=config({"patienceSeconds": 1}))
    async with node.driving():
        await node.offered("lan2")
        claim, sandbox = await node.attached("lan1", interface=NET1)
        node.ip("link set lan2p down")  # nobody has it, so nobody hears of it
        node.ip("link set lan1p down")
        found = await node.both_events("NetworkDeviceUnhealthy")
        assert found == [("Pod", "lan1: net1 has no carrier"), ("ResourceClaim", "lan1: net1 has no carrier")]
        assert await ready(node, claim, "False") == {"Ready": "Attached", "NetworkReady": "Unhealthy"}
        node.ip("link set lan1p up")
        found = await node.both_events("NetworkDeviceHealthy")
        assert found == [("Pod", "lan1 is well again"), ("ResourceClaim", "lan1 is well again")]
        assert await ready(node, claim, "True") == {"Ready": "Attached", "NetworkReady": "Attached"}
        await node.host.stop_pod_sandbox(sandbox)


async def ready(node, claim, wanted):
    """Reasons, as soon as NetworkReady is as it is wanted."""

    async def look():
        (device,) = await node.status(claim) or [{"conditions": []}]
        found = {condition["type"]: condition for condition in device["conditions"]}
        if found.get("NetworkReady", {}).get("status") == wanted:
            return {type_: each["reason"] for type_, each in found.items()}
        return None

    return await eventually_async(look)


async def test_restarted_driver_does_not_repeat_events_of_attached_devices(driver_node):
    node = driver_node
    node.veth("lan1")
    node.veth("lan2")
    async with node.driving():
        await node.offered("lan2")
        pods = [await node.pod(name) for name in ("first", "second")]
        claims = [
            await node.claim(device, name_=f"of-{device}", pods=[pod], interface=NET1)
            for device, pod in zip(("lan1", "lan2"), pods, strict=True)
        ]
        await node.kubelet.prepare(*claims)
        first, second = node.sandbox(pods[0], "first"), node.sandbox(pods[1], "second")
        await node.host.run_pod_sandbox(first)
        before = await node.both_events("NetworkDeviceAttached")
    async with node.driving() as driver:
        await driver.plugin.synchronize([first, second], [])

        async def look():
            return [event for event in await node.events("NetworkDeviceAttached") if "lan2" in event[1]]

        await eventually_async(look)  # that one is new
        assert [event for event in await node.events("NetworkDeviceAttached") if "lan1" in event[1]] == before
        for item in (first, second):
            await node.host.stop_pod_sandbox(item)
        assert await node.kubelet.unprepare(*claims) == ["", ""]


async def test_status_of_a_claim_in_a_pod_stays_while_another_pod_is_refused(driver_node):
    node = driver_node
    node.veth("lan1")
    async with node.driving():
        pod, claim = await node.prepared("lan1", interface=NET1)
        sandbox = node.sandbox(pod)
        await node.host.run_pod_sandbox(sandbox)
        await node.reported(claim, "True", "Attached")
        await node.reserve(claim, pod, await node.pod("other"))
        assert "in one pod at a time" in (await node.kubelet.prepare(claim))[0].error
        await eventually_async(lambda: node.events("ClaimPrepareFailed"))
        (device,) = await node.status(claim)
        assert {condition["reason"] for condition in device["conditions"]} == {"Attached"}
        await node.host.stop_pod_sandbox(sandbox)
