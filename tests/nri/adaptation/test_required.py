"""Plugins that pods do not start without."""

import asyncio

import pytest

from podwire.nri.adaptation.settings import PluginSettings
from podwire.protocols.grpc_status import InvalidArgument, Unavailable
from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.events import Event
from tests.eventually import eventually_async

ANNOTATION = "required-plugins.noderesource.dev"
TOLERATE = "tolerate.example.org"


def annotated(made, **annotations):
    for key, value in annotations.items():
        made.annotations[key] = value
    return made


async def run(host, pod, _container):
    await host.run_pod_sandbox(pod)


async def create(host, pod, container):
    await host.create_container(pod, container)


@pytest.mark.parametrize("call", [run, create])
@pytest.mark.parametrize(
    ("always", "annotations", "host_network", "named"),
    [
        pytest.param((), {}, False, None, id="nothing is required"),
        pytest.param(("net",), {}, False, "net", id="by the host's settings"),
        pytest.param(("20-net",), {}, False, "20-net", id="with its index"),
        pytest.param((), {ANNOTATION: "[net]"}, False, "net", id="by the pod, in YAML"),
        pytest.param((), {f"{ANNOTATION}/pod": '["net"]'}, False, "net", id="by the pod, in JSON"),
        pytest.param(("net",), {}, True, None, id="a pod on the node's network is exempt"),
        pytest.param(("net",), {TOLERATE: "true"}, False, None, id="a pod that tolerates it is exempt"),
        pytest.param(("net",), {TOLERATE: "false"}, False, "net", id="a pod that does not is not"),
        pytest.param(("here",), {}, False, None, id="it is there"),
        pytest.param(("10-here",), {}, False, None, id="it is there, by its index"),
        pytest.param(("11-here",), {}, False, "11-here", id="another index is another plugin"),
    ],
)
async def test_a_pod_that_needs_a_plugin_fails_closed_without_it(
    stage, pod, container, call, always, annotations, host_network, named
):
    chosen = {"required_plugins": always, "tolerate_missing_plugins_annotation": TOLERATE, "grace": 0.0}
    async with stage.hosting(**chosen) as host:
        await stage.join("10", "here", events=Event.STOP_POD_SANDBOX.bit)
        wanted = annotated(pod(host_network=host_network), **annotations)
        if named is None:
            await call(host, wanted, container())
        else:
            with pytest.raises(Unavailable, match=f'NRI plugin "{named}" is required for pod default/p1, and has nev'):
                await call(host, wanted, container())


async def test_a_container_may_require_a_plugin_that_its_pod_does_not(stage, pod, container):
    async with stage.hosting(grace=0.0) as host:
        wanted = annotated(pod(), **{f"{ANNOTATION}/container.c2": "[net]"})
        await host.run_pod_sandbox(wanted)
        await host.create_container(wanted, container("c1"))
        with pytest.raises(Unavailable, match='CreateContainer: NRI plugin "net"'):
            await host.create_container(wanted, container("c2"))


async def test_an_annotation_that_cannot_be_read_is_named(stage, pod):
    async with stage.hosting() as host:
        with pytest.raises(InvalidArgument, match=ANNOTATION):
            await host.run_pod_sandbox(annotated(pod(), **{ANNOTATION: "{"}))


@pytest.mark.parametrize("call", [run, create])
async def test_a_pod_waits_for_a_plugin_that_is_being_started_and_starts_with_it(stage, pod, container, call):
    async with stage.hosting(required_plugins=("net",), grace=60.0) as host:
        waiting = asyncio.create_task(call(host, pod(), container()))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await stage.join("30", "other")
        assert not waiting.done()
        plugin = await stage.join("20", "net")
        await waiting
        assert plugin.heard[0].split()[0] in ("RunPodSandbox", "CreateContainer")


async def test_a_required_plugin_that_dies_in_the_hook_is_called_again(stage, pod):
    async def dies(request):
        first.connection.abort("dead")
        return pb.RunPodSandboxResponse()

    async with stage.hosting(required_plugins=("net",), grace=60.0) as host:
        first = await stage.join("20", "net", hooks={"RunPodSandbox": dies})
        late = await stage.join("30", "late")
        waiting = asyncio.create_task(host.run_pod_sandbox(pod()))
        await eventually_async(lambda: len(host.active()) == 1)
        assert late.heard == []  # the order is kept: nobody after it before it
        second = await stage.join("20", "net")
        await waiting
        assert (second.knows, second.heard, late.heard) == ([], ["RunPodSandbox p1"], ["RunPodSandbox p1"])


async def test_a_required_plugin_that_is_too_slow_fails_the_pod_by_name(stage, pod):
    async def never(request):
        await asyncio.Event().wait()

    chosen = {"plugins": {"net": PluginSettings(timeout=0.1)}, "required_plugins": ("net",), "grace": 0.1}
    async with stage.hosting(**chosen) as host:
        await stage.join("20", "net", hooks={"RunPodSandbox": never})
        with pytest.raises(Unavailable, match='NRI plugin "net" is required for pod default/p1, and has been gone for'):
            await host.run_pod_sandbox(pod())


async def test_a_plugin_that_dies_of_a_pod_repeatedly_is_waited_for_once(stage, pod):
    lives = []

    async def bring_back(host):
        while True:
            plugin = stage.plugin("20", "net")

            async def dies(request, plugin=plugin):
                lives.append(plugin)
                plugin.connection.abort("dead")
                return pb.RunPodSandboxResponse()

            plugin._hooks["RunPodSandbox"] = dies
            plugin.connection = plugin._made()
            await plugin.connect()
            await plugin.register()
            await plugin.closed()

    async with stage.hosting(required_plugins=("net",), grace=0.5) as host:
        bringing = asyncio.create_task(bring_back(host))
        await host.wait_for("net")
        with pytest.raises(Unavailable, match='NRI plugin "net" is required'):
            await host.run_pod_sandbox(pod())
        bringing.cancel()
        await asyncio.gather(bringing, return_exceptions=True)
        assert lives


async def test_the_grace_is_counted_from_the_loss_and_not_for_each_pod(stage, pod):
    async with stage.hosting(required_plugins=("net",), grace=0.2) as host:
        plugin = await stage.join("20", "net")
        await host.run_pod_sandbox(pod("p0"))
        await plugin.leave()
        await eventually_async(lambda: not host.active())
        await asyncio.sleep(0.3)
        for number in range(1, 4):
            attempt = host.run_pod_sandbox(pod(f"p{number}"))
            with pytest.raises(Unavailable, match="has been gone for"):
                attempt.send(None)  # not even one step of waiting


async def test_a_plugin_that_is_back_serves_the_pod_that_is_tried_again(stage, pod):
    retried = []
    async with stage.hosting(required_plugins=("net",), grace=0.0) as host:
        host.on_registered.append(lambda plugin: retried.append(str(plugin)))
        with pytest.raises(Unavailable):
            await host.run_pod_sandbox(pod())
        await host.remove_pod_sandbox(pod())
        plugin = await stage.join("20", "net")
        await eventually_async(lambda: retried == ["20-net"])
        await host.run_pod_sandbox(pod())
        assert plugin.heard == ["RunPodSandbox p1"]


async def test_only_run_and_create_need_a_required_plugin(stage, pod, container):
    async with stage.hosting(required_plugins=("net",), grace=60.0, know=([pod()], [container()])) as host:
        other = await stage.join("10", "other")
        await host.start_container(pod(), container())
        await host.update_container(pod(), container(), pb.LinuxResources())
        await host.stop_container(pod(), container())
        await host.remove_container(pod(), container())
        await host.stop_pod_sandbox(pod())
        await host.remove_pod_sandbox(pod())
        assert [item.split()[0] for item in other.heard] == [
            "StartContainer",
            "UpdateContainer",
            "StopContainer",
            "RemoveContainer",
            "StopPodSandbox",
            "RemovePodSandbox",
        ]
