"""A whole kubelet between a real API server and a runtime in memory that fails as a test says."""

import asyncio
import contextlib
import tempfile
from pathlib import Path

import pytest

from podwire.apiserver import Pki, Settings, assemble
from podwire.cluster.kubelet_plugins import PluginSockets
from podwire.cluster.loopback import LoopbackHttp
from podwire.kubelet import Dependencies
from podwire.linux.fs.mounts import KernelMounts
from podwire.linux.machine import KernelMachine
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.server_side import Certificate
from podwire.protocols.k8sapi.status import ApiError
from podwire.store.memory import MemoryStore
from podwire.transports.clock import SystemClock
from podwire.transports.probe_sockets import ProbeSockets
from tests.kubelet.support import Line, Runtime, World, ended


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    return Pki.open(tmp_path_factory.mktemp("pki"), names=[], ips=[])


async def forever():
    await asyncio.Event().wait()
    yield


@pytest.fixture
def root():
    """Short: a socket's path has 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="pw-", dir="/tmp") as directory:
        yield Path(directory)


@pytest.fixture
async def api_server(pki):
    assembled = assemble(MemoryStore(), pki, SystemClock(), Settings())
    await assembled.start()
    http = LoopbackHttp(assembled.server.handle, Certificate("admin", ("system:masters",)))
    api = Client(http)
    for object_ in ({"kind": "Namespace", "metadata": {"name": "kube-node-lease"}},
                    {"kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "default"}}):  # fmt: skip
        with contextlib.suppress(ApiError):
            await api.create({"apiVersion": "v1", **object_})
    task = asyncio.create_task(assembled.run())
    yield http
    await ended(task)


@pytest.fixture
async def world(api_server, root, tmp_path):
    line, runtime = Line(api_server), Runtime()
    outside = Dependencies(
        api=line, cri=runtime, clock=SystemClock(), mounts=KernelMounts(), machine=KernelMachine(),
        sockets=ProbeSockets(), network_files=forever, pod_started=lambda *_: None, plugins=PluginSockets(),
    )  # fmt: skip
    made = World(Client(api_server), line, runtime, outside, root, tmp_path / "logs")
    made.start()
    yield made
    await made.stop()
