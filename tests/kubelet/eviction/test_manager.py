"""A whole kubelet evicts pods: for limits of their own, and when its node runs out of something."""

import asyncio
import os
from dataclasses import replace

import pytest

from podwire.kubelet.eviction.settings import EvictionSettings
from podwire.kubelet.eviction.thresholds import Threshold
from podwire.kubelet.pods.status_manager import PODS
from podwire.linux.machine import KernelMachine
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.k8sapi.builtin import BUILTIN
from tests.eventually import eventually_async

MEBI = 1024**2
NODES = BUILTIN.of_kind("v1", "Node")
QUICK = EvictionSettings(period=0.05, transition_period=0.2, rest=0.0)


class Pressure:
    """Memory pressure that a test reports."""

    def __init__(self):
        self._reading, self._writing = os.pipe()

    def tell(self):
        os.write(self._writing, b"x")

    def fileno(self):
        return self._reading

    def read(self):
        return bool(os.read(self._reading, 1))

    def close(self):
        os.close(self._reading)
        os.close(self._writing)


class Machine(KernelMachine):
    """Has as much left as a test says."""

    def __init__(self):
        super().__init__()
        self.scarce = {}
        self.pressure = None

    def memory_pressure(self):
        self.pressure = Pressure()
        return self.pressure

    def left(self, path):
        left = super().left(path)
        plenty = {"memory": left.memory + 10**12, "disk": left.disk_size, "inodes": left.inodes_size}
        return left._replace(**{**plenty, **self.scarce})


@pytest.fixture
async def machine(world):
    return await start_with(world, {})


async def start_with(world, scarce, eviction=QUICK):
    await world.stop()
    machine = Machine()
    machine.scarce = scarce
    world.outside = replace(world.outside, machine=machine)
    world.start(eviction=eviction)
    return machine


def uses(world, name, memory=0, disk=0):
    world.runtime.stats[name] = pb.ContainerStats(
        memory=pb.MemoryUsage(working_set_bytes=pb.UInt64Value(value=memory)),
        writable_layer=pb.FilesystemUsage(used_bytes=pb.UInt64Value(value=disk)),
    )


def evicted(pod):
    return pod and pod["status"].get("reason") == "Evicted"


def pressed(condition, status):
    def check(node):
        conditions = (node or {}).get("status", {}).get("conditions", [])
        return any(item["type"] == condition and item["status"] == status for item in conditions)

    return check


async def test_the_largest_pod_is_evicted_when_memory_runs_out(world, machine, root):
    for name in ("small", "large"):
        await world.make(name)
        uid = (await world.running(name))["metadata"]["uid"]
    uses(world, "small", memory=1 * MEBI)
    uses(world, "large", memory=3 * MEBI)
    machine.scarce = {"memory": 50 * MEBI}
    status = (await world.until(evicted, "large"))["status"]
    machine.scarce = {}
    assert status["phase"] == "Failed"
    assert status["message"] == (
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. "
        "Container c was using 3Mi, request is 0, has larger consumption of memory. "
    )
    target = next(condition for condition in status["conditions"] if condition["type"] == "DisruptionTarget")
    assert (target["status"], target["reason"]) == ("True", "TerminationByKubelet")
    assert await world.event("EvictionThresholdMet") == "Attempting to reclaim memory"
    assert await world.event("Evicted") == status["message"]
    await world.until(pressed("MemoryPressure", "False"), kind=NODES)
    assert (await world.api.get(PODS, "small", "default"))["status"]["phase"] == "Running"
    await eventually_async(lambda: not (root / "pods" / uid).exists())
    assert [sandbox.metadata.name for sandbox in world.runtime.sandboxes.values()] == ["small"]
    await world.delete("large")


async def test_under_pressure_the_node_has_the_condition_and_admits_no_pod(world):
    machine = await start_with(world, {"disk": 0})
    await world.until(pressed("DiskPressure", "True"), kind=NODES)
    await world.make()
    status = (await world.until(evicted))["status"]
    assert status["message"] == "Pod was rejected: The node had condition: [DiskPressure]. "
    assert "RunPodSandbox" not in world.runtime.calls
    machine.scarce = {}
    await world.until(pressed("DiskPressure", "False"), kind=NODES)
    await world.make("later")
    await world.running("later")


async def test_a_soft_threshold_evicts_after_its_grace_period_with_a_grace_period_for_containers(world):
    thresholds = (Threshold("memory.available", 200 * MEBI, grace=0.5),)
    machine = await start_with(world, {}, replace(QUICK, soft=thresholds, soft_grace=3))
    await world.make()
    await world.running()
    machine.scarce = {"memory": 150 * MEBI}  # more than the hard threshold
    await world.until(pressed("MemoryPressure", "True"), kind=NODES)
    assert (await world.api.get(PODS, "p", "default"))["status"]["phase"] == "Running"
    status = (await world.until(evicted))["status"]
    assert "Threshold quantity: 200Mi, available: 150Mi. " in status["message"]
    assert world.runtime.graces == [3]


async def test_a_soft_threshold_that_is_passed_for_a_moment_evicts_nothing(world):
    thresholds = (Threshold("memory.available", 200 * MEBI, grace=3600.0),)
    machine = await start_with(world, {}, replace(QUICK, soft=thresholds))
    await world.make()
    await world.running()
    machine.scarce = {"memory": 150 * MEBI}
    await world.until(pressed("MemoryPressure", "True"), kind=NODES)
    machine.scarce = {}
    await world.until(pressed("MemoryPressure", "False"), kind=NODES)
    assert (await world.api.get(PODS, "p", "default"))["status"]["phase"] == "Running"


async def test_pods_are_evicted_until_the_minimum_reclaim_is_available(world):
    reclaim = {"memory.available": Threshold("", 100 * MEBI)}
    machine = await start_with(world, {}, replace(QUICK, minimum_reclaim=reclaim))
    for name in ("first", "second", "third"):
        await world.make(name)
        await world.running(name)
        uses(world, name, memory={"first": 3, "second": 2, "third": 1}[name] * MEBI)
    machine.scarce = {"memory": 99 * MEBI}
    await world.until(evicted, "first")
    machine.scarce = {"memory": 150 * MEBI}  # above the threshold, and below the reclaim
    await world.until(evicted, "second")
    machine.scarce = {"memory": 200 * MEBI}
    await world.until(pressed("MemoryPressure", "False"), kind=NODES)
    assert (await world.api.get(PODS, "third", "default"))["status"]["phase"] == "Running"


async def test_containers_of_finished_pods_go_before_any_pod_when_the_disk_is_full(world, machine, root):
    await world.make("works")
    await world.running("works")
    await world.make("done", restartPolicy="Never")
    uid = (await world.running("done"))["metadata"]["uid"]
    world.runtime.ends("c")  # of the newest pod
    status = (await world.until(lambda pod: pod["status"]["phase"] == "Succeeded", "done"))["status"]
    assert (root / "pods" / uid).exists()
    left = type(machine).left
    machine.left = lambda path: left(machine, path)._replace(**({"disk": 0} if (root / "pods" / uid).exists() else {}))
    await eventually_async(lambda: not (root / "pods" / uid).exists())
    await world.until(pressed("DiskPressure", "False"), kind=NODES)
    assert [sandbox.metadata.name for sandbox in world.runtime.sandboxes.values()] == ["works"]
    assert (await world.api.get(PODS, "works", "default"))["status"]["phase"] == "Running"
    after = (await world.api.get(PODS, "done", "default"))["status"]
    assert after == status
    await world.delete("done")


async def test_the_kernel_reports_memory_pressure_before_the_next_look(world):
    """The period is an hour: only an event wakes the manager."""
    machine = await start_with(world, {}, replace(QUICK, period=3600.0))
    await world.make()
    await world.running()
    await eventually_async(lambda: machine.pressure is not None)
    machine.scarce = {"memory": 50 * MEBI}
    machine.pressure.tell()
    await world.until(evicted)


async def test_critical_pods_are_not_evicted(world, machine):
    await world.make("critical", priorityClassName="system-node-critical", priority=None)
    await world.running("critical")
    await world.make("usual")
    await world.running("usual")
    uses(world, "critical", disk=100 * MEBI)
    machine.scarce = {"disk": 0}
    await world.until(evicted, "usual")
    await asyncio.sleep(0.3)
    assert (await world.api.get(PODS, "critical", "default"))["status"]["phase"] == "Running"


async def test_an_empty_dir_above_its_size_limit_evicts_the_pod(world, machine, root):
    await world.make(volumes=[{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}])
    uid = (await world.running())["metadata"]["uid"]
    file = root / "pods" / uid / "volumes/kubernetes.io~empty-dir/v/file"
    file.write_bytes(b"x" * (MEBI // 2))
    await asyncio.sleep(0.3)
    assert (await world.api.get(PODS, "p", "default"))["status"]["phase"] == "Running"
    file.write_bytes(b"x" * 2 * MEBI)
    status = (await world.until(evicted))["status"]
    assert status["message"] == 'Usage of EmptyDir volume "v" exceeds the limit "1Mi". '
    assert "DisruptionTarget" not in {condition["type"] for condition in status["conditions"]}
    assert status["containerStatuses"][0]["state"]["terminated"]
    await eventually_async(lambda: not list((root / "pods").iterdir()))


async def test_the_etc_hosts_of_a_pod_counts_for_its_limit(world, machine, root):
    limits = {"resources": {"limits": {"ephemeral-storage": "1Mi"}}}
    await world.make(containers=[{"name": "c", "image": "i", "imagePullPolicy": "Never", **limits}])
    uid = (await world.running())["metadata"]["uid"]
    (root / "pods" / uid / "etc-hosts").write_bytes(b"x" * 2 * MEBI)
    status = (await world.until(evicted))["status"]
    assert status["message"] == "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. "


async def test_an_eviction_does_not_wait_for_a_runtime_that_hangs(world, machine):
    world.runtime.waits["CreateContainer"] = asyncio.Event()
    await world.make("hangs")
    await world.runtime.until("CreateContainer")
    machine.scarce = {"memory": 0}
    await world.until(evicted, "hangs")
