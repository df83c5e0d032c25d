"""Cost of a tap for the call that it watches: one process records, another collects, and the caller's time is taken.

A hop is one record: made, encoded and sent. The bodies are those of a small pod. The collector works meanwhile, on the
same machine, as it does under `podwire up`.
"""

import asyncio
import contextlib
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec

from benchmarks.figures import MEASURED, Figure, Peer
from podwire.cluster.tracing import CollectorOptions, collect
from podwire.protocols.cri import cri_pb2 as pb
from podwire.trace.recorder import Recorder
from podwire.transports.datagrams import Sender
from podwire.transports.tapped import Stored, Tapped
from podwire.transports.tapped_http import TappedExchange, TappedRequest

BUDGET = Peer("budget", 25.0, 1.0, MEASURED)
ROUND = 20
"""Calls in a burst, as a pod's start makes them; between bursts the collector may catch up."""


def measure(seconds: float) -> Iterator[Figure]:
    for what, tapped, call in _cases():
        with tempfile.TemporaryDirectory(prefix="podwire-bench-") as folder, _collected(Path(folder)) as recorder:
            micros = _cost(call, Tapped(recorder if tapped else None, caller="a", callee="b"), seconds)
        peer = BUDGET if tapped else None
        yield Figure(group="trace, the caller's time for one hop", what=what, value=micros, unit=" µs", peer=peer)


def _cases() -> Iterator[tuple[str, bool, Callable[[Tapped], None]]]:
    body = msgspec.json.encode({"kind": "Pod", "metadata": {"uid": "x" * 36}, "spec": {"filler": ["word"] * 400}})
    variables = [{"name": f"VARIABLE_{number}", "value": "value"} for number in range(20)]
    spec = {"containers": [{"name": "web", "env": variables}], "filler": ["word"] * 250}
    with_variables = msgspec.json.encode({"kind": "Pod", "metadata": {"uid": "x" * 36}, "spec": spec})
    run = pb.RunPodSandboxRequest()
    run.config.metadata.uid = "x" * 36
    run.config.annotations.update({f"annotation-{number}": "value" for number in range(20)})
    create = pb.CreateContainerRequest(pod_sandbox_id="x" * 64, sandbox_config=run.config)
    for number in range(20):
        create.config.envs.add(key=f"VARIABLE_{number}", value=b"value")

    def http(tapped: Tapped, body: bytes) -> None:
        asked = TappedRequest({"user-agent": "kubectl/v1.32", "content-type": "application/json"}, body)
        with tapped.call("POST /api/v1/namespaces/default/pods", asked) as passing:
            passing.answered(TappedExchange(asked, "application/json", body), "201")

    def store(tapped: Tapped) -> None:
        with tapped.call("create /registry/pods/default/web", Stored(body)):
            pass

    def cri(tapped: Tapped) -> None:
        with tapped.call("RunPodSandbox", run) as passing:
            passing.answered(pb.RunPodSandboxResponse(pod_sandbox_id="x" * 64))

    def create_container(tapped: Tapped) -> None:
        with tapped.call("CreateContainer", create) as passing:
            passing.answered(pb.CreateContainerResponse(container_id="x" * 64))

    yield "nobody watches", False, cri
    yield "POST of a pod (3 KB there, 3 KB back)", True, partial(http, body=body)
    yield "POST of a pod with 20 variables, which are hidden", True, partial(http, body=with_variables)
    yield "the store keeps a pod", True, store
    yield "RunPodSandbox", True, cri
    yield "CreateContainer with 20 variables, which are hidden", True, create_container


def _cost(call: Callable[[Tapped], None], tapped: Tapped, seconds: float) -> float:
    """The median over bursts of the microseconds of one hop; a call is two."""
    until = time.monotonic() + seconds
    bursts = []
    while time.monotonic() < until:
        begin = time.perf_counter_ns()
        for _ in range(ROUND):
            call(tapped)
        bursts.append((time.perf_counter_ns() - begin) / (2 * ROUND) / 1000)
        time.sleep(0.005)
    return statistics.median(bursts)


@contextlib.contextmanager
def _collected(folder: Path) -> Iterator[Recorder]:
    socket = folder / "trace.sock"
    process = multiprocessing.get_context("spawn").Process(target=_collect, args=(folder,), daemon=True)
    process.start()
    try:
        while not socket.exists():
            time.sleep(0.01)
        yield Recorder(Sender(socket).send, "Benchmark")
    finally:
        process.terminate()
        process.join()


def _collect(folder: Path) -> None:
    asyncio.run(collect(CollectorOptions(socket=folder / "trace.sock", directory=folder / "trace")))
