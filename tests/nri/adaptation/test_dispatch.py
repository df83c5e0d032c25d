"""How one event reaches the plugins."""

import asyncio

import pytest

from podwire.protocols.grpc_status import FailedPrecondition, PermissionDenied, Unimplemented
from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.events import Event, Subscription
from tests.eventually import eventually_async


def mask(*events):
    return Subscription.of(*events).mask


async def whole_life(host, pod, container):
    await host.run_pod_sandbox(pod)
    await host.create_container(pod, container)
    await host.post_create_container(pod, container)
    await host.start_container(pod, container)
    await host.post_start_container(pod, container)
    await host.update_container(pod, container, pb.LinuxResources())
    await host.post_update_container(pod, container)
    await host.update_pod_sandbox(pod, pb.LinuxResources(), pb.LinuxResources())
    await host.post_update_pod_sandbox(pod)
    await host.stop_container(pod, container)
    await host.remove_container(pod, container)
    await host.stop_pod_sandbox(pod)
    await host.remove_pod_sandbox(pod)


LIFE = [
    "RunPodSandbox p1",
    "CreateContainer c1",
    "ValidateContainerAdjustment c1",
    "PostCreateContainer c1",
    "StartContainer c1",
    "PostStartContainer c1",
    "UpdateContainer c1",
    "PostUpdateContainer c1",
    "UpdatePodSandbox p1",
    "PostUpdatePodSandbox p1",
    "StopContainer c1",
    "RemoveContainer c1",
    "StopPodSandbox p1",
    "RemovePodSandbox p1",
]


async def test_a_plugin_without_a_subscription_gets_all_events(stage, pod, container):
    async with stage.hosting() as host:
        plugin = await stage.join()
        await whole_life(host, pod(), container())
        assert plugin.heard == LIFE


async def test_without_plugins_a_whole_life_never_waits(stage, pod, container):
    async with stage.hosting() as host:
        life = whole_life(host, pod(), container())
        with pytest.raises(StopIteration):
            life.send(None)


@pytest.mark.parametrize("event", list(Event), ids=lambda each: each.title)
async def test_a_plugin_gets_the_events_that_it_subscribed_to(stage, pod, container, event):
    async with stage.hosting() as host:
        plugin = await stage.join(events=mask(event))
        assert [item for item in Event if host.wants(item)] == [event]
        await whole_life(host, pod(), container())
        assert [item.split()[0] for item in plugin.heard] == [event.title]


async def test_a_plugin_older_than_nri_0_12_gets_state_changes(stage, pod, container):
    old = {"Configure", "Synchronize", "StateChange", "CreateContainer", "UpdateContainer", "StopContainer"}
    old |= {"UpdatePodSandbox", "ValidateContainerAdjustment"}
    async with stage.hosting() as host:
        plugin = await stage.join(only=old)
        await whole_life(host, pod(), container())
        assert plugin.heard == [
            "StateChange RUN_POD_SANDBOX p1",
            "CreateContainer c1",
            "ValidateContainerAdjustment c1",
            "StateChange POST_CREATE_CONTAINER c1",
            "StateChange START_CONTAINER c1",
            "StateChange POST_START_CONTAINER c1",
            "UpdateContainer c1",
            "StateChange POST_UPDATE_CONTAINER c1",
            "UpdatePodSandbox p1",
            "StateChange POST_UPDATE_POD_SANDBOX p1",
            "StopContainer c1",
            "StateChange REMOVE_CONTAINER c1",
            "StateChange STOP_POD_SANDBOX p1",
            "StateChange REMOVE_POD_SANDBOX p1",
        ]


async def test_an_unimplemented_event_is_sent_once_without_a_subscription(stage, pod, container):
    async with stage.hosting() as host:
        plugin = await stage.join(only={"Configure", "Synchronize", "RunPodSandbox", "RemovePodSandbox"})
        for _ in range(2):
            await whole_life(host, pod(), container())
        assert plugin.heard == ["RunPodSandbox p1", "RemovePodSandbox p1"] * 2
        assert [item for item in Event if host.wants(item)] == [Event.RUN_POD_SANDBOX, Event.REMOVE_POD_SANDBOX]


@pytest.mark.parametrize("event", [Event.CREATE_CONTAINER, Event.START_CONTAINER, Event.VALIDATE_CONTAINER_ADJUSTMENT])
async def test_a_plugin_that_lacks_a_subscribed_call_is_in_error(stage, pod, container, event):
    async with stage.hosting() as host:
        await stage.join(only={"Configure", "Synchronize"}, events=mask(event))
        with pytest.raises(Unimplemented, match="NRI plugin 10-noting"):
            await whole_life(host, pod(), container())


async def test_an_old_plugin_is_tried_with_a_call_of_its_own_only_once(stage, pod):
    tried = []

    def tap(hop):
        if not hop.outcome:
            tried.append((hop.caller, hop.callee, hop.method))

    async with stage.hosting(tap=tap) as host:
        plugin = await stage.join(only={"Configure", "Synchronize", "StateChange"})
        for name in ("p1", "p2"):
            await host.run_pod_sandbox(pod(name))
        assert plugin.heard == ["StateChange RUN_POD_SANDBOX p1", "StateChange RUN_POD_SANDBOX p2"]
        assert tried == [("ContainerRuntime", "10-noting", "NRI RunPodSandbox")] * 2


async def test_plugins_are_called_by_index_then_name_then_registration(stage, pod):
    order = []

    def telling(who):
        async def reported(request):
            order.append(who)
            return pb.RunPodSandboxResponse()

        return {"RunPodSandbox": reported}

    async with stage.hosting() as host:
        for index, name, who in [("20", "a", 3), ("10", "b", 2), ("99", "a", 5), ("10", "a", 1), ("20", "a", 4)]:
            plugin = await stage.join(index, name, hooks=telling(who))
            await asyncio.wait_for(plugin.synchronized.wait(), 60)
            await eventually_async(lambda: all(item.state == "active" for item in host.report()))
        await eventually_async(lambda: len(host.active()) == 5)
        assert [str(item) for item in host.active()] == ["10-a", "10-b", "20-a", "20-a", "99-a"]
        await host.run_pod_sandbox(pod())
        await host.stop_pod_sandbox(pod())
        assert order == [1, 2, 3, 4, 5]


def failing(method, error):
    async def fail(request):
        raise error

    return {method: fail}


@pytest.mark.parametrize(
    ("event", "call"),
    [
        pytest.param("RunPodSandbox", lambda host, pod, _: host.run_pod_sandbox(pod), id="RunPodSandbox"),
        pytest.param("CreateContainer", lambda host, pod, each: host.create_container(pod, each), id="CreateContainer"),
        pytest.param("StartContainer", lambda host, pod, each: host.start_container(pod, each), id="StartContainer"),
        pytest.param(
            "UpdateContainer",
            lambda host, pod, each: host.update_container(pod, each, pb.LinuxResources()),
            id="UpdateContainer",
        ),
        pytest.param(
            "UpdatePodSandbox",
            lambda host, pod, _: host.update_pod_sandbox(pod, pb.LinuxResources(), pb.LinuxResources()),
            id="UpdatePodSandbox",
        ),
    ],
)
async def test_an_error_keeps_later_plugins_from_being_called(stage, pod, container, event, call):
    async with stage.hosting() as host:
        early = await stage.join("10")
        await stage.join("20", "refusing", hooks=failing(event, PermissionDenied("not today")))
        late = await stage.join("30")
        with pytest.raises(PermissionDenied, match=f"^NRI plugin 20-refusing, {event}: not today$"):
            await call(host, pod(), container())
        assert len(early.heard) == 1
        assert late.heard == []
        assert [str(item) for item in host.active()] == ["10-noting", "20-refusing", "30-noting"]


@pytest.mark.parametrize(
    "event",
    [
        "PostCreateContainer",
        "PostStartContainer",
        "PostUpdateContainer",
        "PostUpdatePodSandbox",
        "StopContainer",
        "RemoveContainer",
        "StopPodSandbox",
        "RemovePodSandbox",
    ],
)
async def test_an_error_of_these_is_that_plugins_own(stage, pod, container, event):
    async with stage.hosting() as host:
        await stage.join("10", "refusing", hooks=failing(event, FailedPrecondition("no")))
        late = await stage.join("20")
        await whole_life(host, pod(), container())
        assert late.heard == LIFE
        assert [item.last_error for item in host.report()] == [f"{event}: no", ""]


async def test_stop_and_remove_are_reported_once_and_in_order(stage, pod, container):
    async with stage.hosting() as host:
        plugin = await stage.join(events=mask(*(item for item in Event if "STOP" in item.name or "REM" in item.name)))
        await host.run_pod_sandbox(pod())
        await host.create_container(pod(), container())
        await host.create_container(pod(), container("c2"))
        await asyncio.gather(*(host.stop_container(pod(), container()) for _ in range(3)))
        await asyncio.gather(*(host.remove_container(pod(), container()) for _ in range(3)))
        await host.remove_container(pod(), container("c2"))
        await host.stop_pod_sandbox(pod())
        await host.stop_pod_sandbox(pod())
        await host.remove_pod_sandbox(pod())
        assert plugin.heard == [
            "StopContainer c1",
            "RemoveContainer c1",
            "StopContainer c2",
            "RemoveContainer c2",
            "StopPodSandbox p1",
            "RemovePodSandbox p1",
        ]


async def test_stops_reported_before_a_restart_are_not_repeated(stage, pod, container):
    async with stage.hosting(know=([pod("p1"), pod("p2")], [container("c1"), container("c2")])) as host:
        host.know([pod("p3")], [container("c3")], stopped=["p3", "c3"])
        plugin = await stage.join()
        assert plugin.knows == ["p1", "p2", "p3", "c1", "c2"]
        for name in ("p1", "p3"):
            await host.stop_pod_sandbox(pod(name))
            await host.remove_pod_sandbox(pod(name))
        await host.remove_container(pod("p3"), container("c3"))
        assert plugin.heard == ["StopPodSandbox p1", "RemovePodSandbox p1", "RemovePodSandbox p3", "RemoveContainer c3"]


async def test_a_pod_that_was_refused_is_undone_for_all_and_may_come_again(stage, pod):
    refuse = {"left": 1}

    async def once(request):
        refuse["left"] -= 1
        if refuse["left"] >= 0:
            raise FailedPrecondition("once")
        return pb.RunPodSandboxResponse()

    async with stage.hosting() as host:
        early = await stage.join("10")
        await stage.join("20", "refusing", hooks={"RunPodSandbox": once})
        late = await stage.join("30")
        with pytest.raises(FailedPrecondition, match="once"):
            await host.run_pod_sandbox(pod())
        await host.stop_pod_sandbox(pod())
        await host.remove_pod_sandbox(pod())
        assert early.heard == ["RunPodSandbox p1", "StopPodSandbox p1", "RemovePodSandbox p1"]
        assert late.heard == ["StopPodSandbox p1", "RemovePodSandbox p1"]
        newcomer = await stage.join("40")
        assert newcomer.knows == []
        await host.run_pod_sandbox(pod())
        assert (await stage.join("50")).knows == ["p1"]


class Counting:
    """A hook that counts how many of it run at once, and waits until it may end."""

    def __init__(self):
        self.running = self.most = 0
        self.go = asyncio.Event()
        self.begun = asyncio.Event()

    async def __call__(self, request):
        self.running += 1
        self.most = max(self.most, self.running)
        self.begun.set()
        await self.go.wait()
        self.running -= 1
        return pb.RunPodSandboxResponse()


@pytest.mark.parametrize(
    ("plugins", "most"),
    [
        pytest.param({}, 1, id="one at a time"),
        pytest.param({"counting": {"concurrent": True}}, 8, id="as many as there are when it says so"),
    ],
)
async def test_requests_in_flight(stage, pod, plugins, most):
    from podwire.nri.adaptation.settings import PluginSettings

    chosen = {name: PluginSettings(**each) for name, each in plugins.items()}
    async with stage.hosting(plugins=chosen) as host:
        counting = Counting()
        await stage.join("10", "counting", hooks={"RunPodSandbox": counting})
        runs = [asyncio.create_task(host.run_pod_sandbox(pod(f"p{number}"))) for number in range(8)]
        await asyncio.wait_for(counting.begun.wait(), 60)
        await eventually_async(lambda: counting.running == most)
        for _ in range(20):
            await asyncio.sleep(0)
        counting.go.set()
        await asyncio.gather(*runs)
        assert counting.most == most


async def test_a_cancelled_call_keeps_the_plugins_lock(stage, pod):
    async with stage.hosting() as host:
        busy = Counting()
        plugin = await stage.join("20", "busy", hooks={"RunPodSandbox": busy})
        given_up = asyncio.create_task(host.run_pod_sandbox(pod("p1")))
        await asyncio.wait_for(busy.begun.wait(), 60)
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
        assert given_up.cancelled()
        undo = asyncio.create_task(host.remove_pod_sandbox(pod("p1")))
        for _ in range(50):
            await asyncio.sleep(0)
        assert (plugin.heard, busy.running) == ([], 1)
        busy.go.set()
        await undo
        assert (plugin.heard, busy.running) == (["StopPodSandbox p1", "RemovePodSandbox p1"], 0)
        assert (await stage.join("30", "late")).knows == []


async def test_a_plugin_times_out_although_its_caller_was_cancelled(stage, pod):
    from podwire.nri.adaptation.settings import PluginSettings

    async with stage.hosting(plugins={"stuck": PluginSettings(timeout=0.3)}) as host:
        stuck = Counting()
        await stage.join("10", "stuck", hooks={"RunPodSandbox": stuck})
        given_up = asyncio.create_task(host.run_pod_sandbox(pod()))
        await asyncio.wait([given_up, asyncio.create_task(stuck.begun.wait())], return_when=asyncio.FIRST_COMPLETED)
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
        await eventually_async(lambda: not host.active())
        stuck.go.set()


async def test_one_plugin_that_is_busy_does_not_hold_up_the_others(stage, pod):
    async with stage.hosting() as host:
        busy = Counting()
        await stage.join("20", "busy", hooks={"RunPodSandbox": busy})
        free = await stage.join("10", "free")
        first = asyncio.create_task(host.run_pod_sandbox(pod("p1")))
        await asyncio.wait_for(busy.begun.wait(), 60)
        second = asyncio.create_task(host.run_pod_sandbox(pod("p2")))
        await eventually_async(lambda: free.heard == ["RunPodSandbox p1", "RunPodSandbox p2"])
        busy.go.set()
        await asyncio.gather(first, second)


async def test_a_plugin_that_times_out_is_disconnected_and_the_pod_starts(stage, pod, caplog):
    from podwire.nri.adaptation.settings import PluginSettings

    async with stage.hosting(plugins={"stuck": PluginSettings(timeout=0.2)}) as host:
        stuck = Counting()
        plugin = await stage.join("10", "stuck", hooks={"RunPodSandbox": stuck})
        assert plugin.configured.request_timeout == 200
        other = await stage.join("20")
        await host.run_pod_sandbox(pod())
        assert other.heard == ["RunPodSandbox p1"]
        assert [str(item) for item in host.active()] == ["20-noting"]
        await plugin.closed()
        report = host.report()[0]
        assert report.state == "gone"
        assert report.last_error == "RunPodSandbox: no answer to RunPodSandbox within 0.2 s"
        [record] = [record for record in caplog.records if record.message == "hook of NRI plugin failed"]
        assert (record.plugin, record.hook) == ("10-stuck", "RunPodSandbox")
        assert record.budget.endswith(" of 0.2 s")
        stuck.go.set()


async def test_a_plugin_close_to_its_limit_is_named_in_the_log(stage, pod, caplog):
    async with stage.hosting(slow_share=0.0) as host:
        await stage.join("10", "slow")
        await host.run_pod_sandbox(pod())
        [reported] = [record for record in caplog.records if record.message == "NRI plugin is close to its timeout"]
        assert (reported.plugin, reported.hook) == ("10-slow", "RunPodSandbox")
        assert (reported.queued_ms, reported.plugin_ms) >= (0, 0)


async def test_statistics_of_plugins_can_be_read(stage, pod):
    async with stage.hosting() as host:
        await stage.join("10", "a")
        for name in ("p1", "p2"):
            await host.run_pod_sandbox(pod(name))
        [report] = host.report()
        assert (str(report.plugin), report.state, report.registered, report.launched) == ("10-a", "active", 1, False)
        assert report.pid > 0
        hook = report.hooks["RunPodSandbox"]
        assert (hook.calls, hook.failed) == (2, 0)
        assert 0 < hook.slowest <= hook.seconds
