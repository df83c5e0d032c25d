"""Measures devices: a device plugin in its own process, the device manager of the kubelet, a Node in an API server.

A pod's devices are what its start waits for: they are chosen, written down durably, and allocated by the plugin.
"""

import asyncio
import contextlib
import itertools
import logging
import multiprocessing
import queue
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import grpc
import uvloop

from benchmarks.figures import MEASURED, Figure, Peer
from podwire.cluster import device_plugin
from podwire.cluster.apiserver import Options, running
from podwire.cluster.kubelet_plugins import PluginSockets
from podwire.deviceplugin.config import config
from podwire.kubelet.devices import DeviceManager, DeviceSettings
from podwire.kubelet.node import NodeAgent, NodeSettings
from podwire.kubelet.node.agent import NODES
from podwire.kubelet.pods.wakeups import Wakeups
from podwire.linux import syscalls
from podwire.linux.machine import KernelMachine
from podwire.linux.net.network import KernelNetwork
from podwire.linux.values import Veth
from podwire.objects import pods
from podwire.objects.pods import Pod
from podwire.protocols.deviceplugin import deviceplugin_pb2 as pb
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.client_side.recorder import Recorder
from podwire.protocols.k8sapi.watch import Added, Updated
from podwire.transports import credentials, http_client
from podwire.transports.clock import SystemClock

NIC, NODE = "bench.podwire.dev/nic", "bench"
OWN = "net.podwire.dev/nics"
FEW, LINKS, MANY = 8, 500, 10_000
DEADLINE = 60.0
SEEN = "Devices, until the Node has them"
GIVEN = "Devices of a pod: chosen, written down, allocated"

_spawn = multiprocessing.get_context("spawn")


def measure(seconds: float) -> Iterator[Figure]:
    logging.getLogger("podwire").setLevel(logging.ERROR)
    temporary = tempfile.TemporaryDirectory(prefix="pwb-", dir="/tmp")  # a socket's path must be short
    with temporary as folder, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        times = runner.run(_measured(Path(folder), seconds))
    yield _figure(SEEN, f"Register → the Node names {FEW}", times["register"], 100.0)
    yield _figure(SEEN, f"one of {MANY:,} falls ill → the Node".replace(",", " "), times["update"], 200.0)
    yield _figure(GIVEN, f"2 of {FEW}", times["few"], 3.0)
    yield _figure(GIVEN, f"2 of {MANY:,}".replace(",", " "), times["many"], 3.0)
    yield _figure(GIVEN, f"1 of {LINKS} links, by podwire device-plugin", times["links"], 3.0)


def _figure(group: str, what: str, times: Sequence[float], budget: float) -> Figure:
    p50, p99 = statistics.median(times), statistics.quantiles(times, n=100)[98] if len(times) > 1 else times[0]
    peer = Peer("budget", budget, 1.0, MEASURED)
    return Figure(group=group, what=what, value=p50, unit=" ms", p50_ms=p50, p99_ms=p99, peer=peer)


class Bench:
    """A node with a device manager, and the plugin's process at the other end of a pipe."""

    def __init__(self, client: Client, manager: DeviceManager, pipe: Connection) -> None:
        self.manager = manager
        self._client = client
        self._pipe = pipe

    async def order(self, *words: Any) -> float:
        """Have the plugin do something; when it began, by the clock that all processes share."""
        self._pipe.send(words)
        return float(await asyncio.wait_for(asyncio.to_thread(self._pipe.recv), DEADLINE))

    async def until(self, *amounts: str | None, resource: str = NIC) -> float:
        """When the Node had this capacity and so much for pods."""
        async with asyncio.timeout(DEADLINE), self._client.informer(NODES) as informer:
            async for change in informer:
                match change:
                    case Added(object_) | Updated(object_):
                        status = object_["status"]
                        if tuple(status[field].get(resource) for field in ("capacity", "allocatable")) == amounts:
                            return time.monotonic()
        raise AssertionError("an informer never ends")

    async def took(self, words: Sequence[Any], amounts: Sequence[str]) -> float:
        seen = asyncio.ensure_future(self.until(*amounts))
        await asyncio.sleep(0.2)  # the informer listens, and earlier events are over
        begun = await self.order(*words)
        return (await seen - begun) * 1e3


async def _measured(folder: Path, seconds: float) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {"register": [], "update": []}
    async with _bench(folder) as bench:
        for _ in range(max(3, int(seconds))):
            times["register"].append(await bench.took(("register", FEW), (str(FEW),) * 2))
            gone = asyncio.ensure_future(bench.until(str(FEW), "0"))
            await bench.order("die")
            await gone
        await bench.took(("register", FEW), (str(FEW),) * 2)
        times["few"] = await _given(bench.manager, seconds, {NIC: "2"})
        await bench.took(("list", MANY, 0), ("10k", "10k"))
        for number in range(1, max(3, int(seconds))):
            times["update"].append(await bench.took(("list", MANY, number), ("10k", str(MANY - number))))
        times["many"] = await _given(bench.manager, seconds, {NIC: "2"})
        with _own_plugin(folder):
            await bench.until(str(LINKS), str(LINKS), resource=OWN)
            times["links"] = await _given(bench.manager, seconds, {OWN: "1"})
    return times


async def _given(manager: DeviceManager, seconds: float, asked: dict[str, str]) -> list[float]:
    """One pod after the other comes and goes; what its coming cost."""
    times = []
    until = time.monotonic() + seconds
    for number in itertools.count():
        pod = _pod(number, asked)
        begun = time.perf_counter()
        await manager.take(pod)
        await manager.allocate(pod, pod.spec.containers[0], "sandbox")
        times.append((time.perf_counter() - begun) * 1e3)
        await manager.release(pod.uid)
        if time.monotonic() > until:
            break
    return times


def _pod(number: int, asked: dict[str, str]) -> Pod:
    container = {"name": "c", "resources": {"limits": asked}}
    meta = {"name": f"pod-{number}", "namespace": "default", "uid": f"uid-{number}"}
    return pods.read({"metadata": meta, "spec": {"containers": [container]}})


@contextlib.asynccontextmanager
async def _bench(folder: Path) -> AsyncIterator[Bench]:
    options = Options(data_dir=folder / "api", port=0, store_url="memory://", controllers=frozenset())
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(running(options))
        access = credentials.load(server.kubeconfig)
        client = Client(await stack.enter_async_context(http_client.connect(access, user_agent="podwire-kubelet")))
        agent = NodeAgent(
            client,
            SystemClock(),
            KernelMachine(),
            NodeSettings(name=NODE),
            Recorder(client, SystemClock(), component="kubelet"),
        )
        agent.set_runtime(True)
        manager = DeviceManager(PluginSockets(), folder / "kubelet", DeviceSettings(), Wakeups(), agent.set_devices)
        manager.load()
        manager.ready()
        for work in (agent.run(), manager.run()):
            task = asyncio.create_task(work)
            stack.push_async_callback(_ended, task)
        await agent.registered.wait()
        near, far = _spawn.Pipe()
        process = _spawn.Process(target=_plugin, args=(folder / "kubelet/device-plugins", far), daemon=True)
        process.start()
        stack.callback(process.join)
        stack.callback(process.terminate)
        yield Bench(client, manager, near)


@contextlib.contextmanager
def _own_plugin(folder: Path) -> Iterator[None]:
    process = _spawn.Process(target=_links_plugin, args=(folder,), daemon=True)
    process.start()
    try:
        yield
    finally:
        process.terminate()
        process.join()


async def _ended(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.wait((task,))


# What runs in the plugin's process.


class _Devices:
    """One server per run: a watcher of the previous run may not have read all its events."""

    def __init__(self) -> None:
        self.devices: list[pb.Device] = []
        self.changes: queue.Queue[bool] = queue.Queue()

    def list(self, count: int, ill: int) -> None:
        self.devices = [
            pb.Device(ID=f"d{number}", health="Unhealthy" if number >= count - ill else "Healthy")
            for number in range(count)
        ]

    def watch(self, _request: bytes, _context: Any) -> Iterator[bytes]:
        more = True
        while more:
            yield pb.ListAndWatchResponse(devices=self.devices).SerializeToString()
            more = self.changes.get()


def _served(devices: _Devices, socket: Path) -> grpc.Server:
    nothing = pb.AllocateResponse(container_responses=[pb.ContainerAllocateResponse(envs={"A": "1"})])
    answers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(lambda _request, _context: b""),
        "ListAndWatch": grpc.unary_stream_rpc_method_handler(devices.watch),
        "Allocate": grpc.unary_unary_rpc_method_handler(lambda _request, _context: nothing.SerializeToString()),
    }
    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", answers),))
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    return server


def _plugin(directory: Path, orders: Connection) -> None:
    """Executes commands; answers with the time at which it began."""
    devices, server = _Devices(), None
    while True:
        what, *how = orders.recv()
        begun = time.monotonic()
        if what == "register":
            devices = _Devices()
            devices.list(how[0], 0)
            server = _served(devices, directory / "nic.sock")
            request = pb.RegisterRequest(version="v1beta1", endpoint="nic.sock", resource_name=NIC)
            begun = time.monotonic()
            with grpc.insecure_channel(f"unix:{directory / 'kubelet.sock'}") as channel:
                register = channel.unary_unary(
                    "/v1beta1.Registration/Register", pb.RegisterRequest.SerializeToString, pb.Empty.FromString
                )
                register(request, timeout=DEADLINE, wait_for_ready=True)
        elif what == "list":
            devices.list(*how)
            begun = time.monotonic()
            devices.changes.put(True)
        elif server is not None:
            devices.changes.put(False)
            server.stop(0).wait()
        orders.send(begun)


def _links_plugin(folder: Path) -> None:
    """Ours, in a network of its own that has many links."""
    logging.getLogger("podwire").setLevel(logging.ERROR)
    syscalls.unshare(syscalls.NEWNET)
    with KernelNetwork() as network:
        for number in range(LINKS // 2):
            network.links.add(Veth(f"nic{number}a", f"nic{number}b", up=True))
            network.links.change(f"nic{number}b", up=True)
    options = device_plugin.Options(
        config=config({"pools": [{"name": "nics", "interfaces": {"names": ["nic*"]}}]}),
        state=folder / "plugin",
        device_plugins=folder / "kubelet/device-plugins",
        pod_resources=folder / "kubelet/pod-resources/kubelet.sock",
        cdi=folder / "cdi",
        sysfs=Path("/sys"),
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(device_plugin.run(options))
