"""The end of a pod that is being started, and orphans: nothing stays of a pod that the API does not have."""

import asyncio
from dataclasses import replace

import pytest

from podwire.kubelet.pods.observed import OWNER, UID
from podwire.kubelet.pods.status_manager import PODS
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import Unavailable
from tests.eventually import eventually_async

CREATING = ["RunPodSandbox", "CreateContainer", "StartContainer"]


def left(world):
    """Leftovers of pods in the runtime and on disk."""
    directories = [*world.root.glob("pods/*"), *world.logs.glob("*")]
    return [*world.runtime.sandboxes, *world.runtime.containers, *map(str, directories)]


async def begin(world, call, **spec):
    """Make a pod whose start hangs in a call; returns the event that lets the runtime go on."""
    go_on = world.runtime.waits[call] = asyncio.Event()
    await world.make(**spec)
    await world.runtime.until(call)
    return go_on


@pytest.mark.parametrize("grace", [0, 1, 30])
@pytest.mark.parametrize("call", CREATING)
async def test_a_pod_that_is_deleted_during_a_call_leaves_nothing(world, call, grace):
    go_on = await begin(world, call)
    await world.api.delete(PODS, "p", "default", grace_seconds=grace)
    asyncio.get_running_loop().call_later(0.3, go_on.set)
    if grace:
        await world.gone()
        assert world.runtime.sandboxes == {}
    await eventually_async(lambda: go_on.is_set() and not left(world), explain=lambda: left(world))


@pytest.mark.parametrize("call", CREATING)
async def test_a_call_that_outlasts_the_grace_period_leaves_nothing(world, call):
    await world.stop()
    world.pod_limits = replace(world.pod_limits, hand_over=0.1)
    world.start()
    go_on = await begin(world, call, terminationGracePeriodSeconds=1)
    await world.delete()
    go_on.set()
    await eventually_async(lambda: not left(world), explain=lambda: left(world))


async def test_a_force_deletion_shortens_the_wait_for_a_call(world):
    await world.stop()
    world.pod_limits = replace(world.pod_limits, hand_over=0.1)
    world.start()
    go_on = await begin(world, "RunPodSandbox")
    await world.api.delete(PODS, "p", "default", grace_seconds=3600)
    await asyncio.sleep(0.2)
    assert world.kubelet.pod_workers.find("default", "p") is not None
    await world.api.delete(PODS, "p", "default", grace_seconds=0)
    await eventually_async(lambda: world.kubelet.pod_workers.find("default", "p") is None)
    go_on.set()
    await eventually_async(lambda: not left(world), explain=lambda: left(world))


async def test_a_sandbox_whose_event_was_reported_to_an_ending_worker_is_removed(world):
    """The event comes when the worker has looked for the last time."""
    await world.stop()
    world.pod_limits = replace(world.pod_limits, hand_over=0.05)
    world.start()
    go_on = await begin(world, "RunPodSandbox")
    deleted, delete = asyncio.Event(), world.line.delete

    async def slow(*args, **more):
        deleted.set()
        await asyncio.sleep(0.3)
        return await delete(*args, **more)

    world.line.delete = slow
    await world.api.delete(PODS, "p", "default", grace_seconds=1)
    await deleted.wait()
    go_on.set()
    await world.gone()
    await eventually_async(lambda: not left(world), explain=lambda: left(world))


async def test_the_end_of_a_kubelet_does_not_wait_for_a_call_and_the_next_one_finds_the_orphan(world):
    go_on = await begin(world, "RunPodSandbox")
    async with asyncio.timeout(5):
        await world.stop()
    await world.api.delete(PODS, "p", "default", grace_seconds=0)
    world.start()
    await asyncio.sleep(0.3)
    go_on.set()
    await eventually_async(lambda: world.runtime.sandboxes == {} and not left(world), explain=lambda: left(world))


async def test_an_orphan_without_an_event_is_found_by_the_next_listing(world):
    await world.stop()
    world.runtime_limits = replace(world.runtime_limits, audit=0.2)
    world.start()
    await world.make()
    await world.running()
    sandbox = next(iter(world.runtime.sandboxes.values()))
    for name, owner in (("orphan", sandbox.annotations[OWNER]), ("foreign", "/somebody/else")):
        copy = pb.PodSandboxStatus()
        copy.CopyFrom(sandbox)
        copy.id, copy.metadata.uid, copy.labels[UID], copy.annotations[OWNER] = name, name, name, owner
        world.runtime.sandboxes[name] = copy
    await world.runtime.until_true(lambda: "orphan" not in world.runtime.sandboxes)
    assert set(world.runtime.sandboxes) == {sandbox.id, "foreign"}


async def test_a_container_without_a_sandbox_is_removed(world):
    await world.make()
    await world.running()
    await world.make("q")
    await world.running("q")
    own = next(iter(world.runtime.containers.values()))
    for name, owner in (("stray", own.annotations[OWNER]), ("foreign", "/somebody/else")):
        stray = world.runtime.containers[name] = pb.ContainerStatus()
        stray.CopyFrom(own)
        stray.id, stray.annotations[OWNER] = name, owner
        world.runtime.inside[name] = "a sandbox that is gone"
    await world.delete("q")  # the runtime is listed after the end of a pod
    await world.runtime.until_true(lambda: "stray" not in world.runtime.containers)
    assert set(world.runtime.containers) == {own.id, "foreign"}


async def test_directories_of_unknown_pods_are_removed_with_their_logs(world):
    await world.make()
    await world.running()
    (world.root / "pods/gone/volumes").mkdir(parents=True)
    (world.logs / "default_p_gone").mkdir()
    (world.root / "pods/lost+found").mkdir()
    await world.make("q")
    await world.running("q")
    await world.delete("q")
    await eventually_async(lambda: not [path for path in left(world) if "gone" in path])
    assert (world.root / "pods/lost+found").exists()


async def test_a_pod_that_the_kubelet_cannot_read_is_not_an_orphan(world):
    await world.make()
    pod = await world.running()
    await world.stop()
    world.start()
    await world.running()
    workers = world.kubelet.pod_workers
    await eventually_async(lambda: workers.find("default", "p") is not None)
    (world.root / "pods/x").mkdir()
    workers.present({"metadata": {"name": "odd", "uid": "x"}, "spec": {"containers": 7}})
    await world.make("q")
    await world.running("q")
    await world.delete("q")
    await asyncio.sleep(0.4)
    assert (world.root / "pods/x").exists()
    workers.absent({"metadata": {"name": "odd", "uid": "x"}})
    await eventually_async(lambda: not (world.root / "pods/x").exists())
    assert pod["metadata"]["uid"] in {sandbox.labels[UID] for sandbox in world.runtime.sandboxes.values()}


async def test_a_removal_that_fails_is_repeated(world):
    await world.make()
    await world.running()
    await world.stop()
    await world.api.delete(PODS, "p", "default", grace_seconds=0)
    world.runtime.fails["StopPodSandbox"] = [Unavailable("restarting"), Unavailable("restarting")]
    world.start()
    await eventually_async(lambda: not left(world), explain=lambda: left(world))


@pytest.mark.parametrize("call", ["StopPodSandbox", "StopContainer"])
async def test_an_unexpected_error_over_an_orphan_does_not_affect_other_pods(world, call, caplog):
    await world.make()
    await world.running()
    own = next(iter(world.runtime.containers.values()))
    stray = world.runtime.containers["stray"] = pb.ContainerStatus()
    stray.CopyFrom(own)
    stray.id, world.runtime.inside["stray"] = "stray", "a sandbox that is gone"
    await world.stop()
    orphan = world.runtime.sandboxes["orphan"] = pb.PodSandboxStatus()
    orphan.CopyFrom(next(iter(world.runtime.sandboxes.values())))
    orphan.id, orphan.metadata.uid, orphan.labels[UID] = "orphan", "nobody", "nobody"
    world.runtime.fails[call] = [ZeroDivisionError("a fault")]
    world.start()
    await world.runtime.until_true(lambda: "orphan" not in world.runtime.sandboxes)
    await world.runtime.until_true(lambda: "stray" not in world.runtime.containers)
    await world.make("q")
    await world.running("q")
    assert any("unexpected error" in record.message for record in caplog.records)
