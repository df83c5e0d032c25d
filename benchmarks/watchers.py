"""The clients of the watch benchmark: `python -m benchmarks.watchers PORT WATCHERS RATE SECONDS`.

The token comes in BENCH_TOKEN.

Watchers and the one that patches are raw connections on one event loop, so that the time between sent and seen is the
server's and not a client library's. Every patch carries the time at which it was sent.
"""

import asyncio
import gc
import json
import os
import ssl
import statistics
import sys
import time
from collections import deque
from typing import cast

import uvloop

from benchmarks.server import untrusting
from benchmarks.workload import PODS

MARK = b'"bench-sent":"'
PATIENCE = 30.0
"""Seconds besides the measurement after which it counts as hung."""

SETTLE = 1.0
"""Seconds in which the last events may arrive, and whatever is made on first use is made."""


class Watcher(asyncio.Protocol):
    """Notes how old every mark is that comes in."""

    def __init__(self, ages: list[float]) -> None:
        self.ages = ages
        self.opened = asyncio.get_running_loop().create_future()
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast("asyncio.Transport", transport).write(_head("GET", f"{PODS}?watch=true") + b"\r\n")

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter_ns()
        if not self.opened.done():
            self.opened.set_result(data.split(b"\r\n", 1)[0])
        data = self._rest + data
        at = data.find(MARK)
        while at >= 0 and (end := data.find(b'"', at + len(MARK))) >= 0:
            self.ages.append((now - int(data[at + len(MARK) : end])) / 1e6)
            data = data[end:]
            at = data.find(MARK)
        self._rest = data[at:] if at >= 0 else data[-len(MARK) :]


def _head(method: str, path: str) -> bytes:
    token = os.environ["BENCH_TOKEN"]
    return f"{method} {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {token}\r\n".encode()


async def patch(port: int, context: ssl.SSLContext, rate: float, seconds: float, took: list[float]) -> int:
    """Patch at a steady rate, late or not; the number of patches. `took` gets the milliseconds of each."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    sent: deque[float] = deque()
    answers = asyncio.create_task(_drain(reader, sent, took))
    begin, count = time.perf_counter(), int(rate * seconds)
    for number in range(count):
        await asyncio.sleep(begin + number / rate - time.perf_counter())
        body = b'{"metadata":{"annotations":{"bench-sent":"%d"}}}' % time.perf_counter_ns()
        head = _head("PATCH", f"{PODS}/pod-0") + b"Content-Type: application/merge-patch+json\r\n"
        sent.append(time.perf_counter())
        writer.write(b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body))
    await asyncio.sleep(SETTLE)
    writer.close()
    await answers
    return count


async def _drain(reader: asyncio.StreamReader, sent: deque[float], took: list[float]) -> None:
    """Read the answers, which come in the order of the requests."""
    while data := await reader.read(1 << 16):
        now = time.perf_counter()
        took += [(now - sent.popleft()) * 1e3 for _ in range(data.count(b"HTTP/1.1 "))]


async def main(port: int, watchers: int, rate: float, seconds: float) -> dict[str, float]:
    context, ages = untrusting(), list[float]()
    loop = asyncio.get_running_loop()
    wires = []
    for _ in range(watchers):
        wire, watcher = await loop.create_connection(lambda: Watcher(ages), "127.0.0.1", port, ssl=context)
        wires.append(wire)
        status = await watcher.opened
        if b" 200 " not in status:
            raise SystemExit(f"watch: {status.decode()}")
    took: list[float] = []
    await patch(port, context, rate, 0.5, took)
    ages.clear()
    took.clear()
    gc.freeze()
    gc.disable()  # the clients' pauses are not the server's
    sent = await patch(port, context, rate, seconds, took)
    for wire in wires:
        wire.close()
    if len(ages) != sent * watchers:
        raise SystemExit(f"{sent} patches to {watchers} watchers, but {len(ages)} events were seen")
    cuts = statistics.quantiles(ages, n=100)
    return {"p50": cuts[49], "p99": cuts[98], "max": max(ages), "write p50": statistics.median(took)}


if __name__ == "__main__":
    port_, watchers_, rate_, seconds_ = sys.argv[1:]
    work = main(int(port_), int(watchers_), float(rate_), float(seconds_))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        told = runner.run(asyncio.wait_for(work, float(seconds_) + PATIENCE))
    sys.stdout.write(json.dumps(told) + "\n")
