"""Pods get their devices: a whole kubelet, a device plugin on the wire, a runtime in memory."""

import asyncio
import contextlib
import json
import threading

import pytest

from podwire.kubelet.devices.plugin import Limits
from podwire.protocols.deviceplugin import deviceplugin_pb2 as pb
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.podresources import podresources_pb2 as resources
from tests.eventually import eventually

NODES = BUILTIN.of_kind("v1", "Node")
NIC = "example.org/nic"


async def registered(world, plugin, healthy=None):
    """And the Node has it."""
    await asyncio.to_thread(plugin.serve)
    await asyncio.to_thread(plugin.register)
    count = str(len(plugin.devices) if healthy is None else healthy)
    await world.until(lambda node: (node or {}).get("status", {}).get("allocatable", {}).get(NIC) == count, kind=NODES)
    return plugin


def wanting(count, name="c"):
    return {
        "name": name,
        "image": "i",
        "imagePullPolicy": "Never",
        "resources": {"limits": {NIC: str(count)}, "requests": {NIC: str(count)}},
    }


def waits(reason, text=""):
    def reported(pod):
        statuses = ((pod or {}).get("status") or {}).get("containerStatuses") or [{}]
        waiting = (statuses[0].get("state") or {}).get("waiting") or {}
        return waiting.get("reason") == reason and text in waiting.get("message", "")

    return reported


def env(world, container="c"):
    return {env.key: env.value.decode() for env in world.runtime.configs[container].envs}


def health(pod, container=0):
    return [
        (item["resourceID"], item["health"])
        for resource in pod["status"]["containerStatuses"][container].get("allocatedResourcesStatus", [])
        for item in resource["resources"]
    ]


def annotated_devices(world):
    return [sandbox.annotations.get("podwire.dev/devices") for sandbox in world.runtime.sandboxes.values()]


def held(root):
    """By what is on disk: the ids, however often they are there."""
    found = []
    for path in (root / "devices").iterdir():
        if path.name == "resources" or path.name.startswith("."):
            continue
        with contextlib.suppress(FileNotFoundError):
            for container in json.loads(path.read_bytes())["record"]["containers"].values():
                found += container[NIC]["ids"]
    return sorted(found)


async def test_a_container_gets_the_allocate_response(world, device_plugin, root):
    plugin = device_plugin(devices=["a", "b", "c"])
    plugin.answer = lambda ids: pb.ContainerAllocateResponse(
        envs={"NICS": ",".join(ids), "SHELL": "/bin/device"},
        mounts=[pb.Mount(container_path="/opt/nic", host_path="/tmp", read_only=True)],
        devices=[pb.DeviceSpec(container_path="/dev/nic", host_path="/dev/null", permissions="rw")],
        annotations={"example.org/nics": str(len(ids))},
        cdi_devices=[pb.CDIDevice(name="example.org/nic=a")],
    )
    await registered(world, plugin)
    await world.make(containers=[wanting(2) | {"env": [{"name": "SHELL", "value": "/bin/own"}]}])
    pod = await world.running()
    config = world.runtime.configs["c"]
    assert (env(world)["NICS"], env(world)["SHELL"]) == ("a,b", "/bin/own")
    assert "/opt/nic" in [mount.container_path for mount in config.mounts if mount.readonly]
    assert [(device.container_path, device.host_path, device.permissions) for device in config.devices] == [
        ("/dev/nic", "/dev/null", "rw")
    ]
    assert config.annotations["example.org/nics"] == "2"
    assert [device.name for device in config.CDI_devices] == ["example.org/nic=a"]
    assert annotated_devices(world) == [f'{{"{NIC}":["a","b"]}}']
    assert health(pod) == [("a", "Healthy"), ("b", "Healthy")]
    assert plugin.allocated == [["a", "b"]]
    assert held(root) == ["a", "b"]
    await world.delete()
    assert held(root) == []


async def test_a_pod_cannot_claim_devices_by_an_annotation(world):
    forged = {"podwire.dev/devices": '{"example.org/nic":["a"]}'}
    meta = {"name": "p", "namespace": "default", "annotations": forged}
    spec = {"nodeName": "n", "automountServiceAccountToken": False,
            "containers": [{"name": "c", "image": "i", "imagePullPolicy": "Never"}]}  # fmt: skip
    await world.api.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    await world.running()
    assert annotated_devices(world) == [None]


async def test_devices_are_allocated_right_before_each_container_and_seen_before_the_sandbox(
    world, device_plugin, root, ask
):
    plugin = await registered(world, device_plugin(devices=["a", "b"]))
    world.runtime.waits["RunPodSandbox"] = asyncio.Event()
    await world.make(containers=[wanting(1), wanting(1, "d")])
    await world.runtime.until("RunPodSandbox")
    assert plugin.allocated == []
    found = await asyncio.to_thread(
        ask,
        root / "pod-resources/kubelet.sock",
        "/v1.PodResourcesLister/Get",
        resources.GetPodResourcesRequest(pod_name="p", pod_namespace="default"),
        resources.GetPodResourcesResponse,
    )
    assert [
        (container.name, list(container.devices[0].device_ids)) for container in found.pod_resources.containers
    ] == [
        ("c", ["a"]),
        ("d", ["b"]),
    ]
    world.runtime.waits.pop("RunPodSandbox").set()
    await world.running()
    assert plugin.allocated == [["a"], ["b"]]


async def test_at_admission_when_that_is_wanted(world, device_plugin):
    await world.stop()
    world.start(allocate="admission")
    plugin = await registered(world, device_plugin(devices=["a"]))
    world.runtime.waits["RunPodSandbox"] = asyncio.Event()
    await world.make(containers=[wanting(1)])
    await world.runtime.until("RunPodSandbox")
    assert plugin.allocated == [["a"]]
    world.runtime.waits.pop("RunPodSandbox").set()
    await world.running()
    assert plugin.allocated == [["a"]]
    assert env(world)["NICS"] == "a"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (pb.AllocateResponse(), "Allocate: 0 container_responses for 1 container"),
        (pb.AllocateResponse(container_responses=[pb.ContainerAllocateResponse()] * 2), "2 container_responses"),
        (pb.ContainerAllocateResponse(mounts=[pb.Mount(container_path="x")]), "mounts[0].container_path: 'x'"),
        (ValueError("the cable is cut"), "the cable is cut"),
    ],
    ids=["too few", "too many", "nonsense", "an error"],
)
async def test_a_plugin_that_does_not_allocate_is_named_and_asked_again(world, device_plugin, answer, why):
    plugin = device_plugin(devices=["a"])
    good = plugin.answer

    def wrong(ids):
        if isinstance(answer, Exception):
            raise answer
        return answer

    plugin.answer = wrong
    await registered(world, plugin)
    await world.make(containers=[wanting(1)])
    pod = await world.until(waits("DeviceAllocationFailed", why))
    assert pod["status"]["phase"] == "Pending"
    result = await world.event("DeviceAllocationFailed")
    assert f"device plugin of {NIC} at {plugin.socket}" in result
    plugin.answer = good
    await world.running()


async def test_a_plugin_that_hangs_holds_up_only_its_own_pods(world, device_plugin):
    await world.stop()
    world.start(limits=Limits(allocate=0.3))
    plugin = device_plugin(devices=["a"])
    until, good = threading.Event(), plugin.answer
    plugin.answer = lambda ids: until.wait(30) and good(ids)
    await registered(world, plugin)
    await world.make(containers=[wanting(1)])
    await world.make("other")
    await world.running("other")
    await world.until(waits("DeviceAllocationFailed"))
    until.set()
    await world.running()


async def test_a_pod_that_goes_while_its_plugin_hangs_leaves_nothing(world, device_plugin, root):
    plugin = device_plugin(devices=["a"])
    until = threading.Event()
    plugin.answer = lambda ids: until.wait(30)
    await registered(world, plugin)
    await world.make(containers=[wanting(1)])
    await asyncio.to_thread(eventually, lambda: plugin.allocated)
    await world.delete()
    until.set()
    assert held(root) == []


async def test_more_than_there_ever_is_is_turned_away(world, device_plugin):
    await registered(world, device_plugin(devices=["a"]))
    await world.make(containers=[wanting(2)])
    pod = await world.until(lambda each: each and each["status"].get("phase") == "Failed")
    assert pod["status"]["reason"] == f"OutOf{NIC}"


async def test_a_pod_waits_for_an_unhealthy_device(world, device_plugin, device):
    plugin = await registered(world, device_plugin(devices=["a", device("b", "Unhealthy")]), healthy=1)
    await world.make(containers=[wanting(2)])
    await world.until(waits("WaitingForDevices", f"not enough devices: {NIC}: 2 wanted, 1 free"))
    assert world.runtime.sandboxes == {}
    await asyncio.to_thread(plugin.list, "a", "b")
    await world.running()


async def test_an_unhealthy_device_is_reported_and_its_pod_keeps_running(world, device_plugin, device):
    plugin = await registered(world, device_plugin(devices=["a", "b"]))
    await world.make(containers=[wanting(1)])
    await world.running()
    await asyncio.to_thread(plugin.list, device("a", "Unhealthy"), "b")
    await world.until(lambda each: each and health(each) == [("a", "Unhealthy")])
    assert await world.event("DeviceUnhealthy") == f"{NIC}: not healthy: a"
    await asyncio.to_thread(plugin.list, "b")
    await asyncio.to_thread(plugin.list, "a", "b")
    await world.until(lambda each: each and health(each) == [("a", "Healthy")])
    await asyncio.to_thread(plugin.kill)
    pod = await world.until(lambda each: each and health(each) == [("a", "Unknown")])
    assert pod["status"]["phase"] == "Running"


async def test_a_container_that_starts_again_has_the_same_devices_though_its_plugin_is_gone(world, device_plugin):
    plugin = await registered(world, device_plugin(devices=["a", "b"]))
    await world.make(containers=[wanting(1)])
    await world.running()
    await asyncio.to_thread(plugin.kill)
    world.runtime.ends("c", 1)
    await world.until(lambda each: each and each["status"]["containerStatuses"][0]["restartCount"] == 1)
    assert env(world)["NICS"] == "a"
    assert plugin.allocated == [["a"]]


async def test_a_plugin_is_asked_before_each_start_if_it_wants_that(world, device_plugin):
    plugin = await registered(world, device_plugin(devices=["a"], pre_start_required=True))
    await world.make(containers=[wanting(1)])
    await world.running()
    assert plugin.started == [["a"]]
    world.runtime.ends("c", 1)
    await world.until(lambda each: each and each["status"]["containerStatuses"][0]["restartCount"] == 1)
    assert plugin.started == [["a"], ["a"]]


async def test_a_plugin_chooses_if_it_can(world, device_plugin):
    plugin = device_plugin(devices=["a", "b", "c"], get_preferred_allocation_available=True)
    plugin.prefer = lambda available, must, size: available[-size:]
    await registered(world, plugin)
    await world.make(containers=[wanting(2)])
    await world.running()
    assert plugin.asked == [(["a", "b", "c"], [], 2)]
    assert plugin.allocated == [["b", "c"]]


async def test_an_init_container_passes_its_devices_on(world, device_plugin):
    plugin = await registered(world, device_plugin(devices=["a", "b"]))
    await world.make(initContainers=[wanting(2, "i")], containers=[wanting(1), wanting(1, "d")])
    await world.runtime.until_true(lambda: "i" in world.runtime.configs and "StartContainer" in world.runtime.calls)
    world.runtime.ends("i")
    await world.running()
    assert plugin.allocated == [["a", "b"], ["a"], ["b"]]


async def test_after_a_restart_a_pod_waits_for_its_plugin(world, device_plugin, root):
    plugin = await registered(world, device_plugin(devices=["a", "b"]))
    await world.stop()
    await asyncio.to_thread(plugin.kill)
    world.start()
    await world.make(containers=[wanting(1)])
    await world.until(waits("WaitingForDevices", f"the device plugin of {NIC} has not registered yet"))
    assert world.runtime.sandboxes == {}
    await registered(world, plugin)
    await world.running()
    assert held(root) == ["a"]


async def test_after_a_restart_pods_keep_their_devices(world, device_plugin, root):
    plugin = await registered(world, device_plugin(devices=["a", "b"]))
    await world.make(containers=[wanting(1)])
    await world.running()
    await world.stop()
    await asyncio.to_thread(plugin.kill)
    world.start()
    await registered(world, plugin)
    await world.make("q", containers=[wanting(1)])
    await world.running("q")
    assert plugin.allocated == [["a"], ["b"]]
    assert held(root) == ["a", "b"]


async def test_after_a_reboot_a_pod_waits_with_the_devices_that_it_had(world, device_plugin, root):
    plugin = await registered(world, device_plugin(devices=["a", "b", "c"]))
    await world.make(containers=[wanting(2)])
    await world.running()
    await world.stop()
    await asyncio.to_thread(plugin.kill)
    for sandbox in list(world.runtime.sandboxes.values()):
        sandbox.state = 1
    for container in world.runtime.containers.values():
        container.state, container.exit_code = 2, 137
    before = world.runtime.calls.count("RunPodSandbox")
    world.start()
    await world.until(waits("WaitingForDevices"))
    assert world.runtime.calls.count("RunPodSandbox") == before
    await registered(world, plugin)
    await world.until(lambda each: each and each["status"]["containerStatuses"][0]["restartCount"] == 1)
    assert plugin.allocated == [["a", "b"], ["a", "b"]]
    assert held(root) == ["a", "b"]


async def test_after_a_reboot_other_devices_will_do_when_those_are_gone(world, device_plugin, root):
    plugin = await registered(world, device_plugin(devices=["a", "b"]))
    await world.make(containers=[wanting(1)])
    await world.running()
    await world.stop()
    await asyncio.to_thread(plugin.kill)
    for sandbox in list(world.runtime.sandboxes.values()):
        sandbox.state = 1
    for container in world.runtime.containers.values():
        container.state, container.exit_code = 2, 137
    world.start()
    plugin.devices = plugin.devices[1:]
    await registered(world, plugin)
    await world.until(lambda each: each and each["status"]["containerStatuses"][0]["restartCount"] == 1)
    assert held(root) == ["b"]


async def test_a_pod_deleted_while_no_kubelet_ran_frees_its_devices(world, device_plugin, root):
    plugin = await registered(world, device_plugin(devices=["a"]))
    await world.make(containers=[wanting(1)])
    await world.running()
    await world.stop()
    await asyncio.to_thread(plugin.kill)
    await world.api.delete(BUILTIN.of_kind("v1", "Pod"), "p", "default", grace_seconds=0)
    world.start()
    await registered(world, plugin)
    await asyncio.to_thread(eventually, lambda: held(root) == [])
    await world.make("q", containers=[wanting(1)])
    await world.running("q")
    assert held(root) == ["a"]


async def test_a_pod_that_has_done_its_work_frees_its_devices(world, device_plugin, root):
    await registered(world, device_plugin(devices=["a"]))
    await world.make(containers=[wanting(1)], restartPolicy="Never")
    await world.running()
    world.runtime.ends("c")
    await world.until(lambda each: each and each["status"].get("phase") == "Succeeded")
    assert held(root) == []
    await world.make("q", containers=[wanting(1)])
    await world.running("q")


async def test_a_damaged_record_is_made_again_from_the_runtime(world, device_plugin, root):
    plugin = await registered(world, device_plugin(devices=["a", "b"]))
    made = await world.make(containers=[wanting(1)])
    await world.running()
    await world.stop()
    await asyncio.to_thread(plugin.kill)
    (root / "devices" / made["metadata"]["uid"]).write_bytes(b"torn")
    world.start()
    await registered(world, plugin)
    await world.make("q", containers=[wanting(1)])
    await world.running("q")
    await asyncio.to_thread(eventually, lambda: held(root) == ["a", "b"])


async def test_nothing_is_allocated_while_the_holder_of_devices_is_unknown(world, device_plugin, root):
    plugin = await registered(world, device_plugin(devices=["a", "b"]))
    made = await world.make(containers=[wanting(1)])
    await world.running()
    await world.stop()
    await asyncio.to_thread(plugin.kill)
    (root / "devices" / made["metadata"]["uid"]).write_bytes(b"torn")
    for sandbox in world.runtime.sandboxes.values():
        sandbox.annotations.pop("podwire.dev/devices")
    world.start()
    await registered(world, plugin)
    await world.make("q", containers=[wanting(1)])
    await world.until(waits("WaitingForDevices", "is damaged"), "q")
    await world.delete()
    await world.running("q")
    assert held(root) == ["a"]


async def test_the_pod_resources_api_lists_devices_by_container(world, device_plugin, device, root, ask):
    await registered(world, device_plugin(devices=[device("a", "Healthy", 0), device("b", "Healthy", 1), "c"]))
    await world.make(containers=[wanting(1)])
    await world.running()
    socket, service = root / "pod-resources/kubelet.sock", "/v1.PodResourcesLister"
    listed = await asyncio.to_thread(
        ask, socket, f"{service}/List", resources.ListPodResourcesRequest(), resources.ListPodResourcesResponse
    )
    (pod,) = listed.pod_resources
    (found,) = pod.containers[0].devices
    assert (pod.name, pod.namespace, found.resource_name, list(found.device_ids)) == ("p", "default", NIC, ["a"])
    assert [node.ID for node in found.topology.nodes] == [0]
    there = await asyncio.to_thread(
        ask, socket, f"{service}/GetAllocatableResources", resources.AllocatableResourcesRequest(),
        resources.AllocatableResourcesResponse,
    )  # fmt: skip
    assert sorted(id_ for device in there.devices for id_ in device.device_ids) == ["a", "b", "c"]
    with pytest.raises(Exception, match="pod nobody in namespace default not found"):
        await asyncio.to_thread(
            ask, socket, f"{service}/Get", resources.GetPodResourcesRequest(pod_name="nobody", pod_namespace="default"),
            resources.GetPodResourcesResponse,
        )  # fmt: skip


async def test_many_pods_for_few_devices_each_device_once(world, device_plugin, root):
    """The scheduler sends no more than fit; here all are sent at once, with some that end."""
    await registered(world, device_plugin(devices=[f"d{number}" for number in range(8)]))
    for number in range(8):
        await world.make(f"p{number}", containers=[wanting(1)])
    for number in range(8):
        await world.running(f"p{number}")
    assert held(root) == [f"d{number}" for number in range(8)]
