"""Costs of the live page: processor time and memory of its process while starts are recorded, and its first answer.

The page runs in a process of its own, with a client that reads its events, while records of starts are written as the
collector writes them. The cost of a start is the processor time of the page for one start.
"""

import asyncio
import contextlib
import multiprocessing
import resource
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec

from benchmarks.figures import MEASURED, Figure, Peer
from podwire.linux.proc.processes import memory_of
from podwire.protocols.k8sapi.kubeconfig import Access
from podwire.trace.record import Record, encode
from podwire.trace.segments import Writer
from podwire.web.server import Options, serving

START_MS = 100.0
"""Of a pod on a quiet machine, until Running; the page may cost a twentieth of it."""
HOPS = 45
"""Calls of a start."""
GROUP = "live page"


def measure(seconds: float) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="podwire-bench-") as folder:
        directory = Path(folder)
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.get_context("spawn").Process(target=_serve, args=(theirs, directory), daemon=True)
        process.start()
        try:
            link = ours.recv()
            yield from _figures(link, directory, ours, process.pid or 0, seconds)
        finally:
            process.terminate()
            process.join()


def _figures(link: str, directory: Path, ours: Connection, pid: int, seconds: float) -> Iterator[Figure]:
    origin, _, token = link.partition("/?token=")
    answers = [_get(link) for _ in range(20)]
    paint = Peer("budget", 300.0, 1.0, MEASURED)
    yield Figure(group=GROUP, what="the page itself, first answer", value=min(answers) * 1000, unit=" ms", peer=paint)
    before = memory_of(pid)
    events = urllib.request.Request(f"{origin}/api/events", headers={"Authorization": f"Bearer {token}"})  # noqa: S310 - our own server
    with contextlib.closing(urllib.request.urlopen(events)):  # noqa: S310 - as above
        writer = Writer(directory)
        ours.send("cpu")
        begun, started, until = ours.recv(), 0, time.monotonic() + seconds
        while time.monotonic() < until:
            writer.write([encode(record) for record in _start(started)])
            started += 1
            time.sleep(0.1)
        ours.send("cpu")
        spent = (ours.recv() - begun) / started * 1000
    yield Figure(
        group=GROUP, what="processor time for one start", value=spent, unit=" ms", peer=Peer("start", START_MS, 0.05)
    )
    grown = Peer("budget", 30.0, 1.0, MEASURED)
    size = (memory_of(pid) - before) / 1e6
    yield Figure(group=GROUP, what=f"memory for {started} starts", value=max(size, 0.1), unit=" MB", peer=grown)


def _get(link: str) -> float:
    begun = time.perf_counter()
    with urllib.request.urlopen(link) as answer:  # noqa: S310 - our own server
        answer.read()
    return time.perf_counter() - begun


def _start(number: int) -> list[Record]:
    """The records of one start."""
    pod, now = f"{number:032x}", time.time()
    detail = {"namespace": "default", "name": f"web-{number}", "filler": "x" * 600}
    records = []
    for call in range(HOPS):
        one = Record(
            id=f"Kubelet-1.{number}-{call}",
            seq=2 * (number * HOPS + call) + 1,
            time=now + call / 1000,
            caller="Kubelet",
            callee="ContainerRuntime",
            method="RunPodSandbox",
            pod=pod,
            detail=detail,
        )
        records += [one, msgspec.structs.replace(one, seq=one.seq + 1, outcome="OK", time=one.time + 0.0005)]
    return records


def _serve(pipe: Connection, directory: Path) -> None:
    async def run() -> None:
        options = Options(access=Access(server="http://127.0.0.1:9"), traces=directory)
        async with serving(options) as served:
            pipe.send(served.link)
            while True:
                await asyncio.to_thread(pipe.recv)
                usage = resource.getrusage(resource.RUSAGE_SELF)
                pipe.send(usage.ru_utime + usage.ru_stime)

    asyncio.run(run())
