"""A plugin in a process of its own that is stopped, killed and brought back while pods start."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from tests.eventually import eventually_async

PROGRAM = """
import asyncio, sys
from podwire.protocols.nri import methods
from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.ttrpc import mux
from podwire.transports.mux_connection import Services, MuxConnection, connect

known = set()

async def configure(request):
    return pb.ConfigureResponse()

async def synchronize(request):
    known.update(each.id for each in request.pods)
    return pb.SynchronizeResponse()

async def run(request):
    known.add(request.pod.id)
    return pb.RunPodSandboxResponse()

async def create(request):
    adjustment = pb.ContainerAdjustment(annotations={"known": " ".join(sorted(known))})
    return pb.CreateContainerResponse(adjust=adjustment)

async def main():
    handlers = {"Configure": configure, "Synchronize": synchronize, "RunPodSandbox": run, "CreateContainer": create}
    services = Services(methods.PLUGIN, handlers)
    connection = MuxConnection(services, asks_on=mux.RUNTIME_SERVICE, answers_on=mux.PLUGIN_SERVICE)
    await connect(sys.argv[1], connection)
    request = pb.RegisterPluginRequest(plugin_name="outside", plugin_idx="10")
    await connection.call(methods.REGISTER_PLUGIN, request, within=60)
    await connection.closed

asyncio.run(main())
"""


class Outside:
    """The plugin's process, as often as it is started."""

    def __init__(self, stage):
        self._stage = stage
        self._started = []

    async def start(self):
        argv = [sys.executable, "-c", PROGRAM, str(self._stage.socket)]
        process = await asyncio.to_thread(subprocess.Popen, argv)
        self._started.append(process)
        async with asyncio.timeout(60):
            await self._stage.host.wait_for("outside")
        return process

    def end(self):
        for item in self._started:
            item.kill()
            item.wait()


@pytest.fixture
def outside(stage):
    made = Outside(stage)
    yield made
    made.end()


SLOW = {"registration_timeout": 60.0}


def pods_of(made):
    return set(made.adjust.annotations["known"].split())


async def test_pods_start_without_a_stopped_plugin_which_is_synchronized_later(stage, pod, container, outside):
    async with stage.hosting(**SLOW, request_timeout=1.0) as host:
        process = await outside.start()
        os.kill(process.pid, signal.SIGSTOP)
        names = [f"p{number}" for number in range(20)]
        await asyncio.gather(*(host.run_pod_sandbox(pod(name)) for name in names))
        assert host.active() == ()
        hook = host.report()[0].hooks["RunPodSandbox"]
        assert (hook.calls, hook.failed) == (1, 1)  # the others did not wait for it one after the other
        made = None
        while made is None or not made.plugins:  # a loaded machine may miss a limit of one second
            await outside.start()
            made = await host.create_container(pod("p1"), container())
        assert pods_of(made) == set(names)


async def test_pods_wait_for_a_required_plugin_that_is_killed_and_restarted(stage, pod, container, outside):
    async with stage.hosting(**SLOW, required_plugins=("outside",), grace=60.0) as host:
        process = await outside.start()
        os.kill(process.pid, signal.SIGSTOP)
        names = [f"p{number}" for number in range(20)]
        pods = [asyncio.create_task(host.run_pod_sandbox(pod(name))) for name in names]
        await asyncio.sleep(0)
        process.kill()
        await eventually_async(lambda: not host.active())
        assert not any(pod.done() for pod in pods)
        await outside.start()
        await asyncio.gather(*pods)
        made = await host.create_container(pod("p1"), container())
        assert pods_of(made) == set(names)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda each: each.name)
async def test_a_plugin_that_was_killed_between_hooks_catches_up(stage, pod, container, outside, number):
    async with stage.hosting(**SLOW) as host:
        process = await outside.start()
        await host.run_pod_sandbox(pod("p1"))
        os.kill(process.pid, number)
        await host.run_pod_sandbox(pod("p2"))
        await eventually_async(lambda: not host.active())
        await host.run_pod_sandbox(pod("p3"))
        await outside.start()
        await host.run_pod_sandbox(pod("p4"))
        made = await host.create_container(pod("p4"), container())
        assert pods_of(made) == {"p1", "p2", "p3", "p4"}
