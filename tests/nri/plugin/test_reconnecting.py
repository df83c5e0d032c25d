"""A plugin at a path: it waits, connects, connects again, and learns what went meanwhile."""

import asyncio
import logging
import os

import pytest

from podwire.nri import Plugin, pb, run
from podwire.nri.errors import BadStart, Refused
from podwire.nri.stub import DEFAULT_LIMITS, Limits
from podwire.protocols.grpc_status import InvalidArgument, Unavailable
from podwire.protocols.nri import methods

RUNNING = "podwire.nri.runner"


class Cleans(Plugin):
    """Writes down which networks it cleaned."""

    name = "cleans"

    def __init__(self):
        self.reported = []

    async def synchronize(self, pods, containers):
        self.reported.append(("there", [pod.name for pod in pods]))

    async def pod_vanished(self, pod):
        self.reported.append(("vanished", pod.name, self.netns_of(pod)))
        if pod.name == "sad":
            raise OSError("cannot clean")

    async def stop_pod_sandbox(self, pod):
        self.reported.append(("stopped", pod.name, self.netns_of(pod)))


async def test_a_plugin_waits_for_its_runtime_and_logs_once(runtime, living, caplog):
    caplog.set_level(logging.WARNING, RUNNING)
    async with living(Cleans()):
        await asyncio.sleep(5 * DEFAULT_LIMITS.first_pause)  # several tries
        await runtime.listen()
        await (await runtime.peer()).welcome()
    said = [record for record in caplog.records if record.name == RUNNING]
    assert [item.getMessage() for item in said] == ["cannot connect to the runtime, retrying"]
    assert said[0].error == f"{runtime.path}: No such file or directory"


async def test_after_a_runtime_restarts_the_plugin_is_synchronized_again(runtime, living):
    plugin = Cleans()
    await runtime.listen()
    async with living(plugin):
        for _ in range(3):
            peer = await runtime.peer()
            assert not plugin.ready.is_set()
            await peer.welcome()
            assert plugin.ready.is_set()
            await runtime.stop()
            await runtime.listen()
        await (await runtime.peer()).welcome()
    assert plugin.reported == [("there", [])] * 4


async def test_vanished_pods_are_reported_before_synchronize(runtime, living, pod_named):
    plugin, pods = Cleans(), [pod_named("sad", "/n/sad"), pod_named("gone", "/n/gone"), pod_named("stays", "/n/stays")]
    await runtime.listen()
    async with living(plugin):
        peer = await runtime.peer()
        await peer.welcome(pods[:1])
        for item in pods[1:]:
            await peer.ask(methods.RUN_POD_SANDBOX, pb.RunPodSandboxRequest(pod=item))
        peer.connection.abort("the runtime dies")
        peer = await runtime.peer()
        await peer.welcome([pod_named("stays"), pod_named("new", "/n/new")])
        for name in ("stays", "new", "gone"):
            await peer.ask(methods.STOP_POD_SANDBOX, pb.StopPodSandboxRequest(pod=pod_named(name)))
    assert plugin.reported == [
        ("there", ["sad"]),
        ("vanished", "sad", "/n/sad"),
        ("vanished", "gone", "/n/gone"),
        ("there", ["stays", "new"]),
        ("stopped", "stays", "/n/stays"),  # remembered, though the second snapshot did not tell it
        ("stopped", "new", "/n/new"),
        ("stopped", "gone", ""),
    ]


async def test_half_of_a_synchronize_is_forgotten_with_its_connection(runtime, living, pod_named):
    plugin = Cleans()
    await runtime.listen()
    async with living(plugin):
        peer = await runtime.peer()
        await peer.configure()
        await peer.synchronize([pod_named("half")], more=True)
        peer.connection.abort("gone")
        await (await runtime.peer()).welcome([pod_named("whole")])
    assert plugin.reported == [("there", ["whole"])]


async def test_a_rejected_plugin_exits_with_the_runtimes_error(runtime):
    runtime.refusal = InvalidArgument("plugin_name: taken")
    await runtime.listen()
    async with asyncio.timeout(20):
        with pytest.raises(Refused, match="the runtime rejected 50-cleans: plugin_name: taken"):
            await run(Cleans(), socket=runtime.path, environ={})
    assert runtime.connected == 1


async def test_a_busy_runtime_is_retried(runtime, living, caplog):
    runtime.refusal = Unavailable("starting")
    await runtime.listen()
    async with living(Cleans()):
        async with asyncio.timeout(20):
            for _ in range(3):
                await runtime.turned_away.get()
        runtime.refusal = None
        await (await runtime.peer()).welcome()
    said = [record.getMessage() for record in caplog.records if record.name == RUNNING]
    assert said == ["runtime rejects plugins at the moment, retrying"]


async def test_an_unanswered_registration_is_retried(runtime, living, caplog):
    runtime.is_silent = True
    await runtime.listen()
    async with living(Cleans(), limits=Limits(registration_timeout=1.0)):
        async with asyncio.timeout(20):
            for _ in range(2):
                await runtime.turned_away.get()
        runtime.is_silent = False
        await (await runtime.peer()).welcome()
    [said] = [record for record in caplog.records if record.name == RUNNING]
    assert (said.getMessage(), said.error) == (
        "registration with the runtime failed, retrying",
        "no answer to RegisterPlugin within 1 s",
    )


async def test_a_runtime_that_closes_before_synchronize_is_logged_once(runtime, living, caplog):
    await runtime.listen()
    async with living(Cleans()):
        for _ in range(3):
            peer = await runtime.peer()
            await peer.configure()
            await peer.connection.close("these events are not known here")
        await (await runtime.peer()).welcome()
    [said] = [record for record in caplog.records if record.name == RUNNING]
    assert said.getMessage() == "connection ended before the plugin was synchronized, connecting again"


async def test_a_late_synchronize_is_logged(runtime, living, caplog):
    said = asyncio.Event()
    caplog.handler.addFilter(lambda record: "not synchronized the plugin yet" not in record.getMessage() or said.set())
    await runtime.listen()
    async with living(Cleans(), limits=Limits(synchronize_warning=0.05)), asyncio.timeout(20):
        peer = await runtime.peer()
        await said.wait()
        await peer.welcome()


@pytest.mark.parametrize(
    "garbage",
    [
        pytest.param(b"\xff" * 64, id="a length that nothing has"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n" + b"x" * 4096, id="another protocol"),
        pytest.param(b"\0\0\0\1\0\0", id="half a header"),
        pytest.param(b"", id="nothing at all"),
    ],
)
async def test_a_peer_that_is_not_a_runtime_is_disconnected_and_the_next_one_joined(runtime, living, garbage):
    connected = asyncio.Event()

    async def nonsense(_, writer):
        writer.write(garbage)
        await writer.drain()
        writer.close()
        connected.set()

    server = await asyncio.start_unix_server(nonsense, runtime.path)
    async with living(Cleans()), asyncio.timeout(20):
        await connected.wait()
        server.close()
        os.unlink(runtime.path)  # noqa: PTH108 - a system call, at once
        await runtime.listen()
        await (await runtime.peer()).welcome()


async def test_a_plugin_without_a_name_does_not_start(runtime):
    with pytest.raises(BadStart, match="plugin_name: ''"):
        await run(Plugin(), socket=runtime.path, environ={})
