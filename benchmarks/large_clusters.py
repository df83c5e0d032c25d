"""Clusters of 100, 1,000 and 5,000 nodes: scheduling, requests, watches, memory, hollow nodes, and how each grows.

Wall-clock times depend on what else the machine does; `cpu` is the processor time of the component for one unit of
work.
"""

import asyncio
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from benchmarks import large_objects
from benchmarks.figures import MEASURED, Figure, Peer
from benchmarks.machine import DISK, CannotMeasure, cpu_seconds, on_core
from benchmarks.server import PODWIRE, ROOT, TOKEN, Server
from benchmarks.store import etcd_server
from benchmarks.workload import NAMESPACE, PODS, STATUS_PATCH, STRATEGIC
from podwire.linux.proc.processes import memory_of

SIZES = (100, 1000, 5000)
PODS_OF_A_NODE = 10
WATCHES_OF_A_NODE = 2
"""10,000 watches with 5,000 nodes."""
LISTS_AFTER_RESTART = 8
KINDS = {"plain": 300.0, "affinity": 0.0, "claims": 100.0}
"""Pods to schedule, and the goal for each: pods per second with the largest cluster; 0 for none."""
DEADLINE = 600.0
ALONE = ("--leader-elect", "false")
"""A scheduler that is stopped while pods are created would lose its lease."""
CONSTANT, LINEAR = "constant", "linear"
MEMORY = "API server, memory"


@dataclass(frozen=True, slots=True)
class Measured:
    """A figure that is compared between clusters."""

    figure: Figure
    growth: str = ""
    """How it should grow at most with the nodes: constant, linear, or empty where it is not compared."""
    compared: float | None = None
    """The value that is compared; by default that of the figure."""


def measure(seconds: float) -> Iterator[Figure]:
    grown: dict[tuple[str, str, str], list[float]] = {}
    for size in SIZES:
        for measured in _cluster(size, seconds):
            yield measured.figure
            if measured.growth:
                key = (measured.figure.what, measured.growth, "" if measured.compared else measured.figure.unit)
                value = measured.figure.value if measured.compared is None else measured.compared
                grown.setdefault(key, []).append(value)
    yield from growth(grown, SIZES)
    used, pods = grown[MEMORY, LINEAR, " MB"], [_pods(size, seconds) for size in SIZES]
    yield Figure(group=f"Memory of the API server, from {pods[0]:,} to {pods[-1]:,} pods",
                 what=f"for 1,000 more pods with their {1000 * SIZES[-1] // pods[-1]} nodes and slices",
                 value=(used[-1] - used[0]) / (pods[-1] - pods[0]) * 1000, unit=" MB")  # fmt: skip
    yield from _etcd(seconds)


def growth(grown: dict[tuple[str, str, str], list[float]], sizes: tuple[int, ...]) -> Iterator[Figure]:
    """Compares the last two sizes: below them, costs that every cluster has hide the growth."""
    factor = sizes[-1] / sizes[-2]
    group = f"Growth from {' to '.join(f'{size:,}' for size in sizes)} nodes; what grows faster is NOT MET"
    for (what, how, unit), values in grown.items():
        if len(values) == len(sizes) and values[-2] > 0:
            bound, slack = (1.0, 2.0) if how == CONSTANT else (factor, 1.3)
            steps = " → ".join(f"{value:.3g}" for value in values)
            named = f"{what}{' (cpu µs)' if not unit else unit.replace(' ', ', ', 1)}: {steps}"
            peer = Peer(how, bound, slack, MEASURED)
            yield Figure(group=group, what=named, value=values[-1] / values[-2], unit="x", peer=peer)


def _pods(size: int, seconds: float) -> int:
    return size * max(1, min(PODS_OF_A_NODE, int(2 * seconds)))


def _cluster(size: int, seconds: float) -> Iterator[Measured]:
    pods = _pods(size, seconds)
    group = f"{size:,} nodes, {pods:,} pods, SQLite"
    with tempfile.TemporaryDirectory(dir=DISK, prefix="podwire-bench-") as folder:
        large_objects.fill("sqlite://", Path(folder) / "store", size, pods)
        server = _start(Path(folder))
        try:
            yield from _requests(server, group, seconds)
            yield _memory(server, group)
            yield from _watches(server, group, size, seconds)
            yield from _scheduling(server, Path(folder), group, size, seconds)
            yield from _hollow(Path(folder), group, size, seconds)
            server.stop()
            server = _start(Path(folder))
            yield from _storm(server, group)
        finally:
            server.stop()


def _start(folder: Path, *flags: str) -> Server:
    """Controllers would take the nodes for failed, which have no heartbeats before the hollow ones take them over."""
    server = Server(folder, "--controllers", "none", *flags)
    with contextlib.suppress(CannotMeasure):  # after a restart they are there
        server.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    with contextlib.suppress(CannotMeasure):  # its controller may have been quicker
        server.call("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": {"name": "default"}})
    return server


def _request(wire: Any, method: str, path: str, body: bytes | None = None, content: str = "application/json") -> bytes:
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": content}
    wire.request(method, path, body=body, headers=headers)
    answer = wire.getresponse()
    data: bytes = answer.read()
    if answer.status >= 400:
        raise CannotMeasure(f"{method} {path}: {answer.status} {data.decode()[:200]}")
    return data


def _timed(server: Server, seconds: float, work: Callable[[Any, int], object]) -> tuple[list[float], float]:
    """Returns milliseconds of each call, and the server's processor time for one, in microseconds."""
    took: list[float] = []
    with contextlib.closing(server.connect()) as wire:
        work(wire, 0)
        before, end = cpu_seconds(server.process.pid), time.perf_counter() + max(0.3, seconds / 5)
        while len(took) < 20 or time.perf_counter() < end:
            begun = time.perf_counter()
            work(wire, len(took) + 1)
            took.append((time.perf_counter() - begun) * 1e3)
    return took, (cpu_seconds(server.process.pid) - before) / len(took) * 1e6


def _latency(group: str, what: str, timed: tuple[list[float], float]) -> Measured:
    took, cpu = timed
    p99 = statistics.quantiles(took, n=100)[98]
    slo = Peer("SLO", 1000.0, 1.0, MEASURED)
    figure = Figure(group=group, what=what, value=p99, unit=" ms", p50_ms=statistics.median(took), p99_ms=p99,
                    cpu_us=cpu, peer=slo)  # fmt: skip
    return Measured(figure, CONSTANT, cpu)


def _requests(server: Server, group: str, seconds: float) -> Iterator[Measured]:
    def get(wire: Any, number: int) -> bytes:
        return _request(wire, "GET", f"{PODS}/pod-{number % 100}")

    def create(wire: Any, number: int) -> bytes:
        map_ = {"metadata": {"name": f"map-{time.time_ns()}-{number}"}, "data": {"a": "b"}}
        return _request(wire, "POST", f"/api/v1/namespaces/{NAMESPACE}/configmaps", msgspec.json.encode(map_))

    def patch(wire: Any, number: int) -> bytes:
        body = (STATUS_PATCH % time.time_ns()).encode()
        return _request(wire, "PATCH", f"{PODS}/pod-{number % 100}/status", body, STRATEGIC)

    def by_node(wire: Any, number: int) -> bytes:
        return _request(wire, "GET", f"/api/v1/pods?fieldSelector=spec.nodeName%3Dhollow-{number % 100}")

    yield _latency(group, "GET of a pod, p99", _timed(server, seconds, get))
    yield _latency(group, "POST of a ConfigMap, p99", _timed(server, seconds, create))
    yield _latency(group, "PATCH of a pod's status, p99", _timed(server, seconds, patch))
    yield _latency(group, "LIST of a node's pods, p99", _timed(server, seconds, by_node))
    before, begun = cpu_seconds(server.process.pid), time.perf_counter()
    with contextlib.closing(server.connect()) as wire:
        size = len(_request(wire, "GET", "/api/v1/pods"))
    took, cpu = (time.perf_counter() - begun) * 1e3, (cpu_seconds(server.process.pid) - before) * 1e6
    slo = Peer("SLO", 30_000.0, 1.0, MEASURED)
    figure = Figure(
        group=group, what="LIST of all pods", value=took, unit=" ms", cpu_us=cpu, peer=slo
    )  # fmt: skip
    if not size:
        raise CannotMeasure("the list of all pods is empty")
    yield Measured(figure, LINEAR, cpu)


def _memory(server: Server, group: str) -> Measured:
    used = memory_of(server.process.pid) / 1e6
    return Measured(Figure(group=group, what=MEMORY, value=used, unit=" MB"), LINEAR)


def _watches(server: Server, group: str, size: int, seconds: float) -> Iterator[Measured]:
    watches = min(size * WATCHES_OF_A_NODE, max(200, int(2000 * seconds)))
    before = memory_of(server.process.pid)
    command = [*on_core(-1), sys.executable, "-m", "benchmarks.node_watchers", str(server.port), str(watches)]
    patches = min(size, max(50, int(20 * seconds)))
    done = subprocess.Popen(
        [*command, str(size), str(patches)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "BENCH_TOKEN": TOKEN}, cwd=ROOT,
    )  # fmt: skip
    most = before
    while done.poll() is None:
        time.sleep(0.2)
        most = max(most, memory_of(server.process.pid))
    out, error = done.communicate()
    if done.returncode:
        raise CannotMeasure(f"the watchers failed: {error.strip()[-500:]}")
    delays = json.loads(out)
    slo = Peer("budget", 1000.0, 1.0, MEASURED)
    yield Measured(
        Figure(group=group, what=f"{watches:,} watches, sent → seen, p99", value=delays["p99"], unit=" ms",
               p50_ms=delays["p50"], p99_ms=delays["p99"], peer=slo)
    )  # fmt: skip
    yield Measured(
        Figure(group=group, what="memory of a watch, with TLS", value=max(0, most - before) / watches / 1e3, unit=" KB")
    )


@contextlib.contextmanager
def _component(folder: Path, name: str, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
    """A component in a process of its own; its log is NAME.log."""
    command = [*on_core(-1), *PODWIRE, name, "--kubeconfig", str(folder / "kubeconfig"), *flags]
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(command, stderr=log, stdout=log, cwd=ROOT)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGCONT)
            process.terminate()
            process.wait(DEADLINE)


def _wait_for_log(folder: Path, name: str, text: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + DEADLINE
    while text not in (folder / f"{name}.log").read_text(encoding="utf-8", errors="replace"):
        if time.monotonic() > end or process.poll() is not None:
            raise CannotMeasure(f"podwire {name} is not ready")
        time.sleep(0.1)


def _scheduling(server: Server, folder: Path, group: str, size: int, seconds: float) -> Iterator[Measured]:
    """Pods are created while the scheduler is stopped, so that their creation is not measured."""
    count = max(20, min(size * large_objects.DEVICES, int(100 * seconds)))
    with _component(folder, "scheduler", *ALONE) as scheduler:
        _wait_for_log(folder, "scheduler", "scheduler is synced", scheduler)
        for kind, goal in KINDS.items():
            scheduler.send_signal(signal.SIGSTOP)
            if kind == "claims":
                path = f"/apis/resource.k8s.io/v1/namespaces/{NAMESPACE}/resourceclaims"
                server.fill(path, map(large_objects.claim, range(count)))
            server.fill(PODS, (large_objects.pending_pod(kind, number) for number in range(count)))
            before, ours = cpu_seconds(scheduler.pid), cpu_seconds(server.process.pid)
            begun = time.perf_counter()
            scheduler.send_signal(signal.SIGCONT)
            _until_bound(server, kind, count)
            took = time.perf_counter() - begun
            cpu = (cpu_seconds(scheduler.pid) - before) / count * 1e6
            budget = Peer("goal", goal, 1.0, MEASURED) if goal else None
            figure = Figure(group=group, what=f"pods bound, {kind}", value=count / took, unit="/s", cpu_us=cpu,
                            peer=budget)  # fmt: skip
            yield Measured(figure, CONSTANT, cpu)
            per_pod = (cpu_seconds(server.process.pid) - ours) / count * 1e6
            figure = Figure(group=group, what=f"API server for a pod bound, {kind}", value=per_pod, unit=" µs")
            yield Measured(figure, CONSTANT)
        yield Measured(
            Figure(group=group, what="scheduler, memory", value=memory_of(scheduler.pid) / 1e6, unit=" MB"), LINEAR
        )


def _until_bound(server: Server, kind: str, count: int) -> None:
    """Watches metadata alone would not show the node, so pods without a node are counted."""
    path = f"/api/v1/namespaces/{NAMESPACE}/pods?fieldSelector=spec.nodeName%3D&labelSelector=kind%3D{kind}&limit=1"
    end = time.monotonic() + DEADLINE
    with contextlib.closing(server.connect()) as wire:
        while msgspec.json.decode(_request(wire, "GET", path))["items"]:
            if time.monotonic() > end:
                raise CannotMeasure(f"{count} pods ({kind}) were not bound in {DEADLINE:.0f} s")
            time.sleep(0.02)


def _hollow(folder: Path, group: str, size: int, seconds: float) -> Iterator[Measured]:
    """The nodes and pods of the cluster are taken over; then new pods start at a steady rate."""
    driver = f"{large_objects.DRIVER}={large_objects.DEVICES}"
    flags = ["--nodes", str(size), "--zones", str(large_objects.ZONES), "--dra-device", driver, "--no-events", "--keep"]
    with _component(folder, "hollow", *flags) as hollow, _component(folder, "scheduler", *ALONE) as scheduler:
        _wait_for_log(folder, "hollow", "registered hollow nodes", hollow)
        _wait_for_log(folder, "scheduler", "scheduler is synced", scheduler)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            took = runner.run(_start_pods(folder, max(20, int(10 * seconds))))
        p99 = statistics.quantiles(took, n=100)[98] * 1e3
        slo = Peer("SLO", 5000.0, 1.0, MEASURED)
        yield Measured(
            Figure(group=group, what="POST → Running on a hollow node, p99", value=p99, unit=" ms",
                   p50_ms=statistics.median(took) * 1e3, p99_ms=p99, peer=slo)
        )  # fmt: skip
        before, begun = cpu_seconds(hollow.pid), time.monotonic()
        time.sleep(max(2.0, seconds))
        cpu = (cpu_seconds(hollow.pid) - before) / (time.monotonic() - begun) * 100
        yield Measured(Figure(group=group, what="hollow nodes, processor", value=cpu, unit=" %"))
        yield Measured(
            Figure(group=group, what="hollow nodes, memory", value=memory_of(hollow.pid) / 1e6, unit=" MB"), LINEAR
        )


async def _start_pods(folder: Path, count: int) -> list[float]:
    """Seconds from the POST of each pod until a watch shows it Running; ten pods a second."""
    from podwire.protocols.k8sapi.client_side import Client, Scope  # noqa: PLC0415 - for this measurement alone
    from podwire.protocols.k8sapi.watch import Added, Synced, Updated  # noqa: PLC0415
    from podwire.scheduler.kinds import PODS as POD_KIND  # noqa: PLC0415
    from podwire.transports import credentials, http_client  # noqa: PLC0415

    sent: dict[str, float] = {}
    took: list[float] = []
    async with (
        asyncio.timeout(DEADLINE),
        http_client.connect(credentials.load(folder / "kubeconfig")) as http,
        Client(http).informer(POD_KIND, Scope(namespace=NAMESPACE, label_selector="kind=started")) as informer,
    ):
        api, synced = Client(http), asyncio.Event()

        async def create() -> None:
            await synced.wait()
            for number in range(count):
                made = large_objects.pending_pod("started", number)
                made["metadata"] |= {"namespace": NAMESPACE}
                sent[made["metadata"]["name"]] = time.perf_counter()
                await api.create({"apiVersion": "v1", "kind": "Pod", **made})
                await asyncio.sleep(0.1)

        creating = asyncio.ensure_future(create())
        async for change in informer:
            if isinstance(change, Synced):
                synced.set()
            elif isinstance(change, Added | Updated) and change.object["status"].get("phase") == "Running":
                begun = sent.pop(change.object["metadata"]["name"], None)
                if begun is not None:
                    took.append(time.perf_counter() - begun)
                if len(took) == count:
                    break
        await creating
    await asyncio.sleep(0.5)  # connections end with TLS, after their session
    return took


def _storm(server: Server, group: str) -> Iterator[Measured]:
    """After a restart all components list at once; a small GET shows what that does to others."""
    stalls: list[float] = []
    failed: list[BaseException] = []

    def list_all() -> None:
        try:
            with contextlib.closing(server.connect()) as wire:
                _request(wire, "GET", "/api/v1/pods")
        except (CannotMeasure, OSError) as error:
            failed.append(error)

    threads = [threading.Thread(target=list_all) for _ in range(LISTS_AFTER_RESTART)]
    before, begun = cpu_seconds(server.process.pid), time.perf_counter()
    for thread in threads:
        thread.start()
    with contextlib.closing(server.connect()) as wire:
        while not stalls or any(thread.is_alive() for thread in threads):
            asked = time.perf_counter()
            _request(wire, "GET", f"/api/v1/namespaces/{NAMESPACE}")
            stalls.append((time.perf_counter() - asked) * 1e3)
            time.sleep(0.01)
    if failed:
        raise CannotMeasure(f"a list after the restart failed: {failed[0]}")
    took, cpu = (time.perf_counter() - begun) * 1e3, (cpu_seconds(server.process.pid) - before) * 1e6
    slo = Peer("SLO", 30_000.0, 1.0, MEASURED)
    yield Measured(
        Figure(group=group, what=f"restart, then {LISTS_AFTER_RESTART} LISTs of all pods at once", value=took,
               unit=" ms", cpu_us=cpu, peer=slo), LINEAR, cpu,
    )  # fmt: skip
    small = Peer("SLO", 1000.0, 1.0, MEASURED)
    yield Measured(
        Figure(group=group, what="small GET meanwhile, worst", value=max(stalls), unit=" ms",
               p50_ms=statistics.median(stalls), peer=small)
    )  # fmt: skip


def _etcd(seconds: float) -> Iterator[Figure]:
    """The same requests over etcd, with the middle size."""
    size = SIZES[len(SIZES) // 2]
    pods = _pods(size, seconds)
    with etcd_server() as url, tempfile.TemporaryDirectory(dir=DISK, prefix="podwire-bench-") as folder:
        if not url:
            return
        time.sleep(1)
        large_objects.fill(url, Path(folder) / "store", size, pods)
        server = _start(Path(folder), "--store", url)
        try:
            for measured in _requests(server, f"{size:,} nodes, {pods:,} pods, etcd", seconds):
                yield measured.figure
        finally:
            server.stop()
