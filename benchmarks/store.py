"""Durable creates per second by number of callers: SQLite, and etcd through our own store over it."""

import asyncio
import contextlib
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figures import MEASURED, Figure, Peer
from benchmarks.machine import DISK, CannotMeasure, program
from podwire.store import AnyStore, open_store

CALLERS = (1, 8, 64)
VALUE = b"x" * 4600
GROUP = "Store, durable creates of 4.6 KB"


def measure(seconds: float) -> Iterator[Figure]:
    """A fresh SQLite file and one etcd for all numbers of callers, turn by turn."""
    with etcd_server() as etcd:
        for callers in CALLERS:
            theirs = asyncio.run(_creates(etcd, callers, seconds)) if etcd else []
            ours = asyncio.run(_creates("sqlite://", callers, seconds))
            peer = Peer("etcd", len(theirs) / seconds, 1.0, MEASURED) if theirs else None
            yield _figure(f"SQLite, {callers} callers", ours, seconds, peer)
            if theirs:
                yield _figure(f"etcd, {callers} callers", theirs, seconds, None)


def _figure(what: str, latencies: list[float], seconds: float, peer: Peer | None) -> Figure:
    cuts = statistics.quantiles(latencies, n=100)
    what = what.replace(" 1 callers", " 1 caller")
    rate, p50, p99 = len(latencies) / seconds, cuts[49] * 1e3, cuts[98] * 1e3
    return Figure(group=GROUP, what=what, value=rate, unit="/s", p50_ms=p50, p99_ms=p99, peer=peer)


async def _creates(url: str, callers: int, seconds: float) -> list[float]:
    """The latency of every create within so many seconds."""
    with tempfile.TemporaryDirectory(dir=DISK, prefix="podwire-bench-") as folder:
        store = await open_store(url, Path(folder))
        try:
            return await _callers(store, callers, seconds)
        finally:
            await store.close()


async def _callers(store: AnyStore, callers: int, seconds: float) -> list[float]:
    latencies: list[float] = []
    run, end = time.time_ns(), time.perf_counter() + seconds

    async def create(caller: int) -> None:
        number = 0
        while (start := time.perf_counter()) < end:
            await store.create(f"/registry/pods/{run}-{caller}/pod-{number}", VALUE)
            latencies.append(time.perf_counter() - start)
            number += 1

    await asyncio.gather(*(create(caller) for caller in range(callers)))
    return latencies


@contextlib.contextmanager
def etcd_server() -> Iterator[str]:
    """The URL of an etcd that is gone afterwards; empty where the machine has none."""
    try:
        binary = program("etcd")
    except CannotMeasure:
        yield ""
        return
    client, peer = (f"http://127.0.0.1:{_free_port()}" for _ in range(2))
    with tempfile.TemporaryDirectory(dir=DISK, prefix="podwire-bench-") as folder:
        command = [binary, "--data-dir", f"{folder}/data", "--log-level", "error"]
        command += ["--listen-client-urls", client, "--advertise-client-urls", client]
        command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        command += ["--initial-cluster", f"default={peer}"]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            yield client.replace("http://", "etcd://")
        finally:
            process.terminate()
            process.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
