"""A runtime that knows one container, and a book of pods that a test fills."""

import asyncio
from dataclasses import dataclass, field

import pytest

from podwire.kubelet.pods.observed import ObservedContainer, ObservedPod, Sandbox
from podwire.objects import pods
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import NotFound


@dataclass
class Runtime:
    """Answers ContainerStatus, Exec, Attach and PortForward; knows what it was asked."""

    state: int = pb.CONTAINER_RUNNING
    removed: bool = False
    asked: list = field(default_factory=list)
    looked: asyncio.Event = field(default_factory=asyncio.Event)
    url: str = "http://127.0.0.1:1/exec/token"
    refuses: Exception | None = None
    name: str = "podwire"

    async def call(self, method, request, *, timeout):  # noqa: ASYNC109 - the port's own word
        assert timeout
        if method.name.endswith("Version"):
            return pb.VersionResponse(runtime_name=self.name)
        self.asked.append(request)
        if self.refuses:
            raise self.refuses
        if method.name.endswith("ContainerStatus"):
            self.looked.set()
            if self.removed:
                raise NotFound("container c1")
            return pb.ContainerStatusResponse(status=pb.ContainerStatus(id="c1", state=self.state))
        if method.name.endswith("ListPodSandboxStats"):
            stats = pb.PodSandboxStats()
            stats.attributes.metadata.name = "web"
            return pb.ListPodSandboxStatsResponse(stats=[stats])
        return method.response(url=self.url)

    def stream(self, method, request, *, timeout=None):
        raise NotImplementedError


@dataclass
class Book:
    pods: dict = field(default_factory=dict)

    def put(self, object_, *containers):
        pod = pods.read(object_)
        sandboxes = (Sandbox(id="sandbox-1", ready=True),) if containers else ()
        self.pods[pod.namespace, pod.name] = (pod, ObservedPod(sandboxes=sandboxes, containers=containers), object_)

    def find(self, namespace, name):
        found = self.pods.get((namespace, name))
        return found[:2] if found else None

    def all(self):
        return [(pod, object_) for pod, _, object_ in self.pods.values()]


@pytest.fixture
def runtime():
    return Runtime()


@pytest.fixture
def book():
    return Book()


@pytest.fixture
def pod():
    """`pod(init=["first"], statuses=[…])` is an object."""

    def make(name="web", containers=("main",), init=(), statuses=()):
        return {
            "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
            "spec": {
                "containers": [{"name": container} for container in containers],
                "initContainers": [{"name": item} for item in init],
            },
            "status": {"containerStatuses": list(statuses)},
        }

    return make


@pytest.fixture
def seen():
    """`seen(state, log=…)` is a run of a container."""

    def make(state=pb.CONTAINER_RUNNING, name="main", attempt=0, log=""):
        return ObservedContainer(
            id=f"{name}-{attempt}", name=name, sandbox="s1", state=state, attempt=attempt, log_path=str(log)
        )

    return make
