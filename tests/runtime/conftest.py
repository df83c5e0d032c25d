"""Doubles of what sandboxes need: a kernel and a network that fail on demand, and that know what they hold."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import Unknown
from podwire.runtime.cri.events import Events
from podwire.runtime.records import SandboxRecord, open_records
from podwire.runtime.sandboxes.lifecycle import Sandboxes


class Clock:
    now = 1000.0

    def wall(self):
        self.now += 1
        return self.now

    def monotonic(self):
        return self.now


@dataclass
class Kernel:
    """Holds ids instead of namespaces."""

    held: set = field(default_factory=set)
    stuck: bool = False
    refuses: Exception | None = None

    def network(self, id_):
        return f"/ns/net/{id_}"

    def ipc(self, id_):
        return f"/ns/ipc/{id_}"

    def user(self, id_):
        return f"/user/{id_}"

    def shm(self, id_):
        return Path("/shm") / id_

    def pinned(self):
        return set(self.held)

    def is_pinned(self, network):
        return network.rpartition("/")[2] in self.held

    def make(self, id_, config, *, network, ipc, ids=None):
        self.held.add(id_)
        if self.refuses:
            raise self.refuses

    def remove(self, id_):
        if self.stuck:
            return ["network namespace: busy"]
        self.held.discard(id_)
        return []


@dataclass
class Network:
    """Hands out one address after the other."""

    held: dict = field(default_factory=dict)
    attach_fails: bool = False
    detach_fails: bool = False
    gate: asyncio.Event | None = None
    adds: int = 0

    async def attach(self, pod):
        self.adds += 1
        self.held[pod.id] = pod
        if self.gate:
            await self.gate.wait()
        if self.attach_fails:
            raise Unknown("CNI plugin x failed ADD: no")
        return (f"10.0.0.{self.adds}",)

    async def detach(self, pod):
        if self.detach_fails:
            raise Unknown("CNI plugin x failed DEL: no")
        self.held.pop(pod.id, None)

    async def adopt(self, pods):
        return []

    async def attached(self):
        return set(self.held)

    def not_ready_reason(self):
        return ""

    def invalid_configurations(self):
        return ""

    def check_report(self, id_):
        return ""


class NoHooks:
    """Nobody else is asked."""

    async def run_pod(self, sandbox): ...

    async def update_pod(self, sandbox, overhead, resources): ...

    async def updated_pod(self, sandbox): ...

    async def stop_pod(self, sandbox):
        return False

    async def remove_pod(self, sandbox): ...


class Node:
    """Sandboxes on doubles; `restarted` is what a new process would see."""

    def __init__(self, directory, kernel=None, network=None, boot="boot-1"):
        self.directory = directory
        self.kernel = kernel or Kernel()
        self.network = network or Network()
        self.records = open_records(directory, SandboxRecord)
        self.sandboxes = Sandboxes(self.records, self.kernel, self.network, NoHooks(), Events(Clock()), Clock(), boot)

    async def restarted(self, boot="boot-1"):
        node = Node(self.directory, self.kernel, self.network, boot)
        await node.sandboxes.recover()
        await node.sandboxes.finish()
        return node

    async def stop(self, sandbox):
        await self.sandboxes.stop(sandbox, _nothing)

    @property
    def stored(self):
        return {id_: record.state for id_, record in self.records.load().items()}

    @property
    def clean(self):
        return not self.kernel.held and not self.network.held and not self.stored


async def _nothing():
    pass


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path / "sandboxes")


@pytest.fixture
def asked():
    """A request for a pod: `asked("web", attempt=1)`."""

    def make(name="web", **metadata):
        metadata = pb.PodSandboxMetadata(name=name, namespace="default", uid=f"uid-{name}", **metadata)
        return pb.RunPodSandboxRequest(config=pb.PodSandboxConfig(metadata=metadata, hostname=name))

    return make


@pytest.fixture
def clock():
    return Clock()
