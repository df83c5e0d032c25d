"""CreateContainer, UpdateContainer and StopContainer: what several plugins want, put together and judged."""

import asyncio

import pytest

from podwire.nri.adaptation.settings import PluginSettings, ValidatorSettings
from podwire.protocols.grpc_status import FailedPrecondition, Internal, InvalidArgument, PermissionDenied, Unavailable
from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.events import Event
from tests.eventually import eventually_async


def adjusting(*updates, **fields):
    """A plugin that wants this of every container."""

    async def create(request):
        return pb.CreateContainerResponse(adjust=pb.ContainerAdjustment(**fields), update=updates)

    return {"CreateContainer": create}


def variable(key, value):
    return [pb.KeyValue(key=key, value=value)]


def cpus(container, given):
    resources = pb.LinuxResources(cpu=pb.LinuxCPU(cpus=given))
    return pb.ContainerUpdate(container_id=container, linux=pb.LinuxContainerUpdate(resources=resources))


async def test_adjustments_are_merged_and_each_plugin_sees_the_earlier_ones(stage, pod, container):
    seen = []

    async def second(request):
        seen.extend(request.container.env)
        return pb.CreateContainerResponse(adjust=pb.ContainerAdjustment(annotations={"second": "yes"}))

    async with stage.hosting() as host:
        await stage.join("10", "first", hooks=adjusting(env=variable("A", "b")))
        await stage.join("20", "second", hooks={"CreateContainer": second})
        made = await host.create_container(pod(), container(env=["P=1"]))
        assert seen == ["P=1", "A=b"]
        assert [(item.key, item.value) for item in made.adjust.env] == [("A", "b")]
        assert dict(made.adjust.annotations) == {"second": "yes"}
        assert made.plugins == ("10-first", "20-second")


async def test_a_conflict_names_both_and_fails_the_container_only(stage, pod, container):
    async with stage.hosting() as host:
        await stage.join("10", "first", hooks=adjusting(env=variable("A", "1")))
        await stage.join("20", "second", hooks=adjusting(env=variable("A", "2")))
        words = 'plugins "20-second" and "10-first" both tried to set .* A'
        with pytest.raises(FailedPrecondition, match=words):
            await host.create_container(pod(), container())
        await host.remove_container(pod(), container())
        assert len(host.active()) == 2
        assert (await stage.join("30", "late")).knows == []


async def test_an_adjustment_that_cannot_be_is_named(stage, pod, container):
    async with stage.hosting() as host:
        await stage.join("10", "bad", hooks=adjusting(cpus("c1", "0")))
        with pytest.raises(InvalidArgument, match=r"10-bad.*update"):
            await host.create_container(pod(), container())


async def test_a_plugin_that_came_back_while_a_container_is_created_counts_once(stage, pod, container):
    held, begun = asyncio.Event(), asyncio.Event()

    async def slow(request):
        begun.set()
        await held.wait()
        return pb.CreateContainerResponse()

    async with stage.hosting() as host:
        first = await stage.join("10", "a", hooks=adjusting(env=variable("A", "1")))
        await stage.join("20", "slow", hooks={"CreateContainer": slow})
        creating = asyncio.create_task(host.create_container(pod(), container()))
        await asyncio.wait_for(begun.wait(), 60)
        await first.leave()
        await eventually_async(lambda: len(host.active()) == 1)
        second = await stage.join("10", "a", hooks=adjusting(env=variable("A", "1")))
        assert second.knows == []
        held.set()
        made = await creating
        assert [(item.key, item.value) for item in made.adjust.env] == [("A", "1")]


async def test_failed_updates_of_other_containers_are_logged_only(stage, pod, container, caplog):
    async with stage.hosting() as host:
        stage.node.failing.add("c2")
        await stage.join("10", "moving", hooks=adjusting(cpus("c2", "0-1"), cpus("c3", "2")))
        await host.create_container(pod(), container())
        assert [update.container_id for update in stage.node.updates] == ["c2", "c3"]
        assert [
            record.container for record in caplog.records if record.message == "cannot update container for NRI plugin"
        ] == ["c2"]


async def test_evictions_are_refused_out_loud(stage, pod, container, caplog):
    async def evicting(request):
        return pb.CreateContainerResponse(evict=[pb.ContainerEviction(container_id="c9", reason="noisy")])

    async with stage.hosting() as host:
        await stage.join("10", "evicting", hooks={"CreateContainer": evicting})
        await host.create_container(pod(), container())
        [reported] = [record for record in caplog.records if record.message.startswith("eviction is not supported")]
        assert (reported.levelname, reported.plugin, reported.container, reported.error) == (
            "ERROR",
            "10-evicting",
            "c9",
            "noisy",
        )


def verdict(**answer):
    async def validate(request):
        return pb.ValidateContainerAdjustmentResponse(**answer)

    return {"ValidateContainerAdjustment": validate}


async def test_validators_see_everything_and_all_must_agree(stage, pod, container):
    seen = []

    async def looks(request):
        seen.append(request)
        return pb.ValidateContainerAdjustmentResponse()

    async with stage.hosting() as host:
        await stage.join("10", "first", hooks=adjusting(cpus("c2", "1"), env=variable("A", "b")))
        await stage.join("20", "looking", hooks={"ValidateContainerAdjustment": looks})
        await host.create_container(pod(), container(env=["P=1"]))
        [request] = seen
        assert (request.pod.id, request.container.id, list(request.container.env)) == ("p1", "c1", ["P=1"])
        assert [item.key for item in request.adjust.env] == ["A"]
        assert [item.container_id for item in request.update] == ["c2"]
        assert set(request.owners.owners) == {"c1", "c2"}
        assert [(plugin.index, plugin.name) for plugin in request.plugins] == [("10", "first"), ("20", "looking")]


async def fails(request):
    raise Internal("broken")


async def never(request):
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("hooks", "limit", "error", "words"),
    [
        pytest.param(verdict(reject=True, reason="no"), 60, PermissionDenied, "20-v rejected .* c1: no", id="no"),
        pytest.param(verdict(reject=True), 60, PermissionDenied, "no reason given", id="no without a reason"),
        pytest.param({"ValidateContainerAdjustment": fails}, 60, Internal, "20-v, .*: broken", id="an error"),
        pytest.param({"ValidateContainerAdjustment": never}, 0.1, Unavailable, "20-v did not answer", id="silence"),
    ],
)
async def test_a_validator_that_does_not_agree_fails_the_container(stage, pod, container, hooks, limit, error, words):
    async with stage.hosting(plugins={"v": PluginSettings(timeout=limit)}) as host:
        await stage.join("10", "moving", hooks=adjusting(cpus("c2", "1")))
        await stage.join("20", "v", hooks=hooks, events=Event.VALIDATE_CONTAINER_ADJUSTMENT.bit)
        with pytest.raises(error, match=words):
            await host.create_container(pod(), container())
        assert stage.node.updates == []
        await host.remove_container(pod(), container())
        assert (await stage.join("30", "late")).knows == []


async def test_validators_are_called_concurrently(stage, pod, container):
    together = asyncio.Barrier(3)

    async def meets(request):
        await together.wait()
        return pb.ValidateContainerAdjustmentResponse()

    async with stage.hosting() as host:
        for index in ("10", "20", "30"):
            await stage.join(index, "v", hooks={"ValidateContainerAdjustment": meets})
        await host.create_container(pod(), container())


async def test_the_default_validator_runs_first(stage, pod, container):
    rules = ValidatorSettings(enable=True, reject_oci_hook_adjustment=True)
    hooks = pb.Hooks(prestart=[pb.Hook(path="/bin/true")])
    async with stage.hosting(validator=rules) as host:
        await stage.join("10", "hooking", hooks=adjusting(hooks=hooks))
        plugin = await stage.join("20", "validating")
        with pytest.raises(PermissionDenied, match=r"10-hooking.*restricted OCI hook"):
            await host.create_container(pod(), container())
        assert plugin.heard == ["CreateContainer c1"]


def updating(*updates, evict=()):
    async def update(request):
        return pb.UpdateContainerResponse(update=updates, evict=evict)

    return {"UpdateContainer": update}


async def test_plugins_change_an_update(stage, pod, container):
    async with stage.hosting() as host:
        await stage.join("10", "moving", hooks=updating(cpus("c1", "3"), cpus("c2", "4")))
        asked = pb.LinuxResources(cpu=pb.LinuxCPU(cpus="0", mems="0"))
        given = await host.update_container(pod(), container(), asked)
        assert (given.cpu.cpus, given.cpu.mems) == ("3", "0")
        assert [update.container_id for update in stage.node.updates] == ["c2"]


async def test_an_update_without_plugins_is_unchanged(stage, pod, container):
    async with stage.hosting() as host:
        asked = pb.LinuxResources(cpu=pb.LinuxCPU(cpus="0"))
        assert await host.update_container(pod(), container(), asked) == asked


async def test_conflicting_updates_fail(stage, pod, container):
    async with stage.hosting() as host:
        await stage.join("10", "a", hooks=updating(cpus("c1", "3")))
        await stage.join("20", "b", hooks=updating(cpus("c1", "4")))
        with pytest.raises(FailedPrecondition, match='plugins "20-b" and "10-a" both'):
            await host.update_container(pod(), container(), pb.LinuxResources())


async def test_a_stop_may_change_others_and_a_conflict_there_stops_nothing(stage, pod, container):
    def stopping(update):
        async def stop(request):
            return pb.StopContainerResponse(update=[update])

        return {"StopContainer": stop}

    async with stage.hosting() as host:
        await stage.join("10", "a", hooks=stopping(cpus("c2", "1")))
        await stage.join("20", "b", hooks=stopping(cpus("c2", "2")))
        await host.stop_container(pod(), container())
        assert [update.linux.resources.cpu.cpus for update in stage.node.updates] == ["1"]
