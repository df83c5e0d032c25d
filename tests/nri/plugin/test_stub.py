"""One connection: every call of both wire generations, deadlines, errors, and how it ends."""

import asyncio

import pytest

from podwire.nri import Adjustment, Plugin, Updates, pb
from podwire.nri.errors import NotConnected
from podwire.protocols.grpc_methods import Unary
from podwire.protocols.grpc_status import (
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    Unavailable,
    Unimplemented,
    Unknown,
)
from podwire.protocols.nri import methods
from podwire.protocols.nri.events import ALL_EVENTS, Event, as_state_change
from podwire.transports.mux_connection import ConnectionClosed

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Everything(Plugin):
    """Writes down what it is asked."""

    name = "everything"

    def __init__(self):
        self.reported = []

    async def run_pod_sandbox(self, pod):
        self.reported.append(("RunPodSandbox", pod.name))

    async def stop_pod_sandbox(self, pod):
        self.reported.append(("StopPodSandbox", pod.name))

    async def remove_pod_sandbox(self, pod):
        self.reported.append(("RemovePodSandbox", pod.name))

    async def update_pod_sandbox(self, pod, overhead, resources):
        self.reported.append(("UpdatePodSandbox", pod.name, overhead.cpu.shares.value, resources.cpu.shares.value))

    async def post_update_pod_sandbox(self, pod):
        self.reported.append(("PostUpdatePodSandbox", pod.name))

    async def create_container(self, pod, container):
        self.reported.append(("CreateContainer", pod.name, container.name))
        adjustment = Adjustment().add_env("A", "1")
        adjustment.others.set("other", cpu_shares=5)
        return adjustment

    async def post_create_container(self, pod, container):
        self.reported.append(("PostCreateContainer", pod.name, container.name))

    async def start_container(self, pod, container):
        self.reported.append(("StartContainer", pod.name, container.name))

    async def post_start_container(self, pod, container):
        self.reported.append(("PostStartContainer", pod.name, container.name))

    async def update_container(self, pod, container, resources):
        self.reported.append(("UpdateContainer", pod.name, container.name, resources.cpu.shares.value))
        return Updates().set(container.id, cpu_shares=9)

    async def post_update_container(self, pod, container):
        self.reported.append(("PostUpdateContainer", pod.name, container.name))

    async def stop_container(self, pod, container):
        self.reported.append(("StopContainer", pod.name, container.name))
        return Updates().set("other", memory_limit=7)

    async def remove_container(self, pod, container):
        self.reported.append(("RemoveContainer", pod.name, container.name))

    async def validate(self, request):
        self.reported.append(("ValidateContainerAdjustment", request.pod.name, request.container.name))
        return "not this one" if request.adjust.args else None


def shares(number):
    return pb.LinuxResources(cpu=pb.LinuxCPU(shares=pb.OptionalUInt64(value=number)))


POD, CONTAINER = pb.PodSandbox(id="p1", name="web"), pb.Container(id="c1", name="main")
MORE = {
    Event.UPDATE_POD_SANDBOX: ({"overhead_linux_resources": shares(2), "linux_resources": shares(3)}, (2, 3)),
    Event.UPDATE_CONTAINER: ({"linux_resources": shares(4)}, (4,)),
}
ANSWERS = {
    Event.CREATE_CONTAINER: pb.CreateContainerResponse(
        adjust=pb.ContainerAdjustment(env=[pb.KeyValue(key="A", value="1")]),
        update=[pb.ContainerUpdate(container_id="other", linux=pb.LinuxContainerUpdate(resources=shares(5)))],
    ),
    Event.UPDATE_CONTAINER: pb.UpdateContainerResponse(
        update=[pb.ContainerUpdate(container_id="c1", linux=pb.LinuxContainerUpdate(resources=shares(9)))]
    ),
    Event.STOP_CONTAINER: pb.StopContainerResponse(
        update=[
            pb.ContainerUpdate(
                container_id="other",
                linux=pb.LinuxContainerUpdate(
                    resources=pb.LinuxResources(memory=pb.LinuxMemory(limit=pb.OptionalInt64(value=7)))
                ),
            )
        ]
    ),
}


def request_of(event):
    """A request of that event, and what the plugin writes down of it."""
    fields = {"pod": POD}
    result = [event.title, POD.name]
    if "container" in event.method.request.DESCRIPTOR.fields_by_name:
        fields["container"] = CONTAINER
        result.append(CONTAINER.name)
    more, said = MORE.get(event, ({}, ()))
    return event.method.request(**fields, **more), (*result, *said)


@pytest.mark.parametrize("event", Event, ids=lambda each: each.title)
async def test_each_call_reaches_its_hook_and_returns_its_answer(synchronized, event):
    plugin, (request, reported) = Everything(), request_of(event)
    async with synchronized(plugin) as peer:
        answer = await peer.ask(event.method, request)
    assert plugin.reported == [reported]
    assert answer == ANSWERS.get(event, event.method.response())


@pytest.mark.parametrize("event", [item for item in Event if item.was_state_change], ids=lambda each: each.title)
async def test_older_runtimes_send_state_changes(synchronized, event):
    plugin, (request, reported) = Everything(), request_of(event)
    async with synchronized(plugin, version="", runtime="containerd", release="v2.1.0") as peer:
        assert await peer.ask(methods.STATE_CHANGE, as_state_change(event, request)) == pb.Empty()
    assert plugin.reported == [reported]


@pytest.mark.parametrize("number", [0, 4, 8, 10, 12, 14, 15, 99])
async def test_a_state_change_of_another_event_is_rejected(synchronized, number):
    async with synchronized(Everything()) as peer:
        with pytest.raises(InvalidArgument, match=f"StateChange: event {number} "):
            await peer.ask(methods.STATE_CHANGE, pb.StateChangeEvent(event=number))


@pytest.mark.parametrize("event", Event, ids=lambda each: each.title)
async def test_an_undefined_hook_changes_nothing(synchronized, event):
    class Quiet(Plugin):
        name = "quiet"

    async with synchronized(Quiet()) as peer:
        assert await peer.ask(event.method, request_of(event)[0]) == event.method.response()


async def test_a_method_that_nri_does_not_have_is_unimplemented(synchronized):
    unheard = Unary(methods.PLUGIN_SERVICE, "Unheard", pb.Empty, pb.Empty)
    async with synchronized(Everything()) as peer:
        with pytest.raises(Unimplemented, match="Unheard"):
            await peer.ask(unheard)


async def test_a_rejection_has_a_reason(synchronized):
    async with synchronized(Everything()) as peer:
        answer = await peer.ask(
            methods.VALIDATE_CONTAINER_ADJUSTMENT,
            pb.ValidateContainerAdjustmentRequest(adjust=pb.ContainerAdjustment(args=["sh"])),
        )
    assert (answer.reject, answer.reason) == (True, "not this one")


# Registration.


async def test_a_plugin_registers_by_name_index_and_version(runtime, living):
    await runtime.listen()
    async with living(Everything(), index="07", name="other"):
        peer = await runtime.peer()
        outcome = peer.registered.result()
    assert (outcome.plugin_idx, outcome.plugin_name, outcome.NRI_version) == ("07", "other", "v0.12.2")


@pytest.mark.parametrize(
    ("reported", "mask"),
    [
        pytest.param({"version": "v0.12.2"}, ALL_EVENTS, id="a runtime that knows them all"),
        pytest.param({"version": "v0.8.0"}, (1 << 11) - 1, id="a runtime before validators"),
        pytest.param({"version": ""}, (1 << 11) - 1, id="a runtime that tells nothing"),
        pytest.param(
            {"version": "", "runtime": "containerd", "release": "v2.2.1"}, ALL_EVENTS, id="a release that is known"
        ),
    ],
)
async def test_the_mask_has_no_event_that_the_runtime_does_not_know(runtime, living, reported, mask):
    await runtime.listen()
    async with living(Everything()):
        assert await (await runtime.peer()).configure(**reported) == mask


async def test_an_empty_subscription_is_not_sent_as_zero(runtime, living):
    class Quiet(Plugin):
        name = "quiet"

    await runtime.listen()
    async with living(Quiet()):
        assert await (await runtime.peer()).configure() == Event.REMOVE_POD_SANDBOX.bit


@pytest.mark.parametrize(("sent", "seen"), [("from the runtime", "from the runtime"), ("", "from a file")])
async def test_a_plugins_own_configuration_is_for_runtimes_that_give_none(runtime, living, sent, seen):
    class Configured(Plugin):
        name = "configured"

        async def configure(self, config, runtime):
            self.saw = (config, runtime.name, runtime.request_timeout, runtime.registration_timeout)

    plugin = Configured()
    await runtime.listen()
    async with living(plugin, config="from a file"):
        await (await runtime.peer()).configure(config=sent)
    assert plugin.saw == (seen, "fake", 20.0, 5.0)


async def test_a_configuration_may_decide_which_hooks_there_are(runtime, living):
    class Chooses(Plugin):
        name = "chooses"

        async def configure(self, config, runtime):
            self.start_container = self._start

        async def _start(self, pod, container): ...

    await runtime.listen()
    async with living(Chooses()):
        assert await (await runtime.peer()).configure() == Event.START_CONTAINER.bit


# Synchronize.


async def test_a_large_node_is_sent_in_batches_with_updates_in_the_last(runtime, living, pod_named):
    class Synchronized(Plugin):
        name = "synchronized"
        saw = ()

        async def synchronize(self, pods, containers):
            self.saw = ([pod.name for pod in pods], [container.name for container in containers])
            return Updates().set("c1", cpu_shares=1)

    plugin = Synchronized()
    await runtime.listen()
    async with living(plugin):
        peer = await runtime.peer()
        await peer.configure()
        assert await peer.synchronize([pod_named("a")], more=True) == pb.SynchronizeResponse(more=True)
        assert (plugin.saw, plugin.ready.is_set()) == ((), False)
        answer = await peer.synchronize([pod_named("b")], [CONTAINER])
        assert ([item.container_id for item in answer.update], answer.more) == (["c1"], False)
        assert plugin.ready.is_set()
    assert plugin.saw == (["a", "b"], ["main"])


async def test_a_plugin_is_not_ready_after_a_failed_synchronize(runtime, living):
    class Fails(Plugin):
        name = "fails"

        async def synchronize(self, pods, containers):
            raise OSError("no disk")

    plugin = Fails()
    await runtime.listen()
    async with living(plugin):
        peer = await runtime.peer()
        await peer.configure()
        with pytest.raises(Unknown, match=r"^OSError: no disk$"):
            await peer.synchronize()
        assert not plugin.ready.is_set()


# What hooks raise and return.


class Wrong(Plugin):
    """Each hook is wrong in a way of its own."""

    name = "wrong"

    async def run_pod_sandbox(self, pod):
        raise ValueError("no such link eth9")

    async def start_container(self, pod, container):
        raise FailedPrecondition("not yet")

    async def create_container(self, pod, container):
        return Updates()

    def post_start_container(self, pod, container):
        return None

    async def post_create_container(self, pod):
        """One argument is missing."""

    async def update_container(self, pod, container, resources):
        raise TimeoutError("the disk is slow")


@pytest.mark.parametrize(
    ("event", "error", "words"),
    [
        pytest.param(Event.RUN_POD_SANDBOX, Unknown, "^ValueError: no such link eth9$", id="an exception"),
        pytest.param(Event.START_CONTAINER, FailedPrecondition, "^not yet$", id="an error with a code"),
        pytest.param(
            Event.CREATE_CONTAINER, Unknown, "create_container returned Updates, which it cannot", id="a wrong answer"
        ),
        pytest.param(
            Event.POST_START_CONTAINER, Unknown, "post_start_container must be an `async def`", id="a plain def"
        ),
        pytest.param(Event.POST_CREATE_CONTAINER, Unknown, "TypeError: .*positional", id="wrong arguments"),
        pytest.param(Event.UPDATE_CONTAINER, Unknown, "^TimeoutError: the disk is slow$", id="a time-out of its own"),
    ],
)
async def test_a_hooks_exception_becomes_an_error_and_the_plugin_keeps_serving(synchronized, event, error, words):
    async with synchronized(Wrong()) as peer:
        for _ in range(2):
            with pytest.raises(error, match=words):
                await peer.ask(event.method, request_of(event)[0])
        assert await peer.ask(methods.REMOVE_CONTAINER) == pb.RemoveContainerResponse()


class Slow(Plugin):
    """Never done by itself."""

    name = "slow"

    def __init__(self):
        self.begun, self.cancelled = asyncio.Event(), asyncio.Event()
        self.goes_on = asyncio.Event()

    async def run_pod_sandbox(self, pod):
        self.begun.set()
        try:
            await self.goes_on.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    async def update_pod_sandbox(self, pod, overhead, resources): ...


async def test_a_hook_is_cancelled_shortly_before_the_runtimes_timeout(synchronized):
    plugin = Slow()
    async with synchronized(plugin, milliseconds=100) as peer:
        with pytest.raises(DeadlineExceeded, match=r"50-slow: RunPodSandbox was not done within"):
            await peer.ask(methods.RUN_POD_SANDBOX)
        assert plugin.cancelled.is_set()
        await peer.ask(methods.UPDATE_POD_SANDBOX)


async def test_a_shorter_timeout_of_the_call_takes_precedence(synchronized):
    plugin = Slow()
    async with synchronized(plugin, milliseconds=60_000) as peer:
        request = asyncio.create_task(peer.ask(methods.RUN_POD_SANDBOX, within=0.3))
        async with asyncio.timeout(20):
            await plugin.cancelled.wait()
        await asyncio.wait([request])
        assert request.exception() is not None


async def test_a_runtime_that_goes_away_cancels_its_hooks(synchronized):
    plugin = Slow()
    async with synchronized(plugin) as peer:
        request = asyncio.create_task(peer.ask(methods.RUN_POD_SANDBOX))
        await plugin.begun.wait()
        peer.connection.abort("gone")
        async with asyncio.timeout(20):
            await plugin.cancelled.wait()
        await asyncio.wait([request])
        assert isinstance(request.exception(), ConnectionClosed)


async def test_several_hooks_run_at_the_same_time_when_the_runtime_asks_so(synchronized):
    plugin = Slow()
    async with synchronized(plugin) as peer:
        first = asyncio.create_task(peer.ask(methods.RUN_POD_SANDBOX))
        await plugin.begun.wait()
        await peer.ask(methods.UPDATE_POD_SANDBOX)
        plugin.goes_on.set()
        assert await first == pb.RunPodSandboxResponse()


# Leaving.


async def test_a_plugin_that_stops_lets_hooks_end_and_takes_no_more(runtime, living):
    plugin = Slow()
    await runtime.listen()
    async with living(plugin, grace=60.0) as life:
        peer = await runtime.peer()
        await peer.welcome()
        begun = asyncio.create_task(peer.ask(methods.RUN_POD_SANDBOX))
        await plugin.begun.wait()
        life.cancel()
        with pytest.raises(Unavailable, match="UpdatePodSandbox: plugin 50-slow is stopping"):
            await peer.ask(methods.UPDATE_POD_SANDBOX)
        plugin.goes_on.set()
        assert await begun == pb.RunPodSandboxResponse()
        assert await peer.connection.closed


async def test_a_hook_that_outlasts_the_grace_is_cancelled_with_an_error(runtime, living):
    plugin = Slow()
    await runtime.listen()
    async with living(plugin, grace=0.05) as life:
        peer = await runtime.peer()
        await peer.welcome()
        begun = asyncio.create_task(peer.ask(methods.RUN_POD_SANDBOX))
        await plugin.begun.wait()
        life.cancel()
        with pytest.raises(Unavailable, match="RunPodSandbox: cancelled, because plugin 50-slow is stopping"):
            await begun
        assert plugin.cancelled.is_set()


async def test_a_synchronize_that_ends_during_a_stop_does_not_set_ready(runtime, living):
    class Slowly(Slow):
        async def synchronize(self, pods, containers):
            await self.run_pod_sandbox(None)

    plugin = Slowly()
    await runtime.listen()
    async with living(plugin, grace=60.0) as life:
        peer = await runtime.peer()
        await peer.configure()
        begun = asyncio.create_task(peer.synchronize())
        await plugin.begun.wait()
        life.cancel()
        plugin.goes_on.set()
        assert await begun == pb.SynchronizeResponse()
        await asyncio.wait([life])
        assert not plugin.ready.is_set()
        with pytest.raises(NotConnected):
            await plugin.update_containers(Updates())


async def test_a_hook_that_ends_while_the_plugin_stops_may_still_update_containers(runtime, living):
    class Updating(Slow):
        async def run_pod_sandbox(self, pod):
            await super().run_pod_sandbox(pod)
            await self.update_containers(Updates().set("c1", cpu_shares=1))

    plugin = Updating()
    await runtime.listen()
    async with living(plugin, grace=60.0) as life:
        peer = await runtime.peer()
        await peer.welcome()
        begun = asyncio.create_task(peer.ask(methods.RUN_POD_SANDBOX))
        await plugin.begun.wait()
        life.cancel()
        await asyncio.sleep(0)  # it is stopping now
        plugin.goes_on.set()
        assert await begun == pb.RunPodSandboxResponse()
    assert [update.container_id for update in peer.updates] == ["c1"]


async def test_shutdown_calls_the_plugin(synchronized):
    class Ends(Plugin):
        name = "ends"
        ended = False

        async def shutdown(self):
            self.ended = True

    plugin = Ends()
    async with synchronized(plugin) as peer:
        assert await peer.ask(methods.SHUTDOWN) == pb.Empty()
    assert plugin.ended


# What a plugin may ask.


async def test_unsolicited_updates_return_those_that_failed(synchronized):
    plugin = Everything()
    with pytest.raises(NotConnected):
        await plugin.update_containers(Updates())
    async with synchronized(plugin) as peer:
        failed = await plugin.update_containers(Updates().set("c1", cpu_shares=1).set("gone", cpu_shares=2))
        assert [item.container_id for item in failed] == ["gone"]
        assert [update.container_id for update in peer.updates] == ["c1", "gone"]
    with pytest.raises(NotConnected):
        await plugin.update_containers(Updates())


async def test_a_hook_reads_the_trace_that_its_call_belongs_to(synchronized):
    class Traced(Plugin):
        name = "traced"

        async def run_pod_sandbox(self, pod):
            raise ValueError(self.traceparent or "none")

    plugin = Traced()
    async with synchronized(plugin) as peer:
        with pytest.raises(Unknown, match=TRACE):
            await peer.ask(methods.RUN_POD_SANDBOX, metadata=[("traceparent", TRACE)])
        with pytest.raises(Unknown, match="none"):
            await peer.ask(methods.RUN_POD_SANDBOX)
    assert plugin.traceparent == ""
