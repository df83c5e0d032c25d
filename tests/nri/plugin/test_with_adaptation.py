"""Both sides, ours, against each other over a real socket; in both generations of the wire."""

import asyncio
import shutil
import subprocess
import sys
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from podwire.nri import Adjustment, Plugin, Updates, pb, run
from podwire.nri.adaptation import Adaptation, Settings
from podwire.protocols.grpc_status import RpcError
from podwire.protocols.nri.events import Event

generations = pytest.mark.parametrize("old", [False, True], ids=["a call per event", "StateChange"])


def pod_of(name, **more):
    spaces = [pb.LinuxNamespace(type="network", path=f"/run/netns/{name}")]
    return pb.PodSandbox(id=name, name=name, namespace="default", linux=pb.LinuxPodSandbox(namespaces=spaces), **more)


POD = pod_of("web")
CONTAINER = pb.Container(id="c1", pod_sandbox_id="web", name="main", args=["sh"], env=["HOME=/"])


class Node:
    """Writes down what is to be updated."""

    def __init__(self):
        self.updated = []

    async def update_containers(self, updates):
        self.updated += [update.container_id for update in updates]
        return [update for update in updates if update.container_id == "gone"]


class Recorder(Plugin):
    """Writes down every hook."""

    name = "recorder"

    def __init__(self, name="recorder", index="50"):
        self.name, self.index, self.reported = name, index, []

    async def synchronize(self, pods, containers):
        self.reported.append(f"Synchronize {len(pods)} {len(containers)}")

    async def pod_vanished(self, pod):
        self.reported.append(f"vanished {self.netns_of(pod)}")

    async def run_pod_sandbox(self, pod):
        self.reported.append("RunPodSandbox")

    async def update_pod_sandbox(self, pod, overhead, resources):
        self.reported.append("UpdatePodSandbox")

    async def post_update_pod_sandbox(self, pod):
        self.reported.append("PostUpdatePodSandbox")

    async def stop_pod_sandbox(self, pod):
        self.reported.append("StopPodSandbox")

    async def remove_pod_sandbox(self, pod):
        self.reported.append("RemovePodSandbox")

    async def create_container(self, pod, container):
        self.reported.append("CreateContainer")
        adjustment = Adjustment().add_env(f"BY_{self.index}", ",".join(container.env))
        adjustment.others.set("c0", cpu_shares=2)
        return adjustment

    async def post_create_container(self, pod, container):
        self.reported.append("PostCreateContainer")

    async def start_container(self, pod, container):
        self.reported.append("StartContainer")

    async def post_start_container(self, pod, container):
        self.reported.append("PostStartContainer")

    async def update_container(self, pod, container, resources):
        self.reported.append("UpdateContainer")
        return Updates().set(container.id, cpu_shares=resources.cpu.shares.value + 1)

    async def post_update_container(self, pod, container):
        self.reported.append("PostUpdateContainer")

    async def stop_container(self, pod, container):
        self.reported.append("StopContainer")
        return Updates().set("c9", cpu_shares=3)

    async def remove_container(self, pod, container):
        self.reported.append("RemoveContainer")

    async def validate(self, request):
        self.reported.append("ValidateContainerAdjustment")
        return "no shells" if list(request.container.args) == ["bad"] else None


LIFE = [
    "Synchronize 0 0",
    "RunPodSandbox",
    "CreateContainer",
    "ValidateContainerAdjustment",
    "PostCreateContainer",
    "StartContainer",
    "PostStartContainer",
    "UpdateContainer",
    "PostUpdateContainer",
    "UpdatePodSandbox",
    "PostUpdatePodSandbox",
    "StopContainer",
    "RemoveContainer",
    "StopPodSandbox",
    "RemovePodSandbox",
]


def host_of(node, **settings):
    return Adaptation(Settings(request_timeout=20.0, **settings), node, runtime_name="test", runtime_version="1.0")


@asynccontextmanager
async def living(host, socket, *plugins):
    """Plugins that the host has let in."""
    lives = [asyncio.create_task(run(plugin, socket=socket, environ={})) for plugin in plugins]
    try:
        async with asyncio.timeout(20):
            for item in plugins:
                await host.wait_for(f"{item.index}-{item.name}")
        yield
    finally:
        for live in lives:
            live.cancel()
        await asyncio.gather(*lives, return_exceptions=True)


@asynccontextmanager
async def hosted(tmp_path, node, *plugins, **settings):
    socket = tmp_path / "nri" / "nri.sock"
    host = host_of(node, socket=socket, **settings)
    async with host.running(), living(host, socket, *plugins):
        yield host


async def live(host):
    """The adjustment of the container, and the resources that its update came to."""
    await host.run_pod_sandbox(POD)
    created = await host.create_container(POD, CONTAINER)
    await host.post_create_container(POD, CONTAINER)
    await host.start_container(POD, CONTAINER)
    await host.post_start_container(POD, CONTAINER)
    shares = pb.LinuxResources(cpu=pb.LinuxCPU(shares=pb.OptionalUInt64(value=10)))
    updated = await host.update_container(POD, CONTAINER, shares)
    await host.post_update_container(POD, CONTAINER)
    await host.update_pod_sandbox(POD, pb.LinuxResources(), pb.LinuxResources())
    await host.post_update_pod_sandbox(POD)
    await host.stop_container(POD, CONTAINER)
    await host.remove_container(POD, CONTAINER)
    await host.stop_pod_sandbox(POD)
    await host.remove_pod_sandbox(POD)
    return created.adjust, updated


@generations
async def test_every_hook_of_a_lifecycle_is_called_once_in_order(tmp_path, old):
    plugin, node = Recorder(), Node()
    async with hosted(tmp_path, node, plugin, state_change=old) as host:
        adjust, updated = await live(host)
    assert plugin.reported == LIFE
    assert {item.title for item in Event} == {item for item in LIFE if not item.startswith("Synchronize")}
    assert [(item.key, item.value) for item in adjust.env] == [("BY_50", "HOME=/")]
    assert updated.cpu.shares.value == 11
    assert node.updated == ["c0", "c9"]


@generations
async def test_each_plugin_sees_the_adjustments_of_earlier_ones(tmp_path, old):
    class Second(Recorder):
        async def create_container(self, pod, container):
            return Adjustment().add_env("SAW", ",".join(container.env))

    first, second = Recorder(index="10"), Second(index="90")
    async with hosted(tmp_path, Node(), second, first, state_change=old) as host:
        created = await host.create_container(POD, CONTAINER)
    assert {item.key: item.value for item in created.adjust.env} == {
        "BY_10": "HOME=/",
        "SAW": "HOME=/,BY_10=HOME=/",
    }
    assert created.plugins == ("10-recorder", "90-recorder")


async def test_conflicting_plugins_are_both_named_unless_one_removes_first(tmp_path):
    class Sets(Plugin):
        def __init__(self, name, index, *, removes):
            self.name, self.index, self.removes = name, index, removes

        async def create_container(self, pod, container):
            adjustment = Adjustment()
            return (adjustment.remove_env("A") if self.removes else adjustment).add_env("A", self.name)

    for removes in (False, True):
        plugins = Sets("one", "10", removes=False), Sets("two", "20", removes=removes)
        async with hosted(tmp_path, Node(), *plugins) as host:
            if removes:
                created = await host.create_container(POD, CONTAINER)
                assert [(item.key, item.value) for item in created.adjust.env if item.key == "A"] == [("A", "two")]
            else:
                with pytest.raises(RpcError, match=r'plugins "20-two" and "10-one" both tried to set Env A'):
                    await host.create_container(POD, CONTAINER)


async def test_a_validators_reason_reaches_the_runtime(tmp_path):
    async with hosted(tmp_path, Node(), Recorder()) as host:
        with pytest.raises(RpcError, match="no shells"):
            await host.create_container(POD, pb.Container(id="c2", name="main", args=["bad"]))


@generations
async def test_an_exception_fails_the_pod_and_the_plugin_stays(tmp_path, old):
    class Raises(Recorder):
        async def run_pod_sandbox(self, pod):
            if pod.name == "web":
                raise OSError("no address left in 10.88.0.0/16")

    async with hosted(tmp_path, Node(), Raises(), state_change=old) as host:
        with pytest.raises(RpcError, match="no address left"):
            await host.run_pod_sandbox(POD)
        await host.run_pod_sandbox(pod_of("other"))
        assert [str(item) for item in host.active()] == ["50-recorder"]


async def test_a_plugin_updates_containers_also_from_within_a_hook(tmp_path):
    class Updating(Recorder):
        async def start_container(self, pod, container):
            self.failed = await self.update_containers(Updates().set("c7", cpu_shares=4).set("gone", cpu_shares=5))

    plugin, node = Updating(), Node()
    async with hosted(tmp_path, node, plugin) as host:
        await host.start_container(POD, CONTAINER)
        assert [item.container_id for item in plugin.failed] == ["gone"]
        assert await plugin.update_containers(Updates().set("c8", cpu_shares=4)) == []
    assert node.updated == ["c7", "gone", "c8"]


async def test_a_node_too_large_for_one_message_is_sent_whole(tmp_path):
    plugin = Recorder()
    socket = tmp_path / "nri" / "nri.sock"
    host = host_of(Node(), socket=socket)
    host.know([pod_of(f"p{number}", annotations={"a": "x" * (1 << 20)}) for number in range(9)], [CONTAINER])
    async with host.running(), living(host, socket, plugin):
        assert plugin.reported == ["Synchronize 9 1"]


async def test_a_restarted_runtime_synchronizes_and_ended_pods_are_noticed(tmp_path):
    plugin, socket = Recorder(), tmp_path / "nri" / "nri.sock"
    async with AsyncExitStack() as stack:
        before = host_of(Node(), socket=socket)
        running = await stack.enter_async_context(AsyncExitStack())
        await running.enter_async_context(before.running())
        await stack.enter_async_context(living(before, socket, plugin))
        for name in ("stays", "goes"):
            await before.run_pod_sandbox(pod_of(name))
        await running.aclose()
        after = host_of(Node(), socket=socket)
        after.know([pod_of("stays")], [])
        await stack.enter_async_context(after.running())
        async with asyncio.timeout(20):
            await after.wait_for("recorder")
    assert plugin.reported == [
        "Synchronize 0 0",
        "RunPodSandbox",
        "RunPodSandbox",
        "vanished /run/netns/goes",
        "Synchronize 1 0",
    ]


async def test_a_pre_installed_plugin_is_started_with_its_configuration(tmp_path):
    made, installed, conf = tmp_path / "made", tmp_path / "plugins", tmp_path / "conf.d"
    for entry in (installed, conf):
        entry.mkdir()
    argv = [sys.executable, "-m", "podwire.cli.main", "nri", "new", "tuner", str(made)]
    await asyncio.to_thread(subprocess.run, argv, check=True, capture_output=True, timeout=100)
    shutil.copy(made / "plugin.py", installed / "42-tuner")
    host = host_of(Node(), plugin_path=installed, plugin_config_path=conf, registration_timeout=60.0)
    async with host.running():
        assert [str(item) for item in host.active()] == ["42-tuner"]
        await host.run_pod_sandbox(POD)
        created = await host.create_container(POD, CONTAINER)
        assert [(item.key, item.value) for item in created.adjust.env] == [("SEEN_BY", "tuner")]
