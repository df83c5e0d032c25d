"""A kubelet's volumes on the real kernel, beside a real API server on a store in memory.

Tests that ask for `node` run in a thread with a mount namespace of its own, event loop and worker threads and all; what
they mount ends with it.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from podwire.apiserver import Pki, Settings, assemble
from podwire.cluster.loopback import LoopbackHttp
from podwire.kubelet.config.fields import NodeFacts
from podwire.kubelet.referenced_objects import ReferencedObjects
from podwire.kubelet.volumes import VolumeManager
from podwire.linux import syscalls
from podwire.linux.fs.mounts import KernelMounts, mounted
from podwire.linux.proc.namespaces import in_thread
from podwire.objects import nodes, pods
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.server_side import Certificate
from podwire.store.memory import MemoryStore
from podwire.transports.clock import SystemClock

MS_REC_PRIVATE = 16384 | 1 << 18
ADMIN = Certificate("kubernetes-admin", ("system:masters",))
SOON = 30.0


class MovableClock(SystemClock):
    """Runs by itself, and can be set ahead."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


class CountingClient(Client):
    """Counts the requested tokens, and refuses more on demand."""

    tokens = 0
    refusing: Exception | None = None

    def __init__(self, *rest: Any) -> None:
        super().__init__(*rest)
        self.asked = asyncio.Event()

    async def token(self, name: str, namespace: str, spec: Any) -> Any:
        self.tokens += 1
        self.asked.set()
        if self.refusing is not None:
            raise self.refusing
        return await super().token(name, namespace, spec)


class Node:
    """The API, the kubelet's part and the files that tests need."""

    def __init__(self, api: CountingClient, root: Path) -> None:
        self.api = api
        self.root = root
        self.clock = MovableClock()
        self.reported: asyncio.Queue[frozenset[str]] = asyncio.Queue()
        self.facts = NodeFacts(name="node-1", ips=("10.0.0.1",), allocatable={"cpu": "4", "memory": "8Gi"})
        self.kernel = KernelMounts()
        self.recursive = False
        self.references = ReferencedObjects(api, self.reported.put_nowait)
        self.node: nodes.Node | None = None
        self.volumes = self.another()

    def another(self) -> VolumeManager:
        """A kubelet that starts again."""
        return VolumeManager(
            self.root,
            self.references,
            self.api,
            self.kernel,
            self.clock,
            node=lambda: self.facts,
            node_object=lambda: self.node,
            recursive_read_only=lambda: self.recursive,
        )

    async def make(self, kind: str, name: str, **rest: Any) -> Any:
        meta = {"name": name, "namespace": "default"}
        return await self.api.create({"apiVersion": "v1", "kind": kind, "metadata": meta, **rest})

    async def patch(self, kind: str, name: str, patch: Any) -> Any:
        return await self.api.patch(BUILTIN.of_kind("v1", kind), name, patch, "default")

    async def pod(self, name: str = "web", *, mounts: Any = (), meta: Any = None, **spec: Any) -> pods.Pod:
        """One that the API server has, with all that it adds, and that is held."""
        meta = {"name": name, "namespace": "default", **(meta or {})}
        containers = [{"name": "c", "image": "busybox:1.36", "volumeMounts": list(mounts)}]
        given = {"containers": containers, "nodeName": "node-1", "automountServiceAccountToken": False, **spec}
        object_ = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": given}
        read = pods.read(await self.api.create(object_))
        self.references.hold(read)
        return read

    async def changed(self) -> frozenset[str]:
        async with asyncio.timeout(SOON):
            return await self.reported.get()

    def volume(self, pod: pods.Pod, name: str, kind: str) -> Path:
        if kind in ("secret", "projected"):
            return self.root / "secrets" / pod.uid / name
        return self.root / "pods" / pod.uid / "volumes" / f"kubernetes.io~{kind}" / name

    async def mounts(self, pod: pods.Pod, env: Any = None) -> Any:
        return await self.volumes.mounts(pod, pod.spec.containers[0], env or {})

    def below(self) -> list[str]:
        return [item.target for item in self.kernel.list() if item.target.startswith(f"{self.root}/")]


@pytest.fixture(scope="session")
def pki(tmp_path_factory):
    return Pki.open(tmp_path_factory.mktemp("pki"), names=[], ips=[])


@pytest.fixture
def node(pki, tmp_path) -> Callable[[], Any]:
    """Enters `async with node() as n`."""

    @contextlib.asynccontextmanager
    async def enter(*, root: Path = tmp_path / "kubelet") -> AsyncIterator[Node]:
        assembled = assemble(MemoryStore(), pki, SystemClock(), Settings())
        await assembled.start()
        client = CountingClient(LoopbackHttp(assembled.server.handle, ADMIN))
        made = Node(client, root)
        tasks = [asyncio.create_task(item) for item in (assembled.run(), made.references.run(), made.volumes.run())]
        await made.make("ServiceAccount", "default")
        try:
            yield made
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(item, asyncio.CancelledError) for item in ended), ended

    return enter


def _alone(work: Callable[[], None]) -> None:
    def run() -> None:
        syscalls.unshare(syscalls.NEWNS)
        syscalls.mount(None, "/", None, MS_REC_PRIVATE, None)
        work()

    in_thread(run)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if "node" not in pyfuncitem.fixturenames:
        return None
    arguments = {argname: pyfuncitem.funcargs[argname] for argname in pyfuncitem._fixtureinfo.argnames}
    enter = arguments["node"]

    async def story() -> None:
        async with asyncio.timeout(SOON * 3), enter() as entered:
            await _plain(pyfuncitem)(**{**arguments, "node": entered})

    _alone(lambda: asyncio.run(story()))
    return True


def _plain(item: pytest.Function) -> Callable[..., Any]:
    """The test as it was written, before a plugin makes it run in the main thread's loop."""
    return item.obj if asyncio.iscoroutinefunction(item.obj) else item.function.__wrapped__


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path):
    yield
    assert [item.target for item in mounted() if item.target.startswith(str(tmp_path))] == []
