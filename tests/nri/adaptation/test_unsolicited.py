"""Unsolicited requests of plugins."""

import pytest

from podwire.protocols.grpc_status import InvalidArgument, Unimplemented
from podwire.protocols.nri import methods
from podwire.protocols.nri import nri_pb2 as pb


def cpus(container, given):
    resources = pb.LinuxResources(cpu=pb.LinuxCPU(cpus=given))
    return pb.ContainerUpdate(container_id=container, linux=pb.LinuxContainerUpdate(resources=resources))


async def ask(plugin, *updates, evict=()):
    request = pb.UpdateContainersRequest(update=updates, evict=evict)
    return await plugin.connection.call(methods.UPDATE_CONTAINERS, request, within=60)


async def test_updates_return_those_that_failed(stage):
    async with stage.hosting():
        stage.node.failing.add("c2")
        plugin = await stage.join()
        answer = await ask(plugin, cpus("c1", "0"), cpus("c2", "1"))
        assert [update.container_id for update in stage.node.updates] == ["c1", "c2"]
        assert [item.container_id for item in answer.failed] == ["c2"]


async def test_an_update_of_nothing_is_refused_by_its_field(stage):
    async with stage.hosting():
        plugin = await stage.join()
        with pytest.raises(InvalidArgument, match="container_id"):
            await ask(plugin, cpus("", "0"))
        assert stage.node.updates == []


async def test_an_eviction_is_refused_and_nothing_of_the_request_is_done(stage):
    async with stage.hosting() as host:
        plugin = await stage.join()
        with pytest.raises(Unimplemented, match=r"evict.*c1"):
            await ask(plugin, cpus("c2", "0"), evict=[pb.ContainerEviction(container_id="c1", reason="noisy")])
        assert stage.node.updates == []
        assert len(host.active()) == 1


@pytest.mark.parametrize("hook", ["RunPodSandbox", "CreateContainer", "StopContainer", "Synchronize"])
async def test_an_update_from_inside_a_hook_does_not_wait_for_that_hook(stage, pod, container, hook):
    method = next(method for method in methods.PLUGIN if method.name == hook)

    async def inside(request):
        await ask(plugin, cpus("c9", "0"))
        return method.response()

    async with stage.hosting() as host:
        plugin = stage.plugin(hooks={hook: inside})
        await plugin.connect()
        await plugin.register()
        await host.wait_for("noting")
        await host.run_pod_sandbox(pod())
        await host.create_container(pod(), container())
        await host.stop_container(pod(), container())
        assert [update.container_id for update in stage.node.updates] == ["c9"]
        assert len(host.active()) == 1
