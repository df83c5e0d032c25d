"""The driver between a kubelet that is plain grpcio, a real API server, a real NRI host and real links."""

import asyncio
import threading
import uuid

import pytest

from podwire.dradriver.addresses.pools import parse_pools
from podwire.dradriver.attach.attachments import Attachments
from podwire.dradriver.config import Config
from podwire.dradriver.driver import DriverLimits
from podwire.dradriver.inventory.config import config
from podwire.dradriver.names import DRIVER
from podwire.durable import files
from podwire.linux.errors import LinuxError
from podwire.protocols.dra import dra_v1beta1_pb2
from podwire.protocols.grpc_status import RpcError
from tests.eventually import eventually_async

NET1 = {"name": "net1"}
SOON = 60.0


def links(node):
    """All of the host, by name; one that was away has another index."""
    found = sorted(node.ip("addr show"), key=lambda each: each["ifname"])
    return [{key: value for key, value in item.items() if key not in ("ifindex", "link_index")} for item in found]


async def test_a_whole_link_goes_into_its_pod_and_comes_back(driver_node):
    node = driver_node
    node.veth("lan1", "10.7.0.1/24")
    async with node.driving():
        await node.kubelet.register()
        await node.offered("lan1")
        before = node.ip("addr show dev lan1")
        pod, claim = await node.claimed("lan1", interface=NET1)
        (prepared,) = await node.kubelet.prepare(claim)
        assert prepared.error == ""
        assert [(device.pool_name, device.device_name, list(device.request_names)) for device in prepared.devices] == [
            ("node-1", "lan1", ["nic"])
        ]
        sandbox = node.sandbox(pod)
        await node.host.run_pod_sandbox(sandbox)
        assert node.links_in(sandbox) == ["net1"]
        devices = await node.reported(claim, "True", "Attached")
        mac = before[0]["address"]
        assert devices[0]["networkData"] == {"interfaceName": "net1", "hardwareAddress": mac, "ips": ["10.7.0.1/24"]}
        await node.host.stop_pod_sandbox(sandbox)
        devices = await node.reported(claim, "False", "Detached")
        assert "networkData" not in devices[0]
        assert await node.kubelet.unprepare(claim) == [""]
        assert node.ip("addr show dev lan1") == before
        assert list((node.root / "cdi").iterdir()) == []


async def test_it_registers_as_a_dra_plugin_of_both_versions(driver_node):
    async with driver_node.driving():
        found = await driver_node.kubelet.register()
        assert (found.type, found.name) == ("DRAPlugin", DRIVER)
        assert found.endpoint == str(driver_node.root / "k/plugins/net.podwire.dev/dra.sock")
        assert list(found.supported_versions) == [
            "v1.DRAPlugin",
            "v1beta1.DRAPlugin",
            "v1.DRAResourceHealth",
            "v1alpha1.DRAResourceHealth",
        ]
    assert list((driver_node.root / "k/plugins/net.podwire.dev").glob("*.sock")) == []
    assert list((driver_node.root / "k/plugins_registry").iterdir()) == []


async def test_preparing_again_gives_the_same_in_either_version(driver_node):
    node = driver_node
    node.veth("lan1")
    async with node.driving():
        pod, claim = await node.claimed("lan1", interface=NET1)
        first, second, third = [(await node.kubelet.prepare(claim))[0] for _ in range(3)]
        assert first == second == third
        (old,) = await node.kubelet.prepare(claim, version="v1beta1", messages=dra_v1beta1_pb2)
        assert (old.error, old.devices[0].cdi_device_ids) == ("", first.devices[0].cdi_device_ids)
        sandbox = node.sandbox(pod)
        await node.host.run_pod_sandbox(sandbox)
        assert (await node.kubelet.prepare(claim))[0] == first  # a kubelet that was restarted asks for pods that run
        assert node.links_in(sandbox) == ["net1"]
        await node.host.stop_pod_sandbox(sandbox)
        for _ in range(3):
            assert await node.kubelet.unprepare(claim) == [""]


async def test_kubelet_is_answered_after_the_record_is_fsynced(driver_node, monkeypatch):
    asked, written, settle = threading.Event(), threading.Event(), Attachments.fsync_claim

    def slowly(self, claim_uid):
        asked.set()
        assert written.wait(SOON)
        settle(self, claim_uid)

    monkeypatch.setattr(Attachments, "fsync_claim", slowly)
    node = driver_node
    node.veth("lan1")
    async with node.driving():
        _, claim = await node.claimed("lan1")
        preparing = asyncio.create_task(node.kubelet.prepare(claim))
        assert await asyncio.to_thread(asked.wait, SOON)
        assert not preparing.done()
        written.set()
        (answer,) = await preparing
        assert answer.error == ""
        monkeypatch.setattr(files, "fsync_file", None)
        (again,) = await node.kubelet.prepare(claim)
        assert again == answer, "it is there already"


async def test_failed_fsync_is_retried_by_the_next_prepare(driver_node, monkeypatch):
    def fails(_path):
        raise LinuxError(5, "write the record")

    monkeypatch.setattr(files, "fsync_file", fails)
    node = driver_node
    node.veth("lan1")
    async with node.driving():
        _, claim = await node.claimed("lan1")
        (first,) = await node.kubelet.prepare(claim)
        assert "write the record" in first.error
        tried: list[str] = []
        monkeypatch.setattr(files, "fsync_file", tried.append)
        (second,) = await node.kubelet.prepare(claim)
        assert (second.error, len(tried)) == ("", 1)


async def test_of_two_devices_none_is_attached_when_one_cannot_be(driver_node):
    node = driver_node
    node.veth("lan1", "10.7.0.1/24")
    node.veth("lan2")
    async with node.driving():
        await node.offered("lan2")
        before = links(node)
        pod = await node.pod()
        claim = await node.claim("lan1", "lan2", pods=[pod])
        (prepared,) = await node.kubelet.prepare(claim)
        assert [device.device_name for device in prepared.devices] == ["lan1", "lan2"]
        sandbox = node.sandbox(pod)
        node.inside(sandbox, "link add lan2 type veth")
        with pytest.raises(RpcError, match="device lan2: "):
            await node.host.run_pod_sandbox(sandbox)
        assert links(node) == before
        await node.reported(claim, "False", "AttachFailed")
        failed = await node.both_events("NetworkDeviceAttachFailed")
        assert all("device lan2" in message for _, message in failed)
        node.inside(sandbox, "link del lan2")
        await node.host.run_pod_sandbox(sandbox)
        assert node.links_in(sandbox) == ["lan1", "lan2"]
        await node.host.stop_pod_sandbox(sandbox)


async def test_invalid_claim_is_refused_before_anything_is_changed(driver_node):
    node = driver_node
    node.veth("lan1")
    async with node.driving():
        await node.offered("lan1")
        before = links(node)
        pod, other = await node.pod(), await node.pod("other")
        on_host = await node.pod("on-host", hostNetwork=True)
        claims = {
            "not allocated": await node.claim(name_="bare"),
            "is not reserved for a pod": await node.claim("lan1", name_="nobody"),
            "one pod at a time": await node.claim("lan1", name_="two", pods=[pod, other]),
            "spec.hostNetwork": await node.claim("lan1", name_="host", pods=[on_host]),
            "lan9 is not a device of this node": await node.claim("lan9", name_="gone", pods=[pod]),
            "is not the pool of this node": await node.claim("lan1", name_="far", pods=[pod], pool="node-2"),
            "interface.mtu": await node.claim("lan1", name_="mtu", pods=[pod], interface={"mtu": 5}),
            "interface.name": await node.claim("lan1", name_="eth0", pods=[pod], interface={"name": "eth0"}),
        }
        anew = await node.claim("lan1", name_="anew", pods=[pod])
        claims["was deleted and created again"] = {**anew, "metadata": {**anew["metadata"], "uid": "another"}}
        gone = {"metadata": {"name": "no-such", "namespace": "default", "uid": "none"}}
        claims['resourceclaims.resource.k8s.io "no-such" not found'] = gone
        answers = await node.kubelet.prepare(*claims.values())
        for why, answer in zip(claims, answers, strict=True):
            assert why in answer.error
            assert not answer.devices
        assert links(node) == before
        await node.reported(claims["interface.mtu"], "False", "PrepareFailed")
        events = await eventually_async(lambda: node.events("ClaimPrepareFailed"))
        assert {about for about, _ in events} == {"ResourceClaim"}, "pods hear of it from the kubelet"


async def test_devices_of_other_drivers_in_a_claim_are_ignored(driver_node):
    node = driver_node
    async with node.driving():
        pod = await node.pod()
        claim = await node.claim("gpu-1", pods=[pod], driver="gpu.example.com")
        (prepared,) = await node.kubelet.prepare(claim)
        assert (prepared.error, list(prepared.devices)) == ("", [])
        assert await node.kubelet.unprepare(claim) == [""]


async def test_a_device_is_prepared_for_one_claim_and_one_pod(driver_node):
    node = driver_node
    node.veth("lan1")
    async with node.driving(limits=DriverLimits(linger=0.05, freed=0.05)):
        await node.offered("lan1")
        pod, other = await node.pod(), await node.pod("other")
        claim = await node.claim("lan1", pods=[pod], interface=NET1)
        thief = await node.claim("lan1", name_="thief", pods=[other])
        assert (await node.kubelet.prepare(claim))[0].error == ""
        assert "lan1 is prepared for claim default/claim" in (await node.kubelet.prepare(thief))[0].error
        await node.kubelet.unprepare(claim, thief)
        answers = await node.kubelet.prepare(claim, thief)
        assert sorted(bool(answer.error) for answer in answers) == [False, True]  # at once, and one has it
        await node.kubelet.unprepare(claim, thief)
        assert (await node.kubelet.prepare(claim))[0].error == ""
        handed = await node.reserve(claim, other)
        assert "still prepared for pod default/pod" in (await node.kubelet.prepare(handed))[0].error
        assert await node.kubelet.unprepare(claim) == [""]
        assert (await node.kubelet.prepare(handed))[0].error == ""


async def test_interfaces_of_one_pod_must_get_along_also_from_several_claims(driver_node):
    node = driver_node
    node.veth("lan1")
    node.veth("lan2")
    async with node.driving():
        await node.offered("lan2")
        pod = await node.pod()
        first = await node.claim("lan1", name_="first", pods=[pod], interface=NET1)
        second = await node.claim("lan2", name_="second", pods=[pod], interface=NET1)
        answers = await node.kubelet.prepare(first, second)
        assert all('has "net1" in this pod too' in answer.error for answer in answers)
        assert (await node.kubelet.prepare(first))[0].error == ""
        assert 'has "net1" in this pod too' in (await node.kubelet.prepare(second))[0].error


async def test_prepared_claim_reports_that_its_pod_waits_for_others(driver_node):
    node = driver_node
    node.veth("lan1")
    node.veth("lan2")
    async with node.driving():
        await node.offered("lan2")
        pod = await node.pod()
        good = await node.claim("lan1", name_="good", pods=[pod], interface=NET1)
        bad = await node.claim("lan2", name_="bad", pods=[pod], interface={"mtu": 5})
        answers = await node.kubelet.prepare(good, bad)
        assert [bool(answer.error) for answer in answers] == [False, True]
        (device,) = await node.reported(good, "False", "Prepared")
        assert device["conditions"][0]["message"] == "prepared; the pod waits for 1 other claim"
        assert await node.kubelet.unprepare(good, bad) == ["", ""]


async def test_an_older_sandbox_of_a_pod_that_is_stopped_later_takes_nothing_away(driver_node):
    node = driver_node
    node.veth("lan1")
    async with node.driving():
        pod, _ = await node.prepared("lan1", interface=NET1)
        old, new = node.sandbox(pod, "old"), node.sandbox(pod, "new")
        await node.host.run_pod_sandbox(old)
        await node.host.stop_pod_sandbox(old)
        await node.host.run_pod_sandbox(new)
        await node.host.remove_pod_sandbox(old)
        assert node.links_in(new) == ["net1"]
        await node.host.stop_pod_sandbox(new)


async def test_several_pods_have_parts_of_one_shared_link_with_addresses_of_a_pool(driver_node):
    node = driver_node
    node.veth("up1")
    node.config = Config(
        offering=config({"shared": [{"interface": "up1", "slots": 4, "bandwidth": "1G"}]}),
        pools=parse_pools({"lab": {"subnet": "10.9.0.0/24", "rangeStart": "10.9.0.100"}}),
    )
    async with node.driving():
        await node.offered("up1")
        before = links(node)
        pods = [await node.pod(f"pod-{number}") for number in (1, 2)]
        interface = {"name": "net1", "kind": "macvlan", "addressPool": "lab"}
        shares = [str(uuid.uuid4()) for _ in pods]
        claims = [
            await node.claim("up1", name_=f"claim-{i}", pods=[pod], interface=interface, shareID=share)
            for i, (pod, share) in enumerate(zip(pods, shares, strict=True))
        ]
        answers = await node.kubelet.prepare(*claims)
        assert [answer.error for answer in answers] == ["", ""]
        assert [answer.devices[0].share_id for answer in answers] == shares
        sandboxes = [node.sandbox(pod, f"sandbox-{i}") for i, pod in enumerate(pods)]
        for entry in sandboxes:
            await node.host.run_pod_sandbox(entry)
            assert node.links_in(entry) == ["net1"]
        result = [await node.reported(claim, "True", "Attached") for claim in claims]
        ips = sorted(item[0]["networkData"]["ips"] for item in result)
        assert ips == [["10.9.0.100/24"], ["10.9.0.101/24"]]
        again = await node.kubelet.prepare(*claims)
        assert again == answers
        for entry in sandboxes:
            await node.host.stop_pod_sandbox(entry)
        assert await node.kubelet.unprepare(*claims) == ["", ""]
        assert links(node) == before
