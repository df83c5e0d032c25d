"""Drivers, kubelets and machines are started again, another instance takes over: what pods claim goes on."""

from podwire.dradriver.names import DRIVER, SLICES
from podwire.protocols.nri import nri_pb2 as pb
from tests.eventually import eventually_async

NET1 = {"name": "net1"}


async def test_restarted_driver_attaches_prepared_devices_and_restores_those_of_ended_pods(driver_node):
    node = driver_node
    node.veth("lan1")
    node.veth("lan2")
    async with node.driving():
        await node.offered("lan2")
        listed = await node.offered("lan1")
        before = node.ip("link show dev lan1")
        pods = [await node.pod(f"pod-{number}") for number in (1, 2)]
        claims = [await node.claim(f"lan{i}", name_=f"claim-{i}", pods=[pods[i - 1]], interface=NET1) for i in (1, 2)]
        await node.kubelet.prepare(*claims)
        ended = node.sandbox(pods[0], "ended")
        await node.host.run_pod_sandbox(ended)
    waiting = node.sandbox(pods[1], "waiting")
    await node.host.run_pod_sandbox(waiting)  # nobody is there to attach it
    await node.host.stop_pod_sandbox(ended)
    await node.host.remove_pod_sandbox(ended)
    node.namespaces.remove("ended")  # a link that is not hardware would die with its namespace
    assert node.links_in(waiting) == []
    async with node.driving():
        assert node.links_in(waiting) == ["net1"]
        assert {**before[0], "ifindex": 0, "link_index": 0} == {
            **node.ip("link show dev lan1")[0],
            "ifindex": 0,
            "link_index": 0,
        }
        await node.reported(claims[1], "True", "Attached")
        assert (await node.offered("lan1"))["attributes"] == listed["attributes"]
        await node.host.create_container(waiting, pb.Container(id="c", pod_sandbox_id="waiting"))
        await node.host.stop_pod_sandbox(waiting)
        assert await node.kubelet.unprepare(*claims) == ["", ""]
        assert list((node.root / "state/netns").iterdir()) == []


async def test_devices_stay_listed_while_pods_have_them(driver_node):
    node = driver_node
    node.veth("lan1", "10.7.0.1/24")
    async with node.driving():
        listed = await node.offered("lan1")
        _, sandbox = await node.attached("lan1", interface=NET1)
        for item in (await node.api.list(SLICES)).items:
            await node.api.delete(SLICES, item["metadata"]["name"])  # as a kubelet does when it starts
        await node.kubelet.register()
        assert await node.offered("lan1") == listed
        await node.host.stop_pod_sandbox(sandbox)


async def test_file_of_a_device_that_no_claim_holds_is_removed_after_a_restart(driver_node):
    """A driver that is killed between a device's file and its record leaves the file."""
    node = driver_node
    node.veth("lan1")
    listed = node.root / "state/listed/lan1.json"
    async with node.driving():
        _, claim = await node.prepared("lan1", interface=NET1)
        left = listed.read_bytes()
        async with node.driving(pod_uid="22222222-bbbb"):
            assert listed.exists(), "another instance keeps what a claim holds"
        assert await node.kubelet.unprepare(claim) == [""]
        assert not listed.exists()
    listed.write_bytes(left)
    async with node.driving():
        await node.offered("lan1")
        await eventually_async(lambda: not listed.exists())


async def test_two_instances_hand_over_without_a_bare_pod(driver_node):
    node = driver_node
    node.veth("lan1")
    async with node.driving(pod_uid="11111111-aaaa"):
        pod, claim = await node.claimed("lan1", interface=NET1)
        async with node.driving(pod_uid="22222222-bbbb"):
            found = await node.kubelet.register(f"{DRIVER}-22222222-bbbb-reg.sock")
            assert found.endpoint.endswith("dra-22222222-bbbb.sock")
            (prepared,) = await node.kubelet.prepare(claim, socket="dra-22222222-bbbb.sock")
            assert prepared.error == ""
            sandbox = node.sandbox(pod)
            await node.host.run_pod_sandbox(sandbox)  # both are asked, and it is done once
            container = pb.Container(id="c1", pod_sandbox_id=sandbox.id)
            adjusted = await node.host.create_container(sandbox, container)
            assert [item.key for item in adjusted.adjust.env] == ["PODWIRE_NETWORK_INTERFACES"]
            assert node.links_in(sandbox) == ["net1"]
        again = await node.host.create_container(sandbox, pb.Container(id="c2", pod_sandbox_id=sandbox.id))
        assert [item.key for item in again.adjust.env] == ["PODWIRE_NETWORK_INTERFACES"]
        await node.offered("lan1")
        await node.host.stop_pod_sandbox(sandbox)
        assert await node.kubelet.unprepare(claim, socket="dra-11111111-aaaa.sock") == [""]
        assert [item["ifname"] for item in node.ip("link show dev lan1")] == ["lan1"]


async def test_after_a_boot_the_pod_that_had_a_claim_is_answered_the_same_while_another_waits(driver_node):
    node = driver_node
    node.veth("lan1")
    async with node.driving():
        pod, claim = await node.claimed("lan1", interface=NET1)
        before = (await node.kubelet.prepare(claim))[0]
        assert before.error == ""
        await node.reserve(claim, pod, await node.pod("other"))
        assert "a network interface is in one pod at a time" in (await node.kubelet.prepare(claim))[0].error
    async with node.driving(boot="another"):
        await node.offered("lan1")
        assert (await node.kubelet.prepare(claim))[0] == before
        assert "a network interface is in one pod at a time" in (await node.kubelet.prepare(claim))[0].error
        sandbox = node.sandbox(pod)
        await node.host.run_pod_sandbox(sandbox)
        assert node.links_in(sandbox) == ["net1"]
        await node.host.stop_pod_sandbox(sandbox)
        assert await node.kubelet.unprepare(claim) == [""]
