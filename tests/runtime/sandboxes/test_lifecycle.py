import asyncio
import errno

import pytest

from podwire.linux.errors import OutOfResources
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import (
    AlreadyExists,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    NotFound,
    Unknown,
)


async def test_a_sandbox_is_ready_with_its_address_and_its_record(node, asked):
    id_ = await node.sandboxes.run(asked())
    found = node.sandboxes.get(id_)
    assert (found.ready, found.record.addresses) == (True, ("10.0.0.1",))
    assert node.stored == {id_: "ready"}
    assert node.sandboxes.get(id_[:12]) is found


async def test_concurrent_requests_get_one_sandbox(node, asked):
    found = await asyncio.gather(*(node.sandboxes.run(asked()) for _ in range(10)))
    assert (len(set(found)), node.network.adds) == (1, 1)
    assert await node.sandboxes.run(asked()) == found[0]


async def test_a_cancelled_caller_does_not_stop_run_pod_sandbox(node, asked):
    node.network.gate = asyncio.Event()
    first = asyncio.create_task(node.sandboxes.run(asked()))
    await asyncio.sleep(0.05)
    first.cancel()
    second = asyncio.create_task(node.sandboxes.run(asked()))
    await asyncio.sleep(0.05)
    node.network.gate.set()
    assert await second in node.stored
    assert node.network.adds == 1


async def test_another_configuration_with_the_same_name_is_refused(node, asked):
    node.network.gate = asyncio.Event()
    other = asked()
    other.config.hostname = "other"
    first = asyncio.create_task(node.sandboxes.run(asked()))
    await asyncio.sleep(0.05)
    with pytest.raises(AlreadyExists, match="being made"):
        await node.sandboxes.run(other)
    node.network.gate.set()
    await first
    with pytest.raises(AlreadyExists, match="is the name of sandbox"):
        await node.sandboxes.run(other)
    assert await node.sandboxes.run(asked(attempt=1)) != await first


async def test_a_failed_attachment_leaves_nothing(node, asked):
    node.network.attach_fails = True
    with pytest.raises(Unknown, match="plugin x"):
        await node.sandboxes.run(asked())
    assert node.clean
    assert list(node.sandboxes) == []


async def test_a_failure_in_the_kernel_is_undone_without_cni(node, asked):
    node.kernel.refuses = OutOfResources(errno.ENOSPC, "make")
    with pytest.raises(OutOfResources):
        await node.sandboxes.run(asked())
    assert node.clean
    assert node.network.adds == 0


async def test_a_sandbox_that_cannot_be_undone_stays_as_not_ready(node, asked):
    node.network.attach_fails = node.network.detach_fails = True
    with pytest.raises(Unknown):
        await node.sandboxes.run(asked())
    (left,) = node.sandboxes
    assert not left.ready
    with pytest.raises(Internal, match="plugin x"):
        await node.stop(left)
    again = await node.restarted()
    (left,) = again.sandboxes
    assert node.kernel.held == {left.id}, "CNI needs the namespace as long as it has not given back"
    node.network.detach_fails = False
    await again.stop(left)
    await again.sandboxes.remove(left)
    assert again.clean


async def test_a_namespace_that_cannot_be_removed_is_reported_and_retried(node, asked):
    sandbox = node.sandboxes.get(await node.sandboxes.run(asked()))
    node.kernel.stuck = True
    with pytest.raises(Internal, match="busy"):
        await node.stop(sandbox)
    node.kernel.stuck = False
    await node.stop(sandbox)
    await node.sandboxes.remove(sandbox)
    assert node.clean


async def test_stop_and_remove_can_be_repeated(node, asked):
    sandbox = node.sandboxes.get(await node.sandboxes.run(asked()))
    with pytest.raises(FailedPrecondition):
        await node.sandboxes.remove(sandbox)
    for _ in range(2):
        await node.stop(sandbox)
    for _ in range(2):
        await node.sandboxes.remove(sandbox)
    assert node.clean
    with pytest.raises(NotFound):
        node.sandboxes.get(sandbox.id)


async def test_stop_ends_containers_after_not_ready_and_before_detaching(node, asked):
    sandbox = node.sandboxes.get(await node.sandboxes.run(asked()))
    seen = []

    async def stop_containers():
        seen.append((sandbox.ready, sandbox.id in node.network.held))

    await node.sandboxes.stop(sandbox, stop_containers)
    assert seen == [(False, True)]


async def test_a_restart_adopts_ready_sandboxes(node, asked):
    id_ = await node.sandboxes.run(asked())
    again = await node.restarted()
    assert again.sandboxes.get(id_).ready
    assert await again.sandboxes.run(asked()) == id_


@pytest.mark.parametrize("why", ["a reboot", "a deleted namespace"])
async def test_a_restart_marks_lost_sandboxes_as_not_ready(node, asked, why):
    id_ = await node.sandboxes.run(asked())
    if why == "a deleted namespace":
        node.kernel.held.clear()
    again = await node.restarted("boot-2" if why == "a reboot" else "boot-1")
    found = again.sandboxes.get(id_)
    assert not found.ready
    await again.stop(found)
    await again.sandboxes.remove(found)
    assert again.clean


async def test_a_restart_undoes_an_interrupted_run_pod_sandbox(node, asked):
    node.network.gate = asyncio.Event()
    task = asyncio.create_task(node.sandboxes.run(asked()))
    await asyncio.sleep(0.05)
    assert list(node.stored.values()) == ["making"]
    node.network.gate = None
    again = await node.restarted()
    assert again.clean
    making = [task, *(each for _, each in node.sandboxes._running.values())]
    for item in making:
        item.cancel()
    await asyncio.gather(*making, return_exceptions=True)


async def test_a_restart_removes_orphans(node, asked):
    id_ = await node.sandboxes.run(asked())
    kept = await node.sandboxes.run(asked("kept"))
    node.records.remove(id_)
    again = await node.restarted()
    assert node.kernel.held == {kept}
    assert set(node.network.held) == {kept}
    assert [sandbox.id for sandbox in again.sandboxes] == [kept]


async def test_a_full_disk_refuses_new_pods_and_lets_pods_be_removed(node, asked, monkeypatch):
    sandbox = node.sandboxes.get(await node.sandboxes.run(asked()))

    def full(*_):
        raise OutOfResources(errno.ENOSPC, "write")

    monkeypatch.setattr(node.records, "put", full)
    with pytest.raises(OutOfResources):
        await node.sandboxes.run(asked("late"))
    await node.stop(sandbox)
    await node.sandboxes.remove(sandbox)
    assert node.clean


async def test_a_pod_on_the_nodes_network_is_not_attached(node, asked):
    request = asked()
    request.config.linux.security_context.namespace_options.network = pb.NODE
    sandbox = node.sandboxes.get(await node.sandboxes.run(request))
    assert (sandbox.record.network, node.network.adds) == ("", 0)
    await node.stop(sandbox)
    await node.sandboxes.remove(sandbox)
    assert node.clean


async def test_an_unknown_runtime_handler_is_refused(node, asked):
    request = asked()
    request.runtime_handler = "kata"
    with pytest.raises(InvalidArgument, match="runtime_handler"):
        await node.sandboxes.run(request)
    assert node.clean


async def test_a_sandbox_that_lost_its_network_is_not_ready(node, asked):
    events = node.sandboxes._events
    events.describe = lambda sandbox: (pb.PodSandboxStatus(id=sandbox.id), [])
    id_ = await node.sandboxes.run(asked())
    result = []

    async def listen():
        async for item in events.listen():
            result.append((item.container_id, pb.ContainerEventType.Name(item.container_event_type)))  # noqa: PERF401 - it never ends

    listening = asyncio.create_task(listen())
    await asyncio.sleep(0)
    node.sandboxes.notify_check_changed(id_)
    await node.sandboxes.lose_network(id_)
    assert node.stored == {id_: "stopped"}
    node.sandboxes.notify_check_changed(id_)
    await node.sandboxes.lose_network(id_)
    await node.sandboxes.lose_network("none")
    await node.stop(node.sandboxes.get(id_))
    await asyncio.sleep(0.01)
    listening.cancel()
    assert result == [(id_, "CONTAINER_CREATED_EVENT"), (id_, "CONTAINER_STOPPED_EVENT")], "each once"
    assert node.network.held == {}
