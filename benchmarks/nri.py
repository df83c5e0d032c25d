"""Cost of a hook of NRI: our host and our plugins, each plugin a process of its own, over a real socket.

Beside it the same request as a plain gRPC call over a unix socket, asked in turns with the hook.

A plugin that was asked a moment ago answers faster than one whose process has to be brought back first, and of ten that
are asked one after the other each has to. So ten plugins of one host are held against ten hosts with one plugin each.
"""

import asyncio
import contextlib
import logging
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import grpc
import uvloop

from benchmarks.figures import MEASURED, Figure, Peer
from benchmarks.machine import CannotMeasure
from podwire.nri import Plugin, pb, run
from podwire.nri.adaptation import Adaptation, Settings
from podwire.protocols.nri import methods

HOOK = "NRI, RunPodSandbox through the mux and ttrpc"
NODE = "NRI, a plugin comes to a node with {pods} pods and {containers} containers"
MANY = 10
PODS, CONTAINERS = 1_000, 2_000
BURST = 20
"""Calls of one side before it is the other's turn."""
DEADLINE = 60.0
ROUND_TRIP = Peer("budget", 0.4, 1.0, MEASURED)
SYNCHRONIZE = Peer("budget", 200.0, 1.0, MEASURED)

_spawn = multiprocessing.get_context("spawn")


def measure(seconds: float) -> Iterator[Figure]:
    logging.getLogger("podwire.nri").setLevel(logging.ERROR)  # that plugins go is what is measured here
    with tempfile.TemporaryDirectory(prefix="podwire-bench-") as folder:
        times = _driven(_hooks(Path(folder), 2 * seconds))
        known, size = _driven(_synchronized(Path(folder, "nri.sock"), seconds))
    yield _hook("one plugin", times.one, ROUND_TRIP)
    yield _hook(
        "one plugin, beside a gRPC call", times.one, Peer("gRPC", statistics.median(times.grpc), None, MEASURED)
    )
    apart = Peer("apart", statistics.median(times.apart), 1.0, MEASURED)
    yield _hook(f"{MANY} plugins, beside {MANY} hosts with one each", times.many, apart)
    group = NODE.format(pods=f"{PODS:,}".replace(",", " "), containers=f"{CONTAINERS:,}".replace(",", " "))
    what = f"connected → synchronized, {size / 1e6:.1f} MB"
    yield Figure(group=group, what=what, value=statistics.median(known), unit=" ms", peer=SYNCHRONIZE)


def _hook(what: str, times: Sequence[float], peer: Peer) -> Figure:
    p50, p99 = statistics.median(times), statistics.quantiles(times, n=100)[98]
    return Figure(group=HOOK, what=what, value=p50, unit=" ms", p50_ms=p50, p99_ms=p99, peer=peer)


def _driven(work: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


class Nobody:
    """A node whose containers are not adjusted."""

    async def update_containers(self, updates: Sequence[pb.ContainerUpdate]) -> list[pb.ContainerUpdate]:
        return list(updates)


def _host(socket: Path) -> Adaptation:
    return Adaptation(Settings(socket=socket), Nobody(), runtime_name="benchmark", runtime_version="v1.0.0")


@contextlib.asynccontextmanager
async def _hosts(place: Path) -> AsyncIterator[tuple[list[Adaptation], Adaptation]]:
    """Hosts with one plugin each, and a host with all of them: each plugin's process sits at two tables."""
    sockets = [place / f"{number:02}.sock" for number in range(MANY)]
    apart, together = [_host(socket) for socket in sockets], _host(place / "together.sock")
    async with contextlib.AsyncExitStack() as stack:
        for host in (*apart, together):
            await stack.enter_async_context(host.running())
        for number, socket in enumerate(sockets):
            stack.enter_context(_process(_plugin, (socket, place / "together.sock"), f"{number:02}"))
        async with asyncio.timeout(DEADLINE):
            for number, host in enumerate(apart):
                await host.wait_for(f"{number:02}-bench")
                await together.wait_for(f"{number:02}-bench")
        yield apart, together


@contextlib.asynccontextmanager
async def _grpc(socket: Path) -> AsyncIterator[Callable[[pb.RunPodSandboxRequest], Awaitable[Any]]]:
    method = methods.RUN_POD_SANDBOX
    with _process(_served, socket):
        async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
            await asyncio.wait_for(channel.channel_ready(), DEADLINE)
            yield channel.unary_unary(method.path, method.request.SerializeToString, method.response.FromString)


@dataclass(frozen=True, slots=True)
class Times:
    """Milliseconds of each call: a host with one plugin, many such in a row, one with many plugins, and gRPC."""

    one: list[float] = field(default_factory=list)
    apart: list[float] = field(default_factory=list)
    many: list[float] = field(default_factory=list)
    grpc: list[float] = field(default_factory=list)


async def _hooks(place: Path, seconds: float) -> Times:
    pod, times = _pod(0), Times()
    request = pb.RunPodSandboxRequest(pod=pod)
    async with _hosts(place) as (apart, together), _grpc(place / "grpc.sock") as ask:

        async def call_all() -> None:
            for host in apart:
                await host.run_pod_sandbox(pod)

        until = time.monotonic() + seconds
        while time.monotonic() < until:
            await _burst(lambda: apart[0].run_pod_sandbox(pod), times.one)
            await _burst(call_all, times.apart)
            await _burst(lambda: together.run_pod_sandbox(pod), times.many)
            await _burst(lambda: ask(request), times.grpc)
    return times


async def _burst(call: Callable[[], Awaitable[Any]], times: list[float]) -> None:
    await call()  # after the other's turn the processor's caches are the other's
    for _ in range(BURST):
        begun = time.perf_counter()
        await call()
        times.append((time.perf_counter() - begun) * 1e3)


async def _synchronized(socket: Path, seconds: float) -> tuple[list[float], int]:
    """Returns the milliseconds of each arrival, as the plugin measured them, and the size of the message."""
    near, far = _spawn.Pipe(duplex=False)
    host = _host(socket)
    host.know(map(_pod, range(PODS)), map(_container, range(CONTAINERS)))
    async with host.running():
        with _process(_arriving, socket, seconds, far):
            far.close()  # so that the pipe ends with the plugin
            received = asyncio.get_running_loop().run_in_executor(None, near.recv)
            times = await asyncio.wait_for(received, seconds + DEADLINE)
    request = pb.SynchronizeRequest(pods=map(_pod, range(PODS)), containers=map(_container, range(CONTAINERS)))
    return times, request.ByteSize()


@contextlib.contextmanager
def _process(work: Callable[..., None], *given: Any) -> Iterator[None]:
    process = _spawn.Process(target=work, args=given, daemon=True)
    process.start()
    try:
        yield
        if not process.is_alive() and process.exitcode:
            raise CannotMeasure(f"{work.__name__} ended with {process.exitcode}")
    finally:
        process.terminate()
        process.join()


# What runs in the other processes.


class Trivial(Plugin):
    """Wants one hook, and does nothing in it."""

    name = "bench"

    async def run_pod_sandbox(self, pod: pb.PodSandbox) -> None:
        pass


def _plugin(sockets: Sequence[Path], index: str) -> None:
    async def everywhere() -> None:
        await asyncio.gather(*(run(Trivial(), socket=socket, index=index) for socket in sockets))

    _driven(everywhere())


def _arriving(socket: Path, seconds: float, pipe: Connection) -> None:
    pipe.send(_driven(_arrivals(socket, seconds)))


async def _arrivals(socket: Path, seconds: float) -> list[float]:
    times: list[float] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until or not times:
        plugin = Trivial()
        begun = time.perf_counter()
        life = asyncio.create_task(run(plugin, socket=socket, index="00"))
        await plugin.ready.wait()
        times.append((time.perf_counter() - begun) * 1e3)
        life.cancel()
        await asyncio.wait([life])
    return times


def _served(socket: Path) -> None:
    _driven(_serving(socket))


async def _serving(socket: Path) -> None:
    async def answer(_request: pb.RunPodSandboxRequest, _context: Any) -> pb.RunPodSandboxResponse:
        return pb.RunPodSandboxResponse()

    method = methods.RUN_POD_SANDBOX
    handler = grpc.unary_unary_rpc_method_handler(
        answer, request_deserializer=method.request.FromString, response_serializer=method.response.SerializeToString
    )
    server = grpc.aio.server()
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(method.service, {method.name: handler})])
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    await server.wait_for_termination()


# A node as large as those of real clusters: what containerd tells of a pod and of a container is about as long.


def _pod(number: int) -> pb.PodSandbox:
    name = f"web-{number}"
    pod = pb.PodSandbox(id=f"{number:064x}", name=name, uid=f"{number:036x}", namespace="default", pid=1000 + number)
    pod.labels.update({"app": "web", "pod-template-hash": f"{number:010x}", "io.cri-containerd.kind": "sandbox"})
    pod.annotations.update(
        {f"io.kubernetes.cri.sandbox-{field}": f"{name}-{field}" * 2 for field in ("id", "name", "uid")}
    )
    pod.ips.append(f"10.1.{number // 256}.{number % 256}")
    pod.linux.cgroups_path = f"/kubepods/burstable/pod{number:036x}/{number:064x}"
    for kind in ("pid", "ipc", "uts", "mount", "network"):
        pod.linux.namespaces.add(type=kind, path=f"/var/run/netns/cni-{number:036x}" if kind == "network" else "")
    return pod


def _container(number: int) -> pb.Container:
    container = pb.Container(id=f"c{number:063x}", pod_sandbox_id=f"{number // 2:064x}", name=f"app-{number % 2}")
    container.state = pb.CONTAINER_RUNNING
    container.labels.update({f"io.kubernetes.label-{number}": "x" * 20 for number in range(6)})
    container.annotations.update({f"io.kubernetes.cri.note-{number}": "x" * 40 for number in range(6)})
    container.env.extend(f"SERVICE_{number}_PORT=tcp://10.96.0.{number}:443" for number in range(12))
    for mount in range(20):
        container.mounts.add(
            destination=f"/dev/{mount}", type="bind", source=f"/var/lib/{mount}", options=["rbind", "ro"]
        )
    container.linux.resources.cpu.shares.value = 1024
    container.linux.resources.memory.limit.value = 512 << 20
    return container
