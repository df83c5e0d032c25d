"""Behaviour of a scripted plugin on the wire."""

import asyncio

import pytest

from podwire.nri.fake import Leaves
from podwire.protocols.grpc_status import InvalidArgument, ResourceExhausted, Unavailable, Unimplemented
from podwire.protocols.nri import methods
from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.events import Event, as_state_change
from podwire.transports.mux_connection import AnswerTimeout, ConnectionClosed

SOON = 30.0
A_MOMENT = 0.2
"""How long is waited for an answer that must not come."""


def pod(name="web"):
    return pb.PodSandbox(id=f"id-{name}", name=name)


def running(name="web"):
    return pb.RunPodSandboxRequest(pod=pod(name))


def creating(name="app"):
    return pb.CreateContainerRequest(pod=pod(), container=pb.Container(id=f"id-{name}", name=name))


async def test_registers_with_any_name_index_and_mask(runtime_side):
    script = 'name: "no such name!"\nindex: "1"\nversion: v0.1.0\nsubscribe: 65536'
    async with runtime_side.plugin(script, registers=False):
        registered = await runtime_side.register()
        assert (registered.plugin_name, registered.plugin_idx, registered.NRI_version) == (
            "no such name!",
            "1",
            "v0.1.0",
        )
        assert (await runtime_side.call(methods.CONFIGURE)).events == 65536


async def test_without_a_script_it_answers_everything_and_changes_nothing(runtime_side):
    async with runtime_side.plugin(""):
        assert (await runtime_side.call(methods.CONFIGURE)).events == (1 << 14) - 1
        assert (await runtime_side.call(methods.SYNCHRONIZE, pb.SynchronizeRequest(more=True))).more
        assert not (await runtime_side.call(methods.SYNCHRONIZE)).more
        for item in Event:
            assert await runtime_side.call(item.method) == item.method.response()
        result = as_state_change(Event.RUN_POD_SANDBOX, running())
        assert await runtime_side.call(methods.STATE_CHANGE, result) == pb.Empty()
    assert [(call["call"], call.get("via")) for call in runtime_side.calls()][-1] == ("RunPodSandbox", "StateChange")


async def test_scripted_answers_name_containers_by_name(runtime_side):
    script = """
on:
  CreateContainer:
    answer:
      adjust: {env: {COLOR: blue}}
      update: [{container_id: first, linux: {resources: {cpu: {shares: 512}}}}]
"""
    async with runtime_side.plugin(script):
        known = pb.SynchronizeRequest(containers=[pb.Container(id="abc", name="first")])
        await runtime_side.call(methods.SYNCHRONIZE, known)
        result = await runtime_side.call(methods.CREATE_CONTAINER, creating())
    assert [(item.key, item.value) for item in result.adjust.env] == [("COLOR", "blue")]
    assert result.update[0].container_id == "abc"
    assert result.update[0].linux.resources.cpu.shares.value == 512


async def test_rules_are_used_up_and_may_be_for_one_pod(runtime_side):
    script = """
on:
  RunPodSandbox:
    - {times: 1, fail: {code: UNAVAILABLE, message: not yet}}
    - {pod: bad, fail: never}
"""
    async with runtime_side.plugin(script):
        with pytest.raises(Unavailable, match="not yet"):
            await runtime_side.call(methods.RUN_POD_SANDBOX, running())
        await runtime_side.call(methods.RUN_POD_SANDBOX, running())
        with pytest.raises(Exception, match="never"):
            await runtime_side.call(methods.RUN_POD_SANDBOX, running("bad"))
    assert [(call["pod"], call["did"]) for call in runtime_side.calls()] == [
        ("web", "fail"),
        ("web", "answer"),
        ("bad", "fail"),
    ]


@pytest.mark.parametrize(
    ("action", "error"),
    [
        pytest.param("silent: true", AnswerTimeout, id="silent"),
        pytest.param("stream: 99", AnswerTimeout, id="an answer for no request"),
        pytest.param("disconnect: true", ConnectionClosed, id="disconnect"),
        pytest.param("half-close: true", ConnectionClosed, id="half closed"),
        pytest.param("garble: 100", ConnectionClosed, id="garbage"),
        pytest.param("undecodable: true", InvalidArgument, id="no message"),
        pytest.param("oversize: 5000000", ResourceExhausted, id="too large"),
    ],
)
async def test_invalid_actions_fail_the_call(runtime_side, action, error):
    async with runtime_side.plugin(f"on: {{StopContainer: {{{action}}}}}"):
        with pytest.raises(error):
            await runtime_side.call(methods.STOP_CONTAINER, within=A_MOMENT if error is AnswerTimeout else SOON)


@pytest.mark.parametrize("action", ["twice: true", "pieces: 3", "delay: 10ms", "stop-reading: 10ms"])
async def test_unusual_but_valid_actions_work(runtime_side, action):
    async with runtime_side.plugin(f"on: {{StopContainer: {{{action}}}}}"):
        for _ in range(2):
            assert await runtime_side.call(methods.STOP_CONTAINER) == pb.StopContainerResponse()


async def test_stop_reading_lasts_as_scripted(runtime_side):
    async with runtime_side.plugin("on: {StopContainer: {stop-reading: 1m}}"):
        with pytest.raises(AnswerTimeout):
            await runtime_side.call(methods.STOP_CONTAINER, within=A_MOMENT)
        with pytest.raises(AnswerTimeout):
            await runtime_side.call(methods.RUN_POD_SANDBOX, running(), within=A_MOMENT)
    assert [call["call"] for call in runtime_side.calls()] == ["StopContainer"]


async def test_an_old_plugin_knows_only_state_change(runtime_side):
    async with runtime_side.plugin("speaks: StateChange"):
        with pytest.raises(Unimplemented, match="method RunPodSandbox"):
            await runtime_side.call(methods.RUN_POD_SANDBOX, running())
        await runtime_side.call(methods.CREATE_CONTAINER, creating())
        await runtime_side.call(methods.STATE_CHANGE, as_state_change(Event.RUN_POD_SANDBOX, running()))


async def test_a_new_plugin_may_not_know_state_change(runtime_side):
    async with runtime_side.plugin("speaks: calls"):
        with pytest.raises(Unimplemented, match="method StateChange"):
            await runtime_side.call(methods.STATE_CHANGE, as_state_change(Event.RUN_POD_SANDBOX, running()))


async def test_may_know_nothing_of_batches(runtime_side):
    async with runtime_side.plugin("on: {Synchronize: {refuse-split: true}}"):
        assert not (await runtime_side.call(methods.SYNCHRONIZE, pb.SynchronizeRequest(more=True))).more


async def test_asks_for_updates_before_and_after_it_answers(runtime_side):
    script = """
on:
  CreateContainer: {update-before: [{container_id: app}], update-after: [{container_id: other}]}
"""
    async with runtime_side.plugin(script):
        await runtime_side.call(methods.CREATE_CONTAINER, creating())
        async with asyncio.timeout(SOON):
            asked = [(await runtime_side.updates.get()).update[0].container_id for _ in range(2)]
    assert asked == ["id-app", "other"]


async def test_leaves_with_a_code(runtime_side):
    async with runtime_side.plugin("on: {StopContainer: {exit: 7}}") as task:
        with pytest.raises(ConnectionClosed):
            await runtime_side.call(methods.STOP_CONTAINER)
        with pytest.raises(Leaves) as left:
            await task
        assert left.value.code == 7


async def test_reconnects_and_used_up_rules_stay_used_up(runtime_side):
    async with runtime_side.plugin("reconnect: 1ms\non: {StopContainer: {times: 1, disconnect: true}}"):
        with pytest.raises(ConnectionClosed):
            await runtime_side.call(methods.STOP_CONTAINER)
        await runtime_side.register()
        await runtime_side.call(methods.STOP_CONTAINER)


@pytest.mark.parametrize("action", ["garble: 64", "disconnect: true"])
async def test_spoils_its_connection_before_it_registers(runtime_side, action):
    async with runtime_side.plugin(f"on: {{RegisterPlugin: {{{action}}}}}", registers=False) as task:
        async with asyncio.timeout(SOON):
            await task
        assert runtime_side.registered.empty()
        assert runtime_side.reported[-1]["event"] == "closed"


async def test_registers_on_a_stream_that_it_may_not_use(runtime_side):
    async with runtime_side.plugin("on: {RegisterPlugin: {stream: 2}}", registers=False):
        assert (await asyncio.wait_for(runtime_side.accepted.get(), SOON)) is not None
        await runtime_side.call(methods.CONFIGURE)
        assert runtime_side.registered.empty()


@pytest.mark.parametrize(("action", "times"), [("pieces: 5", 1), ("twice: true", 2)])
async def test_registers_oddly(runtime_side, action, times):
    async with runtime_side.plugin(f"on: {{RegisterPlugin: {{{action}}}}}", registers=False):
        for _ in range(times):
            assert (await runtime_side.register()).plugin_name == "fake"
