"""The runtime's side of the contract with NRI plugins: events, their order, and what is seen meanwhile."""

import asyncio
import json
from pathlib import Path

import pytest

from podwire.nri import Adjustment, Updates
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import FailedPrecondition, RpcError
from podwire.protocols.nri import nri_pb2 as nri
from tests.eventually import eventually_async

POD = ["RunPodSandbox", "StopPodSandbox", "RemovePodSandbox"]
CONTAINER = [
    "CreateContainer", "ValidateContainerAdjustment", "PostCreateContainer", "StartContainer", "PostStartContainer",
    "StopContainer", "RemoveContainer",
]  # fmt: skip


@pytest.fixture
async def seat(own, kubelet_of, recorder, registered):
    """A runtime of its own, a kubelet's hands, and a plugin that is registered there."""
    own.start()
    plugin = recorder()
    async with kubelet_of(own) as cri, registered(plugin, own.prefix):
        yield cri, plugin, own
        for gate in list(plugin.gates):
            plugin.release(gate)
        await cri.remove_all()
        assert own.leaks() == []
    assert "Traceback" not in (log := own.log.read_text()), log[-6000:]


async def names(cri):
    """Pods and containers that are listed."""
    pods = (await cri("ListPodSandbox")).items
    containers = (await cri("ListContainers")).containers
    return [pod.metadata.name for pod in (*pods, *containers)]


async def test_01_pod_events_have_metadata_network_and_addresses(seat):
    cri, plugin, _ = seat
    pod = await cri.run(cri.pod_config("web", annotations={"example.dev/note": "hello"}))
    started = plugin.last_calls["RunPodSandbox"][0]
    assert (started.id, started.name, started.uid, started.namespace) == (pod.id, "web", "uid-web", "default")
    assert started.labels["io.kubernetes.pod.name"] == "web"
    assert started.annotations["example.dev/note"] == "hello"
    assert list(started.ips) == [pod.ip]
    network = [namespace.path for namespace in started.linux.namespaces if namespace.type == "network"]
    info = await cri("PodSandboxStatus", pod_sandbox_id=pod.id, verbose=True)
    assert network == [info.info["netns"]]
    await cri("StopPodSandbox", pod_sandbox_id=pod.id)
    stopped = plugin.last_calls["StopPodSandbox"][0]
    assert [namespace.path for namespace in stopped.linux.namespaces if namespace.type == "network"] == network
    assert list(stopped.ips) == [pod.ip]
    await cri("RemovePodSandbox", pod_sandbox_id=pod.id)
    assert plugin.of("web") == POD


async def test_02_a_container_is_created_started_stopped_and_removed(seat):
    cri, plugin, _ = seat
    pod = await cri.run()
    id_ = await cri.start(pod, name="app")
    created, started = plugin.last_calls["CreateContainer"][1], plugin.last_calls["StartContainer"][1]
    assert (created.id, created.name, created.pod_sandbox_id) == (id_, "app", pod.id)
    assert list(created.args)[:2] == ["sh", "-c"]
    assert started.pid == await cri.pid(id_)
    await cri("StopContainer", container_id=id_, timeout=5)
    assert plugin.last_calls["StopContainer"][1].exit_code == 0
    await cri("RemoveContainer", container_id=id_)
    assert plugin.of("app") == CONTAINER


async def test_03_an_exit_is_reported_without_a_stop_call(seat):
    cri, plugin, _ = seat
    id_ = await cri.start(await cri.run(), "exit 1", name="app")
    await eventually_async(lambda: "StopContainer" in plugin.of("app"), 20)
    assert plugin.last_calls["StopContainer"][1].exit_code == 1
    await cri("RemoveContainer", container_id=id_)
    assert plugin.of("app") == CONTAINER


async def test_04_and_05_a_pod_is_neither_listed_nor_usable_while_its_hook_runs(seat):
    cri, plugin, _ = seat
    plugin.hold("RunPodSandbox")
    running = asyncio.create_task(cri.run(cri.pod_config("web")))
    await plugin.held("RunPodSandbox")
    id_ = plugin.last_calls["RunPodSandbox"][0].id
    assert await names(cri) == []
    early = {"pod_sandbox_id": id_, "config": cri.container_config(), "sandbox_config": cri.pod_config("web")}
    assert (await cri.refused("CreateContainer", **early)).code == 5
    plugin.release("RunPodSandbox")
    pod = await running
    await cri.start(pod)
    assert await names(cri) == ["web", "main"]


async def test_06_a_failed_hook_is_undone_and_the_pod_can_run_at_once(seat):
    cri, plugin, runtime = seat
    plugin.errors["RunPodSandbox"] = FailedPrecondition("no route to the moon")
    config = cri.pod_config("web")
    error = await cri.refused("RunPodSandbox", config=config)
    assert "10-recorder" in str(error)
    assert "no route to the moon" in str(error)
    assert plugin.of("web") == POD
    assert await names(cri) == []
    assert runtime.leaks() == []
    plugin.errors.clear()
    assert (await cri.run(config)).ip


async def test_07_containers_have_exited_before_the_pod_stops(seat):
    cri, plugin, _ = seat
    pod = await cri.run()
    id_ = await cri.start(pod)
    plugin.hold("StopPodSandbox")
    stopping = asyncio.create_task(cri("StopPodSandbox", pod_sandbox_id=pod.id))
    await plugin.held("StopPodSandbox")
    assert (await cri.status(id_)).state == pb.CONTAINER_EXITED
    status = await cri("PodSandboxStatus", pod_sandbox_id=pod.id)
    assert status.status.state == pb.SANDBOX_NOTREADY
    plugin.release("StopPodSandbox")
    await stopping


async def test_08_a_second_stop_sends_no_event_and_creation_is_refused(seat):
    cri, plugin, _ = seat
    pod = await cri.run(cri.pod_config("web"))
    for _ in range(2):
        await cri("StopPodSandbox", pod_sandbox_id=pod.id)
    assert plugin.of("web") == POD[:2]
    late = {"pod_sandbox_id": pod.id, "config": cri.container_config(name="late"), "sandbox_config": pod.config}
    assert (await cri.refused("CreateContainer", **late)).code == 9
    assert plugin.of("late") == []


async def test_09_a_container_is_not_listed_while_its_hook_runs(seat):
    cri, plugin, _ = seat
    pod = await cri.run(cri.pod_config("web"))
    plugin.hold("CreateContainer")
    creating = asyncio.create_task(cri.create(pod, cri.container_config(name="app")))
    await plugin.held("CreateContainer")
    assert await names(cri) == ["web"]
    plugin.release("CreateContainer")
    await creating
    assert await names(cri) == ["web", "app"]


async def test_10_a_failed_create_hook_is_undone_and_can_be_retried(seat):
    cri, plugin, _ = seat
    pod = await cri.run(cri.pod_config("web"))
    plugin.errors["CreateContainer"] = ValueError("not this one")
    create = {"pod_sandbox_id": pod.id, "config": cri.container_config(name="app"), "sandbox_config": pod.config}
    assert "not this one" in str(await cri.refused("CreateContainer", **create))
    assert await names(cri) == ["web"]
    assert plugin.of("app") == ["CreateContainer", "StopContainer", "RemoveContainer"]
    plugin.errors.clear()
    await cri.start(pod, name="app")


async def test_11_a_late_plugin_is_synchronized(seat, recorder, registered):
    cri, _, runtime = seat
    await cri.start(await cri.run(cri.pod_config("web")), name="app")
    late = recorder(name="late", index="20")
    async with registered(late, runtime.prefix):
        assert late.known == ["web", "app"]


@pytest.mark.parametrize("pods", [1, 3])
async def test_12_and_13_events_during_synchronize_are_not_lost(seat, recorder, registered, pods):
    cri, _, runtime = seat
    late = recorder(name="late", index="20")
    late.hold("Synchronize")
    async with registered(late, runtime.prefix, ready=False):
        await late.held("Synchronize")
        configs = [cri.pod_config(f"web-{number}") for number in range(pods)]
        running = [asyncio.create_task(cri.run(config)) for config in configs]
        await asyncio.sleep(2.5)  # longer than a hook may take: Synchronize has a limit of its own
        late.release("Synchronize")
        for pod in await asyncio.gather(*running):
            await cri.start(pod, name=f"{pod.config.metadata.name}-app")
        for config in configs:
            assert late.of(config.metadata.name) == ["RunPodSandbox"]
            assert late.of(f"{config.metadata.name}-app")[0] == "CreateContainer"


async def test_a_start_hook_that_fails_stops_the_container(seat):
    cri, plugin, _ = seat
    pod = await cri.run()
    plugin.errors["StartContainer"] = ValueError("not today")
    id_ = await cri.create(pod, cri.container_config(name="app"))
    assert "not today" in str(await cri.refused("StartContainer", container_id=id_))
    assert (await cri.status(id_)).state == pb.CONTAINER_EXITED
    assert plugin.of("app")[-2:] == ["StartContainer", "StopContainer"]


async def test_stop_does_not_wait_for_a_container_in_creation(seat):
    cri, plugin, _ = seat
    pod = await cri.run()
    plugin.hold("CreateContainer")
    creating = asyncio.create_task(cri.create(pod, cri.container_config(name="app")))
    await plugin.held("CreateContainer")
    stopping = asyncio.create_task(cri("StopPodSandbox", pod_sandbox_id=pod.id))
    with pytest.raises(RpcError, match="is being stopped"):
        await creating
    plugin.release("CreateContainer")
    await stopping
    assert plugin.of("app")[0] == "CreateContainer"
    assert plugin.of("app")[-1] == "RemoveContainer"


async def test_adjustments_are_applied_to_the_container(seat):
    cri, plugin, runtime = seat
    (runtime.prefix / "gift").write_text("from the host\n")
    wanted = Adjustment().add_env("NRI", "yes").add_annotation("example.dev/by", "nri")
    wanted.add_mount("/gift", str(runtime.prefix / "gift"), options=["bind", "ro"])
    wanted.add_device("/dev/given", major=1, minor=3).add_rlimit("RLIMIT_NOFILE", hard=512, soft=256)
    plugin.answers["CreateContainer"] = wanted
    id_ = await cri.start(await cri.run(), name="app")
    assert await cri.said(id_, "echo $NRI; cat /gift; ulimit -n; test -c /dev/given && echo device") == (
        "yes\nfrom the host\n256\ndevice\n"
    )
    assert plugin.last_calls["PostCreateContainer"][1].annotations["example.dev/by"] == "nri"


async def test_cdi_devices_come_by_a_plugin_and_by_the_kubelet(seat):
    cri, plugin, runtime = seat
    runtime.space.output("ip", "link", "add", "nic0", "type", "veth", "peer", "name", "wire0")
    edits = {"env": ["CDI=yes"], "deviceNodes": [{"path": "/dev/zero1", "hostPath": "/dev/zero"}]}
    nic = {"netDevices": [{"hostInterfaceName": "nic0", "name": "net1"}]}
    devices = [{"name": "zero", "containerEdits": edits}, {"name": "nic", "containerEdits": nic}]
    file = {"cdiVersion": "1.1.0", "kind": "example.dev/thing", "devices": devices}
    (runtime.prefix / "run/cdi").mkdir(parents=True)
    (runtime.prefix / "run/cdi/example.json").write_text(json.dumps(file))
    plugin.answers["CreateContainer"] = Adjustment().add_cdi_device("example.dev/thing=zero")
    asked = [pb.CDIDevice(name="example.dev/thing=nic")]
    id_ = await cri.start(await cri.run(), config=cri.container_config(name="app", CDI_devices=asked))
    assert await cri.said(id_, "echo $CDI; test -c /dev/zero1 && ls /sys/class/net") == "yes\neth0\nlo\nnet1\n"


async def test_links_of_the_host_become_the_containers(seat):
    cri, plugin, runtime = seat
    runtime.space.output("ip", "link", "add", "given0", "type", "veth", "peer", "name", "other0")
    runtime.space.output("ip", "address", "add", "192.0.2.7/24", "dev", "given0")
    plugin.answers["CreateContainer"] = Adjustment().add_net_device("given0", "net1")
    id_ = await cri.start(await cri.run(), name="app")
    assert "192.0.2.7/24" in await cri.said(id_, "ip address show dev net1")
    assert "given0" not in runtime.space.links()


async def test_limits_are_set_by_plugins_at_create_at_update_and_unasked(seat):
    cri, plugin, runtime = seat
    plugin.answers["CreateContainer"] = Adjustment().set_resources(memory_limit=64 << 20, pids_limit=77)
    id_ = await cri.start(await cri.run(), name="app")
    (group,) = [group for group in runtime.groups() if group.endswith(id_)]
    assert limit(group, "memory", "memory.limit_in_bytes", "memory.max") == 64 << 20
    assert limit(group, "pids", "pids.max", "pids.max") == 77
    plugin.answers["UpdateContainer"] = Updates().set(id_, pids_limit=78)
    await cri("UpdateContainerResources", container_id=id_, linux=pb.LinuxContainerResources(cpu_shares=300))
    assert plugin.last_calls["UpdateContainer"][2].cpu.shares.value == 300
    assert plugin.of("app")[-2:] == ["UpdateContainer", "PostUpdateContainer"]
    assert limit(group, "pids", "pids.max", "pids.max") == 78
    assert limit(group, "memory", "memory.limit_in_bytes", "memory.max") == 64 << 20
    assert await plugin.update_containers(Updates().set(id_, pids_limit=79)) == []
    assert limit(group, "pids", "pids.max", "pids.max") == 79
    failed = await plugin.update_containers(Updates().set("nobody", pids_limit=1).set(id_, memory_swap=1))
    assert [item.container_id for item in failed] == ["nobody", id_]


async def test_an_update_cannot_give_devices_and_may_repeat_those_of_the_container(seat):
    cri, plugin, _ = seat
    id_ = await cri.start(await cri.run(), name="app")
    in_force = plugin.last_calls["PostStartContainer"][1].linux.resources.devices
    assert in_force
    repeated = nri.ContainerUpdate(container_id=id_)
    repeated.linux.resources.devices.extend(in_force)
    assert await plugin.update_containers(Updates([repeated])) == []
    added = nri.ContainerUpdate(container_id=id_)
    rule = added.linux.resources.devices.add(allow=True, type="b", access="rwm")
    rule.major.value, rule.minor.value = 7, 0
    assert [update.container_id for update in await plugin.update_containers(Updates([added]))] == [id_]
    plugin.answers["UpdateContainer"] = Updates([added])
    error = await cri.refused(
        "UpdateContainerResources", container_id=id_, linux=pb.LinuxContainerResources(cpu_shares=300)
    )
    assert "devices" in str(error)


def limit(group, controller, old, new):
    """A limit of a cgroup, whichever version this machine counts by."""
    for path in (Path("/sys/fs/cgroup", controller, group, old), Path("/sys/fs/cgroup", group, new)):
        if path.exists():
            return int(path.read_text())
    raise AssertionError(f"{controller} of {group} is counted nowhere")


async def test_pod_resource_updates_are_reported(seat):
    cri, plugin, _ = seat
    pod = await cri.run(cri.pod_config("web"))
    more = pb.LinuxContainerResources(cpu_quota=50000)
    await cri("UpdatePodSandboxResources", pod_sandbox_id=pod.id, resources=more)
    assert plugin.last_calls["UpdatePodSandbox"][3].cpu.quota.value == 50000
    assert plugin.last_calls["PostUpdatePodSandbox"][0].linux.pod_resources.cpu.quota.value == 50000
    assert plugin.of("web") == ["RunPodSandbox", "UpdatePodSandbox", "PostUpdatePodSandbox"]


REFUSED = {
    "adjust.linux.resources.memory.reservation": Adjustment().set_resources(memory_reservation=1 << 20),
    "adjust.linux.resources.blockio_class": Adjustment().set_resources(blockio_class="fast"),
    "adjust.linux.cgroups_path": Adjustment().set_cgroups_path("/elsewhere"),
    "adjust.CDI_devices": Adjustment().add_cdi_device("vendor.com/net=eth1"),
}


@pytest.mark.parametrize("field", REFUSED)
async def test_unsupported_requests_are_refused_by_name(seat, field):
    cri, plugin, _ = seat
    plugin.answers["CreateContainer"] = REFUSED[field]
    pod = await cri.run()
    create = {"pod_sandbox_id": pod.id, "config": cri.container_config(), "sandbox_config": pod.config}
    error = await cri.refused("CreateContainer", **create)
    assert error.code == 3
    assert field.rpartition(".")[2] in str(error)


async def test_a_restarted_runtime_reports_the_end_of_earlier_pods_once(own, kubelet_of, recorder, registered):
    own.start()
    plugin = recorder()
    async with kubelet_of(own) as cri, registered(plugin, own.prefix):
        pod = await cri.run(cri.pod_config("web"))
        id_ = await cri.start(pod, name="app")
        short = await cri.start(pod, "sleep 0.3", name="short")
        own.kill()
        await asyncio.sleep(0.5)
        plugin.ready.clear()
        own.start()
        async with asyncio.timeout(30):
            await plugin.ready.wait()
        assert plugin.syncs == 2
        assert plugin.known == ["web", "app"]
        assert (await cri.ended(short)).exit_code == 0
        await cri("StopContainer", container_id=id_, timeout=5)
        await cri.remove(pod)
        assert plugin.of("web") == POD
        assert plugin.of("app") == CONTAINER
        assert own.leaks() == []
