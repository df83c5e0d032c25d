"""The driver between a kubelet that is plain grpcio, a real API server, a real NRI host and real links."""

import asyncio
import json
import subprocess
import time
import uuid
from pathlib import Path

import grpc
import pytest

from podwire.dradriver.addressing.pools import parse_pools
from podwire.dradriver.config import Config
from podwire.dradriver.explaining import explained, seen_on_host
from podwire.dradriver.inventory.config import config
from podwire.dradriver.names import CLAIMS, DRIVER, EVENTS, SLICES
from podwire.dradriver.parameters import API_VERSION, KIND
from podwire.protocols.dra import dra_v1beta1_pb2, health_v1_pb2, health_v1alpha1_pb2
from podwire.protocols.grpc_status import RpcError
from podwire.protocols.k8sapi.client_side import Scope
from podwire.protocols.nri import nri_pb2 as pb


def parameters_of(**fields):
    return {"apiVersion": API_VERSION, "kind": KIND, **fields}


NET1 = parameters_of(interface={"name": "net1"})


def netns_of(sandbox):
    return sandbox.linux.namespaces[0].path


def names_in(node, sandbox):
    """Of all links but the loopback."""
    return sorted(each["ifname"] for each in node.inside(netns_of(sandbox), "link show") if each["ifname"] != "lo")


def links(node):
    """All of the host, by name; one that was away has another index."""
    found = sorted(node.ip("addr show"), key=lambda each: each["ifname"])
    return [{key: value for key, value in each.items() if key not in ("ifindex", "link_index")} for each in found]


def condition(devices, type_="Ready"):
    """Status and reason of a condition of the only device."""
    found = [each for device in devices for each in device["conditions"] if each["type"] == type_]
    return (found[0]["status"], found[0]["reason"]) if found else None


async def told(node, claim, *wanted):
    """Wait until the claim's status says so."""

    async def look():
        devices = await node.status(claim)
        return devices if condition(devices) == wanted else None

    return await node.until(look)


async def events_of(node, reason):
    listed = (await node.api.list(EVENTS, Scope(namespace="default"))).items
    return {each["involvedObject"]["kind"]: each["message"] for each in listed if each["reason"] == reason}


async def test_a_whole_link_goes_into_its_pod_and_comes_back(driver_node):
    node = driver_node
    node.veth("lan1", "10.7.0.1/24")
    async with node.driving():
        await node.kubelet.register()
        await node.offered("lan1")
        before = node.ip("addr show dev lan1")
        pod = await node.pod()
        claim = await node.claim("lan1", pods=[pod], parameters=NET1)
        (prepared,) = await node.kubelet.prepare(claim)
        assert prepared.error == ""
        assert [(each.pool_name, each.device_name, list(each.request_names)) for each in prepared.devices] == [
            ("node-1", "lan1", ["nic"])
        ]
        sandbox = node.sandbox(pod)
        await node.host.run_pod_sandbox(sandbox)
        assert names_in(node, sandbox) == ["net1"]
        devices = await told(node, claim, "True", "Attached")
        mac = before[0]["address"]
        assert devices[0]["networkData"] == {"interfaceName": "net1", "hardwareAddress": mac, "ips": ["10.7.0.1/24"]}
        await node.host.stop_pod_sandbox(sandbox)
        devices = await told(node, claim, "False", "Detached")
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
        await node.offered("lan1")
        pod = await node.pod()
        claim = await node.claim("lan1", pods=[pod], parameters=NET1)
        first, second, third = [(await node.kubelet.prepare(claim))[0] for _ in range(3)]
        assert first == second == third
        (old,) = await node.kubelet.prepare(claim, version="v1beta1", messages=dra_v1beta1_pb2)
        assert (old.error, old.devices[0].cdi_device_ids) == ("", first.devices[0].cdi_device_ids)
        sandbox = node.sandbox(pod)
        await node.host.run_pod_sandbox(sandbox)
        assert (await node.kubelet.prepare(claim))[0] == first  # a kubelet that was restarted asks for pods that run
        assert names_in(node, sandbox) == ["net1"]
        await node.host.stop_pod_sandbox(sandbox)
        for _ in range(3):
            assert await node.kubelet.unprepare(claim) == [""]


async def test_the_cdi_file_has_a_hook_that_lets_containers_start_only_after_the_attachment(driver_node):
    node = driver_node
    node.veth("lan1")
    async with node.driving():
        await node.offered("lan1")
        pod = await node.pod()
        claim = await node.claim("lan1", pods=[pod], parameters=NET1)
        (prepared,) = await node.kubelet.prepare(claim)
        uid = claim["metadata"]["uid"]
        assert list(prepared.devices[0].cdi_device_ids) == [f"net.podwire.dev/claim={uid}-nic"]
        spec = json.loads((node.root / f"cdi/net.podwire.dev-claim@{uid}.json").read_text())
        (hook,) = spec["containerEdits"]["hooks"]
        edits = spec["devices"][0]["containerEdits"]
        assert (hook["hookName"], edits["env"]) == ("createRuntime", ["PODWIRE_NIC_INTERFACES=net1"])
        sandbox = node.sandbox(pod)
        checked = await ran(hook, sandbox)
        assert checked.returncode == 1
        assert "are not attached" in checked.stderr
        await node.host.run_pod_sandbox(sandbox)
        assert (await ran(hook, sandbox)).returncode == 0
        assert (await ran(hook, node.sandbox(pod, "another"))).returncode == 1
        told_ = read_json(edits["mounts"][0]["hostPath"])
        assert told_["requests"][0]["devices"][0]["networkData"]["interfaceName"] == "net1"
        assert told_["requests"][0]["devices"][0]["attributes"]["interface"] == {"string": "lan1"}
        await node.host.stop_pod_sandbox(sandbox)
        assert (await ran(hook, sandbox)).returncode == 1


def read_json(path):
    return json.loads(Path(path).read_text())


async def ran(hook, sandbox):
    return await asyncio.to_thread(checked_by, hook, netns_of(sandbox))


def checked_by(hook, netns):
    """What the hook says of a container in that namespace."""
    with subprocess.Popen(["nsenter", f"--net={netns}", "sleep", "100"]) as child:
        try:
            while Path(f"/proc/{child.pid}/comm").read_text() != "sleep\n":
                time.sleep(0.01)
            state = json.dumps({"ociVersion": "1.0.2", "id": "c", "pid": child.pid})
            argv = [hook["path"], *hook["args"][1:]]
            return subprocess.run(argv, input=state, capture_output=True, text=True, check=False)
        finally:
            child.kill()


async def test_a_container_is_refused_until_its_pod_is_attached_and_then_told_of_its_interfaces(driver_node):
    node = driver_node
    node.veth("lan1")
    async with node.driving():
        await node.offered("lan1")
        pod = await node.pod()
        claim = await node.claim("lan1", pods=[pod], parameters=NET1)
        await node.kubelet.prepare(claim)
        sandbox = node.sandbox(pod)
        container = pb.Container(id="c1", name="main", pod_sandbox_id=sandbox.id)
        with pytest.raises(RpcError, match="network devices of pod default/pod are not attached"):
            await node.host.create_container(sandbox, container)
        await node.host.run_pod_sandbox(sandbox)
        adjusted = await node.host.create_container(sandbox, container)
        assert {each.key: each.value for each in adjusted.adjust.env} == {"PODWIRE_NETWORK_INTERFACES": "net1"}
        await node.host.stop_pod_sandbox(sandbox)


async def test_a_pod_without_claims_is_left_alone(driver_node):
    node = driver_node
    async with node.driving():
        pod = await node.pod()
        sandbox = node.sandbox(pod)
        await node.host.run_pod_sandbox(sandbox)
        adjusted = await node.host.create_container(sandbox, pb.Container(id="c1", pod_sandbox_id=sandbox.id))
        assert adjusted.adjust == pb.ContainerAdjustment()
        await node.host.stop_pod_sandbox(sandbox)


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
        assert [each.device_name for each in prepared.devices] == ["lan1", "lan2"]
        sandbox = node.sandbox(pod)
        node.inside(netns_of(sandbox), "link add lan2 type veth")
        with pytest.raises(RpcError, match="device lan2: "):
            await node.host.run_pod_sandbox(sandbox)
        assert links(node) == before
        await told(node, claim, "False", "AttachFailed")
        failed = await node.until(lambda: events_of(node, "NetworkDeviceAttachFailed"))
        await node.until(lambda: all_told(node, "NetworkDeviceAttachFailed"))
        assert "device lan2" in next(iter(failed.values()))
        node.inside(netns_of(sandbox), "link del lan2")
        await node.host.run_pod_sandbox(sandbox)
        assert names_in(node, sandbox) == ["lan1", "lan2"]
        await node.host.stop_pod_sandbox(sandbox)


async def all_told(node, reason):
    """Of the pod and of the claim."""
    return (await events_of(node, reason)).keys() == {"Pod", "ResourceClaim"}


async def test_what_cannot_be_is_refused_before_anything_is_changed(driver_node):
    node = driver_node
    node.veth("lan1")
    async with node.driving():
        await node.offered("lan1")
        before = links(node)
        pod, other = await node.pod(), await node.pod("other")
        on_host = await node.pod("on-host", hostNetwork=True)
        claims = {
            "not allocated": await node.claim(name_="bare"),
            "is reserved for nobody": await node.claim("lan1", name_="nobody"),
            "one pod at a time": await node.claim("lan1", name_="two", pods=[pod, other]),
            "spec.hostNetwork": await node.claim("lan1", name_="host", pods=[on_host]),
            "lan9 is not a device of this node": await node.claim("lan9", name_="gone", pods=[pod]),
            "is not the pool of this node": await node.claim("lan1", name_="far", pods=[pod], pool="node-2"),
            "interface.mtu": await node.claim(
                "lan1", name_="mtu", pods=[pod], parameters=parameters_of(interface={"mtu": 5})
            ),
            "interface.name": await node.claim(
                "lan1", name_="eth0", pods=[pod], parameters=parameters_of(interface={"name": "eth0"})
            ),
        }
        anew = await node.claim("lan1", name_="anew", pods=[pod])
        claims["was deleted and made anew"] = {**anew, "metadata": {**anew["metadata"], "uid": "another"}}
        gone = {"metadata": {"name": "no-such", "namespace": "default", "uid": "none"}}
        claims['resourceclaims.resource.k8s.io "no-such" not found'] = gone
        answers = await node.kubelet.prepare(*claims.values())
        for why, answer in zip(claims, answers, strict=True):
            assert why in answer.error
            assert not answer.devices
        assert links(node) == before
        await told(node, claims["interface.mtu"], "False", "PrepareFailed")
        await node.until(lambda: events_of(node, "ClaimPrepareFailed"))
        assert set(await events_of(node, "ClaimPrepareFailed")) == {"ResourceClaim"}, "pods hear of it from the kubelet"


async def test_what_is_anothers_in_a_claim_is_left_to_him(driver_node):
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
    async with node.driving():
        await node.offered("lan1")
        pod, other = await node.pod(), await node.pod("other")
        claim = await node.claim("lan1", pods=[pod], parameters=NET1)
        thief = await node.claim("lan1", name_="thief", pods=[other])
        assert (await node.kubelet.prepare(claim))[0].error == ""
        assert "lan1 is prepared for claim default/claim" in (await node.kubelet.prepare(thief))[0].error
        await node.kubelet.unprepare(claim, thief)
        answers = await node.kubelet.prepare(claim, thief)
        assert sorted(bool(each.error) for each in answers) == [False, True]  # at once, and one has it
        await node.kubelet.unprepare(claim, thief)
        assert (await node.kubelet.prepare(claim))[0].error == ""
        latest = await node.api.get(CLAIMS, "claim", "default")
        latest["status"]["reservedFor"] = [{"resource": "pods", "name": "other", "uid": other["metadata"]["uid"]}]
        handed = await node.api.replace(latest, subresource="status")
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
        first = await node.claim("lan1", name_="first", pods=[pod], parameters=NET1)
        second = await node.claim("lan2", name_="second", pods=[pod], parameters=NET1)
        answers = await node.kubelet.prepare(first, second)
        assert all('has "net1" in this pod too' in each.error for each in answers)
        assert (await node.kubelet.prepare(first))[0].error == ""
        assert 'has "net1" in this pod too' in (await node.kubelet.prepare(second))[0].error


async def test_a_claim_that_is_prepared_says_so_while_its_pod_waits_for_others(driver_node):
    node = driver_node
    node.veth("lan1")
    node.veth("lan2")
    async with node.driving():
        await node.offered("lan2")
        pod = await node.pod()
        good = await node.claim("lan1", name_="good", pods=[pod], parameters=NET1)
        bad = await node.claim("lan2", name_="bad", pods=[pod], parameters=parameters_of(interface={"mtu": 5}))
        answers = await node.kubelet.prepare(good, bad)
        assert [bool(each.error) for each in answers] == [False, True]
        (device,) = await told(node, good, "False", "Prepared")
        assert device["conditions"][0]["message"] == "prepared; the pod waits for 1 other claim"
        assert await node.kubelet.unprepare(good, bad) == ["", ""]


async def test_an_older_sandbox_of_a_pod_that_is_stopped_later_takes_nothing_away(driver_node):
    node = driver_node
    node.veth("lan1")
    async with node.driving():
        await node.offered("lan1")
        pod = await node.pod()
        claim = await node.claim("lan1", pods=[pod], parameters=NET1)
        await node.kubelet.prepare(claim)
        old, new = node.sandbox(pod, "old"), node.sandbox(pod, "new")
        await node.host.run_pod_sandbox(old)
        await node.host.stop_pod_sandbox(old)
        await node.host.run_pod_sandbox(new)
        await node.host.remove_pod_sandbox(old)
        assert names_in(node, new) == ["net1"]
        await node.host.stop_pod_sandbox(new)


async def test_after_a_restart_it_attaches_what_was_prepared_and_brings_back_what_ended(driver_node):
    node = driver_node
    node.veth("lan1")
    node.veth("lan2")
    async with node.driving():
        await node.offered("lan2")
        listed = await node.offered("lan1")
        before = node.ip("link show dev lan1")
        pods = [await node.pod(f"pod-{each}") for each in (1, 2)]
        claims = [await node.claim(f"lan{i}", name_=f"claim-{i}", pods=[pods[i - 1]], parameters=NET1) for i in (1, 2)]
        await node.kubelet.prepare(*claims)
        ended = node.sandbox(pods[0], "ended")
        await node.host.run_pod_sandbox(ended)
    waiting = node.sandbox(pods[1], "waiting")
    await node.host.run_pod_sandbox(waiting)  # nobody is there to attach it
    await node.host.stop_pod_sandbox(ended)
    await node.host.remove_pod_sandbox(ended)
    node.namespaces.remove("ended")  # a link that is no hardware would die with its namespace
    assert names_in(node, waiting) == []
    async with node.driving():
        assert names_in(node, waiting) == ["net1"]
        assert [each["ifname"] for each in node.ip("link show dev lan1")] == ["lan1"]
        assert {**before[0], "ifindex": 0, "link_index": 0} == {
            **node.ip("link show dev lan1")[0],
            "ifindex": 0,
            "link_index": 0,
        }
        await told(node, claims[1], "True", "Attached")
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
        pod = await node.pod()
        claim = await node.claim("lan1", pods=[pod], parameters=NET1)
        await node.kubelet.prepare(claim)
        sandbox = node.sandbox(pod)
        await node.host.run_pod_sandbox(sandbox)
        for each in (await node.api.list(SLICES)).items:
            await node.api.delete(SLICES, each["metadata"]["name"])  # as a kubelet does when it starts
        await node.kubelet.register()
        assert await node.offered("lan1") == listed
        await node.host.stop_pod_sandbox(sandbox)


async def test_two_instances_hand_over_without_a_bare_pod(driver_node):
    node = driver_node
    node.veth("lan1")
    async with node.driving(pod_uid="11111111-aaaa"):
        await node.offered("lan1")
        pod = await node.pod()
        claim = await node.claim("lan1", pods=[pod], parameters=NET1)
        old = node.driving(pod_uid="22222222-bbbb")
        await old.__aenter__()
        try:
            found = await node.kubelet.register(f"{DRIVER}-22222222-bbbb-reg.sock")
            assert found.endpoint.endswith("dra-22222222-bbbb.sock")
            (prepared,) = await node.kubelet.prepare(claim, socket="dra-22222222-bbbb.sock")
            assert prepared.error == ""
            sandbox = node.sandbox(pod)
            await node.host.run_pod_sandbox(sandbox)  # both are asked, and it is done once
            container = pb.Container(id="c1", pod_sandbox_id=sandbox.id)
            adjusted = await node.host.create_container(sandbox, container)
            assert [each.key for each in adjusted.adjust.env] == ["PODWIRE_NETWORK_INTERFACES"]
            assert names_in(node, sandbox) == ["net1"]
        finally:
            await old.__aexit__(None, None, None)
        again = await node.host.create_container(sandbox, pb.Container(id="c2", pod_sandbox_id=sandbox.id))
        assert [each.key for each in again.adjust.env] == ["PODWIRE_NETWORK_INTERFACES"]
        await node.offered("lan1")
        await node.host.stop_pod_sandbox(sandbox)
        assert await node.kubelet.unprepare(claim, socket="dra-11111111-aaaa.sock") == [""]
        assert [each["ifname"] for each in node.ip("link show dev lan1")] == ["lan1"]


async def test_metrics_tell_of_requests_phases_and_traffic(driver_node):
    node = driver_node
    node.veth("lan1", "10.7.0.1/24")
    async with node.driving() as driver:
        assert "no kubelet: no kubelet has asked yet" in driver.lacking()
        await node.kubelet.register()
        assert driver.lacking() == []
        await node.offered("lan1")
        pod = await node.pod()
        claim = await node.claim("lan1", pods=[pod], parameters=NET1)
        await node.kubelet.prepare(claim)
        sandbox = node.sandbox(pod)
        await node.host.run_pod_sandbox(sandbox)
        text = await driver.metrics()
        for each in (
            'podwire_network_driver_requests_total{method="NodePrepareResources",status="ok"} 1',
            'podwire_network_driver_phase_duration_seconds_count{phase="attach"} 1',
            "podwire_network_driver_attached_devices 1",
            'podwire_network_driver_interface_receive_bytes_total{namespace="default",pod="pod",claim="claim"',
        ):
            assert each in text
        await node.host.stop_pod_sandbox(sandbox)


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
        pods = [await node.pod(f"pod-{each}") for each in (1, 2)]
        parameters = parameters_of(interface={"name": "net1", "kind": "macvlan", "addressPool": "lab"})
        shares = [str(uuid.uuid4()) for _ in pods]
        claims = [
            await node.claim("up1", name_=f"claim-{i}", pods=[pod], parameters=parameters, shareID=share)
            for i, (pod, share) in enumerate(zip(pods, shares, strict=True))
        ]
        answers = await node.kubelet.prepare(*claims)
        assert [each.error for each in answers] == ["", ""]
        assert [each.devices[0].share_id for each in answers] == shares
        sandboxes = [node.sandbox(pod, f"sandbox-{i}") for i, pod in enumerate(pods)]
        for each in sandboxes:
            await node.host.run_pod_sandbox(each)
            assert names_in(node, each) == ["net1"]
        told_ = [await told(node, each, "True", "Attached") for each in claims]
        ips = sorted(each[0]["networkData"]["ips"] for each in told_)
        assert ips == [["10.9.0.100/24"], ["10.9.0.101/24"]]
        again = await node.kubelet.prepare(*claims)
        assert again == answers
        for each in sandboxes:
            await node.host.stop_pod_sandbox(each)
        assert await node.kubelet.unprepare(*claims) == ["", ""]
        assert links(node) == before


async def test_a_kubelet_is_told_how_devices_are(driver_node):
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
        found = {each.device.device_name: each for each in (await call.read()).devices}
        if "lan1" in found and found["lan1"].health == wanted:
            return found["lan1"]


async def test_explain_tells_how_far_a_claim_got(driver_node):
    node = driver_node
    node.veth("lan1")
    async with node.driving():
        await node.offered("lan1")
        pod = await node.pod()
        claim = await node.claim("lan1", pods=[pod], parameters=NET1)

        async def lines():
            found = await node.api.get(CLAIMS, "claim", "default")
            seen = await asyncio.to_thread(seen_on_host, node.root / "state", claim["metadata"]["uid"])
            return "\n".join(explained(found, pods=[pod], events=[], node="node-1", sight=seen))

        assert "lan1: not prepared" in await lines()
        await node.kubelet.prepare(claim)
        assert "lan1: prepared for pod default/pod, not attached: its sandbox has not started" in await lines()
        assert "lan1: on the host lan1, up, mtu 1500" in await lines()
        sandbox = node.sandbox(pod)
        node.inside(netns_of(sandbox), "link add net1 type veth")
        with pytest.raises(RpcError):
            await node.host.run_pod_sandbox(sandbox)
        assert "not attached: " in await lines()
        assert "net1" in await lines()
        node.inside(netns_of(sandbox), "link del net1")
        await node.host.run_pod_sandbox(sandbox)
        await told(node, claim, "True", "Attached")
        assert "lan1: attached to pod default/pod as net1" in await lines()
        assert "lan1: Ready True, Attached: in pod pod" in await lines()
        await node.host.stop_pod_sandbox(sandbox)
