"""Claims and links that nobody will ask for any more: their pods and claims are gone, or their records are."""

import asyncio
import contextlib
import threading

from podwire.dradriver.driver import DriverLimits
from podwire.dradriver.names import CLAIMS, PODS
from tests.eventually import eventually_async

NET1 = {"name": "net1", "addresses": ["192.0.2.9/24"]}
SOON = DriverLimits(linger=0.05, reconcile=0.05)


async def delete(node, kind, object_):
    meta = object_["metadata"]
    await node.api.patch(kind, meta["name"], {"metadata": {"finalizers": None}}, meta["namespace"])
    await node.api.delete(kind, meta["name"], meta["namespace"], grace_seconds=0)


def records(node):
    return sorted(path.name for path in (node.root / "state/records").glob("*/*"))


async def unprepared(node, link):
    await eventually_async(lambda: records(node) == [], explain=lambda: str(records(node)))
    assert [item["ifname"] for item in node.ip(f"link show dev {link}")] == [link]
    await eventually_async(lambda: not list((node.root / "cdi").iterdir()))


async def test_claim_and_pod_that_went_while_the_driver_was_down_are_unprepared_at_its_start(driver_node):
    node = driver_node
    node.veth("lan1")
    async with node.driving():
        claim, sandbox = await node.attached("lan1", interface=NET1)
        before = await node.offered("lan1")
    await node.host.stop_pod_sandbox(sandbox)
    await node.host.remove_pod_sandbox(sandbox)
    await delete(node, CLAIMS, claim)
    await delete(node, PODS, await node.api.get(PODS, "pod", "default"))
    async with node.driving():  # no kubelet calls it
        await unprepared(node, "lan1")
        assert (await node.offered("lan1"))["name"] == before["name"]
        _, other = await node.prepared("lan1", pod="other", name_="other", interface=NET1)  # the address is free, too
        assert await node.kubelet.unprepare(other) == [""]


async def test_standing_claim_that_its_pod_lost_is_unprepared_for_the_next_pod(driver_node):
    node = driver_node
    node.veth("lan1")
    async with node.driving(limits=SOON):
        claim, sandbox = await node.attached("lan1", interface=NET1)
        await node.host.stop_pod_sandbox(sandbox)
        await node.reserve(claim)
        await delete(node, PODS, await node.api.get(PODS, "pod", "default"))
        await unprepared(node, "lan1")
        follower = await node.pod("follower")
        await node.reserve(claim, follower)
        (answer,) = await node.kubelet.prepare(claim)
        assert answer.error == ""
        assert await node.kubelet.unprepare(claim) == [""]


async def test_links_of_running_and_existing_pods_are_left_alone(driver_node):
    node = driver_node
    node.veth("lan1")
    node.veth("lan2")
    async with node.driving(limits=SOON) as driver:
        claim, sandbox = await node.attached("lan1", interface={"name": "net1"})
        _, waiting = await node.prepared("lan2", pod="waiting", name_="waiting", interface={"name": "net1"})
        await delete(node, CLAIMS, claim)
        await delete(node, PODS, await node.api.get(PODS, "pod", "default"))
        await delete(node, CLAIMS, waiting)  # its pod still exists
        await driver._reconciler.reconcile()
        assert node.links_in(sandbox) == ["net1"]
        assert len(records(node)) == 2
        await node.host.stop_pod_sandbox(sandbox)
        await eventually_async(lambda: len(records(node)) == 1)
        with contextlib.suppress(Exception):
            await node.kubelet.unprepare(waiting)


def is_restored(node, link):
    return [item for item in node.ip("link show") if item["ifname"] == link and "ifalias" not in item]


def lose_record(node):
    """As if a disk had lost it: neither the record nor the published device of another claim is touched."""
    (record,) = (node.root / "state/records").glob("*/*.json")
    record.unlink()
    record.parent.rmdir()


async def test_link_in_a_running_pod_whose_record_is_lost_returns_when_the_pod_ends(driver_node):
    node = driver_node
    node.veth("lan1")
    async with node.driving():
        _, sandbox = await node.attached("lan1", interface={"name": "net1", "mtu": 1400})
        before = await node.offered("lan1")
    lose_record(node)
    async with node.driving() as driver:
        await driver.plugin.synchronize([sandbox], [])
        assert node.links_in(sandbox) == ["net1"], "the pod works with it"
        assert driver._dependencies.attachments.is_attached(sandbox.uid, node.netns_of(sandbox))
        await node.host.stop_pod_sandbox(sandbox)
        (link,) = node.ip("link show dev lan1")
        assert "ifalias" not in link
        assert link["mtu"] == 1500

        async def is_offered_as_before():
            return (await node.offered("lan1"))["attributes"] == before["attributes"]

        await eventually_async(is_offered_as_before)
        assert "podwire_network_driver_recovered_links 1" in await driver.metrics()
        events = await eventually_async(lambda: node.events("NetworkDeviceRecovered"))
        assert events[0][0] == "Node"
        _, claim = await node.prepared("lan1", pod="next", name_="next")
        assert await node.kubelet.unprepare(claim) == [""]


async def test_tagged_link_on_the_host_without_a_record_is_offered_again(driver_node):
    node = driver_node
    node.veth("lan1")
    async with node.driving():
        _, sandbox = await node.attached("lan1", interface={"name": "net1"})
    lose_record(node)
    await node.host.stop_pod_sandbox(sandbox)
    node.inside(sandbox, f"link set net1 netns {threading.get_native_id()} name odd")
    async with node.driving(limits=SOON):
        await eventually_async(lambda: is_restored(node, "lan1"))
        await node.offered("lan1")


async def test_link_in_the_namespace_of_a_pod_that_is_gone_returns_although_its_record_is_lost(driver_node):
    node = driver_node
    node.veth("lan1")
    async with node.driving():
        _, sandbox = await node.attached("lan1", interface={"name": "net1"})
    lose_record(node)
    await node.host.stop_pod_sandbox(sandbox)
    await node.host.remove_pod_sandbox(sandbox)
    node.namespaces.remove(sandbox.id)  # the driver's pin keeps it alive
    async with node.driving():
        await eventually_async(lambda: is_restored(node, "lan1"))
        await node.offered("lan1")
        await eventually_async(lambda: not list((node.root / "state/netns").iterdir()))


async def test_claim_waits_for_the_claim_that_had_its_device_before(driver_node):
    node = driver_node
    node.veth("lan1")
    async with node.driving(limits=DriverLimits(linger=0.05, freed=60.0)):
        claim, sandbox = await node.attached("lan1", interface=NET1)  # its pod was deleted without grace
        pod = await node.pod("next")
        follower = await node.claim("lan1", name_="next", pods=[pod], interface=NET1)
        preparing = asyncio.create_task(node.kubelet.prepare(follower))
        await asyncio.sleep(0.2)
        assert not preparing.done()
        await node.host.stop_pod_sandbox(sandbox)
        assert await node.kubelet.unprepare(claim) == [""]
        (answer,) = await preparing
        assert answer.error == ""
        assert await node.kubelet.unprepare(follower) == [""]
