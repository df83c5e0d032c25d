"""Plugins that come late receive what exists, and no event between that and the next is lost or sent twice."""

import asyncio
import random

import pytest

from podwire.protocols.grpc_status import Internal
from podwire.protocols.nri import nri_pb2 as pb
from podwire.transports.mux_connection import MuxConnectionError
from tests.eventually import eventually_async


async def test_a_late_plugin_gets_pods_and_containers_that_have_not_stopped(stage, pod, container):
    async with stage.hosting() as host:
        for name in ("p1", "p2", "p3"):
            await host.run_pod_sandbox(pod(name))
        for name in ("c1", "c2", "c3"):
            await host.create_container(pod(), container(name))
        await host.stop_container(pod(), container("c2"))
        await host.stop_pod_sandbox(pod("p2"))
        await host.remove_pod_sandbox(pod("p3"))
        plugin = await stage.join()
        assert plugin.knows == ["p1", "p2", "c1", "c3"]


async def test_a_late_plugin_gets_containers_with_all_adjustments(stage, pod, container):
    events = []

    async def adjusts(request):
        variable = pb.KeyValue(key="A", value="b")
        return pb.CreateContainerResponse(adjust=pb.ContainerAdjustment(env=[variable]))

    async def synchronize(request):
        events.extend(request.containers)
        return pb.SynchronizeResponse()

    async with stage.hosting() as host:
        await stage.join("10", "adjusting", hooks={"CreateContainer": adjusts})
        await host.create_container(pod(), container("c1"))
        await host.create_container(pod(), container("c2"))
        await host.post_start_container(pod(), container("c2", state=pb.CONTAINER_RUNNING, pid=7))
        await stage.join("20", "late", hooks={"Synchronize": synchronize})
        assert list(events[0].env) == ["A=b"]
        assert (events[1].state, events[1].pid) == (pb.CONTAINER_RUNNING, 7)


async def test_a_node_too_large_for_one_message_is_sent_in_several(stage, pod):
    large = "x" * (300 << 10)
    pods = [pod(f"p{number}", large=large) for number in range(30)]
    async with stage.hosting(know=(pods, ())):
        plugin = await stage.join()
        assert plugin.knows == [pod.id for pod in pods]


async def refuses_split(request):
    return pb.SynchronizeResponse(more=False)


async def fails(request):
    raise Internal("cannot")


@pytest.mark.parametrize(
    ("synchronize", "reason"),
    [
        pytest.param(refuses_split, "Synchronize: the plugin does not handle split requests", id="knows no split"),
        pytest.param(fails, "Synchronize: cannot", id="answers with an error"),
    ],
)
async def test_a_plugin_that_cannot_be_synchronized_is_closed(stage, pod, synchronize, reason):
    pods = [pod(f"p{number}", large="x" * (3 << 20)) for number in range(3)]
    async with stage.hosting(know=(pods, ())) as host:
        plugin = stage.plugin(hooks={"Synchronize": synchronize})
        await plugin.connect()
        await plugin.register()
        await plugin.closed()
        await eventually_async(lambda: [item.last_error for item in host.report()] == [reason])
        await host.run_pod_sandbox(pod("p9"))
        assert plugin.heard == []


async def test_synchronize_has_a_limit_of_its_own_and_hooks_wait_no_longer(stage, pod):
    held = asyncio.Event()

    async def never(request):
        await held.wait()
        return pb.SynchronizeResponse()

    async with stage.hosting(synchronize_timeout=0.3) as host:
        plugin = stage.plugin(hooks={"Synchronize": never})
        await plugin.connect()
        await plugin.register()
        await eventually_async(lambda: [item.state for item in host.report()] in (["synchronizing"], ["gone"]))
        await host.run_pod_sandbox(pod())
        assert host.active() == ()
        await plugin.closed()
        held.set()


async def test_hooks_of_a_plugin_wait_for_its_synchronize_and_then_come_in_order(stage, pod, container):
    held, begun = asyncio.Event(), asyncio.Event()
    order = []

    async def synchronize(request):
        begun.set()
        await held.wait()
        order.append([pod.id for pod in request.pods])
        return pb.SynchronizeResponse()

    async with stage.hosting() as host:
        await host.run_pod_sandbox(pod("p1"))
        plugin = stage.plugin(hooks={"Synchronize": synchronize})
        plugin.heard = order
        await plugin.connect()
        await plugin.register()
        await asyncio.wait_for(begun.wait(), 60)
        run = asyncio.create_task(host.run_pod_sandbox(pod("p2")))
        remove = asyncio.create_task(host.remove_pod_sandbox(pod("p1")))
        for _ in range(50):
            await asyncio.sleep(0)
        assert not run.done()
        assert order == []
        held.set()
        await asyncio.gather(run, remove)
        assert order[0] == ["p1"]
        assert sorted(order[1:]) == ["RemovePodSandbox p1", "RunPodSandbox p2", "StopPodSandbox p1"]


async def test_a_plugin_that_registers_during_an_event_is_called_too(stage, pod):
    held, begun = asyncio.Event(), asyncio.Event()

    async def slow(request):
        begun.set()
        await held.wait()
        return pb.RunPodSandboxResponse()

    async with stage.hosting() as host:
        await stage.join("50", "slow", hooks={"RunPodSandbox": slow})
        run = asyncio.create_task(host.run_pod_sandbox(pod()))
        await asyncio.wait_for(begun.wait(), 60)
        lower, higher = await stage.join("10", "lower"), await stage.join("90", "higher")
        held.set()
        await run
        for item in (lower, higher):
            assert (item.knows, item.heard) == ([], ["RunPodSandbox p1"])
        assert (await stage.join("95", "after")).knows == ["p1"]


async def test_updates_in_the_answer_are_done_and_bad_ones_are_not(stage, pod, container):
    def update(name):
        return pb.ContainerUpdate(
            container_id=name,
            linux=pb.LinuxContainerUpdate(resources=pb.LinuxResources(cpu=pb.LinuxCPU(cpus="0"))),
        )

    async def wanting(request):
        return pb.SynchronizeResponse(update=[update("c1")])

    async def nameless(request):
        return pb.SynchronizeResponse(update=[update("")])

    async with stage.hosting() as host:
        stage.node.failing.add("c1")
        await host.create_container(pod(), container())
        await stage.join("10", "wanting", hooks={"Synchronize": wanting})
        await stage.join("20", "nameless", hooks={"Synchronize": nameless})
        await eventually_async(lambda: [update.container_id for update in stage.node.updates] == ["c1"])
        assert len(host.active()) == 2


async def steps(number):
    """Let the loop go on so many times: what may happen between two steps of others is to happen here."""
    for _ in range(number):
        await asyncio.sleep(0)


class Follower:
    """Joins, leaves and joins again, and keeps its own list of pods by the events that it receives."""

    def __init__(self, stage, index, chance):
        self._stage, self._index, self._chance = stage, index, chance
        self.wrong = []
        self.plugin = None
        self.pods = set()

    async def join(self):
        pods = set()
        chance = self._chance

        async def pause():
            await steps(chance.randrange(4))

        async def synchronize(request):
            await pause()
            pods.update(pod.id for pod in request.pods)
            return pb.SynchronizeResponse()

        async def run(request):
            if request.pod.id in pods:
                self.wrong.append(f"{self._index}: {request.pod.id} twice")
            pods.add(request.pod.id)
            await pause()
            return pb.RunPodSandboxResponse()

        async def remove(request):
            if request.pod.id not in pods:
                self.wrong.append(f"{self._index}: {request.pod.id} removed and never known")
            pods.discard(request.pod.id)
            await pause()
            return pb.RemovePodSandboxResponse()

        hooks = {"Synchronize": synchronize, "RunPodSandbox": run, "RemovePodSandbox": remove}
        self.pods = pods
        self.plugin = self._stage.plugin(self._index, "follower", hooks=hooks)
        await self.plugin.connect()
        await self.plugin.register()

    async def live(self, rounds):
        for _ in range(rounds):
            await self.join()
            await steps(self._chance.randrange(60))
            if self._chance.random() < 0.5:
                self.plugin.connection.abort("a crash")
            await self.plugin.leave()
        await self.join()


async def pods_come_and_go(host, pod, number, chance, there):
    for turn in range(12):
        name = f"p{number}-{turn}"
        await host.run_pod_sandbox(pod(name))
        there.add(name)
        await steps(chance.randrange(12))
        if chance.random() < 0.6:
            await host.stop_pod_sandbox(pod(name))
            await host.remove_pod_sandbox(pod(name))
            there.discard(name)


@pytest.mark.parametrize("seed", range(12))
async def test_each_plugin_gets_each_event_once_however_plugins_come_and_go(stage, pod, seed):
    chance = random.Random(seed)
    there = set()
    async with stage.hosting(registration_timeout=60) as host:
        followers = [Follower(stage, f"{index}0", chance) for index in range(1, 4)]
        async with asyncio.TaskGroup() as tasks:
            for item in followers:
                tasks.create_task(item.live(chance.randrange(4, 12)))
            for number in range(6):
                tasks.create_task(pods_come_and_go(host, pod, number, chance, there))
        await eventually_async(lambda: len(host.active()) == 3)
        await host.run_pod_sandbox(pod("last"))
        assert [follower.wrong for follower in followers] == [[], [], []]
        assert [follower.pods for follower in followers] == [there | {"last"}] * 3


async def test_a_disconnected_plugin_is_not_called_and_may_reconnect(stage, pod):
    async with stage.hosting() as host:
        first = await stage.join()
        await first.leave()
        await host.run_pod_sandbox(pod())
        second = await stage.join()
        await host.stop_pod_sandbox(pod())
        assert (first.heard, second.knows, second.heard) == ([], ["p1"], ["StopPodSandbox p1"])
        with pytest.raises(MuxConnectionError):
            await first.register()
        [report] = host.report()
        assert (report.state, report.registered) == ("active", 2)
