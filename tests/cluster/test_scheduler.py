"""The scheduler as its own program, over HTTPS, and killed."""

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

import pytest

from podwire.cluster import scheduler
from podwire.cluster.apiserver import Options, running
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.kubeconfig import Access, BadKubeconfig, write_kubeconfig
from podwire.transports.credentials import load
from podwire.transports.http_client import connect
from tests.eventually import eventually_async

PODS = BUILTIN.of_kind("v1", "Pod")
SOON = 40.0


@pytest.fixture
async def server(tmp_path):
    options = Options(data_dir=tmp_path, port=0, store_url="memory://", controllers=frozenset())
    async with running(options) as server:
        yield server


@pytest.fixture
async def api(server):
    async with connect(load(server.kubeconfig)) as http:
        api = Client(http)
        account = {"name": "default", "namespace": "default"}
        await api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
        status = {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "10"}}
        await api.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": status})
        yield api


async def pod(api, name, cpu="500m", **spec):
    container = {"name": "c", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}
    meta, given = {"name": name, "namespace": "default"}, {"containers": [container], **spec}
    await api.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": given})


async def node_of(api, name):
    return (await api.get(PODS, name, "default"))["spec"].get("nodeName", "")


async def placed(api, name):
    return await eventually_async(lambda: node_of(api, name), SOON)


async def test_it_works_over_https_until_it_is_cancelled(server, api):
    task = asyncio.create_task(scheduler.run(scheduler.Options(kubeconfig=server.kubeconfig)))
    await pod(api, "web")
    assert await placed(api, "web") == "n1"
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_invalid_kubeconfig_is_reported(tmp_path):
    (tmp_path / "kubeconfig").write_text("clusters: 5")
    with pytest.raises(BadKubeconfig):
        await scheduler.run(scheduler.Options(kubeconfig=tmp_path / "kubeconfig"))


COMMAND = (str(Path(sys.executable).with_name("podwire")), "scheduler", "--kubeconfig")


async def run_scheduler(kubeconfig, *options):
    """The exit code and the words of a scheduler that ends by itself."""
    process = await asyncio.create_subprocess_exec(*COMMAND, str(kubeconfig), *options, stderr=asyncio.subprocess.PIPE)
    try:
        async with asyncio.timeout(SOON):
            _nothing, words = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode, words.decode()


async def test_an_unusable_kubeconfig_is_reported_in_one_line(tmp_path):
    code, words = await run_scheduler(tmp_path / "nowhere")
    assert code == 1
    assert words.startswith("podwire scheduler: ")
    assert words.count("\n") == 1


async def test_a_server_without_the_api_is_reported_in_one_line(tmp_path):
    async def answer(reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError):  # of several connections, some are not used
            await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\nConnection: close\r\n\r\nnot here\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as other:
        port = other.sockets[0].getsockname()[1]
        (tmp_path / "kubeconfig").write_text(write_kubeconfig(Access(server=f"http://127.0.0.1:{port}")))
        code, words = await run_scheduler(tmp_path / "kubeconfig")
    assert code == 1
    assert words == "podwire scheduler: cannot watch this API server: not here\n"


@contextlib.asynccontextmanager
async def program(server, failpoints=""):
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        str(server.kubeconfig),
        env={**os.environ, "PODWIRE_FAILPOINTS": failpoints},
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


@pytest.mark.parametrize(
    ("failpoint", "bound"),
    [
        pytest.param("scheduler.assumed", "", id="before the binding"),
        pytest.param("scheduler.bound", "n1", id="after the binding"),
    ],
)
async def test_a_scheduler_that_is_killed_leaves_nothing_to_repair(server, api, failpoint, bound):
    await pod(api, "web")
    async with program(server, f"{failpoint}=kill") as process, asyncio.timeout(SOON):
        assert await process.wait() == -signal.SIGKILL
    assert await node_of(api, "web") == bound
    async with program(server) as process:
        assert await placed(api, "web") == "n1"
        for name in ("second", "third"):
            await pod(api, name)
        # The killed one's pod is counted once: there is space for one more, and not for two.
        await eventually_async(lambda: one_of(api, "second", "third"), SOON)
    assert process.returncode == 0


async def test_a_scheduler_that_is_killed_after_a_nomination_evicts_the_victims_when_it_is_back(server, api):
    class_ = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 10}
    await api.create(class_)
    await pod(api, "low", cpu="1")
    async with program(server, "scheduler.nominated=kill") as process, asyncio.timeout(SOON):
        assert await placed(api, "low") == "n1"
        await pod(api, "web", cpu="1", priorityClassName="high")
        assert await process.wait() == -signal.SIGKILL
    assert (await api.get(PODS, "web", "default"))["status"]["nominatedNodeName"] == "n1"
    assert "deletionTimestamp" not in (await api.get(PODS, "low", "default"))["metadata"]

    async def leaves():
        return (await api.get(PODS, "low", "default"))["metadata"].get("deletionTimestamp")

    async with program(server):
        await eventually_async(leaves, SOON)
        await api.delete(PODS, "low", "default", grace_seconds=0)
        assert await placed(api, "web") == "n1"


async def one_of(api, *names):
    """Whether one pod is placed and the other was refused."""
    pods = [await api.get(PODS, name, "default") for name in names]
    messages = [condition.get("message", "") for pod in pods for condition in pod["status"].get("conditions", ())]
    refused = any("Insufficient cpu" in message for message in messages)
    return refused and sum("nodeName" in pod["spec"] for pod in pods) == 1


async def test_a_binding_that_fails_inside_is_made_up_for(server, api):
    await pod(api, "web")
    async with program(server, "scheduler.assumed=1*error(disk on fire)->off"):
        assert await placed(api, "web") == "n1"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        pytest.param(None, "No such file or directory", id="no file"),
        pytest.param(
            "apiVersion: v1\nkind: Pod",
            "apiVersion: 'v1' must be one of kubescheduler.config.k8s.io/v1",
            id="another kind",
        ),
        pytest.param("#" * (1024 * 1024 + 1), "has more than 1048576 bytes", id="too large"),
        pytest.param("a: [", "is not YAML", id="no YAML"),
    ],
)
async def test_a_bad_configuration_is_reported_in_one_line(server, tmp_path, text, error):
    config = tmp_path / "scheduler.yaml"
    if text is not None:
        config.write_text(text)
    code, words = await run_scheduler(server.kubeconfig, "--config", str(config))
    assert code == 1
    assert words.startswith(f"podwire scheduler: {config}: ")
    assert error in words
    assert words.count("\n") == 1
