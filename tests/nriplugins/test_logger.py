"""logger: what it logs of a pod's life with a real host, and what it makes of its configuration."""

import asyncio
import logging
import os
import signal
import sys
from contextlib import asynccontextmanager

import pytest

from podwire.nri import Runtime, pb, run
from podwire.nri.adaptation import Adaptation, Settings
from podwire.nri.plugin import subscription
from podwire.nriplugins.logger import Logger
from podwire.nriplugins.logger.plugin import read
from podwire.protocols.nri.events import ALL_EVENTS

POD = pb.PodSandbox(
    id="p1",
    name="web",
    namespace="default",
    ips=["10.88.0.5"],
    linux=pb.LinuxPodSandbox(namespaces=[pb.LinuxNamespace(type="network", path="/run/netns/web")]),
)
STOPPED = pb.PodSandbox(id="p1", name="web", namespace="default")
CONTAINER = pb.Container(id="c1", pod_sandbox_id="p1", name="main", args=["sh"])


class Node:
    """Has nothing to update."""

    async def update_containers(self, updates):
        return []


@asynccontextmanager
async def hosting(tmp_path):
    host = Adaptation(
        Settings(socket=tmp_path / "nri" / "nri.sock"), Node(), runtime_name="test", runtime_version="1.0"
    )
    async with host.running():
        yield host


@pytest.fixture
async def host(tmp_path):
    """With a logger that marks containers."""
    async with hosting(tmp_path) as host:
        config = '{"annotations": {"seen-by": "logger"}, "env": {"SEEN_BY": "logger"}}'
        life = asyncio.create_task(run(Logger(), socket=tmp_path / "nri" / "nri.sock", config=config, environ={}))
        async with asyncio.timeout(20):
            await host.wait_for("logger")
        yield host
        life.cancel()
        await asyncio.wait([life])


async def live(host):
    """A whole life, with every hook that there is."""
    await host.run_pod_sandbox(POD)
    adjusted = await host.create_container(POD, CONTAINER)
    await host.post_create_container(POD, CONTAINER)
    await host.start_container(POD, CONTAINER)
    await host.post_start_container(POD, CONTAINER)
    await host.update_container(POD, CONTAINER, pb.LinuxResources(pids=pb.LinuxPids(limit=5)))
    await host.post_update_container(POD, CONTAINER)
    await host.update_pod_sandbox(POD, pb.LinuxResources(), pb.LinuxResources())
    await host.post_update_pod_sandbox(POD)
    await host.stop_container(POD, CONTAINER)
    await host.remove_container(POD, CONTAINER)
    await host.stop_pod_sandbox(STOPPED)
    await host.remove_pod_sandbox(STOPPED)
    return adjusted.adjust


async def test_every_step_of_a_life_is_one_line_with_the_pod_and_its_network(host, caplog):
    caplog.set_level(logging.INFO, "podwire.nriplugins.logger")
    await live(host)
    lines = [record for record in caplog.records if record.name == "podwire.nriplugins.logger"]
    assert [line.getMessage() for line in lines] == [
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
    assert {(line.pod, line.netns) for line in lines} == {("default/web", "/run/netns/web")}
    assert lines[0].ips == "10.88.0.5"
    assert not hasattr(lines[-1], "ips")
    assert {line.container for line in lines if "Container" in line.getMessage()} == {"main"}
    [update] = [line for line in lines if line.getMessage() == "UpdateContainer"]
    assert update.resources == "pids { limit: 5 }"


async def test_containers_are_marked_as_configured(host):
    adjust = await live(host)
    assert dict(adjust.annotations) == {"seen-by": "logger"}
    assert [(item.key, item.value) for item in adjust.env] == [("SEEN_BY", "logger")]


def test_the_plugin_to_copy_defines_every_hook():
    assert subscription(Logger()).mask == ALL_EVENTS


@pytest.mark.parametrize("config", ["", " \n", "{}"])
def test_without_a_configuration_nothing_is_marked(config):
    assert read(config) == ({}, {})


@pytest.mark.parametrize(
    ("config", "words"),
    [
        pytest.param("[]", "configuration: no object", id="a list"),
        pytest.param('{"envs": {}}', "configuration: envs; there are annotations and env", id="an unknown field"),
        pytest.param('{"env": ["A=b"]}', "configuration: env must be an object of strings", id="env as a list"),
        pytest.param(
            '{"annotations": {"a": 1}}', "configuration: annotations must be an object of strings", id="a number"
        ),
        pytest.param("{", "Expecting property name", id="no JSON"),
    ],
)
async def test_a_wrong_configuration_keeps_it_out_and_names_the_field(config, words):
    with pytest.raises(ValueError, match=words):
        await Logger().configure(config, Runtime())


async def test_podwire_nri_logger_is_that_plugin(tmp_path):
    async with hosting(tmp_path) as host:
        argv = [sys.executable, "-m", "podwire.cli.main", "nri", "logger", "--socket", tmp_path / "nri" / "nri.sock"]
        process = await asyncio.create_subprocess_exec(
            *argv, "--index", "07", "--log-format", "json", stderr=asyncio.subprocess.PIPE
        )
        async with asyncio.timeout(60):
            await host.wait_for("07-logger")
            await host.run_pod_sandbox(POD)
            process.send_signal(signal.SIGTERM)
            _, reported = await process.communicate()
    assert process.returncode == os.EX_OK
    assert '"message": "RunPodSandbox"' in reported.decode()
