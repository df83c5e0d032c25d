# ruff: noqa: INP001 - a script, not a package
"""Durable creates per second by number of callers: `python bench/store.py [URL] [SECONDS]`, sqlite:// by default."""

import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path

from podwire.store import AnyStore, open_store

CALLERS = (1, 8, 64)
VALUE = b"x" * 4600
BASE = "/var/tmp"  # noqa: S108 - a real disk; /tmp may be memory


async def measure(store: AnyStore, callers: int, seconds: float, run: str) -> list[float]:
    """The latency of every create within so many seconds."""
    latencies: list[float] = []
    end = time.perf_counter() + seconds

    async def create(caller: int) -> None:
        number = 0
        while (start := time.perf_counter()) < end:
            await store.create(f"/registry/pods/{run}-{caller}/pod-{number}", VALUE)
            latencies.append(time.perf_counter() - start)
            number += 1

    await asyncio.gather(*(create(caller) for caller in range(callers)))
    return latencies


async def main(url: str = "sqlite://", seconds: str = "3") -> None:
    """A fresh store for each number of callers."""
    for callers in CALLERS:
        with tempfile.TemporaryDirectory(dir=BASE, prefix="podwire-bench-") as directory:
            store = await open_store(url, Path(directory))
            latencies = await measure(store, callers, float(seconds), f"{time.time_ns()}")
            await store.close()
        cuts = statistics.quantiles(latencies, n=100)
        line = f"{callers:3} callers {len(latencies) / float(seconds):8.0f}/s"
        sys.stdout.write(f"{line}   p50 {cuts[49] * 1e3:6.2f} ms   p99 {cuts[98] * 1e3:6.2f} ms\n")


asyncio.run(main(*sys.argv[1:]))
